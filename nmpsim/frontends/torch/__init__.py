"""PyTorch's quantized models, live: from the eager mode, FX, PT2E, scripted or exported."""

from __future__ import annotations

from typing import Any

from nmpsim.bundle.metadata import Fate
from nmpsim.diagnostics import Diagnostic, Place, UserError, fail
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.imported import Imported
from nmpsim.frontends.torch.floats import is_float, lower_float
from nmpsim.frontends.torch.islands import is_pt2e, with_islands
from nmpsim.frontends.torch.lowering import PROFILES, Lowering, unsupported
from nmpsim.frontends.torch.operators import OPERATORS
from nmpsim.frontends.torch.record import Call, Recorded
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.names import legal_name
from nmpsim.lir.parser import MAX_ERRORS

PLACE = "a PyTorch module"
"""Where messages say that something is."""


def import_module(model: Any, example: Any, engine: str | None = None) -> Imported:
    """A live PyTorch model as LIR; a float one as what is to be quantized.

    Arguments and errors as of :func:`nmpsim.from_torch`.
    """
    try:
        from nmpsim.frontends.torch.live import record
    except ImportError as error:
        message = "a PyTorch model needs PyTorch"
        hint = "pip install torch; a compiled bundle runs without it"
        raise fail("PKG001", message, found=str(error), hint=hint) from error

    return lower(record(model, example, engine))


def lower(recorded: Recorded) -> Imported:
    """A recorded run as LIR.

    Raises:
        UserError: MODEL002, LIR codes.
    """
    if is_float(recorded):
        return lower_float(recorded, PLACE)
    problems: list[Diagnostic] = []
    if is_pt2e(recorded):
        place = Place(recorded.name)
        recorded = with_islands(
            recorded, lambda call, why: problems.append(unsupported(call, why, place))
        )
    if problems:
        raise UserError(problems[:MAX_ERRORS])
    builder = Builder(legal_name(recorded.name), PLACE)
    graph = Lowering(recorded, builder)
    fates: list[Fate] = []
    unsigned = _bind(graph, recorded)
    for call in recorded.calls:
        try:
            fates.append(_lower(graph, call))
        except UnsupportedError as why:
            problems.append(unsupported(call, why, graph.place))
            _assume(graph, call)
    if problems:
        raise UserError(problems[:MAX_ERRORS])
    graph.finish(recorded)
    numerics = PROFILES[recorded.engine]
    return Imported(
        builder.module(),
        unsigned,
        tuple(fates),
        numerics,
        layer_numerics=graph.layer_numerics,
    )


def _bind(graph: Lowering, recorded: Recorded) -> frozenset[str]:
    try:
        return graph.bind(recorded)
    except UnsupportedError as why:
        message = "an input or output cannot be compiled"
        wanted = "float32 or quint8"
        raise UserError(
            [Diagnostic("MODEL002", message, graph.place, found=str(why), expected=wanted)]
        ) from why


def _lower(graph: Lowering, call: Call) -> Fate:
    graph.builder.node = call.node
    before = len(graph.builder.names)
    if call.operation not in OPERATORS:
        raise UnsupportedError(
            "an operation that nmpsim does not know"
            if call.results
            else "control flow or a number that depends on the values of a tensor"
        )
    result = OPERATORS[call.operation](graph, call)
    return Fate(call.node, tuple(graph.builder.names[before:]), result.why)


def _assume(graph: Lowering, call: Call) -> None:
    """Room for what was not made, so that its readers are judged on their own."""
    for place in range(len(call.results)):
        try:
            graph.target(call, result=place)
        except UnsupportedError:
            return
