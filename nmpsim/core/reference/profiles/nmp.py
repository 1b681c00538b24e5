"""The NMP's own library, as far as it is known: as glow_int but for the bias."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, held, integer_scale, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.profiles.formulas import Formulas, Requantizer, no_bias
from nmpsim.core.reference.profiles.glow_int import average, pair, rescale
from nmpsim.core.state import Int64s


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """As glow_int, with the bias added on the scale of the result."""
    rescaled = yield from integer_scale(sums, q.out, q.element, place, what="accumulator")
    values = rescaled + held(q.bias, 61) + q.offset
    formula = "rescaled + bias + {offset}" if q.has_bias else "rescaled + {offset}"
    yield step("result", values, formula, offset=q.offset)
    return values


FORMULAS = Formulas(no_bias, result, average, pair, rescale)
