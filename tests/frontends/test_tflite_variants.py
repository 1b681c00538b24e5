"""Forms of TFLite's operators that the recorded models do not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tflite_files import FileOperator, FileTensor, tflite_file

import nmpsim

Array = npt.NDArray[Any]
RNG = np.random.default_rng(16)
X = RNG.integers(-128, 127, (2, 4, 6, 4)).astype(np.int8)
SCALE = (0.5,)


class Builder:
    """Builder of a model of one operator."""

    def __init__(self, name: str, **options: Mapping[str, Any]) -> None:
        self._name, self._options = name, options
        self._tensors: list[FileTensor] = []
        self._operands: list[int] = []
        self._results: list[int] = []
        self._inputs: dict[int, Array] = {}

    def _add(self, values: Array, scale: float | None, zero: int, constant: bool) -> int:
        scales = () if scale is None else (scale,)
        kind, name = values.dtype.name.upper(), f"t{len(self._tensors)}"
        held = values if constant else None
        zeros = (zero,) * len(scales)
        self._tensors.append(FileTensor(name, values.shape, kind, scales, zeros, held))
        return len(self._tensors) - 1

    def input(self, values: Array, scale: float = 0.5, zero: int = 0) -> Builder:
        """Add an input."""
        self._operands.append(self._add(values, scale, zero, constant=False))
        self._inputs[self._operands[-1]] = values
        return self

    def const(
        self, values: Any, scale: float | None = None, dtype: str = "int32", zero: int = 0
    ) -> Builder:
        """Add a constant."""
        array = np.asarray(values, values.dtype if scale else dtype)
        self._operands.append(self._add(array, scale, zero, constant=True))
        return self

    def output(
        self, shape: tuple[int, ...], dtype: str = "int8", scale: float | None = 0.5, zero: int = 0
    ) -> Builder:
        """Add a result."""
        self._results.append(self._add(np.zeros(shape, dtype), scale, zero, constant=False))
        return self

    def run(self, folder: Path) -> list[Array]:
        """Compile and run the model, and return its outputs."""
        operator = FileOperator(
            self._name, tuple(self._operands), tuple(self._results), self._options
        )
        path = folder / "model.tflite"
        path.write_bytes(tflite_file(self._tensors, [operator], [*self._inputs], self._results))
        bundle = nmpsim.compile(path, tiling="simple").bundle
        report = nmpsim.Device(threads=1).run(bundle, list(self._inputs.values()))
        return list(report.outputs.values())


MOVES: dict[str, tuple[Callable[[], Builder], Callable[[], list[Array]]]] = {
    "unpack": (
        lambda: Builder("UNPACK", UnpackOptions={"Num": 4, "Axis": -1})
        .input(X).output((2, 4, 6)).output((2, 4, 6)).output((2, 4, 6)).output((2, 4, 6)),
        lambda: [X[..., i] for i in range(4)],
    ),
    "split by sizes": (
        lambda: Builder("SPLIT_V", SplitVOptions={"NumSplits": 2})
        .input(X).const([4, -1]).const(2).output((2, 4, 4, 4)).output((2, 4, 2, 4)),
        lambda: [X[:, :, :4], X[:, :, 4:]],
    ),
    "gather one": (
        lambda: Builder("GATHER", GatherOptions={"Axis": 1}).input(X).const(2).output((2, 6, 4)),
        lambda: [X[:, 2]],
    ),
    "gather a table": (
        lambda: Builder("GATHER", GatherOptions={"Axis": -2})
        .input(X).const([[5, 0], [1, 1]], dtype="int64").output((2, 4, 2, 2, 4)),
        lambda: [X[:, :, [[5, 0], [1, 1]]]],
    ),
    "mirrored in the edge": (
        lambda: Builder("MIRROR_PAD", MirrorPadOptions={"Mode": 0})
        .input(X).const([[0, 1], [3, 0], [0, 0], [1, 2]]).output((3, 7, 6, 7)),
        lambda: [np.pad(X, [(0, 1), (3, 0), (0, 0), (1, 2)], mode="reflect")],
    ),
    "mirrored at the edge": (
        lambda: Builder("MIRROR_PAD", MirrorPadOptions={"Mode": 1})
        .input(X).const([[2, 1], [0, 4], [0, 0], [0, 0]]).output((5, 8, 6, 4)),
        lambda: [np.pad(X, [(2, 1), (0, 4), (0, 0), (0, 0)], mode="symmetric")],
    ),
    "slice by steps": (
        lambda: Builder("STRIDED_SLICE", StridedSliceOptions={"EndMask": 4, "ShrinkAxisMask": 8})
        .input(X).const([1, 0, -1, 2]).const([2, 4, 0, 3]).const([1, 3, -2, 1]).output((1, 2, 3)),
        lambda: [X[1:2, 0:4:3, -1::-2, 2]],
    ),
    "the first of a dimension without beginning": (
        lambda: Builder("STRIDED_SLICE", StridedSliceOptions={"BeginMask": 8, "ShrinkAxisMask": 8})
        .input(X).const([0, 0, 0, 3]).const([2, 4, 6, 4]).const([1, 1, 1, 1]).output((2, 4, 6)),
        lambda: [X[..., 0]],
    ),
    "blocks to channels": (
        lambda: Builder("SPACE_TO_DEPTH", SpaceToDepthOptions={"BlockSize": 2})
        .input(X).output((2, 2, 3, 16)),
        lambda: [
            X.reshape(2, 2, 2, 3, 2, 4).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 16)
        ],
    ),
    "channels to blocks": (
        lambda: Builder("DEPTH_TO_SPACE", DepthToSpaceOptions={"BlockSize": 2})
        .input(X).output((2, 8, 12, 1)),
        lambda: [X.reshape(2, 4, 6, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 1)],
    ),
    "place of the largest": (
        lambda: Builder("ARG_MAX", ArgMaxOptions={"OutputType": 4})
        .input(X).const(-1).output((2, 4, 6), "int64", None),
        lambda: [X.argmax(3)],
    ),
    "place of the smallest": (
        lambda: Builder("ARG_MIN", ArgMinOptions={"OutputType": 2})
        .input(X.view(np.uint8), zero=128).const(1).output((2, 6, 4), "int32", None),
        lambda: [X.view(np.uint8).argmin(1).astype(np.int32)],
    ),
    "largest over dimensions apart": (
        lambda: Builder("REDUCE_MAX", ReducerOptions={}).input(X).const([1, -1]).output((2, 6)),
        lambda: [X.max((1, 3))],
    ),
    "mean over dimensions apart": (
        lambda: Builder("MEAN", ReducerOptions={})
        .input(X & 64).const([1, -1]).output((2, 6), scale=1 / 32),
        lambda: [np.clip((X & 64).astype(int).sum((1, 3)), -128, 127).astype(np.int8)],
    ),
    "sum of uint8": (
        lambda: Builder("SUM", ReducerOptions={})
        .input(X.view(np.uint8), zero=120).const([1, 2]).output((2, 4), "uint8", zero=3),
        lambda: [
            np.clip((X.view(np.uint8).astype(int) - 120).sum((1, 2)) + 3, 0, 255).astype(np.uint8)
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_reductions_equal_recorded_results(name: str, tmp_path: Path) -> None:
    variant, expected = MOVES[name]
    for got, wanted in zip(variant().run(tmp_path), expected(), strict=True):
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize(("left", "right"), [((), ()), ((2, 1), (3,)), ((3,), (2, 3))])
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_products_accept_transposed_and_broadcast_operands(
    left: tuple[int, ...], right: tuple[int, ...], turned: tuple[bool, bool], tmp_path: Path
) -> None:
    lhs, rhs = (
        RNG.integers(-3, 4, (*lead, *shape)).astype(np.int8)
        for lead, shape in ((left, (2, 5)), (right, (5, 3)))
    )
    expected = lhs.astype(int) @ rhs
    given = [x.swapaxes(-1, -2) if turn else x for x, turn in zip((lhs, rhs), turned, strict=True)]
    options = {"AdjX": turned[0], "AdjY": turned[1]}
    variant = Builder("BATCH_MATMUL", BatchMatMulOptions=options)
    for values in given:
        variant.input(np.ascontiguousarray(values))
    (got,) = variant.output(expected.shape, scale=0.25).run(tmp_path)
    assert np.array_equal(got, expected)


WIDE = np.array([-32768, -32767, -12345, -24, -3, -1, 0, 1, 3, 24, 12345, 32767], np.int16)


@pytest.mark.parametrize(("name", "sign"), [("ADD", 1), ("SUB", -1)])
@pytest.mark.parametrize("shift", [0, 3])
def test_sums_of_16_bits_on_powers_of_two_shift_once(
    name: str, sign: int, shift: int, tmp_path: Path
) -> None:
    options = {f"{name.capitalize()}Options": {}}
    variant = (
        Builder(name, **options).input(WIDE, 2.0**-8).input(WIDE[::-1].copy(), 2.0 ** (-8 - shift))
    )
    (got,) = variant.output(WIDE.shape, "int16", 2.0**-8).run(tmp_path)
    exact = WIDE[::-1] / 2**shift
    rounded = np.trunc(exact + np.copysign(0.5, exact)).astype(int)
    assert np.array_equal(got, np.clip(WIDE + sign * rounded, -32768, 32767))


NARROW = np.array([-128, -127, -77, -31, -30, -3, -2, 0, 1, 2, 64, 127], np.int8)
RECORDED: dict[str, tuple[Callable[[], Builder], list[int]]] = {
    "a logistic close to a half": (
        lambda: Builder("LOGISTIC")
        .input(NARROW, 1 / 128).output(NARROW.shape, scale=1 / 256, zero=-128),
        [-59, -59, -37, -15, -15, -1, -1, 0, 0, 1, 31, 59],
    ),
    "leaky of 16 bits": (
        lambda: Builder("LEAKY_RELU", LeakyReluOptions={"Alpha": 0.3})
        .input(WIDE, 0.01).output(WIDE.shape, "int16", 0.013),
        [-7562, -7562, -2849, -6, -1, 0, 0, 1, 2, 18, 9496, 25205],
    ),
    "leaky of 16 bits downwards": (
        lambda: Builder("LEAKY_RELU", LeakyReluOptions={"Alpha": -0.7})
        .input(WIDE, 0.01).output(WIDE.shape, "int16", 0.02),
        [11469, 11469, 4321, 9, 1, 1, 0, 1, 2, 12, 6173, 16384],
    ),
    "leaky downwards": (
        lambda: Builder("LEAKY_RELU", LeakyReluOptions={"Alpha": -0.3})
        .input(NARROW, 0.01, 3).output(NARROW.shape, scale=0.008, zero=-5),
        [44, 44, 25, 8, 8, -3, -3, -4, -4, -4, 71, 127],
    ),
    "slopes of 16 bits": (
        lambda: Builder("PRELU").input(WIDE.reshape(1, 4, 3), 0.01)
        .const(np.array([[-128, 5, 127]], np.int8), 0.02).output((1, 4, 3), "int16", 0.011),
        [32767, -2979, -28506, 56, 0, -2, 0, 1, 3, 22, 11223, 29788],
    ),
    "sums of 16 bits on two scales": (
        lambda: Builder("ADD").input(WIDE, 0.01).input(WIDE[::-1].copy(), 0.017)
        .output(WIDE.shape, "int16", 0.02),
        [11468, -5890, -6152, -9, -1, -1, -1, -2, -19, -10481, -21679, -11469],
    ),
    "without options no power of two is special": (
        lambda: Builder("ADD").input(WIDE, 0.25).input(WIDE, 0.125)
        .output(WIDE.shape, "int16", 1.0),
        [-12288, -12288, -4629, -9, -1, 0, 0, 0, 1, 9, 4629, 12288],
    ),
}  # fmt: skip
"""Results of LiteRT's reference kernels."""


