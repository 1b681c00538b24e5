"""ONNX front end: float and quantized models (QOperator and QDQ) in ONNX Runtime's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import numpy as np

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Place
from nmpsim.frontends.graph.constant_folding import FOLDED_OPERATORS, extract_constants
from nmpsim.frontends.graph.integer_regions import (
    QUANTIZE,
    fuse_integer_regions,
    infer_quantization,
)
from nmpsim.frontends.graph.nodes import Graph, Node
from nmpsim.frontends.graph.operation import GraphLowering
from nmpsim.frontends.graph.operators import OPERATORS
from nmpsim.frontends.graph.problems import INVALID_NODE_ERRORS, UnsupportedOperators
from nmpsim.frontends.graph.program import lower_graph
from nmpsim.frontends.imported_model import ImportedModel, ImportOptions
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.frontends.onnx.decomposition import (
    DECOMPOSED,
    QLINEAR_OPERATORS,
    convert_qlinear_node,
    decompose_operators,
)
from nmpsim.frontends.onnx.function_inlining import inline_functions
from nmpsim.frontends.onnx.model import load_model, make_damaged_file_error, read_graph
from nmpsim.frontends.onnx.weight_folding import fold_into_weights
from nmpsim.lir.names import make_display_names, make_legal_name

MAX_LISTED = 8
"""Limit for the operators that a warning lists."""
NUMERICS = "float"
"""Numerics profile of ONNX Runtime."""
SUPPORTED_OPERATORS = frozenset((*OPERATORS, *QLINEAR_OPERATORS, *FOLDED_OPERATORS, *DECOMPOSED))
"""Operators that can be compiled; functions of these can be, too."""


def import_onnx(path: Path, options: ImportOptions) -> ImportedModel:
    """Import an ONNX file as LIR.

    Parameters
    ----------
    path : Path
        The file; external data must be in its folder.
    options : ImportOptions
        Input shapes, integer islands and quantization.

    Raises
    ------
    UserError
        FILE001, PKG001, ARG001, MODEL001 (damaged), MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    model = inline_functions(load_model(path), SUPPORTED_OPERATORS)
    graph = read_graph(model, options.input_shapes, place, options.sample_shapes)
    return lower_onnx_graph(
        graph, ModuleBuilder(make_legal_name(path.stem), str(path)), place, options
    )


@np.errstate(all="ignore")  # invalid values in a file give invalid results, as in the reference
def lower_onnx_graph(
    graph: Graph,
    builder: ModuleBuilder,
    place: Place,
    options: ImportOptions,
    problems: UnsupportedOperators | None = None,
) -> ImportedModel:
    """Lower a graph of ONNX operators to LIR; return the imported model.

    Parameters
    ----------
    graph : Graph
        The graph as read.
    builder : ModuleBuilder
        New builder of the module.
    place : Place
        The file, for error messages.
    options : ImportOptions
        Integer islands and quantization.
    problems : Problems, optional
        Problems found before.

    Raises
    ------
    UserError
        MODEL001 (damaged), LIR codes.
    LoweringError
        MODEL002.
    """
    mappings: dict[int, OperatorMapping] = {}
    if problems is None:
        shapes = "".join(f" --input-shape {one}" for one in graph.open_inputs)
        hint = f"Pass the input shapes to `nmpsim compile`:{shapes}." if shapes else _OPERATOR_HINT
        problems = UnsupportedOperators(place, lambda found: hint)
    graph = decompose_operators(extract_constants(graph, mappings, problems), problems)
    try:
        if options.for_quantization:
            graph, folded = fold_into_weights(graph)
            mappings |= folded
        regions = fuse_integer_regions(graph, _has_islands(graph, options))
    except INVALID_NODE_ERRORS as error:
        raise make_damaged_file_error(place, f"{type(error).__name__}: {error}"[:120]) from error
    mappings |= regions.mappings
    steps = tuple(_with_integer_operations(regions.steps, graph, problems))
    graph = attrs.evolve(graph, quantization=infer_quantization(graph, steps))
    lowering = GraphLowering(graph, steps, builder, place)
    imported = lower_graph(steps, lowering, mappings, problems, NUMERICS)
    islands = [label for label in regions.islands if label not in lowering.float_labels]
    warnings = (*graph.warnings, *([_island_warning(islands)] if islands else ()))
    return attrs.evolve(imported, warnings=warnings)


_OPERATOR_HINT = (
    "Change or remove the operator in the model. docs/onnx.md lists the supported operators."
)


def _has_islands(graph: Graph, options: ImportOptions) -> bool:
    """Return the option, by default whether activations have 16 bits, without integer reference."""
    if options.integer_islands is not None:
        return options.integer_islands
    return any(
        graph.constants[node.get_input(2)].dtype in (np.int16, np.uint16)
        for node in graph.nodes
        if node.op == QUANTIZE and node.get_input(2) in graph.constants
    )


def _island_warning(labels: Sequence[str]) -> str:
    return (
        f"{len(labels)} operations that ONNX Runtime computes in float32 are computed in integers,"
        f" with errors of at most one step per layer: {list_labels(labels)}"
    )


def list_labels(labels: Sequence[str]) -> str:
    """Return the first labels of nodes, with short names."""
    numbers, operators, names = zip(*(label.split(" ", 2) for label in labels), strict=True)
    short = map(" ".join, zip(numbers, operators, make_display_names(names), strict=True))
    return ", ".join([*short][:MAX_LISTED]) + (", ..." if len(labels) > MAX_LISTED else "")


def _with_integer_operations(
    steps: Iterable[Node], graph: Graph, problems: UnsupportedOperators
) -> Iterable[Node]:
    """Yield the nodes, QLinear operators as integer operations."""
    for step in steps:
        with problems.collect_errors(step.index, step.label):
            if not step.integers and step.op in QLINEAR_OPERATORS:
                step = convert_qlinear_node(step, graph.constants)
            yield step
