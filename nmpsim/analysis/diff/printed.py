"""Numbers of a tensor that a program printed, and their precision."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from nmpsim.analysis.matching.tensors import KnownValues
from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, fail
from nmpsim.kernels.array_types import Float64s

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_FIXED = re.compile(r"-?\d+\.(\d+)")
_STREAM_DIGITS = 6
"""Significant digits of a C++ stream."""


def parse_printed_values(
    tokens: list[str], shape: Shape, dtype: np.dtype[Any] | None, place: Place
) -> KnownValues:
    """Parse the printed elements of a tensor; a text may contain only the first elements.

    Parameters
    ----------
    tokens
        Texts that match NUMBER.
    shape
        Shape of the tensor.
    dtype
        Element type; None if the text does not state it.
    place
        Place of the text, for messages.

    Raises
    ------
    UserError
        DUMP001 if there are more numbers than elements.
    """
    size = math.prod(shape)
    if len(tokens) > size:
        raise fail(
            "DUMP001",
            "the printed tensor has too many numbers",
            place=place,
            found=f"{len(tokens):,} numbers",
            expected=f"at most {size:,} numbers",
        )
    numbers = np.array(tokens, np.float64)
    return KnownValues(
        shape=shape,
        array=convert_to_type(numbers, dtype),
        tolerance=_tolerance(tokens, numbers),
        is_typed=dtype is not None,
    )


def convert_to_type(numbers: Float64s, dtype: np.dtype[Any] | None) -> Array:
    """Round and saturate numbers to a dtype; return them unchanged if the dtype is None."""
    if dtype is None:
        return numbers
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return numbers.astype(dtype)
    if dtype.kind == "b":
        return np.not_equal(numbers, 0)
    limits = np.iinfo(dtype)
    highest = np.nextafter(float(limits.max) + 1, 0)  # the largest that astype can take
    whole = np.clip(np.rint(np.nan_to_num(numbers)), limits.min, highest)
    elements: Array = whole.astype(dtype)
    return elements


def _tolerance(tokens: list[str], numbers: Float64s) -> Any:
    """Return half a unit of the last digit, for fixed decimals or fixed significant digits."""
    decimals = {len(match[1]) if (match := _FIXED.fullmatch(t)) else None for t in tokens[:100]}
    (fixed,) = decimals if len(decimals) == 1 else (None,)
    if fixed is not None and fixed >= 3:
        return 0.5 * 10.0**-fixed * (1 + 1e-6)
    size = np.abs(np.nan_to_num(numbers))
    exponent = np.floor(np.log10(np.maximum(size, 1e-300))) + 1 - _STREAM_DIGITS
    return 0.5 * 10.0**exponent * (1 + 1e-6)
