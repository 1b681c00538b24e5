"""Cropping of a layer to one element of its result and the inputs of that element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.analysis.reduce.extract import Part
from nmpsim.diagnostics import fail
from nmpsim.interpreter.memory import TensorMemory
from nmpsim.lir.nodes import Instruction, Module, Span, TensorType, WeightVar
from nmpsim.lir.opcodes import IN, NO_WORK, OPCODES, OUT, Kind
from nmpsim.lir.verify import verify

Array = npt.NDArray[Any]
Slices = tuple[slice, ...]
"""Slice of each dimension that is kept."""
_ALL = slice(None)
_SPATIAL = (1, 2)
"""Axes of rows and columns in NHWC."""


@attrs.frozen
class _Needs:
    """Parts of its operands that an instruction needs for a box of its result."""

    boxes: tuple[Slices, ...]
    """Box of each operand after the result."""
    attributes: Mapping[str, Any]
    """Attributes that change."""


@attrs.frozen(eq=False)
class _Crop:
    """The kept part of a layer."""

    boxes: Mapping[str, Slices]
    """Box of each tensor by name."""
    instructions: Sequence[Instruction]


def find_computed_element(part: Part, places: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the first of the given elements that the layer computes, or None if none is.

    An insertion computes only the inserted elements.

    Parameters
    ----------
    part
        A module of one layer.
    places
        Coordinates of elements of its result.
    """
    tensors = _Tensors(part)
    return next((at for at in places if _crop_of(part, tensors, at) is not None), None)


def crop_layer(part: Part, at: Sequence[int]) -> Part:
    """Crop a module of one layer to one element of the layer's result.

    Parameters
    ----------
    part
        A module of one layer, and its inputs.
    at
        Coordinates in the layer's result.

    Raises
    ------
    UserError
        COMP001 for an operation without a rule, LIR codes if the result is not valid.
    """
    tensors = _Tensors(part)
    found = _crop_of(part, tensors, at)
    if found is None:
        raise fail("COMP001", "the operation cannot be reduced to one element")
    return _cropped(part, tensors, found.instructions, found.boxes)


def _crop_of(part: Part, tensors: _Tensors, at: Sequence[int]) -> _Crop | None:
    kept = [i for i in part.module.instructions if i.opcode not in NO_WORK]
    boxes: dict[str, Slices] = {kept[-1].operands[0].name: tuple(slice(i, i + 1) for i in at)}
    changed: list[Instruction] = []
    for instruction in reversed(kept):
        rule = _rule_of(instruction.opcode)
        box = boxes.get(instruction.operands[0].name)
        if rule is None or box is None:
            return None
        needs = rule(instruction, box, tensors)
        if needs is None:
            return None
        boxes |= {o.name: b for o, b in zip(instruction.operands[1:], needs.boxes, strict=True)}
        attributes = {**instruction.attributes, **needs.attributes}
        changed.insert(0, attrs.evolve(instruction, attributes=attributes))
    return _Crop(boxes, changed)


class _Tensors:
    """Types and contents of a part's tensors and views."""

    def __init__(self, part: Part) -> None:
        self._memory = TensorMemory(part.module, lambda type: type.dtype)
        for name, values in {**part.module.constants, **part.inputs}.items():
            self._memory.write(name, values)

    def type(self, name: str) -> TensorType:
        return self._memory.find_location(name).type

    def values(self, name: str) -> Array:
        return self._memory.read(name)


def _cropped(
    part: Part, tensors: _Tensors, instructions: Sequence[Instruction], boxes: Mapping[str, Slices]
) -> Part:
    constant = {weight.name for weight in part.module.weights if weight.constant}
    read: dict[str, bool] = {}
    """Tensor -> whether it is read before it is written, as an input or a constant is."""
    for instruction in instructions:
        for operand in sorted(instruction.operands, key=lambda o: o.kind != IN):
            read.setdefault(operand.name, operand.kind != OUT)
    weights: list[WeightVar] = []
    constants: dict[str, Array] = {}
    inputs: dict[str, Array] = {}
    for name, is_read in read.items():
        type = tensors.type(name)
        values = tensors.values(name)[boxes[name]].copy()
        small = attrs.evolve(type, shape=values.shape, alignments=())
        weights.append(WeightVar(name, small, name in constant, Span(0, 0)))
        if is_read:
            (constants if name in constant else inputs)[name] = values
    numbered = [attrs.evolve(i, number=number) for number, i in enumerate(instructions)]
    module = Module(part.module.name, tuple(weights), tuple(numbered), constants)
    verify(module)
    return Part(module, inputs)


