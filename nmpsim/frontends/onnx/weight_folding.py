"""A float graph before it is quantized: factors and sums by channel become part of weights.

A batch norm, a factor and a constant that is added are all ``x * factor + offset`` of each channel.
Where the weights of one operator make ``x``, and nothing else reads it, these hold both from then
on, and what is between needs no range of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.frontends.graph.nodes import Array, Graph, Node
from nmpsim.frontends.graph.real import AS_CONVOLUTION

_Vector: TypeAlias = npt.NDArray[np.float64]
WEIGHTED = ("Conv", "Gemm", "MatMul")


@attrs.frozen(eq=False)
class _Line:
    """``x * factor + offset``."""

    factor: _Vector
    """float64; broadcast as an operand of ONNX's is, unless ``along_channels``."""
    offset: _Vector
    along_channels: bool = False
    """A number for each index along dimension 1."""

    @property
    def parts(self) -> tuple[_Vector, _Vector]:
        """Both."""
        return self.factor, self.offset


def with_folded_weights(graph: Graph) -> tuple[Graph, dict[int, OperatorMapping]]:
    """The graph, and what became of the nodes that are gone, by their numbers."""
    folding = _Folding(graph)
    for node in graph.nodes:
        folding.take(node)
    nodes = tuple(sorted(folding.made.values(), key=lambda node: node.index))
    labels = {node.index: node.label for node in nodes}
    gone = {
        node.index: OperatorMapping(node.label, (), f"part of {labels[into]}")
        for node, into in folding.gone
    }
    return attrs.evolve(graph, nodes=nodes, constants=folding.constants), gone


