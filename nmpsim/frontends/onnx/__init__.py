"""ONNX's quantized models, QOperator and QDQ, in ONNX Runtime's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import numpy as np

from nmpsim.bundle.metadata import Fate
from nmpsim.diagnostics import Diagnostic, Place, UserError, fail
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.imported import Imported, Wishes
from nmpsim.frontends.onnx.bodies import with_bodies
from nmpsim.frontends.onnx.folding import FOLDED, constant_of, folded
from nmpsim.frontends.onnx.groups import QUANTIZE, Step, integer_groups
from nmpsim.frontends.onnx.integers import QOPERATORS, IntegerOperation
from nmpsim.frontends.onnx.lowering import MOVED, Lowering
from nmpsim.frontends.onnx.model import Array, Graph, damaged, graph_of, load_model
from nmpsim.frontends.onnx.operators import INTEGER, NODES
from nmpsim.frontends.onnx.weight_folding import with_folded_weights
from nmpsim.frontends.unsupported import NotConstantError, UnsupportedError
from nmpsim.lir.names import legal_name
from nmpsim.lir.parser import MAX_ERRORS

MAX_SHOWN = 8
"""Of operations in a warning."""
NUMERICS = "float"
"""ONNX Runtime."""
KNOWN = frozenset((*NODES, *QOPERATORS, *FOLDED))
"""Operators that are compiled; others may be made of them."""
_ODD = (IndexError, KeyError, ValueError, TypeError, AttributeError, ArithmeticError)
"""What attributes and inputs of no meaning lead to."""


class NotLoweredError(UserError):
    """A graph cannot be compiled, by some tensors because nothing is known of their values yet."""

    unknown: frozenset[str] = frozenset()
    """Names of these tensors; empty if no values would help."""


def read(path: Path, wishes: Wishes) -> Imported:
    """A model as LIR.

    Args:
        path: the file; data outside it must lie in its folder.
        wishes: shapes of inputs (those that are not here have the file's); whether groups that ONNX
            Runtime computes in float32 become integer operations, by itself those of 16 bits;
            whether it is to be quantized.

    Raises:
        UserError: FILE001, PKG001, ARG001, MODEL001 (damaged), MODEL002 (not supported), LIR codes.
    """
    place = Place(str(path))
    graph = graph_of(
        with_bodies(load_model(path), KNOWN), wishes.shapes, place, wishes.sample_shapes
    )
    return lower(graph, Builder(legal_name(path.stem), str(path)), place, wishes)


@np.errstate(all="ignore")  # of a file of no meaning; what that makes is no other than elsewhere
def lower(graph: Graph, builder: Builder, place: Place, wishes: Wishes) -> Imported:
    """A graph as LIR.

    Raises:
        UserError: MODEL001 (damaged), LIR codes.
        NotLoweredError: MODEL002.
    """
    fates: dict[int, Fate] = {}
    problems = _Problems(place, graph.open_inputs)
    graph = _with_constants(graph, fates, problems)
    try:
        if wishes.to_quantize:
            graph, absorbed = with_folded_weights(graph)
            fates |= absorbed
        found = integer_groups(graph, graph.constants, _with_islands(graph, wishes))
    except _ODD as error:
        raise damaged(place, f"{type(error).__name__}: {error}"[:120]) from error
    labels = {node.index: node.label for node in graph.nodes}
    for index, why in found.absorbed.items():
        fates[index] = Fate(labels[index], (), why)
    steps = tuple(_on_integers(found.steps, graph, problems))
    lowering = Lowering(graph, steps, builder, place)
    unsigned = _bind(graph, lowering)
    real = _lower_all(steps, lowering, labels, fates, problems)
    problems.check()
    outputs = lowering.output_names()
    for name in graph.outputs:
        try:
            lowering.finish(name)
        except UnsupportedError as why:
            message = f"output {name} cannot be compiled"
            raise fail("MODEL002", message, place=place, found=why) from why
        if lowering.is_unsigned(name):
            unsigned.add(outputs[name])
    builder.order([*(one.name for one in graph.inputs), *outputs.values()])
    ordered = tuple(fates[index] for index in sorted(fates))
    islands = [label for label in found.islands if label not in real]
    warnings = (*graph.warnings, *(_of_islands(islands) if islands else ()))
    return Imported(builder.module(), frozenset(unsigned), ordered, NUMERICS, warnings=warnings)


class _Problems:
    """Nodes that cannot be compiled: all are told at once."""

    def __init__(self, place: Place, open_inputs: Sequence[str]) -> None:
        self._place = place
        self._hint = None
        if open_inputs:
            shapes = " ".join(f"--input-shape {one}" for one in open_inputs)
            self._hint = f"open dimensions were taken as 1; `nmpsim compile` takes {shapes}"
        self._found: list[Diagnostic] = []
        self._unknown: set[str] = set()
        self._is_certain = False

    def add(self, label: str, why: Exception) -> None:
        """A node cannot be compiled."""
        found = str(why)
        if not isinstance(why, UnsupportedError):
            found = f"inputs or attributes that do not fit it ({type(why).__name__}: {why})"
        message = f"operator {label} cannot be compiled"
        self._found.append(
            Diagnostic("MODEL002", message, self._place, found=found[:240], hint=self._hint)
        )
        if isinstance(why, NotConstantError) and why.name:
            self._unknown.add(why.name)
        else:
            self._is_certain = True

    def check(self) -> None:
        """Raise NotLoweredError if there was any."""
        if self._found:
            error = NotLoweredError(self._found[:MAX_ERRORS])
            error.unknown = frozenset() if self._is_certain else frozenset(self._unknown)
            raise error


def _with_islands(graph: Graph, wishes: Wishes) -> bool:
    """As asked for; else where activations have 16 bits: there is no integer reference."""
    if wishes.integer_islands is not None:
        return wishes.integer_islands
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


def _with_constants(graph: Graph, fates: dict[int, Fate], problems: _Problems) -> Graph:
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
        except (UnsupportedError, *_ODD) as why:
            problems.add(node.label, why)
        fates[node.index] = Fate(node.label, (), "a constant")
    return attrs.evolve(graph, nodes=tuple(nodes), constants=constants)


def _on_integers(steps: Iterable[Step], graph: Graph, problems: _Problems) -> Iterable[Step]:
    """The steps, with operators that have scales among their inputs understood."""
    for step in steps:
        if isinstance(step, IntegerOperation) or step.op not in QOPERATORS:
            yield step
            continue
        try:
            yield QOPERATORS[step.op](step, graph.constants) or step
        except (UnsupportedError, *_ODD) as why:
            problems.add(step.label, why)


def _bind(graph: Graph, lowering: Lowering) -> set[str]:
    """Inputs become the program's; the names of those that are unsigned."""
    unsigned = set()
    for one in graph.inputs:
        problem, hint = "", None
        if one.shape is None:
            problem, hint = "no shape", f"give one: --input-shape {one.name}=1,3,224,224"
        else:
            try:
                name = lowering.bind_input(one.name, one.dtype, one.shape)
            except UnsupportedError as why:
                problem = str(why)
        if problem:
            raise fail(
                "MODEL002",
                f"input {one.name} cannot be compiled",
                place=lowering.place,
                found=problem,
                hint=hint,
            )
        if one.dtype in MOVED:
            unsigned.add(name)
    return unsigned


def _lower_all(
    steps: Iterable[Step],
    lowering: Lowering,
    labels: dict[int, str],
    fates: dict[int, Fate],
    problems: _Problems,
) -> set[str]:
    """Every step; what reads the results of one that failed is not judged.

    Returns labels of those that could have been integer operations, in another form of theirs.
    """
    failed: set[str] = set()
    real: set[str] = set()
    for step in steps:
        index = step.index
        if failed.intersection(step.reads):
            failed.update(step.makes)
            continue
        lowering.builder.node = labels[index]
        before = len(lowering.builder.names)
        try:
            why = _lower(lowering, step, real)
            lowering.settle(step.makes)
        except (UnsupportedError, *_ODD) as error:
            problems.add(step.label, error)
            failed.update(step.makes)
            continue
        layers = tuple(lowering.builder.names[before:])
        if index in fates and fates[index].layers:  # one node of the file, carried in two halves
            layers = (*fates[index].layers, *layers)
        fates[index] = Fate(labels[index], layers, "" if layers else why)
    return real


def _lower(lowering: Lowering, step: Step, real: set[str]) -> str:
    """Make LIR of a step; why there is none, where there is none."""
    if isinstance(step, IntegerOperation):
        try:
            return INTEGER[step.kind](lowering, step).why
        except UnsupportedError:
            if not step.reals or lowering.is_made(step.result.name) or step.kind == "Conv":
                raise  # a Conv may have padding that was a node of its own
        real.add(step.label)
        for node in step.reals:
            if not lowering.is_made(node.outputs[0]):
                _lower(lowering, node, real)
        return ""
    values = folded(lowering, step)
    if values is not None:
        lowering.fold(step.outputs[0], values)
        return "a constant"
    if step.op not in NODES:
        raise UnsupportedError("an operator that nmpsim does not know")
    return NODES[step.op](lowering, step).why
