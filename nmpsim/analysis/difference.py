"""Compare two outputs of a layer element by element.

An expected float array is compared with a quantized output in real values. A unit of the last place
(ulp) is the distance of two neighbouring values of the element type: 1 for integers, adjacent
numbers of the format for floats; both zeros are equal.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import fail
from nmpsim.interpreter import compute_energy, compute_sqnr_db
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.report.fields import NOT_IN_JSON, AllowedRange, JsonKey, Real, WrittenBefore

NAN_ULP = (1 << 64) - 1
"""Difference of a NaN from any number; larger than the difference of any two numbers."""
Distance = Annotated[int, AllowedRange(0, NAN_ULP)]
_BITS: dict[int, np.dtype[Any]] = {
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
"""Item size of a float format -> unsigned integer type of the same size."""
_BFLOAT16 = "bfloat16"
"""Element kind that NumPy lacks; arrays hold its bits as uint16."""


@attrs.frozen
class Tolerance:
    """Tolerance of a comparison: elements are equal if they satisfy any of its limits."""

    ulp: int = 0
    """Allowed difference in units of the last place; not used for floats."""
    absolute: float = 0.0
    """Allowed absolute difference of real values."""
    relative: float = 0.0
    """Allowed difference relative to the expected real value, added to ``absolute``."""


EXACT = Tolerance()


@attrs.frozen
class ElementDifference:
    """Actual and expected value of an element of two compared outputs."""

    at: Annotated[tuple[int, ...], "its coordinates"]
    expected: Annotated[int | Real, JsonKey("first")]
    """Stored value: an integer if the output is quantized."""
    actual: Annotated[int | Real, JsonKey("second")]
    ulp: Annotated[Distance, "units of the last place between the two"]


@attrs.frozen
class OutputDifference:
    """Measures of the difference between an output and the expected output."""

    shape: Annotated[Shape, NOT_IN_JSON]
    elements: Annotated[int, NOT_IN_JSON]
    differing: Annotated[int, JsonKey("differing_elements")]
    """Number of unequal elements; two NaN count as equal."""
    beyond: Annotated[
        int, JsonKey("beyond_elements"), "that differ by more than what does not count"
    ]
    mean_ulp: float
    """Mean difference of all elements, in units of the last place."""
    max_error: Annotated[Real | None, "the largest distance of two real values"]
    """NaN if one of two values is NaN; this and the next two are None if no scale is known."""
    sqnr_db: Real | None
    """Signal-to-quantization-noise ratio in dB, or NaN if a value is NaN."""
    cosine: Real | None
    """Cosine similarity of the real values; 1 if both are zero."""
    first: Annotated[ElementDifference | None, "the first that differs, in row-major order"]
    """None if all are equal."""
    worst: Annotated[
        ElementDifference | None, "furthest in units of the last place; a float, in real values"
    ]

    @property
    def equal(self) -> bool:
        """Whether all elements are equal."""
        return self.differing == 0

    @property
    def worst_ulp(self) -> Annotated[Distance, WrittenBefore("mean_ulp")]:
        """Largest difference in units of the last place, or 0 if all elements are equal."""
        return 0 if self.worst is None else self.worst.ulp


def rank_sqnr(difference: OutputDifference | None) -> float:
    """Return the SQNR in dB: minus infinity for NaN, infinity if it is unknown."""
    sqnr = math.inf if difference is None or difference.sqnr_db is None else difference.sqnr_db
    return -math.inf if math.isnan(sqnr) else sqnr


def compare_outputs(
    actual: Array,
    expected: Array,
    elem: str,
    scale: float | None = None,
    offset: int | None = None,
    tolerance: Tolerance = EXACT,
    shape: Shape | None = None,
) -> OutputDifference:
    """Compare an output with the expected output, element by element.

    Parameters
    ----------
    actual
        An output as the device stores it.
    expected
        The expected output as the device stores it, or real values (float) for a quantized output.
    elem
        Element kind of the output as the LIR has it: i8, float, ...
    scale
        Scale; None if the output is not quantized.
    offset
        Zero point.
    tolerance
        Limits within which elements do not count in ``beyond``.
    shape
        Shape of the tensor whose first elements the flat arrays contain; by default the shape of
        the arrays.

    Raises
    ------
    UserError
        INPUT002 if the shapes differ or the types cannot be compared.
    """
    reals = None
    if scale is not None and actual.dtype.kind in "iu" and expected.dtype.kind == "f":
        # The real values themselves are the signal, not what is left of them in integers.
        reals, expected = (
            expected.astype(np.float64),
            quantize_values(expected, elem, scale, offset),
        )
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise fail(
            "INPUT002",
            "outputs with different shapes or element types cannot be compared",
            found=f"{expected.dtype} of shape {list(expected.shape)}",
            expected=f"{actual.dtype} of shape {list(actual.shape)}",
        )
    ulp = compute_ulp_distance(actual, expected, elem)
    places = np.flatnonzero(ulp)
    numbers = _numbers(actual, elem), _numbers(expected, elem)
    real = dequantize_values(expected, elem, scale, offset) if reals is None else reals
    other = dequantize_values(actual, elem, scale, offset)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities and NaN
        error = other - real if reals is not None else _error(other, real, ulp)
        sqnr, cosine = compute_sqnr_db(real, error), _cosine(other, real)
        is_near = np.abs(error) <= tolerance.absolute + tolerance.relative * np.abs(real)
    is_float = numbers[0].dtype.kind == "f"
    is_near |= ulp <= (0 if is_float else tolerance.ulp)
    distance = _no_nan(np.abs(error)) if is_float else ulp
    shape = actual.shape if shape is None else shape
    return OutputDifference(
        shape=shape,
        elements=actual.size,
        differing=places.size,
        first=_element(numbers, ulp, int(places[0]), shape) if places.size else None,
        worst=_element(numbers, ulp, int(distance.argmax()), shape) if places.size else None,
        mean_ulp=float(ulp.mean(dtype=np.float64)) if ulp.size else 0.0,
        sqnr_db=sqnr,
        cosine=cosine,
        max_error=float(np.abs(error).max()) if error.size else 0.0,
        beyond=int(np.count_nonzero(~is_near)),
    )


def compute_ulp_distance(actual: Array, expected: Array, elem: str) -> npt.NDArray[np.uint64]:
    """Compute the difference of each pair of elements in units of the last place."""
    one, other = _places(actual, elem), _places(expected, elem)
    low, high = np.minimum(one, other), np.maximum(one, other)
    # Unsigned, because the distance of two 64-bit integers can need 64 bits; it wraps correctly.
    distance = high.astype(np.uint64) - low.astype(np.uint64)
    nan = np.isnan(_numbers(actual, elem)), np.isnan(_numbers(expected, elem))
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] | nan[1], NAN_ULP, distance))


def dequantize_values(
    stored: Array, elem: str, scale: float | None, offset: int | None
) -> npt.NDArray[np.float64]:
    """Return ``scale * (stored - offset)`` as float64, or ``stored`` if ``scale`` is None."""
    real = _numbers(stored, elem).astype(np.float64)
    return real if scale is None else scale * (real - (offset or 0))


def quantize_values(real: Array, elem: str, scale: float, offset: int | None) -> Array:
    """Quantize real values to the nearest integers of an element type, with saturation."""
    dtype = ELEM_DTYPES[elem]
    limits = np.iinfo(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(real.astype(np.float64) / scale) + (offset or 0)
    return np.asarray(np.clip(np.nan_to_num(scaled), limits.min, limits.max).astype(dtype))


def _no_nan(distance: Array) -> Array:
    """Replace NaN by infinity."""
    return np.where(np.isnan(distance), np.inf, distance)


def _numbers(stored: Array, elem: str) -> Array:
    """Return the elements as numbers; bfloat16 is converted to float32."""
    if elem != _BFLOAT16:
        return stored
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _places(stored: Array, elem: str) -> npt.NDArray[np.int64]:
    """Return the rank of each element among all values of its type."""
    if stored.dtype.kind != "f" and elem != _BFLOAT16:
        return stored.astype(np.int64)
    unsigned = _BITS[stored.dtype.itemsize]
    bits = np.ascontiguousarray(stored).view(unsigned).reshape(stored.shape)
    sign = 1 << (8 * stored.dtype.itemsize - 1)
    magnitude = (bits & unsigned.type(sign - 1)).astype(np.int64)
    return np.asarray(np.where(bits >= sign, -magnitude, magnitude), np.int64)


def _error(actual: Array, expected: Array, ulp: Array) -> Array:
    """Return the error of each element; equal ones, including infinities and NaN, have none."""
    return np.where(ulp == 0, 0.0, actual - expected)


def _cosine(one: Array, other: Array) -> float:
    length = math.sqrt(compute_energy(one)) * math.sqrt(compute_energy(other))
    if length == 0:
        return 1.0 if compute_energy(one) == compute_energy(other) else 0.0
    return float(np.vdot(one, other)) / length


def _element(
    numbers: tuple[Array, Array], ulp: Array, flat: int, shape: tuple[int, ...]
) -> ElementDifference:
    at = tuple(int(index) for index in np.unravel_index(flat, shape))
    actual, expected, distance = (array.reshape(-1)[flat].item() for array in (*numbers, ulp))
    return ElementDifference(at, expected, actual, distance)
