"""Integers of every stage, against those that Glow derived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lir_draft import Draft, Ref, tensor_type

from nmpsim.analysis.explain import OperationFacts, explain_layers

WINDOW = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}


class Golden:
    """One case of a file of vectors."""

    def __init__(self, arrays: dict[str, np.ndarray], case: int) -> None:
        self._arrays, self._case = arrays, case

    def __getitem__(self, key: str) -> np.ndarray:
        return self._arrays[f"{self._case:04d}.{key}"]

    def form(self, stage: str) -> list[tuple[int, int, int]]:
        """Return (pre, post, mul) once, or for each channel."""
        columns = [np.atleast_1d(self[f"{stage}_{part}"]) for part in ("pre", "post", "mul")]
        return [tuple(int(v) for v in row) for row in zip(*columns, strict=True)]


def cases(shared: Path, name: str) -> Iterator[Golden]:
    with np.load(shared / "golden/glow" / f"{name}.npz") as archive:
        arrays = dict(archive)
    for case in range(int(arrays["ncases"])):
        yield Golden(arrays, case)


def forms(layer: OperationFacts, stage: str) -> list[tuple[int, int, int]]:
    (found,) = (one for one in layer.stages if one.name == stage)
    return [(f.integer.pre, f.integer.post, f.integer.mul) for f in found.factors if f]


def explain_case(draft: Draft) -> OperationFacts:
    return explain_layers(draft.module())[-1]


def tensor(draft: Draft, case: Golden, which: str, shape: tuple[int, ...]) -> Ref:
    scale, offset = float(case[f"{which}_scale"]), int(case[f"{which}_offset"])
    kind = tensor_type("i8", shape, scale, offset)
    return draft.result(kind) if "out" in which else draft.input(kind)


def constant(draft: Draft, case: Golden, which: str, values: np.ndarray) -> Ref:
    elem = {1: "i8", 4: "i32"}[values.dtype.itemsize]
    return draft.constant(values, elem, float(case[f"{which}_scale"]), int(case[f"{which}_offset"]))


def table(draft: Draft, values: np.ndarray) -> Ref:
    if values.dtype.kind == "f":
        return draft.constant(values.astype(np.float32), "float")
    return draft.constant(values.astype(np.int32), "index32")


def test_convolution_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "conv_i8"):
        draft = Draft()
        source, out = tensor(draft, case, "in", (1, 1, 1, 1)), tensor(draft, case, "out", (1,) * 4)
        filter_ = constant(draft, case, "filter", np.ones((1, 1, 1, 1), np.int8))
        bias = constant(draft, case, "bias", np.zeros(1, case["bias"].dtype))
        draft.emit("convolution", out, source, filter_, bias, **WINDOW, Group=1, Dilation=(1, 1))
        layer = explain_case(draft)
        for stage in ("bias", "out"):
            assert forms(layer, stage) == case.form(stage)


def test_channelwise_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "conv_channelwise_i8"):
        draft, channels = Draft(), case["filter_scales"].size
        source = tensor(draft, case, "in", (1, 1, 1, 1))
        out = tensor(draft, case, "out", (1, 1, 1, channels))
        filter_ = draft.constant(np.ones((channels, 1, 1, 1), np.int8), "i8", 0.0)
        bias = draft.constant(
            np.zeros(channels, case["bias"].dtype), get_element_type(case["bias"]), 0.0
        )
        names = ("filter_scales", "filter_offsets", "bias_scales", "bias_offsets")
        tables = [table(draft, case[name]) for name in names]
        draft.emit(
            "channelwisequantizedconvolution",
            out, source, filter_, bias, *tables, **WINDOW, Group=1, Dilation=(1, 1),
        )  # fmt: skip
        layer = explain_case(draft)
        assert layer.channels == channels
        for stage in ("bias", "out"):
            assert forms(layer, stage) == case.form(stage)


def get_element_type(values: np.ndarray) -> str:
    return {1: "i8", 4: "i32"}[values.dtype.itemsize]


def test_product_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "fc_i8"):
        draft = Draft()
        source, out = tensor(draft, case, "in", (1, 1)), tensor(draft, case, "out", (1, 1))
        weights = constant(draft, case, "weights", np.ones((1, 1), np.int8))
        bias = constant(draft, case, "bias", np.zeros(1, case["bias"].dtype))
        draft.emit("fullyconnected", out, source, weights, bias)
        layer = explain_case(draft)
        for stage in ("bias", "out"):
            assert forms(layer, stage) == case.form(stage)
        draft.emit("matmul", tensor(draft, case, "out", (1, 1)), source, weights)
        assert forms(explain_case(draft), "out") == case.form("matmul")


def test_rowwise_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "fc_rowwise_i8"):
        draft, rows = Draft(), case["weights_scales"].size
        source, out = tensor(draft, case, "in", (1, 1)), tensor(draft, case, "out", (1, rows))
        weights = draft.constant(np.ones((rows, 1), np.int8), "i8", 0.0)
        bias = constant(draft, case, "bias", np.zeros(rows, case["bias"].dtype))
        tables = [table(draft, case[f"weights_{name}"]) for name in ("scales", "offsets")]
        draft.emit("rowwisequantizedfullyconnected", out, source, weights, bias, *tables)
        layer = explain_case(draft)
        for stage in ("bias", "out"):
            assert forms(layer, stage) == case.form(stage)


def test_elementwise_factors_equal_recorded_integers(shared: Path) -> None:
    seen = set()
    for case in cases(shared, "elementwise_i8"):
        draft, opcode = Draft(), f"element{case['op']}"
        lhs, rhs, out = (tensor(draft, case, which, (2,)) for which in ("lhs", "rhs", "out"))
        draft.emit(opcode, out, lhs, rhs)
        layer = explain_case(draft)
        if opcode == "elementmul":
            columns = (case[part] for part in ("pre", "post", "mul"))
            assert forms(layer, "out") == [tuple(int(c) for c in columns)]
        else:
            assert forms(layer, "lhs") == case.form("lhs")
            assert forms(layer, "rhs") == case.form("rhs")
        seen.add(opcode)
    assert seen == {f"element{name}" for name in ("add", "sub", "max", "min", "mul")}


def test_pool_and_relu_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "pool_relu_i8"):
        height, width = (int(v) for v in case["kernels"])
        window = {"Kernels": (height, width), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
        draft = Draft()
        source = tensor(draft, case, "in", (1, height, width, 1))
        for counts in (0, 1):
            out = tensor(draft, case, "avg_out", (1, 1, 1, 1))
            draft.emit("avgpool", out, source, **window, CountIncludePads=counts)
            assert forms(explain_case(draft), "out") == case.form(f"avg_cip{counts}")
        draft.emit("relu", tensor(draft, case, "avg_out", source.shape), source)
        assert forms(explain_case(draft), "out") == case.form("relu")


def test_rescale_factors_equal_recorded_integers(shared: Path) -> None:
    for case in cases(shared, "rescale_quantize_dequantize"):
        draft, elem = Draft(), str(case["elem"])
        kinds = [
            tensor_type(elem, (2,), float(case[f"{w}_scale"]), int(case[f"{w}_offset"]))
            for w in ("src", "dst")
        ]
        draft.emit("rescalequantized", draft.result(kinds[1]), draft.input(kinds[0]))
        columns = (case[part] for part in ("pre", "post", "mul"))
        assert forms(explain_case(draft), "out") == [tuple(int(c) for c in columns)]


@pytest.mark.parametrize("alpha", [0.1, 0.25])
def test_leaky_relu_factors_equal_recorded_integers(alpha: float) -> None:
    draft = Draft()
    source = draft.input(tensor_type("i8", (2,), 0.3, 1))
    draft.emit("leakyrelu", draft.result(tensor_type("i8", (2,), 0.1, 2)), source, Alpha=alpha)
    out, leaky = explain_case(draft).stages
    ratio = np.float32(0.3) / np.float32(0.1)
    below = np.float32(0.3) * np.float32(alpha) / np.float32(0.1)
    assert (out.reals, leaky.reals) == ((float(ratio),), (float(below),))
