"""Choice of a scale and an offset for each value, and of the values that share them.

A value gets the parameters of its own range, but where an operation moves raw integers (max pool,
transpose, view, concatenation) all it touches share those of one value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, fail
from nmpsim.lir.nodes import Quantization, TensorType, make_quantized_type
from nmpsim.lir.opcode import SATURATES_ANYWHERE, OpcodeKind
from nmpsim.quantization.graph import FloatGraph, FloatNode, FloatValue
from nmpsim.quantization.parameters import Parameters, Settings, choose_parameters
from nmpsim.quantization.profile import ValueRange, check_finite


class ValueScales:
    """Scales and types of quantized values; values that are only moved share one scale."""

    def __init__(
        self,
        graph: FloatGraph,
        quantized: frozenset[FloatValue],
        ranges: Mapping[FloatValue, ValueRange],
        settings: Settings,
    ) -> None:
        self.graph = graph
        self.quantized = quantized
        self._ranges = ranges
        self.settings = settings
        self._parent: dict[FloatValue, FloatValue] = {}
        """Value -> another value with the same parameters; the last one's range decides."""
        self.narrowed: dict[FloatValue, FloatNode] = {}
        """Result with the range of the activation after it -> that activation."""
        for node in graph.nodes:
            self._share(node)
        for value in graph.assembled_values:
            if value in quantized:
                self._gather(value)
        self._require_ranges()

    def choose_type(self, value: FloatValue) -> TensorType:
        """Choose the scale and offset of a value's range; return the quantized type."""
        elem, range_ = self.settings.elem, self._shared_range(self._root(value))
        chosen = choose_parameters(range_.low, range_.high, self.settings.schema, elem)
        return make_tensor_type(elem, value.type.shape, chosen)

    def _require_ranges(self) -> None:
        """Raise QUANT002 if a profile lacks the range of a result."""
        roots = {self._root(value): value for value in self.quantized}
        unknown = [r for r in roots if r not in self._ranges and self.graph.get_constant(r) is None]
        if not unknown:
            return
        unknown.sort(key=lambda value: value.number)
        raise fail(
            "QUANT002",
            f"Glow's profile has no range for %{unknown[0].name}",
            place=Place(self.graph.module.file),
            found=f"{len(unknown)} of {len(roots)} ranges are missing",
            expected="a range for each result, with or without the suffix __N of its name",
            hint="Use a profile of this network, or pass --calibration.",
        )

    def _share(self, node: FloatNode) -> None:
        """Let a node's result share parameters with its source, if it cannot change them."""
        result = node.results[0]
        if result not in self.quantized or node.region or not node.sources:
            return
        source = node.sources[0]
        alone = len(self.graph.producers[result]) == 1
        if node.kind is OpcodeKind.CLIP and alone and self._may_narrow(source):
            self._parent[source] = result
            self.narrowed[source] = node
        elif node.keeps_scale:
            self._parent[result] = source

    def _may_narrow(self, source: FloatValue) -> bool:
        """Return whether only one activation reads the result of an operation that can clip."""
        producers = self.graph.producers.get(source, [])
        return (
            source in self.quantized
            and len(producers) == 1
            and producers[0].kind in SATURATES_ANYWHERE
            and len(self.graph.consumers[source]) == 1
            and source not in self.graph.outputs.values()
        )

    def _gather(self, whole: FloatValue) -> None:
        """Give the parts of a concatenation its parameters, unless other uses need others."""
        for node in self.graph.producers[whole]:
            for part in node.sources if node.region else ():
                if part in self.quantized and self._only_for(part, whole):
                    self._parent[self._root(part)] = whole

    def _only_for(self, part: FloatValue, whole: FloatValue) -> bool:
        """Return whether all values that share a part's parameters end in ``whole``."""
        root, target = self._root(part), self._root(whole)
        members = {root, *(value for value in self._parent if self._root(value) == root)}
        return (
            root != target
            and members.isdisjoint(self.graph.outputs.values())
            and all(
                self._shares(node, member) and self._root(node.results[0]) in (root, target)
                for member in members
                for node in self.graph.consumers.get(member, [])
            )
        )

    def _shares(self, node: FloatNode, source: FloatValue) -> bool:
        """Return whether a node's source and result have the same parameters."""
        return bool(node.keeps_scale or node.region) or self.narrowed.get(source) is node

    def _root(self, value: FloatValue) -> FloatValue:
        while value in self._parent:
            value = self._parent[value]
        return value

    def _shared_range(self, root: FloatValue) -> ValueRange:
        """Return the union of the deciding value's range and those of values in parts."""
        range_ = self._range(root)
        for value in self.graph.assembled_values:
            if self._root(value) == root:
                range_ = range_.union(self._range(value))
        return range_

    def _range(self, value: FloatValue) -> ValueRange:
        array = self.graph.get_constant(value)
        return self._ranges[value] if array is None else get_constant_range(array, value.name)


def get_constant_range(array: Array, name: str) -> ValueRange:
    """Return the range of a constant; raise UserError (QUANT002) for infinities and NaNs."""
    check_finite(array, "QUANT002", f"the constant %{name} has values that are not finite")
    return ValueRange.from_values(array)


def make_tensor_type(elem: str, shape: Shape, parameters: Parameters) -> TensorType:
    """Return a quantized tensor type with one scale and offset."""
    return make_quantized_type(elem, shape, float(parameters.scale), int(parameters.offset))


def get_parameters(type_: TensorType) -> Parameters:
    """Return a type's scale and offset, or scale 1 and offset 0 if it is not quantized."""
    quant = type_.quant or Quantization(1.0, 0, 0.0, 0.0)
    return Parameters(np.asarray(quant.scale, np.float32), np.asarray(quant.offset, np.int32))
