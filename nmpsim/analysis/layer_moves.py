"""Layers that only transpose or copy the output of another layer."""

from __future__ import annotations

import math
from typing import Any

import attrs

from nmpsim.arrays import Array, Shape
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Tensor
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import TensorLocation, locate_tensors
from nmpsim.lir.opcode import INOUT, OUT
from nmpsim.lir.opcodes import NO_WORK

_OPCODES = ("transpose", "copy")


@attrs.frozen
class LayerMove:
    """Transposition or copy that a layer applies to the output of another layer."""

    source: int
    """Index of the other layer."""
    shape: Shape
    """Shape in which the layer reads that output."""
    axes: Shape
    """Axis of the source for each axis of the result."""
    result: Shape
    """Shape of the layer's output."""

    def apply(self, values: Array) -> Array:
        """Return the layer's output for the output of the other layer."""
        return values.reshape(self.shape).transpose(self.axes).reshape(self.result)


def find_layer_moves(bundle: Bundle) -> dict[int, LayerMove]:
    """Return the layers that only transpose or copy another layer's output, by layer index.

    Layers that change the scale or the type are omitted. Empty if the bundle carries no usable LIR.
    """
    try:
        module = bundle.module()
    except UserError:
        return {}
    places, layers = locate_tensors(module), bundle.metadata.layers
    indices = {layer.name: layer.index for layer in layers}
    writers: dict[str, int | None] = {}
    moves = {}
    for instruction in module.instructions:
        if instruction.opcode in NO_WORK:
            continue
        index = indices.get(instruction.name)
        if index is not None and instruction.opcode in _OPCODES and not layers[index].fused:
            place = places[instruction.operands[1].name]
            source, result = writers.get(place.storage), layers[index].output
            if source is not None and _can_move(layers[source].output, place, result):
                shape = place.type.shape
                axes: Any = instruction.attributes.get("Shuffle", range(len(shape)))
                moves[index] = LayerMove(source, shape, tuple(axes), result.shape)
        for operand in instruction.operands:
            if operand.kind in (OUT, INOUT):
                storage = places[operand.name].storage
                is_output = index is not None and layers[index].operand == operand.name
                is_complete = operand.kind == OUT and operand.name == storage
                writers[storage] = index if is_output and is_complete else None
    return moves


def _can_move(source: Tensor, place: TensorLocation, result: Tensor) -> bool:
    """Return whether a result can have all values of a source that is read at a place."""
    is_same = (source.elem, source.scale, source.offset) == (
        result.elem,
        result.scale,
        result.offset,
    )
    sizes = {math.prod(source.shape), place.type.elements, math.prod(result.shape)}
    return is_same and len(sizes) == 1
