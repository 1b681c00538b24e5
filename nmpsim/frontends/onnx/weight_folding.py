"""Folding of channelwise factors and sums into weights, before a float graph is quantized.

A batch norm, a factor and a constant that is added are all ``x * factor + offset`` for each
channel. Where the weights of one operator compute ``x``, and nothing else reads it, they are
changed to contain both, and the tensor between needs no range of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Arrays
from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.frontends.graph.float_ops import AS_CONVOLUTION
from nmpsim.frontends.graph.nodes import Array, Graph, Node

_Vector: TypeAlias = npt.NDArray[np.float64]
_WEIGHTED = ("Conv", "Gemm", "MatMul")


@attrs.frozen(eq=False)
class _AffineMap:
    """The function ``x * factor + offset``."""

    factor: _Vector
    """Broadcast as an ONNX operand, unless ``is_by_channel``."""
    offset: _Vector
    is_by_channel: bool = False
    """Whether both have a number for each index of dimension 1."""


_MapReader: TypeAlias = Callable[[Node, Arrays], tuple[str, _AffineMap] | None]
"""Returns the tensor that a node changes and its function; None if it is not such a function."""


def fold_into_weights(graph: Graph) -> tuple[Graph, dict[int, OperatorMapping]]:
    """Fold constant factors, sums and batch norms into weights; return the graph and mappings."""
    folding = _Folding(graph)
    for node in graph.nodes:
        folding.take(node)
    nodes = tuple(sorted(folding.writers.values(), key=lambda node: node.index))
    labels = {node.index: node.label for node in nodes}
    removed = {
        node.index: OperatorMapping(node.label, (), f"part of {labels[into]}")
        for node, into in folding.removed
    }
    return attrs.evolve(graph, nodes=nodes, constants=folding.constants), removed


class _Folding:
    def __init__(self, graph: Graph) -> None:
        self.constants: dict[str, Array] = dict(graph.constants)
        self.writers: dict[str, Node] = {}
        """First output -> the node that now computes it."""
        self.removed: list[tuple[Node, int]] = []
        """Removed nodes, and the number of the node into which each is folded."""
        self._readers = Counter(name for node in graph.nodes for name in node.inputs)
        self._readers.update(graph.outputs)
        self._names = {name for node in graph.nodes for name in node.results}
        self._names.update(graph.constants, (one.name for one in graph.inputs))

    def take(self, node: Node) -> None:
        """Keep a node, or fold it into the one before it."""
        node = self._without_factors(node)
        read = _MAPS[node.op](node, self.constants) if node.op in _MAPS else None
        if read is not None:
            name, change = read
            before = self.writers.get(name)
            if before is not None and self._readers[name] == 1:
                folded = self._folded(before, node, change)
                if folded is not None:
                    del self.writers[name]
                    self.writers[node.outputs[0]] = folded
                    self.removed.append((node, folded.index))
                    return
            if node.op == "BatchNormalization":
                node = attrs.evolve(node, attributes={**node.attributes, AS_CONVOLUTION: 1})
        self.writers[node.outputs[0]] = node

    def _without_factors(self, node: Node) -> Node:
        """Return a Gemm with its factors folded, if weights and bias are constants."""
        alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
        weights, bias = self._weights(node), self.constants.get(node.get_input(2))
        if node.op != "Gemm" or (alpha, beta) == (1.0, 1.0) or weights is None:
            return node
        if node.get_input(2) and (bias is None or bias.dtype != np.float32):
            return node
        inputs = [node.inputs[0], self._set(node.inputs[1], node, weights * alpha)]
        if node.get_input(2) and bias is not None:
            inputs.append(self._set(node.inputs[2], node, bias * beta))
        attributes = {k: v for k, v in node.attributes.items() if k not in ("alpha", "beta")}
        return attrs.evolve(node, inputs=tuple(inputs), attributes=attributes)

    def _weights(self, node: Node) -> Array | None:
        """Return the constant weights of a node, None if they cannot be changed."""
        weights = self.constants.get(node.get_input(1))
        if node.op not in _WEIGHTED or len(node.outputs) != 1 or weights is None:
            return None
        is_fitting = weights.ndim >= 3 if node.op == "Conv" else weights.ndim == 2
        return weights if is_fitting and weights.dtype == np.float32 else None

    def _folded(self, node: Node, after: Node, change: _AffineMap) -> Node | None:
        """Return a node with the function of its result in its weights; None if impossible."""
        weights = self._weights(node)
        if weights is None:
            return None
        is_conv = node.op == "Conv"
        axis = 0 if is_conv or node.attributes.get("transB") else 1
        outs = weights.shape[axis]
        rank = weights.ndim if is_conv else 2  # of a product's result at least
        factor, offset = (
            _by_channel(part, change.is_by_channel, node, rank, outs)
            for part in (change.factor, change.offset)
        )
        bias = (
            self.constants.get(node.get_input(2)) if node.get_input(2) else np.zeros(1, np.float32)
        )
        if factor is None or offset is None or bias is None or bias.dtype != np.float32:
            return None
        if bias.size not in (1, outs) or (bias.shape or (1,))[-1] != bias.size:
            return None
        spread = [1] * weights.ndim
        spread[axis] = outs
        scaled = weights * factor.reshape(spread)
        moved = np.broadcast_to(bias.reshape(-1), (outs,)) * factor + offset
        inputs = (
            node.inputs[0],
            self._set(node.inputs[1], after, scaled) if (factor != 1).any() else node.inputs[1],
            self._set(node.get_input(2), after, moved),
        )
        return attrs.evolve(node, inputs=inputs, outputs=after.outputs[:1])

    def _set(self, name: str, node: Node, values: Array) -> str:
        """Set the values of a constant; return its name, a new one if other nodes read it."""
        if not name or self._readers[name] > 1:
            name = f"{name or 'bias'}_of_{node.outputs[0]}"
            while name in self._names:
                name += "_"
            self._names.add(name)
        self.constants[name] = values.astype(np.float32)
        return name


def _by_channel(
    values: _Vector, is_by_channel: bool, node: Node, rank: int, outs: int
) -> _Vector | None:
    """Return one number for each output channel; None if values differ along another dimension."""
    shape = values.shape
    if is_by_channel:
        return values if node.op != "MatMul" and shape == (outs,) else None
    if values.ndim > rank:  # the result would have more dimensions
        return None
    if values.size == 1:
        return np.full(outs, values.reshape(-1)[0])
    axis = 1 if node.op == "Conv" else rank - 1
    full = (1,) * (rank - values.ndim) + shape
    return values.reshape(-1) if full[axis] == outs == values.size else None


def _read_batch_norm(node: Node, constants: Arrays) -> tuple[str, _AffineMap] | None:
    given = [constants.get(node.get_input(index)) for index in range(1, 5)]
    known = [one for one in given if one is not None and one.dtype == np.float32 and one.ndim == 1]
    is_fitting = len(known) == 4 and len({one.shape for one in known}) == 1
    if not is_fitting or any(node.outputs[1:]) or node.attributes.get("training_mode"):
        return None
    scale, bias, mean, variance = (one.astype(np.float64) for one in known)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    if not (variance + epsilon > 0).all():
        return None
    factor = scale / np.sqrt(variance + epsilon)
    return node.inputs[0], _AffineMap(factor, bias - mean * factor, is_by_channel=True)


def _with_constant(make: Callable[[_Vector], _AffineMap], is_commutative: bool) -> _MapReader:
    """Return the reader of an operator with one constant operand."""

    def read(node: Node, constants: Arrays) -> tuple[str, _AffineMap] | None:
        if len(node.inputs) != 2:
            return None
        for at in (1, 0) if is_commutative else (1,):
            variable, values = node.inputs[1 - at], constants.get(node.inputs[at])
            if values is not None and variable not in constants:
                if values.dtype != np.float32 or not values.size:
                    return None
                with np.errstate(divide="ignore"):
                    change = make(values.astype(np.float64))
                is_finite = np.isfinite(change.factor).all() and np.isfinite(change.offset).all()
                return (variable, change) if is_finite else None
        return None

    return read


_ONE, _ZERO = np.ones(1), np.zeros(1)
_MAPS: dict[str, _MapReader] = {
    "Add": _with_constant(lambda values: _AffineMap(_ONE, values), is_commutative=True),
    "BatchNormalization": _read_batch_norm,
    "Div": _with_constant(lambda values: _AffineMap(1 / values, _ZERO), is_commutative=False),
    "Mul": _with_constant(lambda values: _AffineMap(values, _ZERO), is_commutative=True),
    "Sub": _with_constant(lambda values: _AffineMap(_ONE, -values), is_commutative=False),
}
"""Operator -> reader of its function."""
