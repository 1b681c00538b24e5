"""Construction of LIR modules, with buffers freed after their last use."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.lir.names import UniqueNames
from nmpsim.lir.nodes import (
    INITIAL_SUFFIX,
    AttributeValue,
    Instruction,
    Module,
    Operand,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.verify import verify


@attrs.frozen
class BuilderTensor:
    """Tensor of the module under construction: a weight, a buffer, or a view of either."""

    name: str
    type: TensorType
    storage: str
    """Name of the weight or buffer that contains it."""

    @property
    def shape(self) -> Shape:
        """Sizes of the tensor's dimensions."""
        return self.type.shape


class ModuleBuilder(UniqueNames):
    """Builder of an LIR module from weights and instructions."""

    def __init__(self, name: str, file: str | None) -> None:
        super().__init__()
        self.span = SourcePosition(0, 0)
        """Place of whatever is added, for error messages."""
        self.layers: list[str] = []
        """Names of all instructions that compute something, in order."""
        self.checked: set[str] = set()
        """Names of instructions whose types were checked when they were added."""
        self._name = name
        self._file = file
        self._weights: list[WeightVar] = []
        self._constants: dict[str, Array] = {}
        self._instructions: list[Instruction] = []
        self._buffers: dict[str, BuilderTensor] = {}
        """Buffers that are to be freed, by name."""

    def add_input(self, name: str, type: TensorType) -> BuilderTensor:
        """Add an input of the program under a unique name; return the tensor."""
        return self.add_output(self.make_unique(name), type)

    def add_output(self, name: str, type: TensorType) -> BuilderTensor:
        """Add an output and return it; ``name`` must be a result of :meth:`make_unique`."""
        self._weights.append(WeightVar(name, type, False, self.span))
        return BuilderTensor(name, type, name)

    def sort_variables(self, names: Sequence[str]) -> None:
        """Move the given inputs and outputs to the front of the weights, in this order."""
        order = {name: index for index, name in enumerate(names)}
        self._weights.sort(key=lambda weight: order.get(weight.name, len(order)))

    def add_constant(self, name: str, values: Array, type: TensorType) -> BuilderTensor:
        """Add a constant under a unique name and return it; read-only arrays are not copied."""
        name = self.make_unique(name)
        self._weights.append(WeightVar(name, type, True, self.span))
        stored = np.array(values, type.dtype, copy=values.flags.writeable or None)
        stored = stored.reshape(type.shape)
        stored.flags.writeable = False
        self._constants[name] = stored
        return BuilderTensor(name, type, name)

    def add_initial_value(self, state: BuilderTensor, values: Array) -> None:
        """Make an input a state tensor, which has these values before the first run."""
        self.add_constant(state.name + INITIAL_SUFFIX, values, state.type)

    def allocate(self, name: str, type: TensorType) -> BuilderTensor:
        """Add a buffer for an activation; return it as a tensor."""
        name = self.add_instruction("allocactivation", name, (), Ty=type)
        self._buffers[name] = BuilderTensor(name, type, name)
        return self._buffers[name]

    def add_view(
        self, source: BuilderTensor, type: TensorType, offsets: tuple[int, ...] = (), name: str = ""
    ) -> BuilderTensor:
        """Add a view of ``source`` that has the given type and starts at element ``offsets``."""
        if source.type == type and not name:
            return source
        name = self.add_instruction(
            "tensorview",
            name or f"{source.storage}_view",
            (source,),
            Ty=type,
            Offsets=offsets or (0,) * len(source.shape),
        )
        return BuilderTensor(name, type, source.storage)

    def add_instruction(
        self,
        opcode: str,
        name: str,
        operands: Sequence[BuilderTensor],
        **attributes: AttributeValue,
    ) -> str:
        """Add an instruction with a unique name made from ``name``; return the unique name.

        Parameters
        ----------
        opcode : str
            Opcode of LIR.
        name : str
            Name of the instruction, made unique.
        operands : sequence of Value
            Operands in the order of the opcode's table row.
        **attributes
            Attributes of the instruction.
        """
        row = OPCODES[opcode]
        named = tuple(
            Operand(role.kind, value.name, self.span)
            for role, value in zip(row.operands, operands, strict=True)
        )
        name, number = self.make_unique(name), len(self._instructions)
        self._instructions.append(Instruction(number, name, opcode, named, attributes, self.span))
        if row.kind is not OpcodeKind.NO_WORK:
            self.layers.append(name)
        return name

    def replace_buffer(self, value: BuilderTensor, output: BuilderTensor) -> None:
        """Replace the buffer that stores ``value`` by the program output ``output``.

        If the value is a whole buffer, that buffer no longer exists: use ``output`` from then on.
        """
        buffer = value.storage
        self._buffers.pop(buffer, None)
        at = next(i for i, one in enumerate(self._instructions) if one.name == buffer)
        allocation = self._instructions[at]
        if value.name == buffer:
            later = self._instructions[at + 1 :]
            self._instructions[at:] = [_renamed(one, buffer, output.name) for one in later]
        else:
            type, offsets = allocation.attributes["Ty"], (0,) * len(output.shape)
            self._instructions[at] = attrs.evolve(
                allocation,
                opcode="tensorview",
                operands=(Operand("@in", output.name, self.span),),
                attributes={"Ty": type, "Offsets": offsets},
            )

    def build(self, variables: Sequence[WeightVar] = ()) -> Module:
        """Return the verified module, with ``variables`` appended and buffers freed after last use.

        Returns
        -------
        Module
            The verified module.
        """
        buffers = dict(self._buffers)
        last_use: dict[str, int] = {}
        for index, instruction in enumerate(self._instructions):
            for operand in instruction.operands:
                if operand.name in buffers:
                    buffer = buffers[operand.name]
                    last_use[buffer.name] = index
                    if instruction.opcode == "tensorview":
                        buffers[instruction.name] = buffer
        unused: dict[int, list[BuilderTensor]] = {}
        for name, index in last_use.items():
            unused.setdefault(index, []).append(buffers[name])
        added = self._instructions
        self._instructions = []
        for index, instruction in enumerate(added):
            number, self.span = len(self._instructions), instruction.span
            self._instructions.append(attrs.evolve(instruction, number=number))
            for buffer in unused.get(index, ()):
                self.add_instruction("deallocactivation", f"dealloc_{buffer.name}", (buffer,))
        weights, instructions = (*self._weights, *variables), tuple(self._instructions)
        module = Module(self._name, weights, instructions, self._constants, self._file)
        verify(module, self.checked)
        return module


def _renamed(instruction: Instruction, old: str, new: str) -> Instruction:
    if all(operand.name != old for operand in instruction.operands):
        return instruction
    operands = (attrs.evolve(o, name=new) if o.name == old else o for o in instruction.operands)
    return attrs.evolve(instruction, operands=tuple(operands))
