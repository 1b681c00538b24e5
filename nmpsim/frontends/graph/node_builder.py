"""Builder of the nodes that replace an operator of a model file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Array, Node


class NodeBuilder:
    """Builder of a graph's nodes and constants, with several nodes for some operators."""

    def __init__(self, constants: dict[str, Array]) -> None:
        self.nodes: list[Node] = []
        self.constants = constants
        self.layers: dict[str, str] = {}
        """New tensor -> name of the layers that compute it."""
        self._numbers = itertools.count()

    def begin_operator(self, index: int, title: str, result: str) -> None:
        """Begin the nodes of an operator with its number, title and first result."""
        self._index, self._title, self._result = index, title, result

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result; return the name of the result."""
        result = self._make_name()
        self.append_node(op, inputs, result, **attributes)
        return result

    def append_node(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> None:
        """Add a node with named results."""
        node = Node(self._index, op, tuple(inputs), outputs, attributes, self._title)
        self.nodes.append(node)

    def add_constant(self, values: Any) -> str:
        """Add a constant; return its name."""
        name = self._make_name()
        self.constants[name] = np.asarray(values)
        return name

    def add_number(self, number: float) -> str:
        """Add a float32 constant without dimensions; return its name."""
        return self.add_constant(np.float32(number))

    def add_integers(self, *numbers: int) -> str:
        """Add a constant of int64 with one dimension; return its name."""
        return self.add_constant(np.array(numbers, np.int64))

    def add_clip(self, name: str, low: float, high: float) -> str:
        """Add a Clip to constant bounds; return the name of its result."""
        return self.add("Clip", name, self.add_number(low), self.add_number(high))

    def add_reshape(self, name: str, shape: Sequence[int]) -> str:
        """Add a Reshape to a constant shape; return the name of its result."""
        return self.add("Reshape", name, self.add_integers(*shape))

    def _make_name(self) -> str:
        """Return a new name for a tensor whose layers are named as the operator's result."""
        name = f"{self._result} {next(self._numbers)}"
        self.layers[name] = self._result
        return name
