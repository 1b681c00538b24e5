"""Layers that only transpose or copy the output of another layer, or an input of the program."""

from __future__ import annotations

import math
from typing import Any

import attrs

from nmpsim.arrays import Array, Shape
from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Tensor
from nmpsim.diagnostics import UserError
from nmpsim.interpreter import TensorLocation, locate_tensors
from nmpsim.lir.nodes import Instruction, Module, Operand
from nmpsim.lir.opcode import INOUT, OUT
from nmpsim.lir.opcodes import NO_WORK

_OPCODES = ("transpose", "copy")


@attrs.frozen
class Move:
    """Move of a tensor, which is a transposition or a copy."""

    shape: Shape
    """Shape in which the source is read."""
    axes: Shape
    """Axis of the source for each axis of the result."""
    result: Shape
    """Shape of the result."""

    def apply(self, values: Array) -> Array:
        """Apply the move to the values of the source; return the result."""
        return values.reshape(self.shape).transpose(self.axes).reshape(self.result)

    def undo(self, results: Array) -> Array:
        """Undo the move of N stacked results; return the source's values as [N, *shape]."""
        moved = results.reshape(-1, *(self.shape[axis] for axis in self.axes))
        order = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        return moved.transpose(0, *(1 + axis for axis in order))


@attrs.frozen(kw_only=True)
class LayerMove(Move):
    """Move by a layer, which transposes or copies the output of another layer."""

    source: int
    """Index of the other layer."""


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
                moves[index] = LayerMove(
                    shape=place.type.shape,
                    axes=_read_axes(instruction, place),
                    result=result.shape,
                    source=source,
                )
        for operand in instruction.operands:
            if operand.kind in (OUT, INOUT):
                storage = places[operand.name].storage
                is_output = index is not None and layers[index].operand == operand.name
                is_complete = operand.kind == OUT and operand.name == storage
                writers[storage] = index if is_output and is_complete else None
    return moves


def find_input_moves(module: Module, name: str) -> tuple[str, list[Move]] | None:
    """Find the input and the moves that produce a tensor; return None if anything else writes it.

    Parameters
    ----------
    module
        The program.
    name
        Name of the tensor, a buffer or a view of a whole buffer.

    Returns
    -------
    tuple of str and list of Move, or None
        Name of the input and the moves in the order of execution. None if another operation
        computes the tensor, or several write it.
    """
    places = locate_tensors(module)
    inputs = {weight.name for weight in module.weights if not weight.constant}
    writers: dict[str, list[tuple[Instruction, Operand]]] = {}
    for instruction in module.instructions:
        for operand in instruction.operands if instruction.opcode not in NO_WORK else ():
            if operand.kind in (OUT, INOUT):
                writers.setdefault(places[operand.name].storage, []).append((instruction, operand))
    place, moves = places[name], list[Move]()
    for _ in range(len(module.instructions) + 1):
        if place.type.elements != places[place.storage].type.elements:
            break
        written = writers.get(place.storage, [])
        if place.storage in inputs:
            return (place.storage, moves) if not written else None
        if len(written) != 1 or written[0][0].opcode not in _OPCODES:
            return None
        ((instruction, target),) = written
        place = places[instruction.operands[1].name]
        result = places[target.name].type.shape
        moves.insert(0, Move(place.type.shape, _read_axes(instruction, place), result))
    return None


def _read_axes(instruction: Instruction, place: TensorLocation) -> Shape:
    """Return the axis of the source for each axis of the result of a transposition or copy."""
    axes: Any = instruction.attributes.get("Shuffle", range(len(place.type.shape)))
    return tuple(axes)


def _can_move(source: Tensor, place: TensorLocation, result: Tensor) -> bool:
    """Return whether a result can have all values of a source that is read at a place."""
    is_same = (source.elem, source.scale, source.offset) == (
        result.elem,
        result.scale,
        result.offset,
    )
    sizes = {math.prod(source.shape), place.type.elements, math.prod(result.shape)}
    return is_same and len(sizes) == 1
