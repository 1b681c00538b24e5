"""Profile of PyTorch's qnnpack engine: sums of two tensors by integer factors and one shift."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import FormulaSteps, make_step, shift_away
from nmpsim.core.reference.operands import Descriptor
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    apply_operation,
    get_operation_name,
)
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Combine two operands by addition or subtraction with integer factors and one rounding."""
    x, y, offset = left * d["lhs_mul"], right * d["rhs_mul"], d["out_offset"]
    yield make_step("lhs scaled", x, "* {factor}", factor=d["lhs_mul"])
    yield make_step("rhs scaled", y, "* {factor}", factor=d["rhs_mul"])
    values = shift_away(apply_operation(x, y, d), d["out_post"]) + offset
    formula = "{operation} / 2^{post}, halves away from 0, + {offset}"
    yield make_step(
        "result",
        values,
        formula,
        operation=get_operation_name(d),
        post=d["out_post"],
        offset=offset,
    )
    return values


FORMULAS = ProfileFormulas(pair=combine_operands)
