"""How far an integer rescaling is from the real factor, over all inputs that are not clipped.

The form ``((x >> pre) * mul + half) >> post`` is a staircase: between two steps its error falls
linearly. So worst, mean and the share of inputs that round otherwise are known exactly from the
ends of the steps, however many inputs there are.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.explain.factors import Factor
from nmpsim.compiler.numerics.ratios import Overflow, overflow_of
from nmpsim.kernels.scale import IntegerScale, apply_integer_scale

Array: TypeAlias = npt.NDArray[Any]

RESULT_BITS = {"int8": 8, "int16": 16}
ACCUMULATOR_BITS = {"int8": 32, "int16": 48}


@attrs.frozen(eq=False)
class FormErrors:
    """Error of an integer form in units of the last place of its result."""

    precision: str
    offset: int
    input_low: int
    """First input whose result is neither clipped nor overflows."""
    input_high: int
    worst: float
    """Result minus exact product, where that is furthest from 0."""
    worst_input: int
    worst_result: int
    """Without the offset."""
    mean: float
    """Of the magnitude, each input counting the same."""
    differing: float
    """Share of inputs whose result is not the nearest integer (halves upwards)."""
    overflow: Overflow

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return self.input_high - self.input_low + 1


def form_errors(factor: Factor, precision: str, offset: int = 0) -> FormErrors:
    """Compare the integer form with the real factor on every input that is not clipped.

    ``precision`` is int8 or int16: the result's range, and with it the accumulator's, 32 or 48
    bits. ``offset``, of the result's range, is added to the result and moves the range of inputs.
    The factor must not vanish: with such a shift every result is the offset.
    """
    first, last, result = _steps(factor, precision, offset)
    real = factor.real
    at_first, at_last = result - real * first, result - real * last
    ends = np.concatenate([at_first, at_last])
    worst = int(np.argmax(np.abs(ends)))
    counts = (last - first + 1).astype(np.float64)
    return FormErrors(
        precision=precision,
        offset=offset,
        input_low=int(first[0]),
        input_high=int(last[-1]),
        worst=float(ends[worst]),
        worst_input=int(np.concatenate([first, last])[worst]),
        worst_result=int(np.concatenate([result, result])[worst]),
        mean=float(_magnitudes(at_first, at_last, real, counts).sum() / counts.sum()),
        differing=_differing(first, last, result, real),
        overflow=overflow_of(factor.integer, ACCUMULATOR_BITS[precision]),
    )


def _steps(factor: Factor, precision: str, offset: int) -> tuple[Array, Array, Array]:
    """First and last input of each step, and its result: int64, in ascending order."""
    bits = RESULT_BITS[precision]
    low, high = _input_limits(factor.integer, ACCUMULATOR_BITS[precision])
    results = np.arange(-(1 << (bits - 1)) - offset, (1 << (bits - 1)) - offset + 1, dtype=object)
    begins = np.array([_first_input(factor.integer, int(r)) for r in results], dtype=object)
    first = np.clip(begins[:-1], low, high + 1).astype(np.int64)
    last = np.clip(begins[1:] - 1, low - 1, high).astype(np.int64)
    kept = first <= last
    return first[kept], last[kept], results[:-1][kept].astype(np.int64)


def _first_input(form: IntegerScale, result: int) -> int:
    """The smallest integer that the form takes to ``result`` or more."""
    half = (1 << form.post) >> 1
    return -(-((result << form.post) - half) // form.mul) << form.pre


def _input_limits(form: IntegerScale, accumulator_bits: int) -> tuple[int, int]:
    """The accumulator's range without what overflows."""
    overflow = overflow_of(form, accumulator_bits)
    low, high = -(1 << (accumulator_bits - 1)), (1 << (accumulator_bits - 1)) - 1
    return (
        low if overflow.low is None else overflow.low + 1,
        high if overflow.high is None else overflow.high - 1,
    )


def _magnitudes(at_first: Array, at_last: Array, real: float, counts: Array) -> Array:
    """Sum of the error's magnitude over each step: two arithmetic series, above and below 0."""
    above = np.clip(np.floor(at_first / real) + 1.0, 0.0, counts)
    below = counts - above
    upper = above * (2.0 * at_first - real * (above - 1.0)) / 2.0
    lower = below * (2.0 * at_last + real * (below - 1.0)) / 2.0
    total: Array = np.where(above > 0, upper, 0.0) - np.where(below > 0, lower, 0.0)
    return total


def _differing(first: Array, last: Array, result: Array, real: float) -> float:
    nearest_first = np.ceil((result - 0.5) / real)
    nearest_last = np.ceil((result + 0.5) / real) - 1.0
    common = np.minimum(last, nearest_last) - np.maximum(first, nearest_first) + 1.0
    total = float((last - first + 1).sum())
    return 1.0 - float(np.maximum(common, 0.0).sum()) / total


@attrs.frozen(eq=False)
class ErrorBand:
    """Smallest and largest error of equal parts of the input range, for a plot."""

    edges: Array
    """int64 [parts + 1]: part i holds the inputs from edges[i] to edges[i + 1] - 1."""
    low: Array
    """float64 [parts]"""
    high: Array
    """float64 [parts]"""


def error_band(factor: Factor, precision: str, offset: int, parts: int) -> ErrorBand:
    """The error over the inputs that are not clipped, in at most ``parts`` parts."""
    first, last, _ = _steps(factor, precision, offset)
    begin, end = int(first[0]), int(last[-1]) + 1
    parts = min(parts, end - begin)
    edges = np.array([begin + (end - begin) * i // parts for i in range(parts + 1)], np.int64)
    points = np.unique(np.concatenate([first, last, edges[:-1], edges[1:] - 1]))
    errors = apply_integer_scale(points, factor.integer) - factor.real * points
    part = np.searchsorted(edges, points, side="right") - 1
    low, high = np.full(parts, np.inf), np.full(parts, -np.inf)
    np.minimum.at(low, part, errors)
    np.maximum.at(high, part, errors)
    return ErrorBand(edges, low, high)
