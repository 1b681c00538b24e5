"""Search for the regions of a graph that are computed on integers.

A region is between DequantizeLinear and QuantizeLinear: ONNX's QDQ format, and PyTorch's PT2E.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import numpy as np

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.frontends.graph.integer_ops import EXACT_FUNCTIONS, FUNCTIONS
from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    Graph,
    IntegerOperation,
    Limits,
    Node,
    QuantizedTensor,
    make_unit_quantization,
    read_quantization,
)
from nmpsim.frontends.graph.operators import INTEGER_FORMS, OPERATORS, IntegerForm
from nmpsim.frontends.imported_model import UnsupportedError, require

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_CLIPS = ("Relu", "Clip")
_WIDE_TYPES = ("int16", "uint16")
_MAX_FUNCTION_NODES = 64
"""Limit for the nodes of a function that becomes a table."""
_BIAS_TOLERANCE, _BIAS_DIFFERENCE = 1e-2, 1e-6
"""Tolerance for the scale of a bias, relative and absolute, as of ONNX Runtime 1.32."""


def infer_quantization(graph: Graph, steps: Sequence[Node]) -> dict[str, QuantizedTensor]:
    """Infer the quantization of each integer tensor in a graph; return it by tensor name.

    The quantization of a tensor is taken from the node that computes it, otherwise from a node that
    reads it. Operators that only move elements preserve it.
    """
    known: dict[str, QuantizedTensor] = {}

    def add_conversion(name: str, node: Node, dtype: str) -> None:
        """Add what a conversion says of the tensor on its integer side, if that is valid."""
        try:
            found = read_quantization(node, graph.constants, name, default=dtype)
        except UnsupportedError:
            return
        is_single = found.scales.size == 1
        known.setdefault(name, found if is_single else make_unit_quantization(name, found.dtype))

    for step in steps:
        if step.integers:
            known.setdefault(step.results[0], step.integers.result)
        elif step.op == QUANTIZE:
            add_conversion(step.outputs[0], step, "uint8")
        elif step.op == "DynamicQuantizeLinear":
            known |= {name: make_unit_quantization(name, "uint8") for name in step.results}
    for step in reversed(steps):
        if step.integers:
            for source in step.integers.sources:
                if source.scales.size == 1:
                    known.setdefault(source.name, source)
        elif step.op == DEQUANTIZE:
            add_conversion(step.inputs[0], step, "")
        elif _moves(step) and step.outputs[0] in known:
            known.setdefault(step.inputs[0], known[step.outputs[0]])
    types = {one.name: one.dtype for one in graph.inputs}
    for name, dtype in types.items():
        if dtype in INTEGER_RANGES and dtype != "int32":
            known.setdefault(name, make_unit_quantization(name, dtype))
    for step in steps:
        if not step.integers and _moves(step) and step.inputs[0] in known:
            for name in step.outputs:
                known.setdefault(name, known[step.inputs[0]])
    types |= {name: str(values.dtype) for name, values in graph.constants.items()}
    return {
        name: attrs.evolve(one, dtype=one.dtype or types.get(name, "uint8"))
        for name, one in known.items()
    }


def _moves(node: Node) -> str:
    """Return the field ``moves`` of a node's operator."""
    return OPERATORS[node.op].moves if node.op in OPERATORS else ""


@attrs.frozen(eq=False)
class IntegerRegions:
    """Result of fusing integer regions: the new nodes, and mappings of the replaced nodes."""

    steps: tuple[Node, ...]
    mappings: dict[int, OperatorMapping]
    """Number of a node that is part of another one -> its mapping."""
    islands: tuple[str, ...]
    """Labels of integer operations that the reference computes in float32."""


