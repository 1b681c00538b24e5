"""Isolated layers as recorded layers, whose sums are exact and whose rounding may be unknown."""

from __future__ import annotations

import attrs

from nmpsim.analysis.hypotheses.layer import IsolatedLayer
from nmpsim.analysis.identify.layers import RecordedLayer, make_recorded_layer
from nmpsim.arrays import Array
from nmpsim.compiler.clip_bounds import get_input_range
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.lir.opcode import WEIGHTED


def record_layer(layer: IsolatedLayer, expected: Array) -> RecordedLayer | None:
    """Return the layer with its input and the expected result as recorded values.

    Returns None for a layer without constant weights, and for a result that the layer's
    conversion cannot be undone for.
    """
    module, source = layer.program.module, layer.find_operand("Src")
    if layer.kind not in WEIGHTED or source is None or source not in layer.inputs:
        return None
    first, *activations = resolve_operands(module)[1]
    if first.operands[0].type.dtype != expected.dtype or not expected.size:
        return None
    recorded = make_recorded_layer(module, first, layer.get_values(source)[None], expected[None])
    if recorded is None:
        return None
    low, high = recorded.clip
    for lowest, highest in map(get_input_range, activations):
        low, high = max(lowest, min(low, highest)), min(highest, max(high, lowest))
    return attrs.evolve(recorded, clip=(low, high))
