"""Oracle that executes the instructions of a module one by one on plain memory.

Buffers are byte arrays and views are ranges of them, so aliases behave as in the device's DRAM.
Glow's arithmetic is that of the host operations, which were verified against recordings of Glow on
their own; that of other references is in ``profile_oracle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from profile_oracle import compute_result, is_of_profile

from nmpsim.kernels.hostops import HostResult, HostTensor
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import Instruction, Module, TensorType

Array = np.ndarray[Any, Any]
NO_WORK = ("allocactivation", "deallocactivation", "tensorview", "touch", "debugprint")


@attrs.frozen(eq=False)
class Execution:
    """Execution of an instruction: prior operands, result and values before the clip."""

    instruction: Instruction
    operands: tuple[HostTensor, ...]
    result: Array
    defined: Array
    """Which elements of the result hold something; not so the rest of an unfinished Concat."""
    unclipped: Array | None
    """None where the oracle of the profile does not tell it."""
    numerics: str = "glow-int"
    places: tuple[tuple[str, int, int], ...] = ()
    """Of each operand: its buffer, its first byte there, its bytes."""

    @property
    def key(self) -> str:
        return f"{self.instruction.number:04d}:{self.instruction.name}"


class Memory:
    """Memory of a module: the bytes of every tensor, and where views lie in them."""

    def __init__(self, module: Module, inputs: Mapping[str, Array]) -> None:
        self._bytes: dict[str, Array] = {}
        self._defined: dict[str, Array] = {}
        self._places: dict[str, tuple[str, int, TensorType]] = {}
        for weight in module.weights:
            self._begin(weight.name, weight.type)
            values = module.constants.get(weight.name, inputs.get(weight.name))
            if values is not None:
                self.write(weight.name, values, np.ones(values.shape, np.bool_))

    def define(self, instruction: Instruction) -> None:
        kind = instruction.attributes["Ty"]
        assert isinstance(kind, TensorType)
        if instruction.opcode == "allocactivation":
            self._begin(instruction.name, kind)
        else:
            storage, start, source = self._places[instruction.operands[0].name]
            offsets: Any = instruction.attributes["Offsets"]
            index = int(np.ravel_multi_index(offsets, source.shape)) if source.shape else 0
            self._places[instruction.name] = storage, start + index * source.dtype.itemsize, kind

    def tensor(self, name: str) -> Array:
        """Return the elements of a tensor without copying them."""
        storage, start, kind = self._places[name]
        return (
            self._bytes[storage][start : start + kind.nbytes].view(kind.dtype).reshape(kind.shape)
        )

    def defined(self, name: str) -> Array:
        """Return a mask of the elements of a tensor that are defined."""
        storage, start, kind = self._places[name]
        by_byte = self._defined[storage][start : start + kind.nbytes]
        return by_byte.reshape(*kind.shape, kind.dtype.itemsize).all(axis=-1)

    def write(self, name: str, values: Array, defined: Array) -> None:
        """Set the elements of a tensor and the mask of those that are defined."""
        storage, start, kind = self._places[name]
        self.tensor(name)[...] = values
        by_byte = np.repeat(defined.reshape(-1), kind.dtype.itemsize)
        self._defined[storage][start : start + kind.nbytes] = by_byte

    def operand(self, name: str) -> HostTensor:
        """Return a copy of a tensor as an operand of host operations."""
        quant = self._places[name][2].quant
        values = self.tensor(name).copy()
        if quant is None:
            return HostTensor(values)
        return HostTensor(values, quant.scale, quant.offset, quantized=True)

    def place(self, name: str) -> tuple[str, int, int]:
        """Return a tensor's buffer, its first byte there and its number of bytes."""
        storage, start, kind = self._places[name]
        return storage, start, kind.nbytes

    def _begin(self, name: str, kind: TensorType) -> None:
        self._bytes[name] = np.zeros(kind.nbytes, np.uint8)
        self._defined[name] = np.zeros(kind.nbytes, np.bool_)
        self._places[name] = name, 0, kind


def run_module(
    module: Module,
    inputs: Mapping[str, Array],
    numerics: str = "glow-int",
    by_layer: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, Execution], dict[str, Array]]:
    """Run a module; return executions by key and the final values of mutable weights."""
    memory = Memory(module, inputs)
    done: dict[str, Execution] = {}
    for instruction in module.instructions:
        if instruction.opcode in ("allocactivation", "tensorview"):
            memory.define(instruction)
        elif instruction.opcode not in NO_WORK:
            one = _do(instruction, memory, by_layer.get(instruction.name, numerics))
            done[one.key] = one
    mutable = [w.name for w in module.weights if not w.constant]
    return done, {name: memory.tensor(name).copy() for name in mutable}


def _do(instruction: Instruction, memory: Memory, numerics: str) -> Execution:
    operands = tuple(memory.operand(o.name) for o in instruction.operands)
    masks = [memory.defined(o.name) for o in instruction.operands]
    if is_of_profile(numerics, instruction.opcode, operands):
        result = HostResult(
            {0: compute_result(instruction.opcode, operands, instruction.attributes, numerics)}
        )
    else:
        result = execute_operation(instruction.opcode, operands, instruction.attributes, numerics)
    for index, values in result.outputs.items():
        defined = np.ones(values.shape, np.bool_)
        if instruction.opcode == "inserttensor":
            tensors = [HostTensor(mask) for mask in masks]
            defined = execute_operation("inserttensor", tensors, instruction.attributes).outputs[0]
        memory.write(instruction.operands[index].name, values, defined)
        masks[index] = defined
    unclipped = result.unclipped.get(0)
    places = tuple(memory.place(o.name) for o in instruction.operands)
    return Execution(
        instruction, operands, result.outputs[0], masks[0], unclipped, numerics, places
    )
