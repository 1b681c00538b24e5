"""PyTorch's quantized models, live: from the eager mode, FX, PT2E, scripted or exported."""

from __future__ import annotations

from typing import Any

from nmpsim.bundle.metadata import Fate
from nmpsim.diagnostics import Place, fail
from nmpsim.frontends.builder import Builder
from nmpsim.frontends.graph.lowering import VIEW, Lowering
from nmpsim.frontends.graph.program import Problems, lower_steps
from nmpsim.frontends.imported import Imported
from nmpsim.frontends.torch.drawing import Drawing, kind_of
from nmpsim.frontends.torch.floats import is_float, lower_float
from nmpsim.frontends.torch.islands import is_pt2e, with_islands
from nmpsim.frontends.torch.operators import OPERATORS
from nmpsim.frontends.torch.record import PROFILES, Recorded
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.names import legal_name

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
    place = Place(recorded.name)
    problems = Problems(place, lambda found: None, "operation")
    if is_pt2e(recorded):
        recorded = with_islands(
            recorded, lambda call, why: problems.add(call.number, call.node, why)
        )
        problems.check()
    fates: dict[int, Fate] = {}
    drawing = Drawing(recorded, is_float=False)
    _check_ends(drawing, place)
    for call in recorded.calls:
        drawing.take(call)
        drawn = len(drawing.steps)
        try:
            _draw(drawing)
            if len(drawing.steps) == drawn:
                fates[call.number] = Fate(call.node, (), VIEW)
        except UnsupportedError as why:
            problems.add(call.number, call.node, why)
            drawing.refuse(drawing.declared_results())
    graph = drawing.whole()
    lowering = Lowering(graph, drawing.steps, Builder(legal_name(recorded.name), PLACE), place)
    unsigned, _ = lower_steps(drawing.steps, lowering, fates, problems)
    return Imported(
        lowering.builder.module(),
        unsigned,
        tuple(fates[index] for index in sorted(fates)),
        PROFILES[recorded.engine],
        layer_numerics=lowering.numerics,
    )


def _check_ends(drawing: Drawing, place: Place) -> None:
    """Refuse inputs and outputs of types that cannot be held."""
    try:
        for _, tensor in (*drawing.recorded.inputs, *drawing.recorded.outputs):
            kind_of(tensor)
    except UnsupportedError as why:
        message = "an input or output cannot be compiled"
        wanted = "float32 or quint8"
        raise fail("MODEL002", message, place=place, found=str(why), expected=wanted) from why


def _draw(drawing: Drawing) -> None:
    call = drawing.call
    if call.operation not in OPERATORS:
        raise UnsupportedError(
            "an operation that nmpsim does not know"
            if call.results
            else "control flow or a number that depends on the values of a tensor"
        )
    OPERATORS[call.operation](drawing)
