"""Each operation in real arithmetic, against loops and plain formulas."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples
from toy_rows import add_opcode

from nmpsim.interpreter import dequantize_operands, evaluate_operation
from nmpsim.lir.nodes import Instruction, Operand, Quantization, SourcePosition, TensorType
from nmpsim.lir.opcodes import NO_WORK, OPCODES

Array = np.ndarray[Any, Any]
HERE = SourcePosition(1, 1)


def run(
    opcode: str,
    dest: TensorType | tuple[int, ...],
    *sources: Array,
    types: dict[int, TensorType] | None = None,
    real: Any = np.float64,
    **attributes: Any,
) -> Array:
    """Return the first result of an instruction on these sources."""
    roles = OPCODES[opcode].operands
    operands = tuple(Operand(role.kind, role.name, HERE) for role in roles)
    instruction = Instruction(0, "it", opcode, operands, attributes, HERE)
    out = dest if isinstance(dest, TensorType) else TensorType("float", dest)
    given_sources = iter(sources)
    values, kinds = [], []
    for index, role in enumerate(roles):
        array = next(given_sources) if role.kind != "@out" else np.zeros(out.shape)
        values.append(array)
        kinds.append(
            out
            if role.kind != "@in" and index == 0
            else (types or {}).get(index, TensorType("float", array.shape))
        )
    return evaluate_operation(instruction, kinds, values, real=real)


def get_single_result(results: dict[int, Array]) -> Array:
    (array,) = results.values()
    return array


@st.composite
def windows(draw: Any) -> dict[str, Any]:
    kernels = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.sampled_from([(1, 1), (2, 1), (2, 3)]))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernels, strict=True)]
    least = [
        max(1, s - p) for s, p in zip(spans, (pads[0] + pads[2], pads[1] + pads[3]), strict=True)
    ]
    size = [draw(st.integers(low, low + 4)) for low in least]
    return {
        "kernels": kernels,
        "dilation": dilation,
        "pads": pads,
        "strides": strides,
        "size": size,
    }


def extents(window: dict[str, Any], dilated: bool) -> tuple[int, int]:
    """Return the number of window positions in both dimensions; below 1 if none fits."""

    def count_positions(d: int) -> int:
        dilation = window["dilation"][d] if dilated else 1
        padded = window["size"][d] + window["pads"][d] + window["pads"][d + 2]
        span = dilation * (window["kernels"][d] - 1) + 1
        return int((padded - span) // window["strides"][d] + 1)

    return count_positions(0), count_positions(1)


@examples(60)
@given(windows(), st.sampled_from([(1, 3, 4), (2, 2, 3), (4, 1, 1), (3, 1, 2)]), st.integers(0, 9))
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_convolution_equals_a_plain_loop(real, window, channels, seed):
    group, depth, outputs = channels
    rng = np.random.default_rng(seed)
    src = rng.normal(size=(2, *window["size"], group * depth)).astype(real)
    weights = rng.normal(size=(group * outputs, *window["kernels"], depth)).astype(real)
    bias = rng.normal(size=group * outputs).astype(real)
    out = (2, *extents(window, dilated=True), group * outputs)
    geometry = {k: window[k] for k in ("strides", "pads", "dilation")}
    expected = naive.convolution(src, weights, bias, group, out, **geometry)
    actual = get_single_result(
        run(
            "convolution",
            out,
            src,
            weights,
            bias,
            real=real,
            Kernels=window["kernels"],
            Strides=window["strides"],
            Pads=window["pads"],
            Dilation=window["dilation"],
            Group=group,
        )
    )
    if real is np.float64:
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    else:  # in the order of Glow's Interpreter: the same bits
        assert actual.dtype == np.float32
        assert actual.tobytes() == expected.tobytes()


@examples(40)
@given(windows(), st.integers(0, 9))
def test_pools_equal_a_plain_loop(window, seed):
    src = np.random.default_rng(seed).integers(-3, 3, (1, *window["size"], 2)).astype(np.float64)
    if min(extents(window, dilated=False)) < 1:
        return
    out = (1, *extents(window, dilated=False), 2)
    geometry = {"strides": window["strides"], "pads": window["pads"]}
    attributes = {k.title(): window[k] for k in ("kernels", "strides", "pads")}

    def expected(what: str) -> Array:
        return naive.pool(src, out, window["kernels"], what, **geometry)

    best = run("maxpoolwithargmax", out, src, types={2: TensorType("index64", out)}, **attributes)
    np.testing.assert_array_equal(
        get_single_result(run("maxpool", out, src, **attributes)), expected("max")
    )
    np.testing.assert_array_equal(best[0], expected("max"))
    np.testing.assert_array_equal(best[2], expected("argmax"))
    for flag, what in ((1, "mean of all"), (0, "mean of the valid")):
        actual = get_single_result(run("avgpool", out, src, CountIncludePads=flag, **attributes))
        np.testing.assert_allclose(actual, expected(what), rtol=1e-14, atol=1e-15)


ACTIVATED = {
    "NONE": ((), lambda x: x),
    "RELU": ((), lambda x: max(x, 0)),
    "CLIP": ((-0.5, 1.5), lambda x: min(max(x, -0.5), 1.5)),
    "LEAKY_RELU": ((0.1,), lambda x: x if x >= 0 else 0.1 * x),
    "SIGMOID": ((), lambda x: 1 / (1 + math.exp(-x))),
    "TANH": ((), math.tanh),
}


@pytest.mark.parametrize("kind", ACTIVATED)
def test_fused_activations_are_applied(kind):
    arguments, function = ACTIVATED[kind]
    x = np.linspace(-4, 4, 33).reshape(1, 33, 1, 1)
    one, zero = np.ones((1, 1, 1, 1)), np.zeros(1)
    actual = get_single_result(
        run(
            "convolution",
            x.shape,
            x,
            one,
            zero,
            Kernels=(1, 1),
            Strides=(1, 1),
            Pads=(0,) * 4,
            Dilation=(1, 1),
            Group=1,
            FusedActivation=kind,
            FusedActivationArgs=arguments,
        )
    )
    np.testing.assert_allclose(actual.ravel(), [function(v) for v in x.ravel()], rtol=1e-14)


X = np.linspace(-3, 3, 13)
UNARY = [
    ("relu", {}, lambda x: max(x, 0)),
    ("clip", {"Min": -1.0, "Max": 2.0}, lambda x: min(max(x, -1), 2)),
    ("leakyrelu", {"Alpha": 0.25}, lambda x: x if x >= 0 else x / 4),
    ("cpumaxsplat", {"SplatValue": 0.5}, lambda x: max(x, 0.5)),
    ("sigmoid", {}, lambda x: 1 / (1 + math.exp(-x))),
    ("tanh", {}, math.tanh),
    ("copy", {}, lambda x: x),
    ("quantize", {}, lambda x: x),
    ("dequantize", {}, lambda x: x),
    ("rescalequantized", {}, lambda x: x),
]


@pytest.mark.parametrize(("opcode", "attributes", "function"), UNARY, ids=[u[0] for u in UNARY])
def test_functions_of_one_value_equal_numpy(opcode, attributes, function):
    actual = get_single_result(run(opcode, X.shape, X, **attributes))
    np.testing.assert_allclose(actual, [function(x) for x in X], rtol=1e-15)


BINARY = {
    "elementadd": lambda a, b: a + b,
    "elementsub": lambda a, b: a - b,
    "elementmul": lambda a, b: a * b,
    "elementdiv": lambda a, b: a / b if b else math.copysign(math.inf, a) if a else math.nan,
    "elementmax": max,
    "elementmin": min,
}


@pytest.mark.parametrize("opcode", BINARY)
def test_functions_of_two_values_equal_numpy(opcode):
    other = np.roll(X, 4)
    expected = [BINARY[opcode](a, b) for a, b in zip(X, other, strict=True)]
    np.testing.assert_array_equal(get_single_result(run(opcode, X.shape, X, other)), expected)


def test_index_division_truncates():
    kinds = {i: TensorType("index64", (4,)) for i in range(3)}
    a, b = np.array([7, -7, 7, 5]), np.array([2, 2, -2, 0])
    assert get_single_result(run("elementdiv", kinds[0], a, b, types=kinds)).tolist() == [
        3,
        -3,
        -3,
        0,
    ]


def test_comparison_and_selection_equal_numpy():
    truth = TensorType("bool", X.shape)
    smaller = get_single_result(run("elementcmplte", truth, X, np.zeros_like(X)))
    assert smaller.dtype == np.bool_
    assert smaller.tolist() == (X <= 0).tolist()
    chosen = get_single_result(run("elementselect", X.shape, smaller, X, X + 10, types={1: truth}))
    assert chosen.tolist() == [x if x <= 0 else x + 10 for x in X]


def test_matrix_products_equal_numpy():
    rng = np.random.default_rng(1)
    a, b, bias = rng.normal(size=(3, 5)), rng.normal(size=(5, 2)), rng.normal(size=2)
    product = [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in b.T] for row in a
    ]
    np.testing.assert_allclose(get_single_result(run("matmul", (3, 2), a, b)), product, rtol=1e-13)
    full = get_single_result(run("fullyconnected", (3, 2), a, b, bias))
    np.testing.assert_allclose(full, product + bias, rtol=1e-13)
    nothing = np.zeros(2)
    rows = run("rowwisequantizedfullyconnected", (3, 2), a, b.T, bias, nothing, nothing)
    np.testing.assert_allclose(get_single_result(rows), full, rtol=1e-13)
    np.testing.assert_array_equal(
        get_single_result(run("batchedadd", (3, 2), full, bias)), full + bias
    )
    summed = get_single_result(run("batchedreduceadd", (2,), full, Axis=0))
    np.testing.assert_allclose(summed, full[0] + full[1] + full[2], rtol=1e-14)


def test_moves_equal_numpy():
    x = np.arange(24.0).reshape(2, 3, 4)
    turned = get_single_result(run("transpose", (4, 2, 3), x, Shuffle=(2, 0, 1)))
    assert turned[3, 1, 2] == x[1, 2, 3]
    assert get_single_result(run("extracttensor", (1, 2, 4), x, Offsets=(1, 1, 0))).tolist() == [
        x[1, 1:].tolist()
    ]
    inserted = get_single_result(
        run("inserttensor", (2, 6, 4), np.zeros((2, 6, 4)), x, Offsets=(0, 0, 0), Count=2, Axis=1)
    )
    assert inserted.tolist() == np.concatenate([x, x], axis=1).tolist()
    assert get_single_result(run("splat", (2, 2), Value=0.3)).tolist() == [[0.3] * 2] * 2
    bigger = get_single_result(
        run(
            "resizenearest",
            (1, 4, 2, 1),
            np.arange(4.0).reshape(1, 2, 2, 1),
            Scale=(1.0, 2.0, 1.0, 1.0),
        )
    )
    assert bigger.ravel().tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_scales_of_rows_and_channels_are_applied():
    x = np.array([[1.0, 2.0, 3.0], [1e4, 0.0, -1e4]])
    powers = np.exp(x[0])
    expected = [(powers / powers.sum()).tolist(), [1.0, 0.0, 0.0]]
    np.testing.assert_allclose(get_single_result(run("softmax", x.shape, x)), expected, rtol=1e-14)
    channels = np.arange(1.0, 6.0).reshape(1, 1, 1, 5)
    results = run(
        "localresponsenormalization",
        channels.shape,
        channels,
        HalfWindowSize=1,
        Alpha=0.3,
        Beta=0.75,
        K=2.0,
    )
    sums = [5, 14, 29, 50, 41]
    scales = [2 + 0.1 * s for s in sums]
    np.testing.assert_allclose(results[2].ravel(), scales, rtol=1e-14)
    expected = [x * s**-0.75 for x, s in zip(range(1, 6), scales, strict=True)]
    np.testing.assert_allclose(results[0].ravel(), expected, rtol=1e-14)


def test_a_table_is_looked_up_by_the_stored_integer():
    quant = Quantization(0.5, 3, 0.0, 0.0)
    types = {1: TensorType("i8", (3,), quant)}
    mapping = np.arange(256.0)
    actual = get_single_result(
        run("intlookuptable", (3,), np.array([0.0, 0.5, -1.0]), mapping, types=types)
    )
    assert actual.tolist() == [128 + 3, 128 + 4, 128 + 1]


def test_a_type_that_begins_at_zero_hides_a_relu():
    begins = TensorType("i8", X.shape, Quantization(0.1, -128, 0.0, 25.5))
    other = TensorType("i8", X.shape, Quantization(0.1, -127, 0.0, 25.5))
    zero = np.zeros_like(X)
    assert (
        get_single_result(run("elementadd", begins, X, zero)).tolist() == np.maximum(X, 0).tolist()
    )
    assert get_single_result(run("elementadd", other, X, zero)).tolist() == X.tolist()
    assert get_single_result(run("quantize", begins, X)).tolist() == X.tolist()


def test_stored_operands_are_dequantized():
    instruction = Instruction(
        0,
        "fc",
        "rowwisequantizedfullyconnected",
        tuple(Operand("@in", str(i), HERE) for i in range(6)),
        {},
        HERE,
    )
    quant = Quantization(0.5, 1, 0.0, 0.0)
    narrow, dummy = (
        TensorType("i8", (2, 2), quant),
        TensorType("i8", (2, 2), Quantization(0.0, 0, 0.0, 0.0)),
    )
    types = [
        narrow,
        narrow,
        dummy,
        TensorType("i32", (2,), quant),
        TensorType("float", (2,)),
        TensorType("index32", (2,)),
    ]
    q = np.array([[1, 2], [3, 4]], np.int8)
    scales, offsets = np.array([2.0, 4.0], np.float32), np.array([1, -1], np.int32)
    raw = [q, q, q, np.array([3, 5], np.int32), scales, offsets]
    reals = dequantize_operands(instruction, types, raw)
    assert reals[1].tolist() == [[0.0, 0.5], [1.0, 1.5]]
    assert reals[2].tolist() == [[0.0, 2.0], [16.0, 20.0]]
    assert reals[3].tolist() == [1.0, 2.0]


def find_missing_operations() -> set[str]:
    done = {name for name, row in OPCODES.items() if row.run or row.formula}
    return set(OPCODES) - NO_WORK - done


def test_every_opcode_can_be_evaluated(monkeypatch: pytest.MonkeyPatch):
    assert find_missing_operations() == set()
    add_opcode(monkeypatch)
    assert find_missing_operations() == {"toy"}
