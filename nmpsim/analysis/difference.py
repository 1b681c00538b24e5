"""How far two outputs of a layer are apart: elements that differ, the first, the worst.

Elements of another kind than the output's are real numbers that it should be near to.

A unit of the last place is one of the integers that an element can hold; of a float element, one
of the numbers that its format can hold: two neighbours are one unit apart, and zero has one place,
whatever its sign.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import fail
from nmpsim.interpreter import energy, sqnr_db
from nmpsim.lir.nodes import ELEM_DTYPES

Array = npt.NDArray[Any]
NAN_ULP = (1 << 64) - 1
"""The distance of a NaN from every number: more than between any two numbers."""
_BITS: dict[int, np.dtype[Any]] = {
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
"""Bytes of a float format -> unsigned integers of its bits."""
_BFLOAT16 = "bfloat16"
"""NumPy has no such type: its arrays hold the bits."""


@attrs.frozen
class Tolerance:
    """What does not count as a difference; an element that one of these admits is near enough."""

    ulp: int = 0
    """Units of the last place; not of floats, whose smallest neighbours say nothing."""
    absolute: float = 0.0
    """Of real values."""
    relative: float = 0.0
    """Of the expected real value, to which ``absolute`` is added."""


EXACT = Tolerance()


@attrs.frozen
class Element:
    """One element of two outputs."""

    at: tuple[int, ...]
    """Its coordinates."""
    actual: float
    """What the output stores: an integer, if it is quantized."""
    expected: float
    ulp: int
    """Units of the last place between the two."""


@attrs.frozen
class Difference:
    """How far an output is from what it should be."""

    shape: tuple[int, ...]
    elements: int
    differing: int
    """Elements that are not equal; two NaN are."""
    first: Element | None
    """In row-major order; None if all are equal."""
    worst: Element | None
    """Furthest in units of the last place, a float in real values; the first of equals."""
    mean_ulp: float
    """Over all elements."""
    sqnr_db: float
    """Of real values: the expected ones are the signal. Not a number if one of them is none."""
    cosine: float
    """Of the angle between both outputs as vectors of real values; 1 if both are zero."""
    max_error: float
    """The largest distance of two real values; NaN of a NaN and a number."""
    beyond: int
    """Elements that differ by more than the tolerance."""

    @property
    def equal(self) -> bool:
        """True if no element differs."""
        return self.differing == 0

    @property
    def worst_ulp(self) -> int:
        """The largest distance in units of the last place."""
        return 0 if self.worst is None else self.worst.ulp


def compare(
    actual: Array,
    expected: Array,
    elem: str,
    scale: float | None = None,
    offset: int | None = None,
    tolerance: Tolerance = EXACT,
) -> Difference:
    """How far ``actual`` is from ``expected``, two arrays of one shape.

    Args:
        actual: an output as the device stores it.
        expected: what it should be, likewise; or, of a quantized output, real values (float).
        elem: element kind of the output as the LIR has it: i8, float, ...
        scale: real size of a unit; None if the output is not quantized.
        offset: the integer that stands for zero.
        tolerance: what does not count in ``beyond``.

    Raises:
        UserError: INPUT002 if they are not of one shape, or of types that cannot be compared.
    """
    reals = None
    if scale is not None and actual.dtype.kind in "iu" and expected.dtype.kind == "f":
        # The real values themselves are the signal, not what is left of them in integers.
        reals, expected = expected.astype(np.float64), nearest_stored(expected, elem, scale, offset)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise fail(
            "INPUT002",
            "outputs of two kinds cannot be compared",
            found=f"{expected.dtype} of shape {expected.shape}",
            expected=f"{actual.dtype} of shape {actual.shape}",
        )
    ulp = ulp_between(actual, expected, elem)
    apart = np.flatnonzero(ulp)
    numbers = _numbers(actual, elem), _numbers(expected, elem)
    real = real_values(expected, elem, scale, offset) if reals is None else reals
    other = real_values(actual, elem, scale, offset)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities and NaN
        error = other - real if reals is not None else _error(other, real, ulp)
        sqnr, cosine = sqnr_db(real, error), _cosine(other, real)
        is_near = np.abs(error) <= tolerance.absolute + tolerance.relative * np.abs(real)
    is_float = numbers[0].dtype.kind == "f"
    is_near |= ulp <= (0 if is_float else tolerance.ulp)
    distance = _no_nan(np.abs(error)) if is_float else ulp
    return Difference(
        shape=actual.shape,
        elements=actual.size,
        differing=apart.size,
        first=_element(numbers, ulp, int(apart[0])) if apart.size else None,
        worst=_element(numbers, ulp, int(distance.argmax())) if apart.size else None,
        mean_ulp=float(ulp.mean(dtype=np.float64)) if ulp.size else 0.0,
        sqnr_db=sqnr,
        cosine=cosine,
        max_error=float(np.abs(error).max()) if error.size else 0.0,
        beyond=int(np.count_nonzero(~is_near)),
    )


def ulp_between(actual: Array, expected: Array, elem: str) -> npt.NDArray[np.uint64]:
    """Units of the last place between each two elements, in the arrays' shape."""
    one, other = _places(actual, elem), _places(expected, elem)
    low, high = np.minimum(one, other), np.maximum(one, other)
    # Of a 64-bit type the distance may need all 64 bits: unsigned, it wraps to what is right.
    apart = high.astype(np.uint64) - low.astype(np.uint64)
    nan = np.isnan(_numbers(actual, elem)), np.isnan(_numbers(expected, elem))
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] | nan[1], NAN_ULP, apart))