@pytest.mark.parametrize("name", RECORDED)
def test_variants_equal_recorded_results(name: str, tmp_path: Path) -> None:
    variant, expected = RECORDED[name]
    (got,) = variant().run(tmp_path)
    assert got.reshape(-1).tolist() == expected


def test_a_relu_between_two_scales_of_16_bits_has_a_float32_factor(tmp_path: Path) -> None:
    scale, wider = np.float32(0.01), np.float32(0.0123)
    every = np.arange(-32768, 32768).astype(np.int16)
    (got,) = (
        Builder("RELU").input(every, float(scale)).output(every.shape, "int16", float(wider))
        .run(tmp_path)
    )  # fmt: skip
    factor = np.float64(scale / wider)
    assert np.array_equal(got, np.maximum(np.floor(every * factor + 0.5), 0))


def _wide_product(
    bias: Array, declared: int, scale: float = 1e-4, name: str = "CONV_2D"
) -> Builder:
    window = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
    options = {"Conv2DOptions": {**window, "QuantizedBiasType": declared}}
    shape: tuple[int, ...] = (1, 1, 1)
    if name == "FULLY_CONNECTED":
        options = {"FullyConnectedOptions": {"QuantizedBiasType": declared}}
        shape = (1,)
    variant = Builder(name, **options).input(WIDE.reshape(*shape, -1), 0.01)
    weights = np.arange(24, dtype=np.int8).reshape(2, *shape[1:], 12)
    return variant.const(weights, 0.02).const(bias, 2e-4).output((*shape, 2), "int16", scale)


