"""Operations of one tensor, element by element, on one core's scratchpad: rescale, look-up."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int, Int8s
from nmpsim.kernels.elementwise_blocks import CLIPS, NUMBERS, ROWS
from nmpsim.kernels.elementwise_int8 import (
    RUN_BYTES,
    is_regular,
    put_rescale_numbers,
    put_run,
    rescale_of,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import Scratchpad, read_run, write_run
from nmpsim.kernels.operands import Clip, Place, Sides, Unary
from nmpsim.kernels.profiles import is_real, rescale_results
from nmpsim.kernels.saturate import SaturationCounters, clip_run
from nmpsim.kernels.scale_runs import add_integer

BOTH_SIDES: Any = np.int64(3)
"""Of a clip that the network asks for."""


@jit_allocating
def rescale_bytes(
    spm: Scratchpad, sides: Sides, count: Int, u: Unary, place: Place, counters: SaturationCounters
) -> Any:
    """The whole tile, if it is such that 16 bits hold every number on the way; else False."""
    channels = counters.layers[place.layer].channels
    numbers = np.empty(NUMBERS, np.int16)
    if not is_regular(sides, place.origin, count, channels) or not put_rescale_numbers(u, numbers):
        return False
    table = np.empty((CLIPS, ROWS, min(count, channels)), np.int16)
    room = np.empty(2 * max(RUN_BYTES, channels), np.int8)
    operation, index, layer = rescale_of(u), place.origin, place.layer
    put_run(spm, operation, sides, count, numbers, table, room, u.clip, index, layer, counters)
    return True


@jit_allocating
def rescale_tile(
    spm: Scratchpad,
    source: Int,
    target: Int,
    count: Int,
    u: Unary,
    place: Place,
    counters: SaturationCounters,
) -> None:
    """Clamp (an activation, not saturation), change scale, clip."""
    layer = place.layer
    counters.layers[layer].elements += count
    if rescale_bytes(spm, (source, source, target), count, u, place, counters):
        return
    values = np.zeros(count, np.int64)
    read_run(spm, u.element, source, values, count)
    clamp = Clip(u.in_low, u.in_high, BOTH_SIDES)
    clip_run(values, count, clamp, place.origin, layer, counters)
    add_integer(values, count, -u.in_offset)
    room = np.zeros(count if u.leaky or is_real(u.profile) else 0, np.int64)
    rescale_results(values, count, u, room.view(np.float32), room, place.origin, layer, counters)
    clip_run(values, count, u.clip, place.origin, layer, counters)
    write_run(values, count, spm, u.element, target)


@jit
def look_up(spm: Int8s, source: Int, target: Int, table: Int, count: Int) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