def fuse_integer_regions(
    graph: Graph,
    has_islands: bool,
    operators: Collection[str] = INTEGER_FORMS,
    bias_dtype: str = "int32",
) -> IntegerRegions:
    """Fuse each region between DequantizeLinear and QuantizeLinear into one integer operation.

    Parameters
    ----------
    graph : Graph
        The graph as read, without nodes of kind Constant.
    has_islands : bool
        Whether to include operators that ONNX Runtime computes in float32.
    operators : collection of str
        Operators with an integer form.
    bias_dtype : str
        Element type of a bias: int32, or float32 as in PyTorch, whose regions have no float form.
    """
    nodes = list(graph.nodes)
    while _move_conversion(nodes, _Edges(nodes, graph)):
        pass
    rows = {
        op: row
        for op, row in INTEGER_FORMS.items()
        if op == "Concat" or (row.inputs and (has_islands or not row.is_island))
    }
    rows = {op: row for op, row in rows.items() if op in operators}
    return _RegionFinder(nodes, graph, has_islands, rows, bias_dtype).run()


class _Edges:
    """Which nodes write and read each tensor."""

    def __init__(self, nodes: Sequence[Node], graph: Graph) -> None:
        self.writers = {name: node for node in nodes for name in node.outputs if name}
        self.constants = graph.constants
        self._readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)
        self.outputs = graph.outputs
        self._names = {*self.writers, *graph.constants, *(one.name for one in graph.inputs)}

    def find_only_reader(self, name: str) -> Node | None:
        """Return the only node that reads a tensor, None for an output of the model."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def is_read_by(self, node: Node, readers: Collection[int]) -> bool:
        """Return whether only nodes of these identities read a node's result."""
        name = node.outputs[0]
        return name not in self.outputs and all(id(r) in readers for r in self._readers[name])

    def find_dequantize(self, name: str) -> Node | None:
        """Return the DequantizeLinear that writes a tensor, None if another node does."""
        node = self.writers.get(name)
        return node if node is not None and node.op == DEQUANTIZE else None

    def find_quantize(self, node: Node) -> Node | None:
        """Return the QuantizeLinear that alone reads a node's only result."""
        after = self.find_only_reader(node.outputs[0])
        is_only = len([name for name in node.outputs if name]) == 1
        return after if is_only and after is not None and after.op == QUANTIZE else None

    def make_quantized_name(self, name: str) -> str:
        """Return a new name for the integers of a tensor, as ONNX Runtime's quantizer does."""
        new = f"{name}_quantized"
        while new in self._names:
            new += "_"
        return new


def _move_conversion(nodes: list[Node], edges: _Edges) -> bool:
    """Move one conversion through a node that only moves elements; return whether there was one.

    Forwards: DQ, move becomes move, DQ. Backwards: move, Q becomes Q, move.
    """
    for at, node in enumerate(nodes):
        if _moves(node) != "commutes" or len(node.results) != 1:
            continue
        source, result = node.inputs[0], node.outputs[0]
        before, after = edges.find_dequantize(source), edges.find_quantize(node)
        conversion = after or before
        if (before and after) or conversion is None:
            continue
        scale = edges.constants.get(conversion.get_input(1))
        if scale is None or scale.size != 1:
            continue
        if after and edges.find_only_reader(source):
            name = edges.make_quantized_name(source)
            nodes[nodes.index(after)] = _rewire(node, name, after.outputs[0])
            nodes[at] = _rewire(after, source, name)
            return True
        if before and result not in edges.outputs:
            name = edges.make_quantized_name(result)
            moved = _rewire(node, before.inputs[0], name)
            nodes[at : at + 1] = [moved, _rewire(before, name, result)]
            return True
    return False


def _rewire(node: Node, source: str, result: str) -> Node:
    """Return a node with another first input and another output."""
    return attrs.evolve(node, inputs=(source, *node.inputs[1:]), outputs=(result,))


_Region = tuple[Node, list[Node]]
"""The integer form of a node and the other nodes that are part of it."""


