"""What every operand held when a layer of a run used it.

A run keeps each layer's output. Buffers are shared and written in place, so the operands of a
layer are found by going through the program once more, putting each output where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.interpreter import Location, locate, real_operation
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.opcodes import IN, NO_WORK

Array = npt.NDArray[Any]


@attrs.frozen
class Operand:
    """An operand, and what it held before the layer."""

    place: Location
    is_constant: bool
    stored: Array = attrs.field(eq=False)
    """Contents as the program stores them, in the logical shape."""

    @property
    def type(self) -> TensorType:
        """Element kind, shape, scale and offset."""
        return self.place.type


@attrs.frozen
class LayerInstruction:
    """One instruction of a layer with its operands in print order."""

    instruction: Instruction
    operands: tuple[Operand, ...]

    @property
    def types(self) -> list[TensorType]:
        """Of all operands."""
        return [operand.type for operand in self.operands]

    @property
    def written(self) -> int:
        """Index of the operand that holds the result."""
        kinds = [operand.kind for operand in self.instruction.operands]
        return next(index for index, kind in enumerate(kinds) if kind != IN)


@attrs.frozen
class Executed:
    """A layer as it ran: an instruction and what was fused into it."""

    steps: tuple[LayerInstruction, ...]
    output: Array = attrs.field(eq=False)
    """What the device left there, as it is stored."""
    complete: bool
    """False for a buffer that is put together of parts while some are missing."""

    @property
    def result(self) -> Operand:
        """The operand that the layer wrote; it holds what was there before."""
        return self.steps[-1].operands[self.steps[-1].written]

    @property
    def number(self) -> int:
        """Number of the LIR instruction whose output it is."""
        return self.steps[-1].instruction.number


def executed_layers(
    module: Module,
    chains: Iterable[Sequence[int]],
    inputs: Mapping[str, Array],
    outputs: Mapping[int, Array],
) -> Iterator[Executed]:
    """Every layer of a run, in program order, until one has no output.

    Args:
        module: the program, with its constants.
        chains: for each layer the numbers of its instructions, in order.
        inputs: what each input of the program held.
        outputs: number of a layer's last instruction -> its output, in the logical shape.
    """
    memory = _Memory(module, inputs)
    by_start = {chain[0]: tuple(chain) for chain in chains}
    for instruction in module.instructions:
        if instruction.opcode == "touch":
            memory.touch(instruction.operands[0].name)
        chain = by_start.get(instruction.number)
        if chain is None or instruction.opcode in NO_WORK:
            continue
        if chain[-1] not in outputs:
            return
        steps = tuple(memory.step(module.instructions[number]) for number in chain)
        memory.write(steps, outputs[chain[-1]])
        complete = memory.is_complete(steps[-1])
        yield Executed(steps, outputs[chain[-1]], complete)


class _Memory:
    """All tensors of a program as they are stored."""

    def __init__(self, module: Module, inputs: Mapping[str, Array]) -> None:
        self._places = locate(module)
        self._constants = module.constants
        self._buffers: dict[str, Array] = {
            name: np.zeros(place.type.elements, place.type.dtype)
            for name, place in self._places.items()
            if name == place.storage and name not in module.constants
        }
        self._buffers |= module.constants
        self._missing: dict[str, Array] = {}
        for name, array in inputs.items():
            part(self._buffers[name], self._places[name])[...] = array

    def step(self, instruction: Instruction) -> LayerInstruction:
        """An instruction with what its operands hold now."""
        return LayerInstruction(
            instruction, tuple(self._operand(o.name) for o in instruction.operands)
        )

    def write(self, steps: Sequence[LayerInstruction], output: Array) -> None:
        """A layer's output takes its place."""
        last = steps[-1]
        target = last.operands[last.written].place
        part(self._buffers[target.storage], target)[...] = output
        if target.storage in self._missing:
            part(self._missing[target.storage], target)[...] &= ~_wrote(last)

    def touch(self, name: str) -> None:
        """From here on the buffer's contents are undefined."""
        storage = self._places[name].storage
        self._missing[storage] = np.ones(self._buffers[storage].size, np.bool_)

    def is_complete(self, step: LayerInstruction) -> bool:
        """Whether everything that the result's buffer holds has been written."""
        place = step.operands[step.written].place
        missing = self._missing.get(place.storage)
        return missing is None or not part(missing, place).any()

    def _operand(self, name: str) -> Operand:
        place = self._places[name]
        is_constant = place.storage in self._constants
        stored = part(self._buffers[place.storage], place)
        return Operand(place, is_constant, stored if is_constant else stored.copy())


def part(values: Array, place: Location) -> Array:
    """The piece of a weight or buffer that lies at a place, in its logical shape."""
    flat = values.reshape(-1)
    return flat[place.start : place.start + place.type.elements].reshape(place.type.shape)


def _wrote(step: LayerInstruction) -> Array:
    """Which elements of its result an instruction writes; all, but where it puts in a part."""
    if step.instruction.opcode != "inserttensor":
        return np.ones(step.operands[step.written].type.shape, np.bool_)
    values = [np.full(type_.shape, value) for type_, value in zip(step.types, (0, 1), strict=True)]
    return np.asarray(real_operation(step.instruction, step.types, values)[step.written], np.bool_)