class _Folding:
    """The walk through the nodes."""

    def __init__(self, graph: Graph) -> None:
        self.constants: dict[str, Array] = dict(graph.constants)
        self.made: dict[str, Node] = {}
        """First output -> the node that makes it now."""
        self.gone: list[tuple[Node, int]] = []
        """Nodes that are part of another one, and the number of that."""
        self._readers = Counter(name for node in graph.nodes for name in node.inputs)
        self._readers.update(graph.outputs)
        self._names = {name for node in graph.nodes for name in node.makes}
        self._names.update(graph.constants, (one.name for one in graph.inputs))

    def take(self, node: Node) -> None:
        """Keep a node, or make it part of the one before it."""
        node = self._plain_product(node)
        name, line = _LINES.get(node.op, _no_line)(node, self.constants)
        before = self.made.get(name)
        if line is not None and before is not None and self._readers[name] == 1:
            folded = self._folded(before, node, line)
            if folded is not None:
                del self.made[name]
                self.made[node.outputs[0]] = folded
                self.gone.append((node, folded.index))
                return
        if node.op == "BatchNormalization" and line is not None:
            node = attrs.evolve(node, attributes={**node.attributes, AS_CONVOLUTION: 1})
        self.made[node.outputs[0]] = node

    def _plain_product(self, node: Node) -> Node:
        """A Gemm without factors, where weights and bias are constants."""
        scales = [float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta")]
        weights = self._weights(node)
        bias = self.constants.get(node.input(2)) if node.input(2) else None
        if node.op != "Gemm" or scales == [1.0, 1.0] or weights is None:
            return node
        if node.input(2) and (bias is None or bias.dtype != np.float32):
            return node
        inputs = [node.inputs[0], self._set(node.inputs[1], node, weights * scales[0])]
        if bias is not None:
            inputs.append(self._set(node.inputs[2], node, bias * scales[1]))
        attributes = {k: v for k, v in node.attributes.items() if k not in ("alpha", "beta")}
        return attrs.evolve(node, inputs=tuple(inputs), attributes=attributes)

    def _weights(self, node: Node) -> Array | None:
        """The constant weights of a node, if it has some that can be changed."""
        if node.op not in WEIGHTED or len(node.outputs) != 1:
            return None
        weights = self.constants.get(node.input(1))
        least = 3 if node.op == "Conv" else 2
        if weights is None or weights.dtype != np.float32 or weights.ndim < least:
            return None
        return None if node.op != "Conv" and weights.ndim != 2 else weights

    def _folded(self, node: Node, after: Node, line: _Line) -> Node | None:
        """A node with what is done to its result in its weights; None if it cannot have it."""
        weights = self._weights(node)
        if weights is None:
            return None
        axis = 0 if node.op == "Conv" or node.attributes.get("transB") else 1
        outs = weights.shape[axis]
        rank = weights.ndim if node.op == "Conv" else 2  # of a product's result at least
        parts = [_by_channel(p, line.along_channels, node, rank, outs) for p in line.parts]
        bias = self.constants.get(node.input(2)) if node.input(2) else np.zeros(1, np.float32)
        if any(part is None for part in parts) or bias is None or bias.dtype != np.float32:
            return None
        if bias.size not in (1, outs) or (bias.shape or (1,))[-1] != bias.size:
            return None
        factor, offset = (np.asarray(part, np.float64) for part in parts)
        spread = [1] * weights.ndim
        spread[axis] = outs
        scaled = weights * factor.reshape(spread)
        moved = np.broadcast_to(bias.reshape(-1), (outs,)) * factor + offset
        inputs = (
            node.inputs[0],
            self._set(node.inputs[1], after, scaled) if (factor != 1).any() else node.inputs[1],
            self._set(node.input(2), after, moved),
        )
        return attrs.evolve(node, inputs=inputs, outputs=after.outputs[:1])

    def _set(self, name: str, node: Node, values: Array) -> str:
        """A constant's new values; under its own name if nobody else reads it."""
        if not name or self._readers[name] > 1:
            name = f"{name or 'bias'}_of_{node.outputs[0]}"
            while name in self._names:
                name += "_"
            self._names.add(name)
        self.constants[name] = values.astype(np.float32)
        return name


def _by_channel(
    values: _Vector, along_channels: bool, node: Node, rank: int, outs: int
) -> _Vector | None:
    """One number for each output channel; None if values differ along another dimension."""
    shape = values.shape
    if along_channels:
        return values if node.op != "MatMul" and shape == (outs,) else None
    if values.ndim > rank:  # the result would have more dimensions
        return None
    if values.size == 1:
        return np.full(outs, values.reshape(-1)[0])
    axis = 1 if node.op == "Conv" else rank - 1
    full = (1,) * (rank - values.ndim) + shape
    return values.reshape(-1) if full[axis] == outs == values.size else None


def _no_line(node: Node, constants: Mapping[str, Array]) -> tuple[str, _Line | None]:
    return "", None


def _batch_norm(node: Node, constants: Mapping[str, Array]) -> tuple[str, _Line | None]:
    given = [constants.get(node.input(place)) for place in range(1, 5)]
    known = [one for one in given if one is not None and one.dtype == np.float32 and one.ndim == 1]
    if len(known) != 4 or len({one.shape for one in known}) != 1 or any(node.outputs[1:]):
        return "", None
    if node.attributes.get("training_mode"):
        return "", None
    scale, bias, mean, variance = (one.astype(np.float64) for one in known)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    if not (variance + epsilon > 0).all():
        return "", None
    factor = scale / np.sqrt(variance + epsilon)
    return node.inputs[0], _Line(factor, bias - mean * factor, along_channels=True)


def _with_constant(
    line: Callable[[_Vector], _Line], either: bool
) -> Callable[[Node, Mapping[str, Array]], tuple[str, _Line | None]]:
    """Of an operator with one constant; ``either`` says that it may be the first."""

    def of(node: Node, constants: Mapping[str, Array]) -> tuple[str, _Line | None]:
        if len(node.inputs) != 2:
            return "", None
        places = [(0, 1), (1, 0)] if either else [(0, 1)]
        for variable, constant in places:
            values = constants.get(node.inputs[constant])
            if values is not None and node.inputs[variable] not in constants:
                if values.dtype != np.float32 or not values.size:
                    return "", None
                with np.errstate(divide="ignore"):
                    made = line(values.astype(np.float64))
                finite = all(np.isfinite(part).all() for part in made.parts)
                return node.inputs[variable], made if finite else None
        return "", None

    return of


_ONE, _NONE = np.ones(1), np.zeros(1)
_LINES = {
    "Add": _with_constant(lambda values: _Line(_ONE, values), either=True),
    "BatchNormalization": _batch_norm,
    "Div": _with_constant(lambda values: _Line(1 / values, _NONE), either=False),
    "Mul": _with_constant(lambda values: _Line(values, _NONE), either=True),
    "Sub": _with_constant(lambda values: _Line(_ONE, -values), either=False),
}
"""Operator -> the tensor that it changes, and how."""
