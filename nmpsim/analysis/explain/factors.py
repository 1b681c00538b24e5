"""Integer forms of a real factor, their errors, and quantization schemas for a range.

The form ``((x >> pre) * mul + half) >> post`` is a staircase: between two steps its error falls
linearly. So the worst and mean error and the share of inputs that round differently are known
exactly from the ends of the steps.
"""

from __future__ import annotations

import math
from typing import Annotated, TypedDict

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.compiler.numerics.ratios import OverflowBounds, find_overflow
from nmpsim.kernels.scale import IntegerScale, apply_integer_scale, make_integer_scale
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.quantization.parameters import SCHEMAS, Schema, choose_parameters
from nmpsim.report.fields import AT_END, NOT_IN_JSON, JsonKey, JsonType, Source, WrittenBefore

LONGEST_SHIFT = 31
"""Longest shift of the unit's 32-bit numbers; a longer one always gives zero."""


class IntegersDocument(TypedDict):
    """JSON form of Glow's integers for a factor."""

    pre: int
    post: int
    scale: Annotated[int, Source("mul")]


@attrs.frozen
class Factor:
    """Positive real factor and the integers with which Glow approximates it."""

    real: float
    """The factor as float32, which float profiles multiply by."""
    integer: Annotated[IntegerScale, JsonKey("integers"), JsonType(IntegersDocument)]
    """Integers of Glow's ``quantizeScaleOffset32To8``."""
    exponent: Annotated[
        int | None, "the exponent; null if it is no power of two", JsonKey("power_of_two")
    ]
    """``real == 2**exponent``; None if it is not a power of two."""

    @property
    def approximation(
        self,
    ) -> Annotated[float, "the real factor that the integers stand for", WrittenBefore("exponent")]:
        """Real factor that the integers represent."""
        return math.ldexp(self.integer.mul, -self.integer.pre - self.integer.post)

    @property
    def relative_error(self) -> Annotated[float, WrittenBefore("exponent")]:
        """Relative error of the factor that the integers represent, against the real factor."""
        return self.approximation / self.real - 1.0

    @property
    def is_zero(
        self,
    ) -> Annotated[bool, "whether the shift makes every 32-bit input zero", AT_END]:
        """Whether the shift is so long that every 32-bit input becomes zero."""
        return self.integer.post > LONGEST_SHIFT


def make_factor(real: float) -> Factor:
    """Make a factor from a real number: round to float32 and compute Glow's integers.

    Raises
    ------
    InvalidScaleError
        If the factor is not positive, or not finite as a float32.
    """
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
        single = float(np.float32(real))
    integer = make_integer_scale(single)
    mantissa, exponent = math.frexp(single)
    return Factor(single, integer, exponent - 1 if mantissa == 0.5 else None)


RESULT_BITS = {"int8": 8, "int16": 16}
"""Precision -> bits of the result."""
ACCUMULATOR_BITS = {"int8": 32, "int16": 48}
"""Precision -> bits of the accumulator."""


@attrs.frozen(eq=False)
class FactorErrors:
    """Rounding errors of a rescale by an integer factor, in units of the last place."""

    precision: str
    """Element type of the result: ``int8`` or ``int16``."""
    offset: int
    """Zero point of the result."""
    input_low: Annotated[int, "first input whose result is neither clipped nor overflows"]
    """First input whose result neither saturates nor overflows."""
    input_high: Annotated[int, "last such input"]
    """Last input whose result neither saturates nor overflows."""
    worst: float
    """Error (result minus exact product) with the largest magnitude."""
    worst_input: int
    """Input with the worst error."""
    worst_product: Annotated[int, NOT_IN_JSON]
    """Result with the worst error, without the offset."""
    mean: float
    """Mean magnitude of the error over all inputs."""
    differing: Annotated[float, "share of inputs whose result is not the nearest integer"]
    """Share of inputs whose result is not the nearest integer (halves round up)."""
    overflow: OverflowBounds
    """Inputs beyond which the 32-bit product overflows."""

    @property
    def worst_result(self) -> Annotated[int, WrittenBefore("worst_product")]:
        """Result with the largest error, including the offset."""
        return self.worst_product + self.offset

    @property
    def inputs(self) -> int:
        """Number of inputs for which the errors were measured."""
        return self.input_high - self.input_low + 1