def real_values(
    stored: Array, elem: str, scale: float | None, offset: int | None
) -> npt.NDArray[np.float64]:
    """What stored elements stand for: ``scale * (q - offset)``, or themselves."""
    real = _numbers(stored, elem).astype(np.float64)
    return real if scale is None else scale * (real - (offset or 0))


def nearest_stored(real: Array, elem: str, scale: float, offset: int | None) -> Array:
    """Real values as a quantized output stores them: the nearest integers, saturated."""
    dtype = ELEM_DTYPES[elem]
    limits = np.iinfo(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(real.astype(np.float64) / scale) + (offset or 0)
    return np.asarray(np.clip(np.nan_to_num(scaled), limits.min, limits.max).astype(dtype))


def _no_nan(distance: Array) -> Array:
    """A NaN is further off than any number."""
    return np.where(np.isnan(distance), np.inf, distance)


def _numbers(stored: Array, elem: str) -> Array:
    """The elements as numbers: as they are, unless NumPy has no such type."""
    if elem != _BFLOAT16:
        return stored
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _places(stored: Array, elem: str) -> npt.NDArray[np.int64]:
    """For each element the number of its place among all that its type can hold, in order."""
    if stored.dtype.kind != "f" and elem != _BFLOAT16:
        return stored.astype(np.int64)
    unsigned = _BITS[stored.dtype.itemsize]
    bits = np.ascontiguousarray(stored).view(unsigned).reshape(stored.shape)
    sign = 1 << (8 * stored.dtype.itemsize - 1)
    magnitude = (bits & unsigned.type(sign - 1)).astype(np.int64)
    return np.asarray(np.where(bits >= sign, -magnitude, magnitude), np.int64)


def _error(actual: Array, expected: Array, ulp: Array) -> Array:
    """What is equal has no error, two infinities or NaN included."""
    return np.where(ulp == 0, 0.0, actual - expected)


def _cosine(one: Array, other: Array) -> float:
    length = math.sqrt(energy(one)) * math.sqrt(energy(other))
    if length == 0:
        return 1.0 if energy(one) == energy(other) else 0.0
    return float(np.vdot(one, other)) / length


def _element(numbers: tuple[Array, Array], ulp: Array, flat: int) -> Element:
    at = tuple(int(index) for index in np.unravel_index(flat, ulp.shape))
    return Element(at, numbers[0][at].item(), numbers[1][at].item(), int(ulp[at]))
