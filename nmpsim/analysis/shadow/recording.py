"""Restoration of each layer's operands from the recorded outputs of a run.

A run keeps each layer's output. Buffers are shared and written in place, so the operands of a layer
are restored by replaying the program with the recorded outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.arrays import Array, Arrays
from nmpsim.interpreter import TensorLocation, evaluate_operation, view_tensor
from nmpsim.interpreter.memory import TensorMemory
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.opcodes import IN, NO_WORK, OPCODES, OpcodeKind

_BIASES = {
    OpcodeKind.CONVOLUTION: "Bias",
    OpcodeKind.FULLY_CONNECTED: "Bias",
    OpcodeKind.BATCHED_ADD: "Slice",
}
"""Roles of operands that are added to every result."""


@attrs.frozen
class RecordedOperand:
    """Operand of an instruction and its contents before the layer."""

    place: TensorLocation
    is_constant: bool
    is_bias: bool
    """Whether it is added to every result; other constants are weights."""
    stored: Array = attrs.field(eq=False)
    """Stored contents, in the logical shape."""

    @property
    def type(self) -> TensorType:
        """Tensor type of the operand: element type, shape, scale and offset."""
        return self.place.type


@attrs.frozen
class LayerInstruction:
    """LIR instruction of a layer, with recorded operands in the order in which LIR prints them."""

    instruction: Instruction
    operands: tuple[RecordedOperand, ...]

    @property
    def types(self) -> list[TensorType]:
        """Types of all operands."""
        return [operand.type for operand in self.operands]

    @property
    def result_index(self) -> int:
        """Index of the first operand that the instruction writes."""
        kinds = [operand.kind for operand in self.instruction.operands]
        return next(index for index, kind in enumerate(kinds) if kind != IN)


@attrs.frozen
class ExecutedLayer:
    """Executed layer of a run: an instruction and the instructions fused into it."""

    steps: tuple[LayerInstruction, ...]
    output: Array = attrs.field(eq=False)
    """Stored output of the device."""
    complete: bool
    """Whether all elements of the output's buffer have been written."""

    @property
    def result(self) -> RecordedOperand:
        """Operand that the layer writes, with its previous contents."""
        return self.steps[-1].operands[self.steps[-1].result_index]

    @property
    def number(self) -> int:
        """Number of the LIR instruction that writes the output."""
        return self.steps[-1].instruction.number


class LayerReplay:
    """Replay of recorded runs of a program, which restores the operands of each layer."""

    def __init__(self, module: Module) -> None:
        """Prepare the replay of runs of a module, which contains its constants."""
        self._module, self._memory = module, _Memory(module)

    def replay(
        self, chains: Iterable[Sequence[int]], inputs: Arrays, outputs: Mapping[int, Array]
    ) -> Iterator[ExecutedLayer]:
        """Replay a run; yield its layers up to the first layer without an output.

        The next replay invalidates the iterator.

        Parameters
        ----------
        chains
            For each layer the numbers of its instructions, in order.
        inputs
            Stored values of the program's inputs.
        outputs
            Output in the logical shape by the number of a layer's last instruction.
        """
        memory = self._memory
        memory.begin(inputs)
        by_start = {chain[0]: tuple(chain) for chain in chains}
        for instruction in self._module.instructions:
            if instruction.opcode == "touch":
                memory.touch(instruction.operands[0].name)
            chain = by_start.get(instruction.number)
            if chain is None or instruction.opcode in NO_WORK:
                continue
            if chain[-1] not in outputs:
                return
            steps = tuple(memory.step(self._module.instructions[number]) for number in chain)
            memory.store(steps, outputs[chain[-1]])
            complete = memory.is_complete(steps[-1])
            yield ExecutedLayer(steps, outputs[chain[-1]], complete)


class _Memory(TensorMemory):
    """Stored contents of all tensors of a program."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, lambda type: type.dtype)
        self._constants = module.constants
        self._missing: dict[str, Array] = {}
        """Buffer -> flat mask of elements that were not written since it was touched."""
        for name, array in module.constants.items():
            self.write(name, array)

    def begin(self, inputs: Arrays) -> None:
        """Begin a run with the stored values of the program's inputs."""
        self._missing = {}
        for name, array in inputs.items():
            self.write(name, array)

    def step(self, instruction: Instruction) -> LayerInstruction:
        """Return an instruction with the present contents of its operands."""
        row = OPCODES[instruction.opcode]
        operands = []
        for role, operand in zip(row.operands, instruction.operands, strict=True):
            place, stored = self.find_location(operand.name), self.read(operand.name)
            is_constant = place.storage in self._constants
            is_bias = _BIASES.get(row.kind) == role.name
            values = stored if is_constant else stored.copy()
            operands.append(RecordedOperand(place, is_constant, is_bias, values))
        return LayerInstruction(instruction, tuple(operands))

    def store(self, steps: Sequence[LayerInstruction], output: Array) -> None:
        """Store a layer's output."""
        last = steps[-1]
        target = last.operands[last.result_index].place
        self.read(last.instruction.operands[last.result_index].name)[...] = output
        if target.storage in self._missing:
            view_tensor(self._missing[target.storage], target)[...] &= ~_wrote(last)

    def touch(self, name: str) -> None:
        """Mark a buffer's contents as undefined."""
        storage = self.find_location(name).storage
        self._missing[storage] = np.ones(self.read(storage).size, np.bool_)

    def is_complete(self, step: LayerInstruction) -> bool:
        """Return whether the whole buffer of the result has been written."""
        place = step.operands[step.result_index].place
        missing = self._missing.get(place.storage)
        return missing is None or not view_tensor(missing, place).any()


def _wrote(step: LayerInstruction) -> Array:
    """Return which elements of its result an instruction writes."""
    if step.instruction.opcode != "inserttensor":
        return np.ones(step.operands[step.result_index].type.shape, np.bool_)
    values = [np.full(type_.shape, value) for type_, value in zip(step.types, (0, 1), strict=True)]
    return np.asarray(
        evaluate_operation(step.instruction, step.types, values)[step.result_index], np.bool_
    )
