"""The graph of a float PyTorch model under construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nmpsim.frontends.graph.steps import Array, Node
from nmpsim.frontends.torch.record import Call, Recorded, Tensor


class Drawing:
    """The graph under construction."""

    def __init__(self, recorded: Recorded) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self._names = {tensor.number: name for name, tensor in recorded.inputs}
        self._taken = {*self._names.values(), *(name for name, _ in recorded.outputs)}
        self._call: Call | None = None
        self._end = 1 + max((call.number for call in recorded.calls), default=0)

    def take(self, call: Call, operations: Mapping[str, Operation]) -> None:
        """An operation; one that is not among ``operations`` stays as it is."""
        self._call = call
        for place, result in enumerate(call.results):
            own = call.name or call.operation.rpartition(".")[2]
            self._names[result.number] = self.fresh(own if place == 0 else f"{own}_{place}")
        operation = operations.get(call.operation)
        if operation is None or not operation(self, call):
            sources = [self.name(one) for one in call.arguments.values() if isinstance(one, Tensor)]
            self.add(call.operation, sources, self.results(call) or [self.fresh("nothing")])
        self._call = None

    def fresh(self, name: str) -> str:
        """A name that no tensor has."""
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}__{count}"
        self._taken.add(found)
        return found

    def name(self, tensor: Tensor) -> str:
        """The name of a tensor; of a constant, which is kept."""
        if tensor.number not in self._names:
            name = tensor.name or f"{self._call.name if self._call else ''}.constant".strip(".")
            self._names[tensor.number] = self.constant(name, np.asarray(tensor.values))
        return self._names[tensor.number]

    def constant(self, name: str, values: Array) -> str:
        """A new constant; its name."""
        name = self.fresh(name)
        self.constants[name] = values
        return name

    def integers(self, values: Sequence[int]) -> str:
        """A new constant that holds whole numbers."""
        return self.constant("numbers", np.array(values, np.int64))

    def results(self, call: Call) -> list[str]:
        """The names of what a call makes."""
        return [self._names[result.number] for result in call.results]

    def add(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> bool:
        """An operator of the operation at hand."""
        call = self._call
        index, title = (call.number, call.node) if call else (self._end, "output")
        if call is None:
            self._end += 1
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(Node(index, op, tuple(inputs), tuple(outputs), given, title))
        return True


Operation: TypeAlias = Callable[[Drawing, Call], bool]
"""False if a call has a form that there is no operator for."""
