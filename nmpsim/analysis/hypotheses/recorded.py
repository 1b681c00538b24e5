"""Isolated layers as recorded layers, whose sums are exact and whose rounding may be unknown."""

from __future__ import annotations

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.layer import IsolatedLayer
from nmpsim.analysis.identify.layer_reading import make_recorded_layer
from nmpsim.analysis.identify.layers import RecordedLayer
from nmpsim.analysis.program import Program
from nmpsim.arrays import Array
from nmpsim.compiler.clip_bounds import get_input_range
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.lir.nodes import Module, SourcePosition, WeightVar
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES


def record_layer(layer: IsolatedLayer, expected: Array) -> RecordedLayer | None:
    """Record an isolated layer with its input and ``expected``; return None if unsupported.

    Returns None for a layer without constant weights, and for a result that the layer's
    conversion cannot be undone for.
    """
    module, source = layer.program.module, layer.find_operand("Src")
    if layer.kind not in WEIGHTED or source is None or source not in layer.inputs:
        return None
    first, *activations = resolve_operands(module)[1]
    if first.operands[0].type.dtype != expected.dtype or not expected.size:
        return None
    if layer.convert_result is not None:
        if layer.restore_result is None:
            return None
        expected = layer.restore_result(expected)
    recorded = make_recorded_layer(module, first, layer.get_values(source)[None], expected[None])
    if recorded is None:
        return None
    low, high = layer.clip or recorded.clip
    for lowest, highest in map(get_input_range, activations):
        low, high = max(lowest, min(low, highest)), min(highest, max(high, lowest))
    return attrs.evolve(recorded, clip=(low, high))


def make_isolated_layer(recorded: RecordedLayer) -> tuple[IsolatedLayer, Array]:
    """Make an isolated layer, whose batch is all recorded items, and return it with its result."""
    scales, op = recorded.scales, recorded.operation
    constants = (
        recorded.stored_weights, scales.bias.values, scales.weight_scales, scales.weight_offsets,
        scales.bias.scales, scales.bias.offsets,
    )  # fmt: skip
    names = [
        f"{role.name}__{index}"
        for index, role in enumerate(OPCODES[op.instruction.opcode].operands)
    ]
    weights, operands, values = [], [], {}
    for index, (name, view) in enumerate(zip(names, op.operands, strict=False)):
        shape = view.shape
        if index >= 2:
            array = np.asarray(constants[index - 2])
            values[name] = array.astype(view.type.dtype).reshape(shape)
        else:
            shape = (len(recorded.inputs) * shape[0], *shape[1:])
        kind = attrs.evolve(view.type, shape=shape, alignments=())
        weights.append(WeightVar(name, kind, index >= 2, SourcePosition(0, 0)))
        operands.append(attrs.evolve(op.instruction.operands[index], name=name))
    instruction = attrs.evolve(op.instruction, operands=tuple(operands), number=0)
    module = Module("layer", tuple(weights), (instruction,), values)
    result, source = (one.type.shape for one in weights[:2])
    inputs = {names[1]: recorded.inputs.reshape(source)}
    layer = IsolatedLayer(Program(module), inputs, clip=recorded.clip).remove_activations()
    return layer, recorded.results.reshape(result)
