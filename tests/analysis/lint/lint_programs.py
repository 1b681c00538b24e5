"""Programs for the lint rules: recorded ones, and ones with injected faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from corpus import load_module
from lir_draft import Draft, int8, tensor_type
from recorded_programs import Recorded, Recording, with_recipe

from nmpsim.analysis.lint import LintSubject, LocatedFinding, load_subject
from nmpsim.analysis.lint.findings import SEVERITIES
from nmpsim.analysis.lint.rules import RULES
from nmpsim.analysis.lint.subject import QuantizedBias
from nmpsim.analysis.program import Program
from nmpsim.lir.constants import attach_arrays, find_tensors_file
from nmpsim.lir.nodes import Module
from nmpsim.lir.parser import parse_file
from nmpsim.lir.scales import read_scales_file

ONE_BY_ONE = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Dilation": (1, 1)}


def findings(module: Module, rule: str = "bias-payload", **more: Any) -> list[LocatedFinding]:
    """Return one rule's findings in a module, most severe first."""
    numerics = str(more.pop("numerics", "glow-int"))
    program = Program(module, numerics, settings=more.pop("settings", {}))
    subject = attrs.evolve(LintSubject(program), **more)
    (one,) = (known for known in RULES if known.name == rule)
    found = [] if one.skip_reason(subject) else one.apply(subject)
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def load_recorded(name: str, shared: Path) -> Module:
    """Load a recorded program with its constants and exact scales."""
    text = shared / name
    if "resnet50" not in name:
        return load_module(text)
    arrays = with_recipe(Recording(Recorded(name)), 16 if "i16" in name else 8)
    tensors = read_scales_file(find_tensors_file(text))
    return attach_arrays(parse_file(text), arrays, tensors)[0]


def list_biases(module: Module) -> tuple[QuantizedBias, ...]:
    return load_subject(module).biases


def change_scales(module: Module, scales: Mapping[str, float]) -> Module:
    """Return a module with new scales and zero point 0 for some constants."""
    weights = []
    for weight in module.weights:
        if weight.name in scales and weight.type.quant is not None:
            quant = attrs.evolve(weight.type.quant, scale=scales[weight.name], offset=0)
            weight = attrs.evolve(weight, type=attrs.evolve(weight.type, quant=quant))
        weights.append(weight)
    return attrs.evolve(module, weights=tuple(weights))


def redeclare_biases(module: Module, biases: Sequence[QuantizedBias]) -> Module:
    """Give each bias the type of its result without changing its payload."""
    return _change_biases(module, biases, lambda bias: bias.payload)


def requantize_biases(module: Module, biases: Sequence[QuantizedBias]) -> Module:
    """Give each bias the type of its result and requantize its payload."""

    def requantized(bias: QuantizedBias) -> np.ndarray:
        return np.clip(np.rint(bias.dequantized / bias.result_scale), *bias.limits)

    return _change_biases(module, biases, requantized)


def _change_biases(
    module: Module, biases: Sequence[QuantizedBias], payload: Callable[[QuantizedBias], np.ndarray]
) -> Module:
    scales: dict[str, float] = {}
    constants = dict(module.constants)
    for bias in biases:
        name, tables = bias.view.buffer.name, [v.buffer.name for v in bias.op.operands[4:]]
        constants[name] = payload(bias).astype(constants[name].dtype)
        if len(tables) < 4:
            scales[name] = bias.result_scale
            continue
        module, own = _add_own_table(module, bias, tables[2])
        constants[own] = np.full_like(constants[tables[2]], bias.result_scale)
    return attrs.evolve(change_scales(module, scales), constants=constants)


def _add_own_table(module: Module, bias: QuantizedBias, table: str) -> tuple[Module, str]:
    """Give a layer its own table of bias scales, which may be shared with the filter."""
    own = f"{table}_of_{bias.op.instruction.name}"
    (shared,) = (weight for weight in module.weights if weight.name == table)
    instructions = list(module.instructions)
    number = bias.op.instruction.number
    operands = list(instructions[number].operands)
    operands[6] = attrs.evolve(operands[6], name=own)
    instructions[number] = attrs.evolve(instructions[number], operands=tuple(operands))
    weights = (*module.weights, attrs.evolve(shared, name=own))
    return attrs.evolve(module, weights=weights, instructions=tuple(instructions)), own


def dense_layers(
    biases: Sequence[tuple[np.ndarray, float]], elem: str = "i8", out_scale: float = 0.125
) -> Module:
    """Return fully connected layers in sequence: 4 inputs, products on scale 2^-8.

    Each bias is a payload and its declared scale; sums use the full range of the results.
    """
    draft = Draft()
    source = draft.input(tensor_type(elem, (1, 4), 2.0**-4))
    for payload, scale in biases:
        kind = {1: "i8", 2: "i16", 4: "i32"}[payload.dtype.itemsize]
        limits = np.iinfo(np.int8 if elem == "i8" else np.int16)
        weights = np.full((4, payload.size), limits.max, limits.dtype)
        out = draft.result(tensor_type(elem, (1, payload.size), out_scale))
        matrix = draft.constant(weights, elem, 2.0**-4)
        bias = draft.constant(payload, kind, scale)
        draft.emit("fullyconnected", out, source, matrix, bias)
        source = draft.input(tensor_type(elem, (1, 4), 2.0**-4))
    return draft.module()


def one_convolution(
    bias: np.ndarray,
    bias_scale: float,
    *,
    weights: np.ndarray | None = None,
    weights_scale: float = 0.02,
    in_scale: float = 0.05,
    out_scale: float = 0.1,
    offsets: tuple[int, int] = (0, 0),
) -> Module:
    """Return a 1x1 convolution of 8 input channels with one output channel per bias."""
    draft = Draft()
    source = draft.input(int8((1, 3, 3, 8), in_scale, offsets[0]))
    values = np.full((bias.size, 1, 1, 8), 100, np.int8) if weights is None else weights
    filter_ = draft.constant(values, "i8", weights_scale)
    kind = {1: "i8", 2: "i16", 4: "i32"}[bias.dtype.itemsize]
    payload = draft.constant(bias, kind, bias_scale)
    out = draft.output(int8((1, 3, 3, bias.size), out_scale, offsets[1]))
    draft.emit("convolution", out, source, filter_, payload, **ONE_BY_ONE, Group=1)
    return draft.module()