UNSIGNED = np.full((1, 1, 1, 2), 7, np.uint8)
REFUSED: dict[str, tuple[Callable[[], Builder], str]] = {
    "a bias that is read as one of 64 bits": (
        lambda: _wide_product(np.array([1, 2], np.int32), 0),
        "a bias of int32",
    ),
    "a bias of 32 bits": (
        lambda: _wide_product(np.array([1, 2], np.int32), 2),
        "an int32 bias of int16 inputs, whose sums TFLite rounds twice",
    ),
    "a sum that may wrap": (
        lambda: _wide_product(np.array([1, 1 << 40], np.int64), 0),
        "sums that may reach ",
    ),
    "a fully connected sum that may wrap": (
        lambda: Builder("FULLY_CONNECTED", FullyConnectedOptions={})
        .input(X[0, 0]).const(X[0, 0], 0.5).const(np.full(6, 1 << 30, np.int32), 0.25)
        .output((6, 6), scale=0.125),
        "sums that may reach ",
    ),
    "weights of Int8 that are not symmetric": (
        lambda: Builder("DEPTHWISE_CONV_2D", DepthwiseConv2DOptions={"StrideW": 1, "StrideH": 1})
        .input(X).const(X[:1, :1, :1], 0.5, zero=5).output(X.shape),
        "int8 weights with zero points",
    ),
    "a sum of Int8": (
        lambda: Builder("SUM", ReducerOptions={}).input(X).const([1]).output((2, 6, 4)),
        "a sum of int8, which TFLite's kernels compute wrongly",
    ),
    "wide slopes": (
        lambda: Builder("PRELU").input(WIDE).const(WIDE, 0.5).output(WIDE.shape, "int16"),
        "slopes of int16 for an input of int16",
    ),
    "powers of two that do not meet": (
        lambda: Builder("ADD", AddOptions={})
        .input(WIDE, 0.25).input(WIDE, 0.125).output(WIDE.shape, "int16", 1.0),
        "int16 operands with the scales 2^-2 and 2^-3",
    ),
    "nothing to slice": (
        lambda: Builder("SLICE").input(X[:0]).const([0] * 4).const([-1] * 4).output((0, 4, 6, 4)),
        "a tensor of shape [0, 4, 6, 4]",
    ),
    "ends that are sizes": (
        lambda: Builder("STRIDED_SLICE", StridedSliceOptions={"Offset": True})
        .input(X).const([1] * 4).const([1] * 4).const([1] * 4).output((1, 1, 1, 1)),
        "offset true, with which ends are relative to starts",
    ),
    "a result that is larger than the operands": (
        lambda: Builder("MUL").input(X[:1, :1, :1, :1]).input(X).output((3, 4, 6, 4)),
        "a result of shape [2, 4, 6, 4]",
    ),
    "a part of another rank": (
        lambda: Builder("CONCATENATION", ConcatenationOptions={"Axis": 1})
        .input(X).input(X[0]).output((2, 8, 6, 4)),
        "input shapes [2, 4, 6, 4], [4, 6, 4]",
    ),
    "a dimension that is not there": (
        lambda: Builder("PACK", PackOptions={"Axis": 5}).input(X).output((1, *X.shape)),
        "axis 5 for shape [1, 2, 4, 6, 4]",
    ),
    "a result without a scale": (
        lambda: Builder("LOGISTIC").input(X).output(X.shape, scale=None),
        "t1 of type int8 without a scale",
    ),
    "a wide result without a scale": (
        lambda: Builder("LEAKY_RELU").input(WIDE).output(WIDE.shape, "int16", None),
        "t1 of type int16 without a scale",
    ),
    "a factor that shifts beyond 32 bits": (
        lambda: Builder("LEAKY_RELU", LeakyReluOptions={"Alpha": 0.5})
        .input(WIDE, 1e9).output(WIDE.shape, "int16", 1e-3),
        "the factor 1e+12 from the input to the result scale",
    ),
    "a fine result of a hard swish": (
        lambda: Builder("HARD_SWISH").input(X).output(X.shape, scale=1e-5),
        "result scale 1e-05 for input scale 0.5",
    ),
    "a place that is not there": (
        lambda: Builder("GATHER", GatherOptions={"Axis": 1}).input(X).const(4).output((2, 6, 4)),
        "indices from 4 to 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_variants_are_refused(name: str, tmp_path: Path) -> None:
    variant, words = REFUSED[name]
    with pytest.raises(nmpsim.UserError) as error:
        variant().run(tmp_path)
    (finding,) = error.value.diagnostics
    assert (finding.code, words in str(finding.found)) == ("MODEL002", True), finding


def test_a_declared_bias_of_32_bits_goes_to_a_fully_connected_layer(tmp_path: Path) -> None:
    bias = np.array([1000, -70000], np.int32)
    (got,) = _wide_product(bias, 2, 0.02, "FULLY_CONNECTED").run(tmp_path)
    sums = WIDE.astype(int) @ np.arange(24).reshape(2, 12).T + bias
    assert got.tolist() == [[math.floor(s / 100 + 0.5) for s in sums.tolist()]]
