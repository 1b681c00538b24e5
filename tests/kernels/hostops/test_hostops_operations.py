"""Operations that no recorded program has, by hand-made examples and plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.kernels.hostops import HostTensor, UnsupportedHostOp
from nmpsim.lir.host_execution import execute_operation, find_unsupported_reason

F32, I8, I16 = np.float32, np.int8, np.int16
Array = npt.NDArray[Any]


def make_tensor(values: Any, dtype: Any = F32) -> HostTensor:
    return HostTensor(np.array(values, dtype=dtype))


def make_output(
    shape: Sequence[int], dtype: Any = F32, scale: float = 1.0, offset: int = 0
) -> HostTensor:
    return HostTensor(np.zeros(shape, dtype=dtype), scale, offset, quantized=dtype in (I8, I16))


def run_operation(opcode: str, operands: list[HostTensor], **attributes: Any) -> Array:
    return execute_operation(opcode, operands, attributes).outputs[0]


def convolve_naively(
    x: Array, weights: Array, bias: Array, strides: int, pads: Sequence[int], group: int, apart: int
) -> Array:
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    out_channels, kernel_y, kernel_x, depth = weights.shape
    rows = (padded.shape[1] - (kernel_y - 1) * apart - 1) // strides + 1
    columns = (padded.shape[2] - (kernel_x - 1) * apart - 1) // strides + 1
    y = np.zeros((x.shape[0], rows, columns, out_channels))
    for n, r, c, o in np.ndindex(y.shape):
        first = o // (out_channels // group) * depth
        for ky, kx, i in np.ndindex(kernel_y, kernel_x, depth):
            value = padded[n, r * strides + ky * apart, c * strides + kx * apart, first + i]
            y[n, r, c, o] += value * weights[o, ky, kx, i]
    return y + bias


def test_float_products_are_summed_in_order() -> None:
    """To the bit, whatever the processor: each term is rounded to float32, then the sum."""
    random = np.random.default_rng(8)
    x = random.normal(size=(1, 3, 3, 70)).astype(F32)
    weights = random.normal(size=(2, 2, 2, 70)).astype(F32)
    bias = random.normal(size=2).astype(F32)
    y = run_operation(
        "convolution",
        [make_output((1, 2, 2, 2)), make_tensor(x), make_tensor(weights), make_tensor(bias)],
        Kernels=(2, 2),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        Group=1,
        Dilation=(1, 1),
    )
    rows = x[:, 1:, 1:].reshape(1, -1)
    product = run_operation(
        "matmul", [make_output((1, 2)), make_tensor(rows), make_tensor(np.ones((280, 2)))]
    )
    for r, c, o in np.ndindex(2, 2, 2):
        terms = (x[0, r : r + 2, c : c + 2] * weights[o]).reshape(-1)
        assert y[0, r, c, o] == sum_in_order(terms) + bias[o]
    assert product.tolist() == [[sum_in_order(rows[0])] * 2]


def sum_in_order(terms: Array) -> Any:
    total = F32(0)
    for term in terms:
        total += term
    return total


@pytest.mark.parametrize(
    ("strides", "pads", "group", "apart"),
    [(1, (1, 1, 1, 1), 1, 1), (2, (0, 1, 2, 0), 2, 1), (1, (2, 2, 2, 2), 4, 2)],
)
@pytest.mark.parametrize("dtype", [F32, I8, I16])
def test_convolution_against_plain_loops(
    strides: int, pads: tuple[int, ...], group: int, apart: int, dtype: Any
) -> None:
    random = np.random.default_rng(2)
    x, weights, bias = (
        random.integers(-3, 4, shape).astype(dtype)
        for shape in ((2, 6, 5, 4), (8, 3, 3, 4 // group), (8,))
    )
    expected = convolve_naively(x, weights, bias, strides, pads, group, apart)
    y = execute_operation(
        "convolution",
        [
            make_output(expected.shape, dtype),
            make_tensor(x, dtype),
            make_tensor(weights, dtype),
            make_tensor(bias, dtype),
        ],
        {
            "Kernels": (3, 3),
            "Strides": (strides, strides),
            "Pads": pads,
            "Group": group,
            "Dilation": (apart, apart),
        },
    )
    limits = (-128, 127) if dtype is I8 else (-32768, 32767)
    np.testing.assert_array_equal(y.outputs[0], np.clip(expected, *limits))


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        ("NONE", (), [-20, 4, 20]),
        ("RELU", (), [0, 4, 20]),
        ("CLIP", (0.0, 6.0), [0, 4, 6]),
        ("LEAKY_RELU", (0.25,), [-5, 4, 20]),
    ],
)
@pytest.mark.parametrize("dtype", [F32, I8, I16])
def test_fused_activations_are_applied(
    kind: str, arguments: Any, expected: list[int], dtype: Any
) -> None:
    attributes = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Group": 1}
    operands = [
        make_output((1, 1, 3, 1), dtype),
        make_tensor(np.reshape([-20, 4, 20], (1, 1, 3, 1)), dtype),
        make_tensor(np.ones((1, 1, 1, 1)), dtype),
        make_tensor([0], dtype),
    ]
    fused = {"FusedActivation": kind, "FusedActivationArgs": arguments}
    assert (
        run_operation("convolution", operands, **attributes, **fused).ravel().tolist() == expected
    )


def test_unknown_fused_activation_is_refused() -> None:
    attributes = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Group": 1}
    one = np.ones((1, 1, 1, 1))
    operands = [
        make_output((1, 1, 1, 1), I8),
        make_tensor(one, I8),
        make_tensor(one, I8),
        make_tensor([0], I8),
    ]
    with pytest.raises(UnsupportedHostOp, match="TANH has no quantized form"):
        run_operation("convolution", operands, **attributes, FusedActivation="TANH")


def test_max_pool_with_argmax_takes_the_last_of_equals() -> None:
    x = make_tensor(np.reshape([5, 5, 1, 5, 2, 2, 2, 9], (2, 2, 2, 1)), I8)
    attributes = {"Kernels": (2, 2), "Strides": (2, 2), "Pads": (0, 0, 0, 0), "Layout": 0}
    result = execute_operation(
        "maxpoolwithargmax",
        [make_output((2, 1, 1, 1), I8), x, make_output((2, 1, 1, 1), np.int64)],
        attributes,
    )
    assert result.outputs[0].ravel().tolist() == [5, 9]
    assert result.outputs[2].ravel().tolist() == [3, 7]


def test_window_wholly_in_padding_is_real_zero() -> None:
    attributes = {"Kernels": (1, 1), "Strides": (2, 2), "Pads": (1, 1, 0, 0), "Layout": 0}
    x = HostTensor(np.full((1, 2, 2, 1), -7, dtype=I8), 1.0, 3, quantized=True)
    y = run_operation("maxpool", [make_output((1, 2, 2, 1), I8, 1.0, 3), x], **attributes)
    assert y.ravel().tolist() == [3, 3, 3, -7]
    mean = run_operation(
        "avgpool", [make_output((1, 2, 2, 1), I8, 1.0, 3), x], **attributes, CountIncludePads=0
    )
    assert mean.ravel().tolist() == [3, 3, 3, -7]


def test_other_layouts_are_refused() -> None:
    attributes = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Layout": 1}
    with pytest.raises(UnsupportedHostOp, match=r"but only 0 \(NHWC\) is supported"):
        run_operation(
            "maxpool", [make_output((1, 1, 1, 1)), make_output((1, 1, 1, 1))], **attributes
        )


def test_moves_equal_numpy() -> None:
    x = make_tensor(np.arange(6).reshape(2, 3))
    assert run_operation("copy", [make_output((2, 3)), x]).tolist() == x.values.tolist()
    turned = run_operation("transpose", [make_output((3, 2)), x], Shuffle=(1, 0))
    np.testing.assert_array_equal(turned, x.values.T)
    part = run_operation("extracttensor", [make_output((1, 2)), x], Offsets=(1, 1))
    assert part.tolist() == [[4, 5]]
    twice = run_operation(
        "inserttensor",
        [make_output((3, 6)), make_tensor([[1, 2]])],
        Offsets=(1, 1),
        Count=2,
        Axis=1,
    )
    assert twice.tolist() == [[0] * 6, [0, 1, 2, 1, 2, 0], [0] * 6]
    wide = run_operation("resizenearest", [make_output((2, 6)), x], Scale=(1.0, 2.0))
    assert wide.tolist() == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]
    assert execute_operation("touch", [x], {}).outputs == {}


def test_insert_and_extract_check_bounds() -> None:
    with pytest.raises(UnsupportedHostOp, match="exceeds the shape"):
        run_operation("extracttensor", [make_output((2, 2)), make_output((2, 3))], Offsets=(0, 2))
    with pytest.raises(UnsupportedHostOp, match="exceeds the shape"):
        run_operation(
            "inserttensor", [make_output((2,)), make_output((2,))], Offsets=(0,), Count=2, Axis=0
        )


def test_splat_fills_a_tensor() -> None:
    assert run_operation("splat", [make_output((2,))], Value=0.5).tolist() == [0.5, 0.5]
    assert run_operation("splat", [make_output((2,), I16, 0.001, 1)], Value=1.0).tolist() == [
        1001,
        1001,
    ]
    assert run_operation("splat", [make_output((2,), I8, 0.001)], Value=1.0).tolist() == [127, 127]
    assert run_operation("splat", [make_output((1,), np.int64)], Value=3.0).tolist() == [3]


@pytest.mark.parametrize(("dtype", "entries"), [(I8, 256), (I16, 65536)])
def test_lookup_tables_are_applied(dtype: Any, entries: int) -> None:
    low = int(np.iinfo(dtype).min)
    mapping = make_tensor(np.arange(low, low + entries)[::-1], dtype)
    y = run_operation(
        "intlookuptable", [make_output((3,), dtype), make_tensor([low, 0, 5], dtype), mapping]
    )
    assert y.tolist() == [-low - 1, -1, -6]
    with pytest.raises(UnsupportedHostOp, match="entries"):
        run_operation(
            "intlookuptable",
            [make_output((1,), dtype), make_tensor([0], dtype), make_tensor([0, 1], dtype)],
        )


def test_plain_integers_of_index_kinds() -> None:
    lhs, rhs, dest = (make_tensor(v, np.int32) for v in ([-7, 7, 5], [2, -2, 0], [0, 0, 0]))
    assert run_operation("elementdiv", [dest, lhs, rhs]).tolist() == [-3, -3, 0]
    assert run_operation("elementmul", [dest, lhs, rhs]).tolist() == [-14, -14, 0]
    quantized = HostTensor(lhs.values, 0.5, quantized=True)
    with pytest.raises(UnsupportedHostOp, match="only int8 and int16 are supported"):
        run_operation("elementadd", [dest, quantized, rhs])


@pytest.mark.parametrize("dtype", [I8, I16])
def test_quantized_division_equals_a_plain_loop(dtype: Any) -> None:
    lhs = HostTensor(np.array([10, 10, -10, 0], dtype=dtype), 0.5, quantized=True)
    rhs = HostTensor(np.array([4, 0, 0, 0], dtype=dtype), 0.25, quantized=True)
    limits = np.iinfo(dtype)
    y = run_operation("elementdiv", [make_output((4,), dtype, 0.5, 1), lhs, rhs])
    assert y.tolist() == [11, limits.max, limits.min, 1]


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("elementcmplte", [True, True, False]),
        ("elementcmplt", [True, False, False]),
        ("elementcmpeq", [False, True, False]),
        ("elementcmpneq", [True, False, True]),
    ],
)
@pytest.mark.parametrize("dtype", [F32, I8, I16, np.int64])
def test_comparisons_return_booleans(opcode: str, expected: list[bool], dtype: Any) -> None:
    lhs, rhs = make_tensor([1, 2, 3], dtype), make_tensor([2, 2, 2], dtype)
    assert run_operation(opcode, [make_output((3,), np.bool_), lhs, rhs]).tolist() == expected


def test_select_int8_rescales_each_side() -> None:
    condition = make_tensor([True, False], np.bool_)
    lhs = HostTensor(np.array([3, 3], dtype=I8), 1.0, quantized=True)
    rhs = HostTensor(np.array([3, 3], dtype=I8), 0.25, quantized=True)
    for dtype in (I8, I16):
        sides = [HostTensor(s.values.astype(dtype), s.scale, quantized=True) for s in (lhs, rhs)]
        y = run_operation("elementselect", [make_output((2,), dtype, 0.5), condition, *sides])
        assert y.tolist() == [6, 2]


def test_select_counts_only_selected_values() -> None:
    condition = HostTensor(np.array([True, False]))
    lhs = HostTensor(np.array([100, 100], dtype=I8), 0.5, quantized=True)
    rhs = HostTensor(np.array([0, 0], dtype=I8), 0.5, quantized=True)
    result = execute_operation(
        "elementselect", [make_output((2,), I8, 3e-10), condition, lhs, rhs], {}
    )
    (saturated,) = result.overshoots
    assert saturated.stage == "rescale"
    assert np.flatnonzero(saturated.overshoot).tolist() == [0]


@pytest.mark.parametrize("dtype", [F32, I8, I16])
def test_batched_sums_equal_numpy(dtype: Any) -> None:
    batch = make_tensor([[1, 2], [3, 4], [5, 6]], dtype)
    assert run_operation(
        "batchedreduceadd", [make_output((2,), dtype), batch], Axis=0
    ).tolist() == [9, 12]
    assert run_operation(
        "batchedreduceadd", [make_output((3,), dtype), batch], Axis=1
    ).tolist() == [3, 7, 11]
    added = run_operation(
        "batchedadd", [make_output((3, 2), dtype), batch, make_tensor([10, 20], dtype)]
    )
    assert added.tolist() == [[11, 22], [13, 24], [15, 26]]


@pytest.mark.parametrize("dtype", [F32, I8, I16])
def test_activations_equal_a_plain_loop(dtype: Any) -> None:
    x = make_tensor([-8, 0, 8], dtype)
    dest = make_output((3,), dtype)
    assert run_operation("relu", [dest, x]).tolist() == [0, 0, 8]
    assert run_operation("clip", [dest, x], Min=-2.0, Max=6.0).tolist() == [-2, 0, 6]
    assert run_operation("cpumaxsplat", [dest, x], SplatValue=-1.0).tolist() == [-1, 0, 8]
    assert run_operation("leakyrelu", [dest, x], Alpha=0.25).tolist() == [-2, 0, 8]
    assert run_operation("leakyrelu", [dest, x], Alpha=0.0).tolist() == [0, 0, 8]
    assert run_operation("leakyrelu", [dest, x], Alpha=-0.25).tolist() == [2, 0, 8]


def test_int16_rescale_keeps_the_range_of_int16() -> None:
    src = HostTensor(np.array([1000, -32768], dtype=I16), 1.0, quantized=True)
    assert run_operation("rescalequantized", [make_output((2,), I16, 0.5), src]).tolist() == [
        2000,
        -32768,
    ]


def test_supported_operations_are_listed() -> None:
    i8, f32 = np.dtype(I8), np.dtype(F32)
    assert find_unsupported_reason("softmax", [f32, f32]) is None
    assert find_unsupported_reason("softmax", [i8, i8]) is None
    assert find_unsupported_reason("elementadd", [i8, i8, f32]) == (
        "operands [0, 1, 2] must have one type, not float32, int8"
    )
    assert (
        find_unsupported_reason("sigmoid", [i8, i8])
        == "operand 0 is int8, but the supported types are float32"
    )
    assert find_unsupported_reason("relu", [f32]) == "the number of operands is 1 instead of 2"
    assert find_unsupported_reason("embedding", [f32]) == "the host does not support the operation"


def test_refusals_carry_opcode_and_reason() -> None:
    with pytest.raises(
        UnsupportedHostOp, match="embedding: the host does not support the operation"
    ) as caught:
        execute_operation("embedding", [], {})
    assert (caught.value.opcode, caught.value.reason) == (
        "embedding",
        "the host does not support the operation",
    )
    with pytest.raises(UnsupportedHostOp, match="the attribute Alpha is missing"):
        run_operation("leakyrelu", [make_output((1,)), make_output((1,))])
    with pytest.raises(UnsupportedHostOp, match="positive and finite"):
        run_operation(
            "rescalequantized", [make_output((1,), I8), make_output((1,), I8, float("inf"))]
        )
    with pytest.raises(UnsupportedHostOp, match="at least two dimensions"):
        run_operation("softmax", [make_output((3,)), make_output((3,))])
