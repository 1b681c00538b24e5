"""A layer reports the same saturation on the host as on the device."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, random_values, tensor_type
from small_programs import SMALL
from tiers import pairwise, tiling

from nmpsim.bundle import parse_bundle
from nmpsim.compiler import driver
from nmpsim.compiler.operations import Operation
from nmpsim.core.device import Device
from nmpsim.lir.nodes import TensorType
from nmpsim.report.data import Saturation

SHAPE = (1, 4, 6, 5)
POOL: dict[str, Any] = {"Kernels": (3, 3), "Strides": (1, 1), "Pads": (1, 1, 1, 1)}
WINDOW: dict[str, Any] = {**POOL, "Dilation": (1, 1)}
GLOW = ("glow-int", "glow-float")
TORCH = ("float-fbgemm", "float-qnnpack", "float-onednn")


@attrs.frozen
class Target:
    """Element type of a layer's operands, and scale of its result."""

    elem: str
    scale: float

    def type(self, shape: tuple[int, ...], scale: float, offset: int) -> TensorType:
        return tensor_type(self.elem, shape, scale, offset)

    def result(self, shape: tuple[int, ...]) -> TensorType:
        return self.type(shape, self.scale, -9)


Program = Callable[[Target], Draft]


def two_operands(opcode: str, target: Target) -> Draft:
    draft = Draft()
    sides = draft.input(target.type(SHAPE, 0.5, 3)), draft.input(target.type(SHAPE, 0.25, -7))
    draft.emit(opcode, draft.output(target.result(SHAPE)), *sides)
    return draft


def one_operand(opcode: str, attributes: dict[str, Any], target: Target) -> Draft:
    """Build a draft of one operation; ``attributes`` that are functions take the result's scale."""
    draft = Draft()
    source = draft.input(target.type(SHAPE, 0.5, 3))
    draft.emit(opcode, draft.output(target.result(SHAPE)), source, **at(attributes, target))
    return draft


def same_type(opcode: str, attributes: dict[str, Any], target: Target) -> Draft:
    draft = Draft()
    source = draft.input(target.result(SHAPE))
    draft.emit(opcode, draft.output(target.result(SHAPE)), source, **at(attributes, target))
    return draft


def at(attributes: dict[str, Any], target: Target) -> dict[str, Any]:
    return {k: v(target.scale) if callable(v) else v for k, v in attributes.items()}


def matmul(target: Target) -> Draft:
    draft = Draft()
    sides = draft.input(target.type((6, 40), 0.5, 3)), draft.input(target.type((40, 5), 0.25, -7))
    draft.emit("matmul", draft.output(target.result((6, 5))), *sides)
    return draft


def batched_add(target: Target, slice_elem: str = "") -> Draft:
    draft, shape = Draft(), (3, 4, 5)
    batch = draft.input(target.type(shape, 0.5, 3))
    piece = draft.input(tensor_type(slice_elem or target.elem, (4, 5), 0.5, 0))
    draft.emit("batchedadd", draft.output(target.result(shape)), batch, piece)
    return draft


def constants(draft: Draft, shape: tuple[int, ...], target: Target) -> list[Any]:
    """Add weights, bias, scales and zero points of 7 channels.

    The biases of the first two channels saturate. Their weights are 0, as the sums of the host are
    exact: it has no accumulator that could saturate.
    """
    rng = np.random.default_rng(6)
    weights = rng.integers(-100, 100, shape).astype(target.type((1,), 1.0, 0).dtype)
    weights.reshape(7, -1)[:2] = 0
    bias = np.array([1 << 30, -(1 << 30), 5, -900, 0, 70000, 1], np.int32)
    return [
        draft.constant(weights, target.elem, 0.25),
        draft.constant(bias, "i32", 0.5),
        draft.constant(np.linspace(0.01, 0.3, 7, dtype=np.float32), "float"),
        draft.constant(np.array([0, 0, 1, 2, 3, -4, 5], np.int32), "index32"),
    ]


def convolution(attributes: dict[str, Any], target: Target) -> Draft:
    draft = Draft()
    weights, bias, *_ = constants(draft, (7, 3, 3, 5), target)
    source = draft.input(target.type(SHAPE, 0.5, 3))
    result = draft.output(target.result((1, 4, 6, 7)))
    attributes = {**WINDOW, "Group": 1, **at(attributes, target)}
    draft.emit("convolution", result, source, weights, bias, **attributes)
    return draft


def channelwise_convolution(target: Target) -> Draft:
    draft = Draft()
    weights, bias, scales, offsets = constants(draft, (7, 3, 3, 5), target)
    source = draft.input(target.type(SHAPE, 0.5, 3))
    result = draft.output(target.result((1, 4, 6, 7)))
    tables = scales, offsets, scales, offsets
    opcode = "channelwisequantizedconvolution"
    draft.emit(opcode, result, source, weights, bias, *tables, **WINDOW, Group=1)
    return draft