def _rule_of(opcode: str) -> _Rule | None:
    row = OPCODES[opcode]
    return _pointwise if row.formula else _MOVES.get(opcode) or _RULES.get(row.kind)


def _pointwise(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    shape = tensors.type(instruction.operands[0].name).shape
    sources = instruction.operands[1:]
    if any(tensors.type(operand.name).shape != shape for operand in sources):
        return None
    return _Needs((box,) * len(sources), {})


def _convolution(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    numbers: Any = instruction.attributes
    window = _window(instruction, box, tensors, numbers["Dilation"])
    if window is None:
        return None
    rows, columns, changes = window
    channel = box[3]
    out_channels, _, _, depth = tensors.type(instruction.operands[2].name).shape
    group = channel.start // (out_channels // numbers["Group"])
    source = (box[0], rows, columns, slice(group * depth, (group + 1) * depth))
    filter = (channel, _ALL, _ALL, _ALL)
    by_channel = ((channel,),) * (len(instruction.operands) - 3)
    return _Needs((source, filter, *by_channel), {**changes, "Group": 1})


def _pool(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    window = _window(instruction, box, tensors, (1, 1))
    if window is None or instruction.attributes["Layout"] != 0:
        return None
    rows, columns, changes = window
    return _Needs(((box[0], rows, columns, box[3]),), changes)


def _window(
    instruction: Instruction, box: Slices, tensors: _Tensors, dilation: Any
) -> tuple[slice, slice, dict[str, Any]] | None:
    """Return the rows and columns in the window of one pixel, and the attributes that change."""
    numbers: Any = instruction.attributes
    kernels, strides, pads = numbers["Kernels"], numbers["Strides"], numbers["Pads"]
    shape = tensors.type(instruction.operands[1].name).shape
    spans, before, after = [], [], []
    for axis, dimension in enumerate(_SPATIAL):
        start = box[dimension].start * strides[axis] - pads[axis]
        end = start + (kernels[axis] - 1) * dilation[axis] + 1
        low, high = max(start, 0), min(end, shape[dimension])
        if low >= high:
            return None
        spans.append(slice(low, high))
        before.append(low - start)
        after.append(end - high)
    return spans[0], spans[1], {"Pads": (*before, *after), "Strides": (1, 1)}


def _fully_connected(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    row, column = box
    by_output = ((column,),) * (len(instruction.operands) - 3)
    has_rows = len(by_output) > 1
    return _Needs(((row, _ALL), (column, _ALL) if has_rows else (_ALL, column), *by_output), {})


def _matmul(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    row, column = box
    return _Needs(((row, _ALL), (_ALL, column)), {})


def _transpose(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    order: Any = instruction.attributes["Shuffle"]
    source = dict(zip(order, box, strict=True))
    return _Needs((tuple(source[dimension] for dimension in range(len(box))),), {})


def _extract(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    offsets: Any = instruction.attributes["Offsets"]
    source = (slice(s.start + o, s.stop + o) for s, o in zip(box, offsets, strict=True))
    return _Needs((tuple(source),), {"Offsets": (0,) * len(box)})


def _splat(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    return _Needs((), {})


def _insert(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    """Return the needs of an insertion; None if the element is outside of it."""
    numbers: Any = instruction.attributes
    shape = tensors.type(instruction.operands[1].name).shape
    source = []
    for dimension, size in enumerate(shape):
        at = box[dimension].start - numbers["Offsets"][dimension]
        count = numbers["Count"] if dimension == numbers["Axis"] else 1
        if not 0 <= at < count * size:
            return None
        source.append(slice(at % size, at % size + 1))
    return _Needs((tuple(source),), {"Offsets": (0,) * len(shape), "Count": 1})


def _batched_add(instruction: Instruction, box: Slices, tensors: _Tensors) -> _Needs | None:
    return _Needs((box, box[1:]), {})


_Rule = Callable[[Instruction, Slices, _Tensors], _Needs | None]
_RULES: dict[Kind, _Rule] = {
    Kind.CONVOLUTION: _convolution,
    Kind.MAX_POOL: _pool,
    Kind.AVERAGE_POOL: _pool,
    Kind.FULLY_CONNECTED: _fully_connected,
    Kind.PRODUCT: _matmul,
    Kind.BATCHED_ADD: _batched_add,
    Kind.FILL: _splat,
}
_MOVES: dict[str, _Rule] = {
    "transpose": _transpose,
    "extracttensor": _extract,
    "inserttensor": _insert,
}
