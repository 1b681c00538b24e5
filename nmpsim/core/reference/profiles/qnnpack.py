"""PyTorch, engine qnnpack: sums of two tensors by integer factors and one shift."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, shift_away, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.operands import Words
from nmpsim.core.reference.profiles.formulas import Formulas, operate, operation_name
from nmpsim.core.state import Int64s


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """add and sub: halves away from zero."""
    x, y, offset = left * d["lhs_mul"], right * d["rhs_mul"], d["out_offset"]
    yield step("lhs scaled", x, "* {factor}", factor=d["lhs_mul"])
    yield step("rhs scaled", y, "* {factor}", factor=d["rhs_mul"])
    values = shift_away(operate(x, y, d), d["out_post"]) + offset
    formula = "{operation} / 2^{post}, halves away from 0, + {offset}"
    yield step(
        "result", values, formula, operation=operation_name(d), post=d["out_post"], offset=offset
    )
    return values


FORMULAS = Formulas(pair=pair)
