"""Makes LIR of a graph, step by step, and reports all steps that cannot be lowered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import Diagnostic, Place, UserError, fail
from nmpsim.frontends.graph.folding import folded
from nmpsim.frontends.graph.lowering import Lowering
from nmpsim.frontends.graph.nodes import MOVED, Node
from nmpsim.frontends.graph.operation import Made, Operation
from nmpsim.frontends.graph.operators import INTEGER, NODES
from nmpsim.frontends.imported_model import ImportedModel, NotConstantError, UnsupportedError
from nmpsim.lir.parser import MAX_ERRORS

MEANINGLESS = (IndexError, KeyError, ValueError, TypeError, AttributeError, ArithmeticError)
"""What attributes and inputs of no meaning lead to."""


class NotLoweredError(UserError):
    """A graph cannot be compiled, by some tensors because nothing is known of their values yet."""

    unknown: frozenset[str] = frozenset()
    """Names of these tensors; empty if no values would help."""


class Problems:
    """Operators that cannot be compiled: all are told at once."""

    def __init__(
        self, place: Place, hint: Callable[[str], str | None], what: str = "operator"
    ) -> None:
        self._place = place
        self._hint = hint
        self._what = what
        self._found: dict[int, Diagnostic] = {}
        self._unknown: set[str] = set()
        self._is_certain = False

    def add(self, index: int, label: str, why: Exception) -> None:
        """An operator cannot be compiled; of each the first problem is told."""
        found = str(why)
        if not isinstance(why, UnsupportedError):
            found = f"inputs or attributes that do not fit it ({type(why).__name__}: {why})"
        message, hint = f"{self._what} {label} cannot be compiled", self._hint(found)
        problem = Diagnostic("MODEL002", message, self._place, found=found[:240], hint=hint)
        self._found.setdefault(index, problem)
        if isinstance(why, NotConstantError) and why.name:
            self._unknown.add(why.name)
        else:
            self._is_certain = True

    def check(self, limit: int = MAX_ERRORS) -> None:
        """Raise NotLoweredError if there was any."""
        if self._found:
            ordered = [self._found[index] for index in sorted(self._found)]
            error = NotLoweredError(ordered[:limit])
            error.unknown = frozenset() if self._is_certain else frozenset(self._unknown)
            raise error


def imported_graph(
    steps: Sequence[Node],
    lowering: Lowering,
    fates: dict[int, OperatorMapping],
    problems: Problems,
    numerics: str,
    most_problems: int = MAX_ERRORS,
) -> ImportedModel:
    """Make LIR of a graph's steps.

    Parameters
    ----------
    steps : sequence of Node
        In an order in which each tensor is made before it is read.
    lowering : Lowering
        Of the graph, with nothing in it yet.
    fates : dict of int to OperatorMapping
        By an operator's number, what is known already.
    problems : Problems
        Those that were found already.
    numerics : str
        The arithmetic profile that the file calls for.
    most_problems : int
        That are told.

    Raises
    ------
    UserError
        MODEL002, LIR codes.
    """
    labels = {node.index: node.label for node in lowering.graph.nodes}
    try:
        unsigned = _bind(lowering)
    except UserError:
        problems.check(most_problems)  # what is wrong with its readers says more
        raise
    _lower_all(steps, lowering, labels, fates, problems)
    problems.check(most_problems)
    outputs = lowering.output_names()
    for name in lowering.graph.outputs:
        try:
            lowering.finish(name)
        except UnsupportedError as why:
            message = f"output {name} cannot be compiled"
            raise fail("MODEL002", message, place=lowering.place, found=why) from why
        if lowering.is_unsigned(name):
            unsigned.add(outputs[name])
    inputs = (one.name for one in lowering.graph.inputs)
    lowering.builder.order([*inputs, *outputs.values()])
    return ImportedModel(
        lowering.builder.module(),
        frozenset(unsigned),
        tuple(fates[index] for index in sorted(fates)),
        numerics,
        layer_numerics=lowering.numerics,
    )


def _bind(lowering: Lowering) -> set[str]:
    """Inputs become the program's; the names of those that are unsigned."""
    unsigned = set()
    for one in lowering.graph.inputs:
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
    steps: Iterable[Node],
    lowering: Lowering,
    labels: dict[int, str],
    fates: dict[int, OperatorMapping],
    problems: Problems,
) -> None:
    """Lower every step. After a failed one, steps that read its results are skipped unless the file
    declares them."""
    failed: set[str] = set()
    for step in steps:
        index = step.index
        if failed.intersection(step.reads):
            failed.update(step.makes)
            continue
        lowering.builder.node = labels[index]
        before = len(lowering.builder.names)
        try:
            why = _lower(lowering, step)
            lowering.settle(step.makes)
        except (UnsupportedError, *MEANINGLESS) as error:
            problems.add(index, step.label, error)
            failed.update(name for name in step.makes if not lowering.assume(name))
            continue
        layers = tuple(lowering.builder.names[before:])
        if index in fates and fates[index].layers:  # one operator of the file, in several steps
            layers = (*fates[index].layers, *layers)
        fates[index] = OperatorMapping(labels[index], layers, "" if layers else why)


def _lower(lowering: Lowering, step: Node) -> str:
    """Make LIR of a step; why there is none, where there is none."""
    if step.integers:
        try:
            return _carried_out(INTEGER[step.kind], lowering, step)
        except UnsupportedError:
            reals = step.integers.reals
            if not reals or lowering.is_made(step.makes[0]) or step.kind == "Conv":
                raise  # a Conv may have padding that was a node of its own
        lowering.real.add(step.label)
        for node in reals:
            if not lowering.is_made(node.outputs[0]):
                _lower(lowering, node)
        return ""
    values = folded(lowering, step)
    if values is not None:
        lowering.fold(step.outputs[0], values)
        return "a constant"
    if step.op not in NODES:
        raise UnsupportedError("an operator that nmpsim does not know")
    return _carried_out(NODES[step.op], lowering, step)


def _carried_out(operator: Callable[[Operation], Made], lowering: Lowering, step: Node) -> str:
    op = Operation(lowering, step)
    made = operator(op)
    if isinstance(made, str):
        return made
    op.give(op.name, made)
    return ""
