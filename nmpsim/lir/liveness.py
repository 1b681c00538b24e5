"""Lifetimes of tensors while the verifier walks through a program.

A view has no life of its own: it is alive and written as the buffer is that it looks into.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView

from nmpsim.lir.constraints import InstructionProblem
from nmpsim.lir.nodes import SourcePosition, TensorType, WeightVar
from nmpsim.records import frozen


@frozen
class TrackedTensor:
    """Tensor that a LivenessTracker tracks: a weight, a buffer, or a view of another tensor."""

    name: str
    type: TensorType
    storage: str
    """Name of the weight or buffer that holds the elements; its own except for a view."""
    constant: bool | None
    """True for the storage of a constant, False for an input or output, None for a buffer."""


class LivenessTracker:
    """Tracker of the tensors defined so far: whether each is live, and whether it is written."""

    def __init__(self) -> None:
        self._values: dict[str, TrackedTensor] = {}
        self._freed: dict[str, SourcePosition] = {}
        self._written: set[str] = set()

    def add_weight(self, weight: WeightVar) -> None:
        """Add a weight as a tensor that is live and written from the start."""
        value = TrackedTensor(weight.name, weight.type, weight.name, weight.constant)
        self._values[weight.name] = value
        self._written.add(weight.name)

    def add_buffer(self, name: str, type: TensorType) -> None:
        """Add a buffer with undefined contents."""
        self._values[name] = TrackedTensor(name, type, name, None)

    def add_view(self, name: str, type: TensorType, source: TrackedTensor | None) -> None:
        """Add a view of ``source``, or a buffer that counts as written if ``source`` is None."""
        if source is None:
            self.add_buffer(name, type)
            self._written.add(name)
        else:
            self._values[name] = TrackedTensor(name, type, source.storage, source.constant)

    def assume_written(self, names: Iterable[str]) -> None:
        """Mark tensors as written, after an instruction that could not be checked."""
        self._written.update(self._values[n].storage for n in names if n in self._values)

    def find_tensor(self, name: str) -> TrackedTensor | None:
        """Return the tensor ``name``, live or deallocated, or None if it is undefined."""
        return self._values.get(name)

    def list_names(self) -> KeysView[str]:
        """Return the names of all tensors defined so far."""
        return self._values.keys()

    def check_use(self, value: TrackedTensor) -> InstructionProblem | None:
        """Return a problem if a tensor has been deallocated, or None if it is live."""
        freed = self._freed.get(value.storage)
        if freed is None:
            return None
        message = f"%{value.name} is used after its deallocation"
        found = f"%{value.storage} was deallocated in line {freed.line}"
        return InstructionProblem(None, message, found, "a use before that line", "LIR010")

    def record_read(self, value: TrackedTensor) -> InstructionProblem | None:
        """Record a read of a tensor; return a problem if it is unwritten or freed, else None."""
        problem = self.check_use(value)
        if problem or value.storage in self._written:
            return problem
        self._written.add(value.storage)  # once is enough
        message = f"%{value.name} is read before it is written"
        expected = "an instruction before this one that writes it"
        return InstructionProblem(None, message, "undefined contents", expected, "LIR010")

    def record_write(self, value: TrackedTensor, reads_too: bool) -> InstructionProblem | None:
        """Record a write of a tensor; return a problem if it is constant or freed, else None."""
        if value.constant:
            found = f"the constant WeightVar %{value.storage}"
            message = f"%{value.name} cannot be written"
            return InstructionProblem(
                None, message, found, "an activation or a mutable WeightVar", "LIR007"
            )
        if problem := self.record_read(value) if reads_too else self.check_use(value):
            return problem
        self._written.add(value.storage)
        return None

    def end_lifetime(self, value: TrackedTensor, span: SourcePosition) -> InstructionProblem | None:
        """End the lifetime of a buffer; return a problem if it may not be freed, else None."""
        view = value.storage != value.name
        if view or value.constant is not None:
            what = "a tensorview" if view else "a WeightVar"
            message = f"%{value.name} cannot be deallocated"
            return InstructionProblem(None, message, what, "an allocactivation", "LIR010")
        if freed := self._freed.get(value.name):
            message = f"%{value.name} is deallocated twice"
            found = f"already deallocated in line {freed.line}"
            return InstructionProblem(None, message, found, "one deallocactivation", "LIR010")
        self._freed[value.name] = span
        return None
