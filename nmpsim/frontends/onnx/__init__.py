"""ONNX's quantized models, QOperator and QDQ, in ONNX Runtime's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import numpy as np

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.graph.folding import FOLDED, constant_of
from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.nodes import Array, Graph, Node
from nmpsim.frontends.graph.operators import NODES
from nmpsim.frontends.graph.program import MEANINGLESS, Problems, imported_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions, UnsupportedError
from nmpsim.frontends.onnx.bodies import with_bodies
from nmpsim.frontends.onnx.groups import QUANTIZE, integer_groups
from nmpsim.frontends.onnx.model import damaged, graph_of, load_model
from nmpsim.frontends.onnx.qoperators import QOPERATORS, parameters_of
from nmpsim.frontends.onnx.weight_folding import with_folded_weights
from nmpsim.lir.names import legal_name

MAX_SHOWN = 8
"""Of operations in a warning."""
NUMERICS = "float"
"""ONNX Runtime."""
KNOWN = frozenset((*NODES, *QOPERATORS, *FOLDED))
"""Operators that are compiled; others may be made of them."""


def read(path: Path, options: ImportOptions) -> ImportedModel:
    """A model as LIR.

    Args:
        path: the file; data outside it must lie in its folder.
        options: input shapes, integer islands and quantization.

    Raises:
        UserError: FILE001, PKG001, ARG001, MODEL001 (damaged), MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    graph = graph_of(
        with_bodies(load_model(path), KNOWN), options.input_shapes, place, options.sample_shapes
    )
    return lower(graph, Builder(legal_name(path.stem), str(path)), place, options)


@np.errstate(all="ignore")  # of a file of no meaning; what that makes is no other than elsewhere
def lower(graph: Graph, builder: Builder, place: Place, options: ImportOptions) -> ImportedModel:
    """A graph as LIR.

    Raises:
        UserError: MODEL001 (damaged), LIR codes.
        NotLoweredError: MODEL002.
    """
    fates: dict[int, OperatorMapping] = {}
    hint = _open_hint(graph.open_inputs)
    problems = Problems(place, lambda found: hint)
    graph = _with_constants(graph, fates, problems)
    try:
        if options.for_quantization:
            graph, absorbed = with_folded_weights(graph)
            fates |= absorbed
        found = integer_groups(graph, graph.constants, _with_islands(graph, options))
    except MEANINGLESS as error:
        raise damaged(place, f"{type(error).__name__}: {error}"[:120]) from error
    labels = {node.index: node.label for node in graph.nodes}
    for index, why in found.absorbed.items():
        fates[index] = OperatorMapping(labels[index], (), why)
    steps = tuple(_on_integers(found.steps, graph, problems))
    graph = attrs.evolve(graph, parameters=parameters_of(graph, steps))
    lowering = Lowering(graph, steps, builder, place)
    imported = imported_graph(steps, lowering, fates, problems, NUMERICS)
    islands = [label for label in found.islands if label not in lowering.real]
    warnings = (*graph.warnings, *(_of_islands(islands) if islands else ()))
    return attrs.evolve(imported, warnings=warnings)


def _open_hint(open_inputs: Sequence[str]) -> str | None:
    if not open_inputs:
        return None
    shapes = " ".join(f"--input-shape {one}" for one in open_inputs)
    return f"open dimensions were taken as 1; `nmpsim compile` takes {shapes}"


def _with_islands(graph: Graph, options: ImportOptions) -> bool:
    """As asked for; else where activations have 16 bits: there is no integer reference."""
    if options.integer_islands is not None:
        return options.integer_islands
    wide = (np.int16, np.uint16)
    return any(
        graph.constants[node.input(2)].dtype in wide
        for node in graph.nodes
        if node.op == QUANTIZE and node.input(2) in graph.constants
    )


def _of_islands(labels: Sequence[str]) -> tuple[str, ...]:
    shown = ", ".join(labels[:MAX_SHOWN]) + (", ..." if len(labels) > MAX_SHOWN else "")
    return (
        f"{len(labels)} operations that ONNX Runtime computes in float32 are computed on integers,"
        f" at most one step a layer off: {shown}",
    )


def _with_constants(graph: Graph, fates: dict[int, OperatorMapping], problems: Problems) -> Graph:
    """The graph without nodes that hold a constant, or pass one on."""
    constants: dict[str, Array] = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        try:
            if node.op == "Constant":
                constants[node.outputs[0]] = constant_of(node)
            elif node.op == "Identity" and node.input(0) in constants:
                constants[node.outputs[0]] = constants[node.inputs[0]]
            else:
                nodes.append(node)
                continue
        except (UnsupportedError, *MEANINGLESS) as why:
            problems.add(node.index, node.label, why)
        fates[node.index] = OperatorMapping(node.label, (), "a constant")
    return attrs.evolve(graph, nodes=tuple(nodes), constants=constants)


def _on_integers(steps: Iterable[Node], graph: Graph, problems: Problems) -> Iterable[Node]:
    """The steps, with operators that have scales among their inputs understood."""
    for step in steps:
        if step.integers or step.op not in QOPERATORS:
            yield step
            continue
        try:
            yield QOPERATORS[step.op](step, graph.constants) or step
        except (UnsupportedError, *MEANINGLESS) as why:
            problems.add(step.index, step.label, why)