def measure_rounding_errors(factor: Factor, precision: str, offset: int = 0) -> FactorErrors:
    """Measure the rounding errors of a factor's integer form on inputs with unsaturated results.

    Parameters
    ----------
    factor
        A factor that does not vanish.
    precision
        ``int8`` or ``int16``: the type of the result; the accumulator has 32 or 48 bits.
    offset
        Zero point that is added to the result.
    """
    first, last, result = _steps(factor, precision, offset)
    real = factor.real
    at_first, at_last = result - real * first, result - real * last
    ends = np.concatenate([at_first, at_last])
    worst = int(np.argmax(np.abs(ends)))
    counts = (last - first + 1).astype(np.float64)
    return FactorErrors(
        precision=precision,
        offset=offset,
        input_low=int(first[0]),
        input_high=int(last[-1]),
        worst=float(ends[worst]),
        worst_input=int(np.concatenate([first, last])[worst]),
        worst_product=int(np.concatenate([result, result])[worst]),
        mean=float(_magnitudes(at_first, at_last, real, counts).sum() / counts.sum()),
        differing=_differing(first, last, result, real),
        overflow=find_overflow(factor.integer, ACCUMULATOR_BITS[precision]),
    )


def _steps(factor: Factor, precision: str, offset: int) -> tuple[Array, Array, Array]:
    """Return first and last input, and result, of each step: int64 [steps], ascending."""
    bits = RESULT_BITS[precision]
    low, high = _input_limits(factor.integer, ACCUMULATOR_BITS[precision])
    results = np.arange(-(1 << (bits - 1)) - offset, (1 << (bits - 1)) - offset + 1, dtype=object)
    begins = np.array([_first_input(factor.integer, int(r)) for r in results], dtype=object)
    first = np.clip(begins[:-1], low, high + 1).astype(np.int64)
    last = np.clip(begins[1:] - 1, low - 1, high).astype(np.int64)
    kept = first <= last
    return first[kept], last[kept], results[:-1][kept].astype(np.int64)


def _first_input(form: IntegerScale, result: int) -> int:
    """Return the smallest input whose result is at least ``result``."""
    half = (1 << form.post) >> 1
    return -(-((result << form.post) - half) // form.mul) << form.pre


def _input_limits(form: IntegerScale, accumulator_bits: int) -> tuple[int, int]:
    """Return the accumulator's range without inputs that overflow."""
    overflow = find_overflow(form, accumulator_bits)
    low, high = -(1 << (accumulator_bits - 1)), (1 << (accumulator_bits - 1)) - 1
    return (
        low if overflow.low is None else overflow.low + 1,
        high if overflow.high is None else overflow.high - 1,
    )


def _magnitudes(at_first: Array, at_last: Array, real: float, counts: Array) -> Array:
    """Return the sum of error magnitudes of each step: arithmetic series above and below 0."""
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
    """Band of the smallest and the largest error in each equal part of the input range."""

    edges: Array
    """int64 [parts + 1]: part i has the inputs from edges[i] to edges[i + 1] - 1."""
    low: Array
    """Smallest error of each part: float64 [parts]."""
    high: Array
    """Largest error of each part: float64 [parts]."""


def measure_error_band(factor: Factor, precision: str, offset: int, parts: int) -> ErrorBand:
    """Measure the smallest and largest error in ``parts`` equal parts of the input range.

    Parameters
    ----------
    factor
        A factor that does not vanish.
    precision
        ``int8`` or ``int16``, the type of the result.
    offset
        Zero point that is added to the result.
    parts
        Largest number of parts into which the inputs that do not saturate are divided.
    """
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


ELEMS = ("i8", "i16")


@attrs.frozen
class SchemaFit:
    """Fit of a quantization schema to a range of real numbers: scale and offset."""

    schema: Schema
    elem: str
    scale: float
    """Scale: float32."""
    offset: int
    low: float
    """Real value of the lowest integer."""
    high: float
    use: float
    """Share of the representable range that is used, 0 to 1."""


def fit_schemas(low: float, high: float) -> tuple[SchemaFit, ...]:
    """Fit each of Glow's quantization schemas to a range, for Int8 and for Int16.

    The range is widened to include zero.
    """
    return tuple(_fit(low, high, schema, elem) for elem in ELEMS for schema in SCHEMAS)


def _fit(low: float, high: float, schema: Schema, elem: str) -> SchemaFit:
    chosen = choose_parameters(low, high, schema, elem)
    scale, offset = float(chosen.scale), int(chosen.offset)
    limits = np.iinfo(ELEM_DTYPES[elem])
    bottom, top = int(limits.min), int(limits.max)
    represented = (scale * (bottom - offset), scale * (top - offset))
    span = represented[1] - represented[0]
    held = min(max(high, 0.0), represented[1]) - max(min(low, 0.0), represented[0])
    return SchemaFit(schema, elem, scale, offset, *represented, held / span)
