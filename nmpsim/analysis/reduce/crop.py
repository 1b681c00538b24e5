"""Cropping of a layer to one element of its result and the inputs of that element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from nmpsim.analysis.reduce.extract import ExtractedProgram
from nmpsim.arrays import Shape
from nmpsim.interpreter.memory import TensorMemory
from nmpsim.lir.nodes import Instruction, Module, SourcePosition, WeightVar
from nmpsim.lir.opcodes import IN, NO_WORK, OPCODES, OUT, OpcodeKind
from nmpsim.lir.verify import verify

Slices = tuple[slice, ...]
"""Slice of each dimension that remains."""
Shapes = Sequence[Shape]
"""Shapes of an instruction's operands, result first."""
Needs = tuple[Sequence[Slices], Mapping[str, Any]]
"""Slices of each operand after the result, and attributes that change."""
Rule = Callable[[Mapping[str, Any], Slices, Shapes], Needs | None]
"""Function of the attributes, the slices of the result and the shapes; None if it cannot crop."""

_ALL = slice(None)
_SPATIAL = (1, 2)
"""Axes of rows and columns in NHWC."""


def crop_layer(part: ExtractedProgram, at: Sequence[int]) -> ExtractedProgram | None:
    """Crop a module of one layer to one element of its result, or return None if impossible.

    Parameters
    ----------
    part
        A module of one layer, and its inputs.
    at
        Coordinates in the layer's result.

    Returns
    -------
    ExtractedProgram or None
        None for an operation without a rule, and for an element that the layer does not compute:
        an insertion computes only the inserted elements.

    Raises
    ------
    UserError
        LIR codes if the result is not valid.
    """
    memory = _load_memory(part)
    layer = [one for one in part.module.instructions if one.opcode not in NO_WORK]
    slices: dict[str, Slices] = {layer[-1].operands[0].name: tuple(slice(i, i + 1) for i in at)}
    cropped: list[Instruction] = []
    for instruction in reversed(layer):
        names = [operand.name for operand in instruction.operands]
        rule, shapes = _find_rule(instruction.opcode), [memory.read(name).shape for name in names]
        needs = None
        if rule is not None and names[0] in slices:
            needs = rule(instruction.attributes, slices[names[0]], shapes)
        if needs is None:
            return None
        slices |= dict(zip(names[1:], needs[0], strict=True))
        attributes = {**instruction.attributes, **needs[1]}
        cropped.insert(0, attrs.evolve(instruction, attributes=attributes))
    return _make_part(part, memory, cropped, slices)


def separate_tensors(part: ExtractedProgram) -> ExtractedProgram:
    """Return a module of one layer in which each operand is a tensor of its own, not a view.

    Raises
    ------
    UserError
        LIR codes if the result is not valid.
    """
    memory = _load_memory(part)
    layer = [one for one in part.module.instructions if one.opcode not in NO_WORK]
    names = [operand.name for one in layer for operand in one.operands]
    slices = {name: (_ALL,) * memory.read(name).ndim for name in names}
    return _make_part(part, memory, layer, slices)


def _load_memory(part: ExtractedProgram) -> TensorMemory:
    """Return the memory of a module with its constants and inputs."""
    memory = TensorMemory(part.module, lambda type: type.dtype)
    for name, values in {**part.module.constants, **part.inputs}.items():
        memory.write(name, values)
    return memory


def _make_part(
    part: ExtractedProgram,
    memory: TensorMemory,
    layer: Sequence[Instruction],
    slices: Mapping[str, Slices],
) -> ExtractedProgram:
    """Return a program of cropped instructions whose tensors are weights."""
    constant = {weight.name for weight in part.module.weights if weight.constant}
    is_read: dict[str, bool] = {}
    """Tensor -> whether it is read before it is written, as an input or a constant is."""
    for instruction in layer:
        for operand in sorted(instruction.operands, key=lambda o: o.kind != IN):
            is_read.setdefault(operand.name, operand.kind != OUT)
    values = {name: memory.read(name)[slices[name]].copy() for name in is_read}
    weights = []
    for name, array in values.items():
        type = memory.find_location(name).type
        small = attrs.evolve(type, shape=array.shape, alignments=())
        weights.append(WeightVar(name, small, name in constant, SourcePosition(0, 0)))
    module = Module(
        part.module.name,
        tuple(weights),
        tuple(attrs.evolve(one, number=number) for number, one in enumerate(layer)),
        {name: array for name, array in values.items() if is_read[name] and name in constant},
    )
    verify(module)
    return ExtractedProgram(
        module, {n: a for n, a in values.items() if is_read[n] and n not in constant}
    )


