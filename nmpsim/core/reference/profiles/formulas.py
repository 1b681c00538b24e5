"""The formulas that a profile consists of, and helpers that several profiles share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaStep, FormulaSteps, make_step
from nmpsim.core.reference.operands import Descriptor, ElementType, Scale
from nmpsim.core.reference.saturation import ResultPositions, saturate
from nmpsim.core.state import Int64s
from nmpsim.isa.descriptors import OPERATIONS as NAMES
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB, OPERATION_NUMBERS
from nmpsim.kernels.saturation_stages import BIAS
from nmpsim.records import frozen


@frozen(eq=False)
class RequantizationParameters:
    """Parameters that requantize sums: scales and bias, with one value or one per channel each.

    ``bias`` is the channel record's: an integer, or for fbgemm and onednn the bits of a float64.
    """

    element: ElementType
    bias: Int64s
    bias_scale: Scale
    out: Scale
    result_scale: Any
    offset: int
    formulas: ProfileFormulas
    has_bias: bool = True
    """False for a matrix product, whose ``bias`` is 0."""


@frozen
class ProfileFormulas:
    """Formulas of one numerics profile, one for each operation; None if unsupported."""

    bias: Callable[[RequantizationParameters, ResultPositions], FormulaSteps] | None = None
    """Initial value of a sum, before the zero term."""
    result: Callable[[Int64s, RequantizationParameters, ResultPositions], FormulaSteps] | None = (
        None
    )
    """Result of a complete sum, before the activation."""
    average: Callable[[Any, int, Descriptor, ResultPositions], FormulaSteps] | None = None
    """Average from a pool's ``total`` and the divisor."""
    pair: Callable[[Int64s, Int64s, Descriptor, ResultPositions], FormulaSteps] | None = None
    """Result of two operands without their zero points."""
    rescale: Callable[[Int64s, Any, Descriptor, ResultPositions], FormulaSteps] | None = None
    """Rescaled value without its zero point; the second argument selects the leaky scale (bool)."""
    leaky_sums: Callable[[Int64s, Descriptor, ResultPositions], FormulaSteps] | None = None
    """Leaky activation after a sum, if it is not that of ``glow_int``."""
    total: Callable[[Int64s, Descriptor], Any] = lambda taps, d: taps.sum(axis=0)
    """Sum of a pool's taps [taps, channels] without their zero point."""


def initialize_with_bias(q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Yield the steps that initialize a sum with the bias. Bias and sum have the same scale."""
    yield make_bias_step(q)
    bias = saturate(q.bias, q.element.accumulator_bits, BIAS, place)
    yield make_step("bias in the sum", bias, "it has the scale of the sum")
    return bias


def initialize_without_bias(q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Yield the steps that initialize a sum with 0; the integer bias is added at the end."""
    yield make_step("bias", q.bias, "less its zero point")
    return (yield from _added_later(q))


def initialize_without_float_bias(
    q: RequantizationParameters, place: ResultPositions
) -> FormulaSteps:
    """Yield the steps that initialize a sum with 0; the float64 bias is added at the end."""
    yield make_step("bias", q.bias.view(np.float64), "a float64")
    return (yield from _added_later(q))


def _added_later(q: RequantizationParameters) -> FormulaSteps:
    nothing = np.zeros_like(q.bias)
    yield make_step("bias in the sum", nothing, "it is added after the sum")
    return nothing


def make_bias_step(q: RequantizationParameters) -> FormulaStep:
    """Return the first step of a formula that adds the stored bias."""
    return make_step("bias", q.bias, "as it lies in memory, less its zero point")


def format_divisor(divisor: int) -> str:
    """Format a division by ``divisor`` as formula text, or return '' if the divisor is 1."""
    return "" if divisor == 1 else f" / {divisor}"


OPERATIONS = {
    OP_ADD: np.add,
    OP_SUB: np.subtract,
    OP_MAX: np.maximum,
    OP_MIN: np.minimum,
}
"""Operation on two values of one scale, integers or float32; products have their own formula."""
check_exhaustive(f"{__name__}.OPERATIONS", (*OPERATIONS, OP_MUL), OPERATION_NUMBERS)


def apply_operation(left: Any, right: Any, d: Descriptor) -> Any:
    """Apply the descriptor's operation to two values with the same scale."""
    return OPERATIONS[d["operation"]](left, right)


def get_operation_name(d: Descriptor) -> str:
    """Return the name of the descriptor's operation."""
    return NAMES[d["operation"]]