class _RegionFinder:
    def __init__(
        self,
        nodes: list[Node],
        graph: Graph,
        has_islands: bool,
        rows: dict[str, IntegerForm],
        bias_dtype: str,
    ) -> None:
        self._nodes = nodes
        self._edges = _Edges(nodes, graph)
        self._labels = {node.index: node.label for node in graph.nodes}
        self._constants = graph.constants
        self._has_islands = has_islands
        self._rows = rows
        self._bias_dtype = bias_dtype
        self._island_labels: list[str] = []

    def run(self) -> IntegerRegions:
        mappings: dict[int, OperatorMapping] = {}
        parts: set[int] = set()
        fused: dict[int, Node] = {}
        for node in self._nodes:
            region = None if id(node) in parts else self._find(node)
            if region is not None:
                fused[id(node)], others = region
                parts.update(map(id, others))
                for part in others:
                    label, reason = self._labels[part.index], f"part of {region[0].label}"
                    mappings[part.index] = OperatorMapping(label, (), reason)
        steps = [fused.get(id(node), node) for node in self._nodes if id(node) not in parts]
        read = {name for step in steps for name in step.operands}.union(self._edges.outputs)
        for step in list(steps):
            if not step.integers and step.op == DEQUANTIZE and read.isdisjoint(step.results):
                reason = "the operations that read it take integers"
                mappings[step.index] = OperatorMapping(self._labels[step.index], (), reason)
                steps.remove(step)
        return IntegerRegions(tuple(steps), mappings, tuple(self._island_labels))

    def _find(self, node: Node) -> _Region | None:
        """Return the region of a node, or None if the node stays float."""
        is_interpolated = (
            node.op == "Resize" and node.attributes.get("mode", "nearest") != "nearest"
        )
        try:
            if _moves(node) in ("commutes", "between") and not is_interpolated:
                return self._find_movement(node)
            if node.op == QUANTIZE and self._bias_dtype == "float32":
                source, result = self._read_source(node.inputs[0]), self._read_result(node)
                integers = IntegerOperation(QUANTIZE, (source,), result)
                return attrs.evolve(node, integers=integers), []
            if node.op == QUANTIZE:
                return self._find_function(node)
            row = self._rows.get(node.op)
            return None if row is None else self._find_computation(node, row)
        except UnsupportedError:
            return None

    def _find_movement(self, node: Node) -> _Region | None:
        after = self._edges.find_quantize(node)
        if after is None:
            return None
        source, result = self._read_source(node.inputs[0]), self._read_result(after)
        is_wide = source.dtype in _WIDE_TYPES and node.op in ("MaxPool", "Resize")
        is_equal = source.has_equal_parameters(result) and source.scales.size == 1
        if not is_equal or (is_wide and not self._has_islands):
            return None
        return _rewire(node, source.name, result.name), [after]

    def _find_function(self, node: Node) -> _Region | None:
        """Return the function of one quantized tensor that a QuantizeLinear reads."""
        nodes: dict[int, Node] = {}
        pending, sources = [node.inputs[0]], []
        while pending:
            name = pending.pop()
            before = self._edges.writers.get(name)
            if id(before) in nodes or (before is None and (not name or name in self._constants)):
                continue
            if before is None or len(before.outputs) > 1 or len(nodes) == _MAX_FUNCTION_NODES:
                return None
            if before.op == DEQUANTIZE:
                sources.append(self._read_source(name))
            elif before.op in FUNCTIONS:
                pending += before.inputs
            else:
                return None
            nodes[id(before)] = before
        ordered = [one for one in self._nodes if id(one) in nodes]
        parts = [one for one in ordered if one.op != DEQUANTIZE]
        allowed = {id(one) for one in (*parts, node)}
        is_single = len({one.name for one in sources}) == 1 and all(
            one.has_equal_parameters(sources[0]) for one in sources
        )
        if (
            not parts
            or not is_single
            or not all(self._edges.is_read_by(one, allowed) for one in parts)
        ):
            return None
        if not EXACT_FUNCTIONS.issuperset(one.op for one in parts):
            if not self._has_islands:
                return None
            self._island_labels.append(node.label)
        result, floats = self._read_result(node), (*ordered, node)
        integers = IntegerOperation(QUANTIZE, (sources[0],), result, float_nodes=floats)
        return attrs.evolve(node, integers=integers), parts

    def _find_computation(self, node: Node, row: IntegerForm) -> _Region | None:
        edges, count = self._edges, row.inputs or len(node.inputs)
        if node.op == "Div" and edges.writers.get(node.get_input(1)) is not None:
            count = 2
        if not 0 < count <= len(node.inputs):
            return None
        sources = tuple(self._read_source(name) for name in node.inputs[:count])
        bias, parts, limits = "", [], None
        if row.is_weighted and node.get_input(count):
            bias = self._find_bias(node.get_input(count), sources)
        if node.op == "MatMul" and (added := self._find_added_bias(node, sources)) is not None:
            parts, bias = [added[0]], added[1]
        is_island = row.is_island or sources[0].dtype in _WIDE_TYPES
        clip = edges.find_only_reader([node, *parts][-1].outputs[0])
        if node.op in _CLIPS:
            limits = self._read_limits(node)
        elif clip is not None and clip.op in _CLIPS:
            parts.append(clip)
        last = [node, *parts][-1]
        after = edges.find_quantize(last)
        if after is None:
            return None
        result = self._read_result(after)
        if last is clip:
            limits = self._read_limits(clip)
            if limits is None:
                return None
            if self._bias_dtype == "int32" and self._is_implied(result, after, limits, clip.op):
                # ONNX Runtime drops it. The bounds only say that the network clips there.
                limits = limits if clip.op == "Clip" and self._takes_limits(node, row) else None
            elif not self._has_islands:
                return None
            else:
                is_island = True
        if not self._types_agree(row, sources, result) or not self._axes_agree(node, row):
            return None
        float_nodes: list[Node] = []
        if is_island and self._bias_dtype == "int32":
            self._island_labels.append(node.label)
            writers = map(edges.find_dequantize, (*node.operands, *last.operands))
            float_nodes = [*(one for one in writers if one is not None), node, *parts, after]
        integers = IntegerOperation(
            "Gemm" if node.op == "MatMul" and bias else node.op,
            sources,
            result,
            bias,
            self._bias_dtype,
            limits,
            tuple(float_nodes),
        )
        return attrs.evolve(node, integers=integers), [*parts, after]

    def _read_source(self, name: str) -> QuantizedTensor:
        node = self._edges.find_dequantize(name)
        if node is None:
            raise UnsupportedError(f"{name} of type float32", "the result of DequantizeLinear")
        return read_quantization(node, self._constants, node.inputs[0])

    def _read_result(self, node: Node) -> QuantizedTensor:
        """Return the tensor that a QuantizeLinear writes."""
        return read_quantization(node, self._constants, node.outputs[0], default="uint8")

    def _takes_limits(self, node: Node, row: IntegerForm) -> bool:
        """Return whether the lowering of an operator takes the bounds of a clip after it."""
        if node.op == "MatMul":
            right = self._constants.get(self._read_source(node.inputs[1]).name)
            return right is not None and right.ndim == 2
        return row.takes_limits

    def _types_agree(
        self, row: IntegerForm, sources: tuple[QuantizedTensor, ...], result: QuantizedTensor
    ) -> bool:
        first, *others = (source.dtype or "uint8" for source in sources)
        is_wide = self._has_islands and row.has_16_bits
        allowed = ("uint8", "int8", *(_WIDE_TYPES if is_wide else ()))
        if first != result.dtype or first not in allowed:
            return False
        if row.is_weighted and first != "int8":
            return others[0] in (first, "int8", "uint8")
        return all(other == first for other in others)

    def _axes_agree(self, node: Node, row: IntegerForm) -> bool:
        """Return whether several scales of weights are those of its output channels."""
        if not row.is_weighted or self._read_source(node.inputs[1]).scales.size == 1:
            return True
        before = self._edges.writers[node.inputs[1]]
        weights = self._constants.get(before.inputs[0])
        rank = 2 if weights is None else weights.ndim
        if rank == 0:
            return True
        if node.op == "ConvTranspose" and node.attributes.get("group", 1) != 1:
            return False
        columns = rank - 1 if node.op == "MatMul" else 0 if node.attributes.get("transB") else 1
        expected = {"Conv": 0, "ConvTranspose": 1}.get(node.op, columns)
        return int(before.attributes.get("axis", 1)) % rank == expected

    def _find_bias(self, name: str, sources: tuple[QuantizedTensor, ...]) -> str:
        """Return the name of a constant bias; int32 is nearly on the scale of the sum."""
        if self._bias_dtype == "float32":
            bias = self._constants.get(name)
            require(
                bias is not None, f"the computed bias {name}", "a constant bias of type float32"
            )
            assert bias is not None
            found = f"a bias of type {bias.dtype}"
            require(bias.dtype == np.float32, found, "a constant bias of type float32")
            return name
        source = self._read_source(name)
        require(source.dtype == "int32", f"a bias of type {source.dtype}", "a bias of type int32")
        require(
            source.name in self._constants, f"the activation {name} as bias", "a constant as bias"
        )
        products = sources[0].scales * sources[1].scales
        allowed = _BIAS_TOLERANCE * products + _BIAS_DIFFERENCE
        require(
            (np.abs(source.scales - products) <= allowed).all(),
            f"a bias with scales from {source.scales.min():g} to {source.scales.max():g}",
            f"scales from {products.min():g} to {products.max():g}, the input scale times the"
            " weight"
            " scales",
        )
        require(
            not source.zero_points.any(),
            f"a bias with zero points from {source.zero_points.min()} to"
            f" {source.zero_points.max()}",
            "zero points of 0",
        )
        return source.name

    def _find_added_bias(
        self, node: Node, sources: tuple[QuantizedTensor, ...]
    ) -> tuple[Node, str] | None:
        """Return the Add of a bias to a product, as ONNX Runtime fuses it, and the bias."""
        after = self._edges.find_only_reader(node.outputs[0])
        if after is None or after.op != "Add" or len(after.inputs) != 2:
            return None
        other = after.inputs[1 if after.inputs[0] == node.outputs[0] else 0]
        try:
            bias = self._find_bias(other, sources)
        except UnsupportedError:
            return None
        return (after, bias) if self._constants[bias].ndim == 1 else None

    def _read_limits(self, node: Node) -> Limits | None:
        """Return the constant bounds of a ReLU or Clip; None if unknown or not in order."""
        if node.op == "Relu":
            return 0.0, None
        bounds = []
        for index, (name, default) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
            value = node.attributes.get(name, default)
            if node.get_input(index):
                values = self._constants.get(node.get_input(index))
                if values is None or values.size != 1:
                    return None
                value = values.reshape(-1)[0]
            bounds.append(float(value))
        return (bounds[0], bounds[1]) if bounds[0] <= bounds[1] else None

    def _is_implied(self, result: QuantizedTensor, after: Node, limits: Limits, op: str) -> bool:
        """Return whether a result's integers reach no further than a clip.

        Source: ``IsClipMadeRedundantByQ`` (qdq_util.cc): halves to even, scalars only.
        """
        is_scalar = not (after.get_input(2) and self._constants[after.get_input(2)].ndim)
        if result.scales.size != 1 or not is_scalar:
            return False
        low, high = INTEGER_RANGES[result.dtype]
        if op == "Relu":
            return result.zero_point == low
        scale = np.float32(result.scale)
        least, most = (
            np.rint(np.clip(np.float32(limit) / scale, -(2.0**31), 2.0**31)) + result.zero_point
            for limit in (limits[0], np.inf if limits[1] is None else limits[1])
        )
        return bool(least <= low and most >= high)
