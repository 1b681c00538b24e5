"""Which operations between DequantizeLinear and QuantizeLinear are computed on integers.

The rules are ONNX Runtime's (onnxruntime/core/optimizer/qdq_transformer, with
``session.qdqisint8allowed``): every input is dequantized, all that reads the result is one
QuantizeLinear, types agree. What only moves values commutes with both, so they are carried through
it. All else stays float.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from nmpsim.frontends.graph.functions import FUNCTIONS
from nmpsim.frontends.graph.nodes import (
    LIMITS,
    Constants,
    Graph,
    Integers,
    Node,
    Quantized,
    quantized,
)
from nmpsim.frontends.imported_model import UnsupportedError

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_CARRIED = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice")
"""Moves through which ONNX Runtime carries both conversions."""
_DROPPED = (*_CARRIED, "Flatten", "Expand", "Gather", "Resize", "Tile")
"""Moves of integers, if they lie between both conversions by one scale."""
_BIAS_TOLERANCE, _BIAS_DIFFERENCE = 1e-2, 1e-6
"""How far a bias's scale may be from that of the sum, as ONNX Runtime 1.32 answers."""
_UNARY = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")
_SOURCES: Mapping[str, int] = {
    **dict.fromkeys(("Add", "Conv", "Gemm", "MatMul", "Mul"), 2),
    **dict.fromkeys(_UNARY, 1),
}
"""Operator -> how many inputs are quantized, without a bias."""
_ISLANDS: Mapping[str, int] = {
    **dict.fromkeys((op for op in FUNCTIONS if op not in _UNARY), 1),
    "Clip": 1,
    "ConvTranspose": 2,
    "Div": 1,
    "ReduceMean": 1,
    "Relu": 1,
    "Resize": 1,
    "Sub": 2,
}
"""The same of operators that ONNX Runtime has in float32 only."""
_EIGHT_BITS = (*FUNCTIONS, "Div", "GlobalAveragePool", "Softmax")
"""Operators that nmpsim does not have on integers of 16 bits."""
_COUNTED = (
    *("Add", "AveragePool", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "Mul", "Sub"),
)
"""Operators whose lowering takes the bounds of a clip; so does a product with a constant."""
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@attrs.frozen(eq=False)
class Steps:
    """The graph as it is computed."""

    steps: tuple[Node, ...]
    absorbed: Mapping[int, str]
    """Number of a node that became part of another one -> what became of it."""
    islands: tuple[str, ...]
    """Operations on integers that are float32 in ONNX Runtime, as a reader knows them."""


def integer_groups(graph: Graph, constants: Constants, islands: bool) -> Steps:
    """The graph with its integer operations found.

    Args:
        graph: as it was read.
        constants: those of the file, and what nodes of kind Constant hold.
        islands: also those groups that ONNX Runtime computes in float, where nmpsim can compute
            them on integers.

    Raises:
        UnsupportedError: not for a single node, which fails when it is lowered.
    """
    finder = _Finder(_carried(graph), graph.outputs, constants, islands)
    return finder.steps()


