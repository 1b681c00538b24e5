"""The tensors of a program while it is interpreted: buffers and views into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, quote
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.lir.nodes import Module, TensorType


@attrs.frozen
class TensorLocation:
    """Location of a tensor: buffer name, index of its first element there, and type."""

    storage: str
    start: int
    type: TensorType


def locate_tensors(module: Module) -> dict[str, TensorLocation]:
    """Return the location of each weight, buffer and view of a module, by name."""
    places = {w.name: TensorLocation(w.name, 0, w.type) for w in module.weights}
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if not isinstance(type_, TensorType):
            continue
        if instruction.opcode == "allocactivation":
            places[instruction.name] = TensorLocation(instruction.name, 0, type_)
        else:
            source = places[instruction.operands[0].name]
            start = source.start + _flat_index(instruction.attributes["Offsets"], source.type.shape)
            places[instruction.name] = TensorLocation(source.storage, start, type_)
    return places


def _flat_index(offsets: Any, shape: Shape) -> int:
    return int(np.ravel_multi_index(offsets, shape)) if shape else 0


class TensorMemory:
    """Memory for the values of all tensors of a program, initialized with zeros."""

    def __init__(self, module: Module, dtype_of: Callable[[TensorType], np.dtype[Any]]) -> None:
        self._places = locate_tensors(module)
        owners = [place for name, place in self._places.items() if place.storage == name]
        check_memory("evaluating the program", _parts(owners, dtype_of), place=Place(module.file))
        self._buffers = {
            place.storage: np.zeros(place.type.elements, dtype_of(place.type)) for place in owners
        }

    def find_location(self, name: str) -> TensorLocation:
        """Return the buffer, start index and type of a tensor."""
        return self._places[name]

    def read(self, name: str) -> Array:
        """Return a writable view of the values of a tensor, with the shape of the tensor."""
        place = self._places[name]
        return view_tensor(self._buffers[place.storage], place)

    def write(self, name: str, values: Array) -> None:
        """Copy ``values`` to the memory of a tensor."""
        self.read(name)[...] = values


def _parts(
    owners: list[TensorLocation], dtype_of: Callable[[TensorType], np.dtype[Any]]
) -> Iterator[PlannedAllocation]:
    """Yield the memory needed for each buffer and for a copy of what is written into it."""
    for place in owners:
        nbytes = 2 * place.type.elements * dtype_of(place.type).itemsize
        yield PlannedAllocation(f"%{quote(place.storage)}", nbytes)


def view_tensor(values: Array, place: TensorLocation) -> Array:
    """Return a view of the buffer ``values`` with a tensor's elements, in the tensor's shape."""
    flat = values.reshape(-1)
    return flat[place.start : place.start + place.type.elements].reshape(place.type.shape)
