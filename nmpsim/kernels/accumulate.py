"""Accumulators, of 32 bits for Int8 and 48 for Int16, which saturate at every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Int, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ScratchpadViews, read_elements
from nmpsim.kernels.rounding import MAX_MAGNITUDE, hold
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clamp_elements, clamp_value
from nmpsim.kernels.saturation_stages import ACCUMULATOR

_INT32_HIGH: Any = np.int64((1 << 31) - 1)
_INT48_HIGH: Any = np.int64((1 << 47) - 1)
_INT8_PRODUCT: Any = np.int64(255 * 128)
_INT16_PRODUCT: Any = np.int64(65535 * 32768)
"""Largest magnitudes of ``(w - offset) * x``."""


@jit
def get_accumulator_max(element: Int) -> Any:
    """Return the largest value of the 32-bit (Int8) or 48-bit (Int16) accumulator."""
    return _INT48_HIGH if element == INT16 else _INT32_HIGH


@jit
def may_overflow(largest_start: Int, terms: Int, element: Int) -> Any:
    """Return whether an initial value plus ``terms`` products may overflow the accumulator."""
    product = _INT16_PRODUCT if element == INT16 else _INT8_PRODUCT
    return largest_start + terms * product > get_accumulator_max(element)


@jit
def find_max_magnitude(values: Int32s | Int64s) -> Any:
    """Return the largest absolute value in an array, clamped to 2^62; 0 for an empty array."""
    most = np.int64(0)
    for i in range(values.size):
        most = max(most, abs(hold(np.int64(values[i]), MAX_MAGNITUDE)))
    return most


@jit
def find_max_partial_sum(spm: ScratchpadViews, element: Int, start: Int, count: Int) -> Any:
    """Return the largest absolute value of ``count`` partial sums that begin at byte ``start``."""
    if element == INT16:
        return find_max_magnitude(spm.i64[start >> 3 : (start >> 3) + count])
    return find_max_magnitude(spm.i32[start >> 2 : (start >> 2) + count])


@jit
def read_partial_sums(spm: ScratchpadViews, element: Int, start: Int, run: Int64s) -> None:
    """Read the partial sums at byte ``start`` into ``run``, clamped to magnitudes up to 2^62."""
    read_elements(spm, 2 + element, start, run)
    for i in range(run.size):
        run[i] = hold(run[i], MAX_MAGNITUDE)


@jit
def saturate_sum(value: Int, element: Int, index: Int, counters: SaturationCounters) -> Any:
    """Return a sum saturated to the accumulator's range, and count a sum outside the range."""
    high = get_accumulator_max(element)
    return clamp_value(value, -high - ONCE, high, ACCUMULATOR, ONCE, index, counters)


@jit
def saturate_sums(sums: Int64s, element: Int, index: Int, counters: SaturationCounters) -> None:
    """Saturate sums in place to the accumulator's range; count the sums that were outside."""
    high = get_accumulator_max(element)
    clamp_elements(sums, -high - ONCE, high, ACCUMULATOR, ACCUMULATOR, index, counters)