def _find_rule(opcode: str) -> Rule | None:
    row = OPCODES[opcode]
    return _crop_pointwise if row.formula else _MOVES.get(opcode) or _RULES.get(row.kind)


def _crop_pointwise(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs | None:
    sources = shapes[1:]
    return ((box,) * len(sources), {}) if all(s == shapes[0] for s in sources) else None


def _crop_convolution(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs | None:
    window = _find_window(numbers, box, shapes)
    if window is None:
        return None
    rows, columns, changes = window
    channel = box[3]
    out_channels, _, _, depth = shapes[2]
    group = channel.start // (out_channels // numbers["Group"])
    source = (box[0], rows, columns, slice(group * depth, (group + 1) * depth))
    by_channel = ((channel,),) * (len(shapes) - 3)
    return (source, (channel, _ALL, _ALL, _ALL), *by_channel), {**changes, "Group": 1}


def _crop_pool(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs | None:
    window = _find_window(numbers, box, shapes)
    if window is None or numbers["Layout"] != 0:
        return None
    rows, columns, changes = window
    return ((box[0], rows, columns, box[3]),), changes


def _find_window(
    numbers: Mapping[str, Any], box: Slices, shapes: Shapes
) -> tuple[slice, slice, dict[str, Any]] | None:
    """Return the rows and columns in the window of one pixel, and the attributes that change."""
    spans, before, after = [], [], []
    for axis, dimension in enumerate(_SPATIAL):
        start = box[dimension].start * numbers["Strides"][axis] - numbers["Pads"][axis]
        dilation = numbers.get("Dilation", (1, 1))[axis]
        end = start + (numbers["Kernels"][axis] - 1) * dilation + 1
        low, high = max(start, 0), min(end, shapes[1][dimension])
        if low >= high:
            return None
        spans.append(slice(low, high))
        before.append(low - start)
        after.append(end - high)
    return spans[0], spans[1], {"Pads": (*before, *after), "Strides": (1, 1)}


def _crop_fully_connected(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs:
    row, column = box
    by_output = ((column,),) * (len(shapes) - 3)
    has_rows = len(by_output) > 1
    return ((row, _ALL), (column, _ALL) if has_rows else (_ALL, column), *by_output), {}


def _crop_transpose(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs:
    source = dict(zip(numbers["Shuffle"], box, strict=True))
    return (tuple(source[dimension] for dimension in range(len(box))),), {}


def _crop_extraction(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs:
    offsets = numbers["Offsets"]
    source = (slice(s.start + o, s.stop + o) for s, o in zip(box, offsets, strict=True))
    return (tuple(source),), {"Offsets": (0,) * len(box)}


def _crop_insertion(numbers: Mapping[str, Any], box: Slices, shapes: Shapes) -> Needs | None:
    """Return the needs of an insertion; None if the element is outside of it."""
    source = []
    for dimension, size in enumerate(shapes[1]):
        at = box[dimension].start - numbers["Offsets"][dimension]
        count = numbers["Count"] if dimension == numbers["Axis"] else 1
        if not 0 <= at < count * size:
            return None
        source.append(slice(at % size, at % size + 1))
    return (tuple(source),), {"Offsets": (0,) * len(box), "Count": 1}


_RULES: dict[OpcodeKind, Rule] = {
    OpcodeKind.CONVOLUTION: _crop_convolution,
    OpcodeKind.MAX_POOL: _crop_pool,
    OpcodeKind.AVERAGE_POOL: _crop_pool,
    OpcodeKind.FULLY_CONNECTED: _crop_fully_connected,
    OpcodeKind.PRODUCT: lambda _, box, __: (((box[0], _ALL), (_ALL, box[1])), {}),
    OpcodeKind.BATCHED_ADD: lambda _, box, __: ((box, box[1:]), {}),
    OpcodeKind.FILL: lambda _, __, ___: ((), {}),
}
_MOVES: dict[str, Rule] = {
    "transpose": _crop_transpose,
    "extracttensor": _crop_extraction,
    "inserttensor": _crop_insertion,
}
