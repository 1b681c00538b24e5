"""The lives of tensors while a program is walked through: begun, written, freed.

A view has no life of its own: it is alive and written as the buffer is that it looks into.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView

from nmpsim.lir.constraints import Problem
from nmpsim.lir.nodes import Span, TensorType, WeightVar
from nmpsim.records import frozen


@frozen
class Value:
    """A tensor: a weight, a buffer, or a view of one."""

    name: str
    type: TensorType
    storage: str
    """Name of the weight or buffer that holds the elements; its own but for a view."""
    constant: bool | None
    """Of the storage: True for a constant, False for an input or output, None for a buffer."""


class Liveness:
    """Which values exist, and what has happened to their storage."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._freed: dict[str, Span] = {}
        self._written: set[str] = set()

    def add_weight(self, weight: WeightVar) -> None:
        """A weight is there, and written, from the start."""
        value = Value(weight.name, weight.type, weight.name, weight.constant)
        self._values[weight.name] = value
        self._written.add(weight.name)

    def add_buffer(self, name: str, type: TensorType) -> None:
        """A buffer begins, with undefined contents."""
        self._values[name] = Value(name, type, name, None)

    def add_view(self, name: str, type: TensorType, source: Value | None) -> None:
        """A view of a value; without ``source`` (something wrong, reported elsewhere) alone."""
        if source is None:
            self.add_buffer(name, type)
            self._written.add(name)
        else:
            self._values[name] = Value(name, type, source.storage, source.constant)

    def assume_written(self, names: Iterable[str]) -> None:
        """Take the values as written, after an instruction that could not be understood."""
        self._written.update(self._values[n].storage for n in names if n in self._values)

    def find(self, name: str) -> Value | None:
        """The value of this name, alive or not."""
        return self._values.get(name)

    def names(self) -> KeysView[str]:
        """All names of values so far."""
        return self._values.keys()

    def alive(self, value: Value) -> Problem | None:
        """What is wrong with using the value at all."""
        freed = self._freed.get(value.storage)
        if freed is None:
            return None
        message = f"%{value.name} is used after its life"
        found = f"%{value.storage} was deallocated in line {freed.line}"
        return Problem(None, message, found, "a use before that line", "LIR010")

    def read(self, value: Value) -> Problem | None:
        """What is wrong with reading the value."""
        problem = self.alive(value)
        if problem or value.storage in self._written:
            return problem
        self._written.add(value.storage)  # once is enough
        message = f"%{value.name} is read before it is written"
        expected = "an instruction before this one that writes it"
        return Problem(None, message, "undefined contents", expected, "LIR010")

    def write(self, value: Value, reads_too: bool) -> Problem | None:
        """What is wrong with writing the value."""
        if value.constant:
            found = f"%{value.storage} is const"
            message = f"%{value.name} cannot be written"
            return Problem(None, message, found, "an activation or a mutable WeightVar", "LIR007")
        if problem := self.read(value) if reads_too else self.alive(value):
            return problem
        self._written.add(value.storage)
        return None

    def end(self, value: Value, span: Span) -> Problem | None:
        """What is wrong with freeing the value; it is dead from here on."""
        view = value.storage != value.name
        if view or value.constant is not None:
            what = "a tensorview" if view else "a WeightVar"
            message = f"%{value.name} cannot be deallocated"
            return Problem(None, message, what, "an allocactivation", "LIR010")
        if freed := self._freed.get(value.name):
            message = f"%{value.name} is deallocated twice"
            found = f"already deallocated in line {freed.line}"
            return Problem(None, message, found, "one deallocactivation", "LIR010")
        self._freed[value.name] = span
        return None
