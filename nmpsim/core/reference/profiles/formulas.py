"""What a profile has formulas for, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaStep, Steps, step
from nmpsim.core.reference.events import ResultPositions, saturate
from nmpsim.core.reference.operands import Element, Scale, Words
from nmpsim.core.state import Int64s
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.shared_words import OPERATIONS as NAMES
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB, OPERATION_NUMBERS
from nmpsim.kernels.saturation_stages import BIAS
from nmpsim.records import frozen


@frozen(eq=False)
class Requantizer:
    """All that makes a result of a sum; scales and bias have one value a channel, or one for all.

    ``bias`` is the channel record's: an integer, or for fbgemm and onednn the bits of a float64.
    """

    element: Element
    bias: Int64s
    bias_scale: Scale
    out: Scale
    result_scale: Any
    offset: int
    has_bias: bool = True
    """False of a matrix product, whose ``bias`` is 0."""


@frozen
class Formulas:
    """One profile's arithmetic; None where it has none. Results are those before the clip."""

    bias: Callable[[Requantizer, ResultPositions], Steps] | None = None
    """What a sum begins with, before the zero term."""
    result: Callable[[Int64s, Requantizer, ResultPositions], Steps] | None = None
    """Of a finished sum, before the activation."""
    average: Callable[[Any, int, Words, ResultPositions], Steps] | None = None
    """Of a pool's ``total``, and by how many it is divided."""
    pair: Callable[[Int64s, Int64s, Words, ResultPositions], Steps] | None = None
    """Of two sides less their zero points."""
    rescale: Callable[[Int64s, Any, Words, ResultPositions], Steps] | None = None
    """Of a value less its zero point; and for which values the leaky scale holds (bool)."""
    total: Callable[[Int64s, Words], Any] = lambda taps, d: taps.sum(axis=0)
    """Of a pool's taps [taps, channels] less their zero point: what ``average`` takes."""


def plain_bias(q: Requantizer, place: ResultPositions) -> Steps:
    """The bias has the scale of the sum."""
    yield stored_bias(q)
    bias = saturate(q.bias, q.element.accumulator_bits, BIAS, place)
    yield step("bias in the sum", bias, "it has the scale of the sum")
    return bias


def no_bias(q: Requantizer, place: ResultPositions) -> Steps:
    """An integer bias comes after the sum."""
    yield step("bias", q.bias, "less its zero point")
    return (yield from _added_later(q))


def no_real_bias(q: Requantizer, place: ResultPositions) -> Steps:
    """A bias of float64 comes after the sum."""
    yield step("bias", q.bias.view(np.float64), "a float64")
    return (yield from _added_later(q))


def _added_later(q: Requantizer) -> Steps:
    nothing = np.zeros_like(q.bias)
    yield step("bias in the sum", nothing, "it is added after the sum")
    return nothing


def stored_bias(q: Requantizer) -> FormulaStep:
    """The first step of a bias that is part of the sum."""
    return step("bias", q.bias, "as it lies in memory, less its zero point")


def divided_by(divisor: int) -> str:
    """A quotient in a formula; nothing if it is the number itself."""
    return "" if divisor == 1 else f" / {divisor}"


OPERATIONS = {
    OP_ADD: np.add,
    OP_SUB: np.subtract,
    OP_MAX: np.maximum,
    OP_MIN: np.minimum,
}
"""What is done with two sides on one scale, integers or float32; a product has its own formula."""
check_exhaustive(f"{__name__}.OPERATIONS", (*OPERATIONS, OP_MUL), OPERATION_NUMBERS)


def operate(left: Any, right: Any, d: Words) -> Any:
    """Both sides, on one scale, by the operation of the descriptor."""
    return OPERATIONS[d["operation"]](left, right)


def operation_name(d: Words) -> str:
    """The operation's name, for formulas."""
    return NAMES[d["operation"]]