class _Edges:
    """Who makes a tensor and who reads it."""

    def __init__(self, nodes: list[Node], outputs: tuple[str, ...]) -> None:
        self.makers = {name: node for node in nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self._outputs = set(outputs)

    def only_reader(self, name: str) -> Node | None:
        """The one node that reads a tensor, which is no output of the model."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None


def _carried(graph: Graph) -> list[Node]:
    """The nodes, with conversions carried through what only moves values.

    Forwards: DQ, move becomes move, DQ. Backwards: move, Q becomes Q, move.
    """
    nodes = list(graph.nodes)
    changed = True
    while changed:
        edges = _Edges(nodes, graph.outputs)
        changed = False
        for at, node in enumerate(nodes):
            if node.op not in _CARRIED or len([o for o in node.outputs if o]) != 1:
                continue
            before, after = edges.makers.get(node.inputs[0]), edges.only_reader(node.outputs[0])
            is_dequantized = before is not None and before.op == DEQUANTIZE
            is_quantized = after is not None and after.op == QUANTIZE
            if after is not None and is_quantized and not is_dequantized:
                if not _has_one_scale(after, graph) or not edges.only_reader(node.inputs[0]):
                    continue
                name = _new_name(node.inputs[0], edges, graph)
                first = attrs.evolve(
                    after, inputs=(node.inputs[0], *after.inputs[1:]), outputs=(name,)
                )
                moved = attrs.evolve(
                    node, inputs=(name, *node.inputs[1:]), outputs=(after.outputs[0],)
                )
                nodes[at] = first
                nodes[nodes.index(after)] = moved
            elif before is not None and is_dequantized and not is_quantized:
                if not _has_one_scale(before, graph) or node.outputs[0] in graph.outputs:
                    continue
                name = _new_name(node.outputs[0], edges, graph)
                moved = attrs.evolve(
                    node, inputs=(before.inputs[0], *node.inputs[1:]), outputs=(name,)
                )
                last = attrs.evolve(before, inputs=(name, *before.inputs[1:]), outputs=node.outputs)
                nodes[at : at + 1] = [moved, last]
            else:
                continue
            changed = True
            break
    return nodes


def _new_name(name: str, edges: _Edges, graph: Graph) -> str:
    """What is quantized of a tensor; ONNX Runtime's quantizer names tensors so, too."""
    new = f"{name}_quantized"
    taken = {*edges.makers, *graph.constants, *(one.name for one in graph.inputs)}
    while new in taken:
        new += "_"
    return new


def _has_one_scale(node: Node, graph: Graph) -> bool:
    scale = graph.constants.get(node.input(1))
    return scale is not None and scale.size == 1


class _Finder:
    def __init__(
        self, nodes: list[Node], outputs: tuple[str, ...], constants: Constants, islands: bool
    ) -> None:
        self._nodes = nodes
        self._edges = _Edges(nodes, outputs)
        self._constants = constants
        self._outputs = outputs
        self._islands = islands
        self._absorbed: dict[int, str] = {}
        self._known = {**_SOURCES, **(_ISLANDS if islands else {})}
        self._island_labels: list[str] = []

    def steps(self) -> Steps:
        """All of them, in order."""
        found: list[Node] = []
        gone: set[int] = set()
        made: dict[int, Node] = {}
        for node in self._nodes:
            if id(node) in gone:
                continue
            group = self._group(node)
            if group is not None:
                step, parts = group
                gone.update(id(part) for part in parts)
                self._absorbed |= {part.index: f"part of {step.label}" for part in parts}
                made[id(node)] = step
        for node in self._nodes:
            if id(node) not in gone:
                found.append(made.get(id(node), node))
        kept = tuple(self._without_unread(found))
        return Steps(kept, self._absorbed, tuple(self._island_labels))

    def _without_unread(self, steps: list[Node]) -> list[Node]:
        """Without conversions to float that only integer operations read."""
        read = {name for step in steps for name in step.reads}.union(self._outputs)
        kept: list[Node] = []
        for step in steps:
            is_plain = not step.integers and step.op == DEQUANTIZE
            if is_plain and not read.intersection(step.makes):
                self._absorbed[step.index] = "the operations that read it take integers"
            else:
                kept.append(step)
        return kept

    def _group(self, node: Node) -> tuple[Node, list[Node]] | None:
        """What a node became, and the other nodes that are part of it; None: it stays."""
        if node.op not in self._known and node.op not in (*_DROPPED, "Concat"):
            return None
        try:
            is_moved = node.op in _DROPPED and not (node.op in self._known and _is_weighed(node))
            return self._moved(node) if is_moved else self._computed(node)
        except UnsupportedError:
            return None

    def _moved(self, node: Node) -> tuple[Node, list[Node]] | None:
        before, after = self._edges.makers.get(node.inputs[0]), self._last(node)
        if before is None or before.op != DEQUANTIZE or after is None:
            return None
        source, result = self._source(node.inputs[0]), self._result(after)
        wide = source.dtype in ("int16", "uint16") and node.op in ("MaxPool", "Resize")
        if not source.same_as(result) or source.scales.size != 1 or (wide and not self._islands):
            return None
        if node.op == "Resize" and _is_weighed(node):
            return None
        step = attrs.evolve(node, inputs=(source.name, *node.inputs[1:]), outputs=(result.name,))
        return step, [after]

    def _last(self, node: Node) -> Node | None:
        """The QuantizeLinear that alone reads a node's one result."""
        if len([name for name in node.outputs if name]) != 1:
            return None
        after = self._edges.only_reader(node.outputs[0])
        return after if after is not None and after.op == QUANTIZE else None

    def _source(self, name: str) -> Quantized:
        node = self._edges.makers.get(name)
        if node is None or node.op != DEQUANTIZE:
            raise UnsupportedError(f"{name} is float")
        return quantized(self._constants, node.inputs[0], node.input(1), node.input(2))

    def _result(self, node: Node) -> Quantized:
        """What a QuantizeLinear makes."""
        made = quantized(self._constants, node.outputs[0], node.input(1), node.input(2))
        return attrs.evolve(made, dtype=made.dtype or "uint8")

    def _computed(self, node: Node) -> tuple[Node, list[Node]] | None:
        is_concat = node.op == "Concat"
        count = len(node.inputs) if is_concat else self._known.get(node.op, 0)
        if node.op == "Div" and self._edges.makers.get(node.input(1)) is not None:
            count = 2
        if count == 0 or len(node.inputs) < count:
            return None
        sources = [self._source(name) for name in node.inputs[:count]]
        bias = ""
        if node.input(count) and node.op in ("Conv", "ConvTranspose", "Gemm"):
            bias = self._bias(node.input(count), sources)
        parts: list[Node] = []
        last = node
        limits = self._limits(node) if node.op in ("Clip", "Relu") else None
        is_island = node.op in _ISLANDS or sources[0].dtype in ("int16", "uint16")
        if node.op == "MatMul" and (added := self._added(node, sources)) is not None:
            last, bias = added
            parts.append(last)
        between = self._edges.only_reader(last.outputs[0])
        if between is not None and between.op in ("Relu", "Clip") and limits is None:
            parts.append(between)
            last = between
        after = self._last(last)
        if after is None:
            return None
        result = self._result(after)
        if last.op in ("Relu", "Clip") and last is not node:
            limits = self._limits(last)
            if limits is None:
                return None
            if _implies(result, after, limits, last.op, self._constants):
                # ONNX Runtime drops it. The bounds only say that the network clips there.
                limits = limits if last.op == "Clip" and self._takes_bounds(node) else None
            elif not self._islands:
                return None
            else:
                is_island = True
        if not self._types_agree(node.op, sources, result) or not self._channels_agree(node):
            return None
        reals: list[Node] = []
        if is_island:
            self._island_labels.append(node.label)
            makers = [self._edges.makers.get(name) for name in (*node.reads, *last.reads)]
            reals = [one for one in makers if one is not None and one.op == DEQUANTIZE]
            reals += [node, *parts, after]
        kind = "Gemm" if node.op == "MatMul" and bias else node.op
        parts.append(after)
        integers = Integers(kind, tuple(sources), result, bias, limits, tuple(reals))
        found = attrs.evolve(node, integers=integers)
        return found, parts

    def _takes_bounds(self, node: Node) -> bool:
        """Whether the lowering of an operation takes the bounds of a clip after it."""
        if node.op == "MatMul":
            right = self._constants.get(self._source(node.inputs[1]).name)
            return right is not None and right.ndim == 2
        return node.op in _COUNTED

    def _types_agree(self, op: str, sources: list[Quantized], result: Quantized) -> bool:
        types = [source.dtype or "uint8" for source in sources]
        if op in _EIGHT_BITS and result.dtype not in ("uint8", "int8"):
            return False
        narrow = ("uint8", "int8", *(("uint16", "int16") if self._islands else ()))
        if types[0] != result.dtype or any(one not in narrow for one in types):
            return False
        if op in _WEIGHTED:
            return types[1] == types[0] or (types[0] != "int8" and types[1] in ("int8", "uint8"))
        return all(one == types[0] for one in types)

    def _channels_agree(self, node: Node) -> bool:
        """Whether several scales are those of the weights' output channels."""
        if node.op not in _WEIGHTED:
            return True
        before = self._edges.makers[node.inputs[1]]
        rank = self._constants[before.inputs[0]].ndim if before.inputs[0] in self._constants else 2
        if self._source(node.inputs[1]).scales.size == 1 or rank == 0:
            return True
        columns = rank - 1 if node.op == "MatMul" else 0 if node.attributes.get("transB") else 1
        if node.op == "ConvTranspose" and node.attributes.get("group", 1) != 1:
            return False
        expected = {"Conv": 0, "ConvTranspose": 1}.get(node.op, columns)
        return int(before.attributes.get("axis", 1)) % rank == expected

    def _bias(self, name: str, sources: list[Quantized]) -> str:
        """The int32 constant of a bias on the scale of the sum, nearly."""
        source = self._source(name)
        if source.dtype != "int32" or source.name not in self._constants:
            raise UnsupportedError(f"a bias of {source.dtype}")
        products = sources[0].scales * sources[1].scales
        allowed = _BIAS_TOLERANCE * products + _BIAS_DIFFERENCE
        if (np.abs(source.scales - products) > allowed).any() or source.zero_points.any():
            raise UnsupportedError("a bias on another scale, or with zero points")
        return source.name

    def _added(self, node: Node, sources: list[Quantized]) -> tuple[Node, str] | None:
        """The addition of a bias to a product, as ONNX Runtime fuses it."""
        after = self._edges.only_reader(node.outputs[0])
        if after is None or after.op != "Add" or len(after.inputs) != 2:
            return None
        other = after.inputs[1 if after.inputs[0] == node.outputs[0] else 0]
        try:
            bias = self._bias(other, sources)
        except UnsupportedError:
            return None
        return (after, bias) if self._constants[bias].ndim == 1 else None

    def _limits(self, node: Node) -> tuple[float, float | None] | None:
        """Of a ReLU or Clip with constant limits in order."""
        if node.op == "Relu":
            return 0.0, None
        given = []
        for place, (name, open_end) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
            value = node.attributes.get(name, open_end)
            if node.input(place):
                held = self._constants.get(node.input(place))
                if held is None or held.size != 1:
                    return None
                value = float(held.reshape(-1)[0])
            given.append(float(value))
        return (given[0], given[1]) if given[0] <= given[1] else None


def _is_weighed(node: Node) -> bool:
    """Whether a Resize takes more than the nearest place."""
    return bool(node.attributes.get("mode", "nearest") != "nearest")


def _implies(
    result: Quantized,
    after: Node,
    limits: tuple[float, float | None],
    op: str,
    constants: Constants,
) -> bool:
    """Whether a result's integers reach no further than a clip.

    Source: ``IsClipMadeRedundantByQ`` (qdq_util.cc): halves to even, scalars only.
    """
    if result.scales.size != 1 or (after.input(2) and constants[after.input(2)].ndim):
        return False
    low, high = LIMITS[result.dtype]
    if op == "Relu":
        return result.zero_point == low
    scale = np.float32(result.scale)
    least, most = (
        np.rint(np.clip(np.float32(limit) / scale, -(2.0**31), 2.0**31)) + result.zero_point
        for limit in (limits[0], np.inf if limits[1] is None else limits[1])
    )
    return bool(least <= low and most >= high)