def fully_connected(target: Target) -> Draft:
    draft = Draft()
    rows, bias, *_ = constants(draft, (7, 40), target)
    weights = draft.constant(draft.constants[rows.name].T.copy(), target.elem, 0.25)
    source = draft.input(target.type((6, 40), 0.5, 3))
    draft.emit("fullyconnected", draft.output(target.result((6, 7))), source, weights, bias)
    return draft


def rowwise_fully_connected(target: Target) -> Draft:
    draft = Draft()
    operands = constants(draft, (7, 40), target)
    source = draft.input(target.type((6, 40), 0.5, 3))
    result = draft.output(target.result((6, 7)))
    draft.emit("rowwisequantizedfullyconnected", result, source, *operands)
    return draft


def fused(kind: str, *arguments: float) -> dict[str, Any]:
    return {
        "FusedActivation": kind,
        "FusedActivationArgs": lambda scale: tuple(a * scale for a in arguments),
    }


WEIGHTED: dict[str, Program] = {
    "convolution": partial(convolution, {}),
    "convolution, relu": partial(convolution, fused("RELU")),
    "convolution, clip": partial(convolution, fused("CLIP", -20.0, 100.0)),
    "convolution, clip to the end": partial(convolution, fused("CLIP", -20.0, 136.0)),
    "convolution, clip beyond": partial(convolution, fused("CLIP", -1e5, 20.0)),
    "channelwise convolution": channelwise_convolution,
    "fully connected": fully_connected,
    "rowwise fully connected": rowwise_fully_connected,
}
UNWEIGHTED: dict[str, Program] = {
    **{
        opcode: partial(two_operands, opcode)
        for opcode in ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin")
    },
    "relu": partial(one_operand, "relu", {}),
    "clip": partial(one_operand, "clip", {"Min": -6.0, "Max": 20.0}),
    "cpumaxsplat": partial(same_type, "cpumaxsplat", {"SplatValue": lambda scale: -2 * scale}),
    "clip to the end": partial(
        one_operand, "clip", {"Min": lambda scale: -20 * scale, "Max": lambda scale: 136 * scale}
    ),
    "leakyrelu": partial(one_operand, "leakyrelu", {"Alpha": 0.3}),
    "rescalequantized": partial(one_operand, "rescalequantized", {}),
    "avgpool": partial(one_operand, "avgpool", {**POOL, "CountIncludePads": 0}),
    "avgpool with padding": partial(one_operand, "avgpool", {**POOL, "CountIncludePads": 1}),
    "matmul": matmul,
    "batchedadd": batched_add,
}
LEAKY = {"FusedActivation": "LEAKY_RELU", "FusedActivationArgs": (0.3,)}
PROGRAMS = {
    **UNWEIGHTED,
    **WEIGHTED,
    "convolution, leaky": partial(convolution, LEAKY),
    "batchedadd of int32": partial(batched_add, slice_elem="i32"),
}
CASES = [
    *itertools.product(UNWEIGHTED, ("i8",), (*GLOW, "nmp")),
    *itertools.product(UNWEIGHTED, ("i16",), GLOW),
    *itertools.product(WEIGHTED, ("i8", "i16"), GLOW),
    ("convolution, leaky", "i8", "glow-int"),
    *itertools.product(("batchedadd of int32",), ("i8", "i16"), GLOW),
    ("rescalequantized", "i8", "q31"),
    ("rescalequantized", "i16", "q31"),
    *itertools.product(("avgpool", "avgpool with padding"), ("i8",), ("float", *TORCH)),
]
"""What host and device both have; the host has weighted layers in Glow's profiles alone.

Not splat: for the device the compiler quantizes its value, so the run has nothing to count.
"""


def run(draft: Draft, numerics: str) -> tuple[str, tuple[Saturation, ...], Any]:
    bundle = driver.compile_module(draft.module(), SMALL, numerics=numerics, **tiling())
    rng = np.random.default_rng(4)
    inputs = {name: random_values(rng, kind) for name, kind in draft.inputs.items()}
    report = Device(SMALL, "reference").run(parse_bundle(bundle), inputs)
    (layer,) = report.layers
    (output,) = report.outputs.values()
    return layer.placement, layer.saturation, output


@pytest.mark.parametrize(
    ("name", "elem", "numerics", "scale"),
    pairwise([(*case, scale) for case in CASES for scale in (3e-10, 4e-6, 0.02)], together=2),
)
def test_host_and_device_agree(
    name: str,
    elem: str,
    numerics: str,
    scale: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft = PROGRAMS[name](Target(elem, scale))
    placement, expected, values = run(draft, numerics)
    assert placement == "device"

    def place_on_host(operations: tuple[Operation, ...], config: Any) -> tuple[Operation, ...]:
        return tuple(attrs.evolve(op, host_reason="forced") for op in operations)

    monkeypatch.setattr(driver, "assign_placement", place_on_host)
    placement, found, other = run(draft, numerics)
    assert placement == "host"
    np.testing.assert_array_equal(other, values)
    assert found == expected
