"""Accumulators: 32 bits for Int8, 48 for Int16; they saturate at every step."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Int, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad, read_run
from nmpsim.kernels.rounding import HELD, held
from nmpsim.kernels.saturate import ONCE, SaturationCounters, limit_run, limit_value
from nmpsim.kernels.saturation_stages import ACCUMULATOR

_INT32_HIGH: Any = np.int64((1 << 31) - 1)
_INT48_HIGH: Any = np.int64((1 << 47) - 1)
_INT8_PRODUCT: Any = np.int64(255 * 128)
_INT16_PRODUCT: Any = np.int64(65535 * 32768)
"""Largest magnitude of ``(w - offset) * x``."""


@jit
def sum_high(element: Int) -> Any:
    """Largest value of an accumulator; the smallest is one below its negative."""
    return _INT48_HIGH if element == INT16 else _INT32_HIGH


@jit
def may_overflow(largest_start: Int, terms: Int, element: Int) -> Any:
    """True unless the accumulator holds every sum of ``terms`` products and such a start."""
    product = _INT16_PRODUCT if element == INT16 else _INT8_PRODUCT
    return largest_start + terms * product > sum_high(element)


@jit
def largest(values: Int32s | Int64s) -> Any:
    """Largest magnitude of integers, at most 2^62."""
    most = np.int64(0)
    for i in range(values.size):
        most = max(most, abs(held(np.int64(values[i]), HELD)))
    return most


@jit
def largest_partial(spm: Scratchpad, element: Int, start: Int, count: Int) -> Any:
    """Largest magnitude of ``count`` running sums from byte ``start`` on."""
    if element == INT16:
        return largest(spm.i64[start >> 3 : (start >> 3) + count])
    return largest(spm.i32[start >> 2 : (start >> 2) + count])


@jit
def read_sums(spm: Scratchpad, element: Int, start: Int, run: Int64s) -> None:
    """Running sums from byte ``start`` on; 64 bits hold what is added to them."""
    read_run(spm, 2 + element, start, run, run.size)
    for i in range(run.size):
        run[i] = held(run[i], HELD)


@jit
def saturate_sum(value: Int, element: Int, index: Int, counters: SaturationCounters) -> Any:
    """A sum (int64) within the accumulator; ``index`` is its place in the layer's output."""
    high = sum_high(element)
    return limit_value(value, -high - ONCE, high, ACCUMULATOR, ONCE, index, counters)


@jit
def saturate_sums(sums: Int64s, element: Int, index: Int, counters: SaturationCounters) -> None:
    """A run of sums, in place."""
    high = sum_high(element)
    limit_run(sums, sums.size, -high - ONCE, high, ACCUMULATOR, ACCUMULATOR, index, counters)
