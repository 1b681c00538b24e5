"""Choice of the operations to quantize, with reasons for leaving others in float32."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.compiler.operations import Buffer, BufferView, Operation
from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE, find_host_reason
from nmpsim.interpreter import evaluate_operation
from nmpsim.kernels.array_types import Float64s
from nmpsim.lir.nodes import Quantization, TensorType
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import OPCODES, OpcodeKind, find_opcodes
from nmpsim.quantization.graph import FloatGraph, FloatNode, FloatValue
from nmpsim.quantization.parameters import Settings

MOVES = find_opcodes(OpcodeKind.MOVE, OpcodeKind.FILL) | {"touch", "tensorview"}
"""Opcodes that move or fill values, float or quantized."""

_MOVES_FLOAT = "it moves values that are float"
_PROBE = Quantization(1.0, 0, 0.0, 0.0)


@attrs.frozen
class QuantizationPlan:
    """Plan of a quantization: the values to quantize, and why other nodes stay float."""

    quantized: frozenset[FloatValue]
    reasons: dict[FloatValue, str]
    """First result of a node -> why it stays float."""


def plan_quantization(
    graph: FloatGraph, settings: Settings, lookups: Container[FloatValue] = ()
) -> QuantizationPlan:
    """Plan which values to quantize; return them, and the reasons why other nodes stay float.

    A node that computes is quantized if the device can execute it; a node that moves elements, if
    it moves quantized ones or a quantized node reads its result.

    Parameters
    ----------
    graph : FloatGraph
        The float program.
    settings : Settings
        Element types, and the nodes to leave in float32.
    lookups : container of FloatValue
        Results of look-up tables, which are always quantized.
    """
    reasons = {
        node.results[0]: reason
        for node in graph.nodes
        if node.opcode not in MOVES
        and node.results[0] not in lookups
        and (reason := _reason(node, graph, settings))
    }
    computed = {
        value
        for node in graph.nodes
        if node.opcode not in MOVES and node.results[0] not in reasons
        for value in node.results
    }
    quantized = _spread(graph, computed, settings)
    for node in graph.nodes:
        if node.opcode in MOVES and node.results[0] not in quantized:
            reasons.setdefault(node.results[0], _asked(node, settings) or _MOVES_FLOAT)
    return QuantizationPlan(frozenset(quantized), reasons)


def _spread(graph: FloatGraph, computed: set[FloatValue], settings: Settings) -> set[FloatValue]:
    """Return the computed values, and moved values that come from them or are read as quantized."""
    quantized = set(computed)
    moved = _moved(graph, settings)
    for value, sources in moved.items():
        changing = [s for s in sources if s.kind != "constant" and moved.get(s) != []]
        if changing and quantized.issuperset(changing):
            quantized.add(value)
    for node in reversed(graph.nodes):
        if node.results[0] in quantized:
            quantized.update(source for source in node.sources if source in moved)
    return quantized


def _moved(graph: FloatGraph, settings: Settings) -> dict[FloatValue, list[FloatValue]]:
    """Return float values made by moving others that may be quantized -> those others."""
    found: dict[FloatValue, list[FloatValue]] = {}
    for value, producers in graph.producers.items():
        if (
            all(node.opcode in MOVES and not _asked(node, settings) for node in producers)
            and value.type.elem == "float"
            and graph.get_constant(value) is None
        ):
            found[value] = [source for node in producers for source in node.sources]
    return found


def _asked(node: FloatNode, settings: Settings) -> str:
    for name in (node.instruction.name, node.opcode):
        if name in settings.keep_float:
            return f"requested by --keep-float {name}"
    return ""


def _reason(node: FloatNode, graph: FloatGraph, settings: Settings) -> str:
    """Return why a computing node stays float; empty if it is quantized."""
    if asked := _asked(node, settings):
        return asked
    if not _is_float(node):
        return "not all of its operands are float"
    if node.kind is OpcodeKind.FUNCTION and settings.elem == "i8":
        return ""
    return find_host_reason(_probe(node, graph, settings))


def _is_float(node: FloatNode) -> bool:
    return all(value.type.elem == "float" for value in (*node.results, *node.sources))


def _probe(node: FloatNode, graph: FloatGraph, settings: Settings) -> Operation:
    """Return the quantized operation, as far as it matters for the device."""
    elems = [settings.elem] * (len(node.results) + len(node.sources))
    if node.kind in WEIGHTED:
        elems[3] = settings.bias_elem
    views = tuple(
        _view(value, elem, graph)
        for value, elem in zip((*node.results, *node.sources), elems, strict=True)
    )
    return Operation(node.instruction, views)


def _view(value: FloatValue, elem: str, graph: FloatGraph) -> BufferView:
    type_ = TensorType(elem, value.type.shape, _PROBE)
    constant = graph.get_constant(value) is not None
    buffer = Buffer(f"{value.name}.{value.number}", type_.nbytes, constant)
    return BufferView(value.name, buffer, 0, type_)


_KINDS = (
    OpcodeKind.PAIR,
    OpcodeKind.CLIP,
    OpcodeKind.RESCALE,
    OpcodeKind.FUNCTION,
    OpcodeKind.HOST,
)
_LARGEST = float(np.finfo(np.float32).max)


@attrs.frozen(eq=False)
class ElementwiseChain:
    """Chain of elementwise nodes that computes a function of a single value."""

    source: FloatValue
    nodes: tuple[FloatNode, ...]
    """Nodes that compute it, in order; the last one makes the result."""

    def evaluate(self, graph: FloatGraph, reals: Float64s) -> Float64s:
        """Evaluate the chain for ``reals``; replace NaN by 0 and inf by the largest float32."""
        known = {self.source: reals}
        with np.errstate(all="ignore"):
            for node in self.nodes:
                known[node.results[0]] = _evaluate(node, graph, known, len(reals))
        return np.nan_to_num(known[self.nodes[-1].results[0]], posinf=_LARGEST, neginf=-_LARGEST)


def find_lookup_chains(graph: FloatGraph, settings: Settings) -> dict[FloatValue, ElementwiseChain]:
    """Return the elementwise chains that one look-up table can replace, by result value.

    A chain that is only a clip, or a single operation of the device, is left out. Only 8-bit
    programs have look-up tables.
    """
    found: dict[FloatValue, ElementwiseChain] = {}
    for node in graph.nodes if settings.elem == "i8" else ():
        if not _is_by_element(node, settings) or len(graph.producers[node.results[0]]) > 1:
            continue
        parts = [source for source in node.sources if _number(source, graph) is None]
        bases = {found[part].source if part in found else part for part in parts}
        shapes = {value.type.shape for value in (*node.results, *parts)}
        if len(bases) == 1 and len(shapes) == 1:
            nodes = {n.instruction.number: n for p in parts if p in found for n in found[p].nodes}
            nodes[node.instruction.number] = node
            found[node.results[0]] = ElementwiseChain(
                bases.pop(), tuple(nodes[n] for n in sorted(nodes))
            )
    return {value: chain for value, chain in found.items() if _is_worth_it(chain)}


def _is_by_element(node: FloatNode, settings: Settings) -> bool:
    return (
        OPCODES[node.opcode].formula is not None
        and node.kind in _KINDS
        and len(node.results) == 1
        and not _asked(node, settings)
        and node.region is None
        and _is_float(node)
    )


def _number(value: FloatValue, graph: FloatGraph) -> float | None:
    """Return the common value of all elements of a constant, or None."""
    array = graph.get_constant(value)
    if array is None or not array.size or (array != array.flat[0]).any():
        return None
    return float(array.flat[0])


def _is_worth_it(chain: ElementwiseChain) -> bool:
    kinds = [node.kind for node in chain.nodes]
    if len(kinds) == 1:
        return kinds[0] not in KINDS_ON_THE_DEVICE and kinds[0] is not OpcodeKind.FUNCTION
    return any(kind is not OpcodeKind.CLIP for kind in kinds)


def _evaluate(
    node: FloatNode, graph: FloatGraph, known: Mapping[FloatValue, Float64s], count: int
) -> Float64s:
    values: list[Any] = []
    for source in node.sources:
        number = _number(source, graph)
        values.append(known[source] if number is None else np.full(count, number))
    type_ = attrs.evolve(node.results[0].type, shape=(count,))
    types = [type_] * (1 + len(values))
    (made,) = evaluate_operation(
        node.instruction, types, (values[0], *values), hidden_relu=False
    ).values()
    return np.asarray(made, np.float64)
