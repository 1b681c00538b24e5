"""Numbers from text: what they are, and how much of them was printed."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.diff.tensors import Values
from nmpsim.diagnostics import Place, fail

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_FIXED = re.compile(r"-?\d+\.(\d+)")
_STREAM_DIGITS = 6
"""Significant digits of a C++ stream."""


def printed_values(
    tokens: list[str], shape: tuple[int, ...], dtype: np.dtype[Any] | None, place: Place
) -> Values:
    """The tensor that these numbers print, perhaps only its begin.

    Args:
        tokens: texts that match NUMBER.
        shape: of the tensor.
        dtype: of its elements; None if the text does not say.
        place: where the text is, for messages.

    Raises:
        UserError: DUMP001 if there are more numbers than elements.
    """
    size = math.prod(shape)
    if len(tokens) > size:
        raise fail(
            "DUMP001",
            "there are more numbers than the tensor has elements",
            place=place,
            found=f"{len(tokens):,}",
            expected=f"{size:,}",
        )
    numbers = np.array(tokens, np.float64)
    return Values(
        shape=shape,
        array=stored(numbers, dtype),
        tolerance=_tolerance(tokens, numbers),
        is_typed=dtype is not None,
    )


def stored(numbers: npt.NDArray[np.float64], dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """The numbers as elements of this type, as they are if there is none."""
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
    elements: npt.NDArray[Any] = whole.astype(dtype)
    return elements


def _tolerance(tokens: list[str], numbers: npt.NDArray[np.float64]) -> Any:
    """Half a unit of the last digit: all have the same decimals, or the same significant digits."""
    decimals = {len(match[1]) if (match := _FIXED.fullmatch(t)) else None for t in tokens[:100]}
    (fixed,) = decimals if len(decimals) == 1 else (None,)
    if fixed is not None and fixed >= 3:
        return 0.5 * 10.0**-fixed * (1 + 1e-6)
    size = np.abs(np.nan_to_num(numbers))
    exponent = np.floor(np.log10(np.maximum(size, 1e-300))) + 1 - _STREAM_DIGITS
    return 0.5 * 10.0**exponent * (1 + 1e-6)
