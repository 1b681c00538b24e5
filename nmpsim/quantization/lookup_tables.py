"""Lookup tables for functions of one 8-bit value that a program computes in several operations.

HardSwish is ``x * clip(x / 6 + 1 / 2, 0, 1)``: four operations, but a function of each element of
``x`` alone. As a table of 256 it is rounded once, and what is between has no range of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE
from nmpsim.interpreter import evaluate_operation
from nmpsim.lir.opcodes import OPCODES, Kind
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.settings import Settings

_KINDS = (Kind.PAIR, Kind.CLIP, Kind.RESCALE, Kind.FUNCTION, Kind.HOST)
_LARGEST = float(np.finfo(np.float32).max)


@attrs.frozen(eq=False)
class ElementwiseChain:
    """A result that is a function of each element of one other value."""

    source: Value
    nodes: tuple[Node, ...]
    """Nodes that compute it, in order; the last one makes the result."""

    def evaluate(self, graph: Graph, reals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Evaluate the function of real numbers; undefined results are 0."""
        known = {self.source: reals}
        with np.errstate(all="ignore"):
            for node in self.nodes:
                known[node.results[0]] = _evaluate(node, graph, known, len(reals))
        return np.nan_to_num(known[self.nodes[-1].results[0]], posinf=_LARGEST, neginf=-_LARGEST)


def find_lookup_chains(graph: Graph, settings: Settings) -> dict[Value, ElementwiseChain]:
    """Return the results of an 8-bit program that are best looked up.

    Not a limit alone, which the operation before it can have, nor one operation that the device
    does itself.
    """
    found: dict[Value, ElementwiseChain] = {}
    producers = graph.producers()
    for node in graph.nodes if settings.elem == "i8" else ():
        if not _is_by_element(node, settings) or len(producers[node.results[0]]) > 1:
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


def _is_by_element(node: Node, settings: Settings) -> bool:
    asked = {node.opcode, node.instruction.name} & settings.keep_float
    return (
        OPCODES[node.opcode].formula is not None
        and node.kind in _KINDS
        and len(node.results) == 1
        and not asked
        and node.part is None
        and all(value.type.elem == "float" for value in (*node.results, *node.sources))
    )


def _number(value: Value, graph: Graph) -> float | None:
    """Return the common value of all elements of a constant, or None."""
    array = graph.constant(value)
    if array is None or not array.size or (array != array.flat[0]).any():
        return None
    return float(array.flat[0])


def _is_worth_it(chain: ElementwiseChain) -> bool:
    kinds = [node.kind for node in chain.nodes]
    if len(kinds) == 1:
        return kinds[0] not in KINDS_ON_THE_DEVICE and kinds[0] is not Kind.FUNCTION
    return any(kind is not Kind.CLIP for kind in kinds)


def _evaluate(
    node: Node, graph: Graph, known: Mapping[Value, npt.NDArray[np.float64]], count: int
) -> npt.NDArray[np.float64]:
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
