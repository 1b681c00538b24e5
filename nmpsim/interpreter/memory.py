"""The tensors of a program while it is evaluated: buffers, views, and errors about their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, fail
from nmpsim.host_memory import Part, check_memory
from nmpsim.kernels.hostops import HostValueError
from nmpsim.lir.messages import quote
from nmpsim.lir.nodes import Instruction, Module, TensorType


@contextmanager
def values_taken(instruction: Instruction, file: str | None) -> Iterator[None]:
    """Within, a value that the instruction cannot take is a ``UserError`` HOST001."""
    try:
        yield
    except HostValueError as error:
        place = instruction.span.place(file)
        message = f"%{instruction.name} cannot be calculated"
        raise fail("HOST001", message, place=place, found=error) from None


@attrs.frozen
class Location:
    """A tensor: this many elements of a weight or buffer, in order, from ``start``."""

    storage: str
    start: int
    type: TensorType


def locate(module: Module) -> dict[str, Location]:
    """Where each weight, buffer and view of a verified module lies."""
    places = {w.name: Location(w.name, 0, w.type) for w in module.weights}
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if not isinstance(type_, TensorType):
            continue
        if instruction.opcode == "allocactivation":
            places[instruction.name] = Location(instruction.name, 0, type_)
        else:
            source = places[instruction.operands[0].name]
            start = source.start + _start(instruction.attributes["Offsets"], source.type.shape)
            places[instruction.name] = Location(source.storage, start, type_)
    return places


def _start(offsets: Any, shape: tuple[int, ...]) -> int:
    """Elements before the one at ``offsets``, row by row."""
    return int(np.ravel_multi_index(offsets, shape)) if shape else 0


class Memory:
    """Contents of all tensors; zeros where nothing was written."""

    def __init__(self, module: Module, dtype_of: Callable[[TensorType], np.dtype[Any]]) -> None:
        self._places = locate(module)
        check_memory("evaluating the program", self._parts(dtype_of), place=Place(module.file))
        self._buffers = {
            name: np.zeros(place.type.elements, dtype_of(place.type))
            for name, place in self._places.items()
            if place.storage == name
        }

    def _parts(self, dtype_of: Callable[[TensorType], np.dtype[Any]]) -> Iterator[Part]:
        """Each buffer, and a copy of what is written into it."""
        for name, place in self._places.items():
            if place.storage == name:
                yield Part(
                    f"%{quote(name)}", 2 * place.type.elements * dtype_of(place.type).itemsize
                )

    def place(self, name: str) -> Location:
        """Where a tensor lies."""
        return self._places[name]

    def read(self, name: str) -> npt.NDArray[Any]:
        """A tensor's values in their logical shape, in place."""
        place = self._places[name]
        return _part(self._buffers[place.storage], place)

    def write(self, name: str, values: npt.NDArray[Any]) -> None:
        """Give a tensor new contents."""
        self.read(name)[...] = values


Written = tuple[Instruction, str, npt.NDArray[Any]]
"""An instruction, an operand that it wrote, and the operand's contents after it."""


class Execution(Iterator[Written]):
    """A program that runs while one iterates over what it writes."""

    def __init__(self, steps: Iterator[Written], memory: Memory) -> None:
        self._steps = steps
        self._memory = memory

    def __next__(self) -> Written:
        return next(self._steps)

    def contents(self, name: str) -> npt.NDArray[Any]:
        """What a tensor holds by now; for an output its values, at the end. A copy."""
        return np.array(self._memory.read(name))


def stored(place: Location, constants: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What a constant, or a view of one, holds as the program stores it."""
    return _part(constants[place.storage].reshape(-1), place)


def _part(flat: npt.NDArray[Any], place: Location) -> npt.NDArray[Any]:
    return flat[place.start : place.start + place.type.elements].reshape(place.type.shape)
