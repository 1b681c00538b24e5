"""Graph of a float program: values, and the nodes that write and read them.

LIR may store several results in one buffer, one after the other. A quantized program needs a scale
for each result, so each result is a separate value here, and has a separate buffer in the quantized
program.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import fail
from nmpsim.interpreter import TensorLocation, locate_tensors
from nmpsim.lir.nodes import AttributeValue, Instruction, Module, SourcePosition, TensorType
from nmpsim.lir.opcodes import IN, INOUT, NO_WORK, OPCODES, OpcodeKind


@attrs.frozen
class FloatValue:
    """Value of a float program: a constant, an input, or a result at one point of the program.

    Values with the same ``number`` are equal. A value may be written in several parts.
    """

    number: int
    name: str = attrs.field(eq=False)
    """Name of the weight or instruction that it comes from."""
    type: TensorType = attrs.field(eq=False)
    kind: str = attrs.field(eq=False)
    """``constant``, ``input`` or ``result``."""


@attrs.frozen
class ResultRegion:
    """Region of a result that one node writes: index of its first element, and its type."""

    start: int
    type: TensorType


@attrs.frozen
class FloatNode:
    """Node of a float graph: an instruction, and the values that it reads and writes."""

    instruction: Instruction
    results: tuple[FloatValue, ...]
    sources: tuple[FloatValue, ...]
    """Values read, in the order of the ``@in`` operands."""
    region: ResultRegion | None = None
    """Region of the result that the node writes, if other nodes write it too."""

    @property
    def opcode(self) -> str:
        """LIR opcode of the instruction, such as ``convolution``."""
        return self.instruction.opcode

    @property
    def kind(self) -> OpcodeKind:
        """Opcode kind of the node, such as convolution; it determines how the node is quantized."""
        return OPCODES[self.opcode].kind

    @property
    def keeps_scale(self) -> bool:
        """Whether the result must have the scale and offset of the source."""
        return OPCODES[self.opcode].keeps_scale

    @property
    def is_implicit(self) -> bool:
        """Whether the node is a view or copy for which the program has no instruction."""
        return not self.instruction.operands


@attrs.frozen
class FloatGraph:
    """Graph of a float program: nodes in program order, inputs and final outputs."""

    module: Module
    nodes: tuple[FloatNode, ...]
    inputs: tuple[FloatValue, ...]
    outputs: dict[str, FloatValue]
    """Mutable weight -> its value at the end, for weights that are written."""
    views: dict[FloatValue, tuple[FloatValue, int]]
    """View -> its source and the index of its first element there."""

    @cached_property
    def consumers(self) -> dict[FloatValue, list[FloatNode]]:
        """Nodes that read each value, in program order."""
        return _group_by_value(
            (one, node) for node in self.nodes for one in dict.fromkeys(node.sources)
        )

    @cached_property
    def producers(self) -> dict[FloatValue, list[FloatNode]]:
        """Nodes that write each value, in program order."""
        return _group_by_value((one, node) for node in self.nodes for one in node.results)

    @cached_property
    def assembled_values(self) -> list[FloatValue]:
        """Values that nodes write region by region."""
        return [one for one, nodes in self.producers.items() if any(node.region for node in nodes)]

    def get_constant(self, value: FloatValue) -> Array | None:
        """Return the elements of a constant or a view of a constant; None if the value varies."""
        if value.kind == "constant":
            return self.module.constants[value.name]
        source, start = self.views.get(value, (None, 0))
        whole = None if source is None else self.get_constant(source)
        if whole is None:
            return None
        return whole.reshape(-1)[start : start + value.type.elements].reshape(value.type.shape)


def _group_by_value(
    pairs: Iterable[tuple[FloatValue, FloatNode]],
) -> dict[FloatValue, list[FloatNode]]:
    found: dict[FloatValue, list[FloatNode]] = {}
    for value, node in pairs:
        found.setdefault(value, []).append(node)
    return found


def build_graph(module: Module) -> FloatGraph:
    """Build the graph of a verified float module, without ``debugprint`` instructions."""
    return _Builder(module).graph()


class _Builder:
    """Walk through the instructions that tracks the contents of each buffer."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._places = locate_tensors(module)
        self._nodes: list[FloatNode] = []
        self._count = 0
        self._views: dict[tuple[FloatValue, int, Shape], FloatValue] = {}
        self._assembled: set[FloatValue] = set()
        self._holds: dict[str, FloatValue] = {}
        for weight in module.weights:
            kind = "constant" if weight.constant else "input"
            self._holds[weight.name] = self._value(weight.name, weight.type, kind)
        self._at_first = dict(self._holds)

    def graph(self) -> FloatGraph:
        """Walk through the instructions, then read the mutable weights."""
        for instruction in self._module.instructions:
            if instruction.opcode == "touch":
                self._touch(instruction)
            elif instruction.opcode == "copy" and self._is_rename(instruction):
                target, source = (o.name for o in instruction.operands)
                self._holds[self._places[target].storage] = self._read(source, instruction.span)
            elif instruction.opcode not in NO_WORK:
                self._compute(instruction)
        mutable = [w.name for w in self._module.weights if not w.constant]
        read = {value for node in self._nodes for value in node.sources}
        outputs = {n: self._holds[n] for n in mutable if self._holds[n] != self._at_first[n]}
        read.update(outputs.values())
        inputs = tuple(self._at_first[n] for n in mutable if self._at_first[n] in read)
        views = {view: (source, start) for (source, start, _), view in self._views.items()}
        return FloatGraph(self._module, tuple(self._nodes), inputs, outputs, views)

    def _value(self, name: str, type_: TensorType, kind: str = "result") -> FloatValue:
        self._count += 1
        return FloatValue(self._count - 1, name, type_, kind)

    def _touch(self, instruction: Instruction) -> None:
        place = self._places[instruction.operands[0].name]
        if self._covers(place):
            value = self._value(instruction.name, place.type)
            self._assembled.add(value)
            self._holds[place.storage] = value
            self._nodes.append(FloatNode(instruction, (value,), (), ResultRegion(0, place.type)))

    def _is_rename(self, instruction: Instruction) -> bool:
        """Return whether a copy of a whole, unchanged value needs no copying."""
        target, source = (self._places[o.name] for o in instruction.operands)
        return self._covers(target) and self._holds[source.storage] not in self._assembled

    def _compute(self, instruction: Instruction) -> None:
        reads = tuple(
            self._read(o.name, instruction.span) for o in instruction.operands if o.kind == IN
        )
        written = [o.name for o in instruction.operands if o.kind != IN]
        if instruction.opcode == "inserttensor":
            self._write_part(instruction, self._places[written[0]], reads)
            return
        if any(role.kind == INOUT for role in OPCODES[instruction.opcode].operands):
            raise fail(
                "QUANT001",
                f"%{instruction.name} writes elements at indices that are not constant",
                place=instruction.span.place(self._module.file),
                found=instruction.opcode,
                expected="operations that write whole tensors or constant parts of them",
                hint="End the program before this instruction, and compute the rest separately.",
            )
        results = tuple(self._value(instruction.name, self._places[n].type) for n in written)
        self._nodes.append(FloatNode(instruction, results, reads))
        for name, value in zip(written, results, strict=True):
            place = self._places[name]
            if self._covers(place):
                self._holds[place.storage] = value
            else:
                self._write_part(_renamed(instruction, "copy"), place, (value,))

    def _write_part(
        self, instruction: Instruction, place: TensorLocation, reads: tuple[FloatValue, ...]
    ) -> None:
        """Add an insertion, or the copy of a result into a part of a buffer."""
        value = self._holds[place.storage]
        if value not in self._assembled and not self._is_own(value):
            source, value = value, self._value(instruction.name, value.type)
            self._nodes.append(FloatNode(_renamed(instruction, "copy"), (value,), (source,)))
        self._assembled.add(value)
        self._holds[place.storage] = value
        start = place.start if place.type.shape != value.type.shape else 0
        self._nodes.append(FloatNode(instruction, (value,), reads, ResultRegion(start, place.type)))

    def _is_own(self, value: FloatValue) -> bool:
        """Return whether writing into a value changes nothing else."""
        holders = sum(held == value for held in self._holds.values())
        return value.kind == "result" and value not in self._views.values() and holders == 1

    def _covers(self, place: TensorLocation) -> bool:
        """Return whether a tensor is the whole of its buffer."""
        whole = self._places[place.storage].type
        return place.type.elements == whole.elements

    def _read(self, name: str, span: SourcePosition) -> FloatValue:
        place = self._places[name]
        value = self._holds[place.storage]
        if place.type.shape == value.type.shape:
            return value
        key = value, place.start, place.type.shape
        if key not in self._views:
            self._views[key] = self._value(name, place.type)
            view = _view(name, place, value.type.shape, span)
            self._nodes.append(FloatNode(view, (self._views[key],), (value,)))
        return self._views[key]


def _view(name: str, place: TensorLocation, source: Shape, span: SourcePosition) -> Instruction:
    """Return a view of a value, skipping intermediate views."""
    offsets = np.unravel_index(place.start, source) if source else ()
    attributes: dict[str, AttributeValue] = {
        "Ty": place.type,
        "Offsets": tuple(int(offset) for offset in offsets),
    }
    return Instruction(0, name, "tensorview", (), attributes, span)


def _renamed(instruction: Instruction, opcode: str) -> Instruction:
    """Return an additional instruction named after another one."""
    name = f"{instruction.name}_{opcode}"
    return attrs.evolve(instruction, name=name, opcode=opcode, operands=(), attributes={})
