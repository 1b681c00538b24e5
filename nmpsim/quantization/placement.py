"""Choice of the operations to quantize, with reasons for the others."""

from __future__ import annotations

from collections.abc import Container

import attrs

from nmpsim.compiler.operations import Buffer, Operation, View
from nmpsim.compiler.placement import find_host_reason
from nmpsim.lir.nodes import Quantization, TensorType
from nmpsim.lir.opcode import WEIGHTED
from nmpsim.lir.opcodes import Kind, opcodes_by_kind
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.settings import Settings

MOVES = opcodes_by_kind(Kind.MOVE, Kind.FILL) | {"touch", "tensorview"}
"""Opcodes that move or fill values, float or quantized."""

_MOVES_FLOAT = "it moves values that stay float"
_PROBE = Quantization(1.0, 0, 0.0, 0.0)


@attrs.frozen
class Placements:
    """The quantized values, and a reason for every node whose results stay float."""

    quantized: frozenset[Value]
    reasons: dict[Value, str]
    """First result of a node -> why it stays float."""


def choose_placements(
    graph: Graph, settings: Settings, tables: Container[Value] = ()
) -> Placements:
    """Decide for every node whether it is quantized; ``tables`` are looked-up results.

    What computes is quantized if the device has a unit for it; what moves values, if it moves
    quantized ones or if something quantized reads them.
    """
    reasons = {
        node.results[0]: reason
        for node in graph.nodes
        if node.opcode not in MOVES
        and node.results[0] not in tables
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
    return Placements(frozenset(quantized), reasons)


def _spread(graph: Graph, computed: set[Value], settings: Settings) -> set[Value]:
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


def _moved(graph: Graph, settings: Settings) -> dict[Value, list[Value]]:
    """Return float values made by moving others that may be quantized -> those others."""
    found: dict[Value, list[Value]] = {}
    for value, producers in graph.producers().items():
        if (
            all(node.opcode in MOVES and not _asked(node, settings) for node in producers)
            and value.type.elem == "float"
            and graph.constant(value) is None
        ):
            found[value] = [source for node in producers for source in node.sources]
    return found


def _asked(node: Node, settings: Settings) -> str:
    for name in (node.instruction.name, node.opcode):
        if name in settings.keep_float:
            return f"asked for by --keep-float {name}"
    return ""


def _reason(node: Node, graph: Graph, settings: Settings) -> str:
    """Return why a computing node stays float; empty if it is quantized."""
    if asked := _asked(node, settings):
        return asked
    if any(value.type.elem != "float" for value in (*node.results, *node.sources)):
        return "not all of its operands are float"
    if node.kind is Kind.FUNCTION and settings.elem == "i8":
        return ""
    return find_host_reason(_probe(node, graph, settings))


def _probe(node: Node, graph: Graph, settings: Settings) -> Operation:
    """Return the quantized operation, as far as it matters for the device."""
    elems = [settings.elem] * (len(node.results) + len(node.sources))
    if node.kind in WEIGHTED:
        elems[3] = settings.bias_elem
    views = tuple(
        _view(value, elem, graph)
        for value, elem in zip((*node.results, *node.sources), elems, strict=True)
    )
    return Operation(node.instruction, views)


def _view(value: Value, elem: str, graph: Graph) -> View:
    type_ = TensorType(elem, value.type.shape, _PROBE)
    constant = graph.constant(value) is not None
    buffer = Buffer(f"{value.name}.{value.number}", type_.nbytes, constant)
    return View(value.name, buffer, 0, type_)
