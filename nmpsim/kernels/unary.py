"""Operations of one tensor, element by element, on one core's scratchpad: rescale, look-up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.elementwise_int32 import (
    ENDS,
    NUMBERS,
    RESCALE,
    is_regular,
    put_rescale_numbers,
    put_run,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import read_run, write_run
from nmpsim.kernels.profiles import is_real, rescale_results
from nmpsim.kernels.saturate import Clip, clip_run
from nmpsim.kernels.saturation_stages import ACTIVATION
from nmpsim.kernels.scale_runs import add_integer
from nmpsim.kernels.vector_code import LANES

BOTH_SIDES: Any = np.int64(3)
"""Of a clip that the network asks for."""


class Unary(NamedTuple):
    """How one value becomes another; ``result_scale`` holds float32 bits."""

    element: Any
    profile: Any
    in_low: Any
    in_high: Any
    in_offset: Any
    scale: Any
    leaky: Any
    leaky_scale: Any
    result_scale: Any
    out_offset: Any
    clip: Any


@jit_allocating
def rescale_bytes(spm: Any, sides: Any, count: Any, u: Any, place: Any, sink: Any) -> Any:
    """The whole tile, if it is such that 32 bits hold every number on the way; else False."""
    channels = sink.layers[place.layer].channels
    numbers = np.empty(NUMBERS, np.int32)
    if not (put_rescale_numbers(u, numbers) and is_regular(sides, place.origin, count, channels)):
        return False
    counts = np.empty((2, min(count, channels)), np.int32)
    ends = np.empty((ENDS, LANES), np.int32)
    stages, layer = (ACTIVATION, ACTIVATION), place.layer
    put_run(spm, RESCALE, sides, count, numbers, counts, ends, stages, place.origin, layer, sink)
    return True


@jit_allocating
def rescale_tile(
    spm: Any, source: Any, target: Any, count: Any, u: Any, place: Any, sink: Any
) -> None:
    """Clamp (an activation, not saturation), change scale, clip."""
    layer = place.layer
    sink.layers[layer].elements += count
    if rescale_bytes(spm, (source, source, target), count, u, place, sink):
        return
    values = np.zeros(count, np.int64)
    read_run(spm, u.element, source, values, count)
    clamp = Clip(u.in_low, u.in_high, BOTH_SIDES)
    clip_run(values, count, clamp, place.origin, layer, sink)
    add_integer(values, count, -u.in_offset)
    room = np.zeros(count if u.leaky or is_real(u.profile) else 0, np.int64)
    rescale_results(values, count, u, room.view(np.float32), room, place.origin, layer, sink)
    clip_run(values, count, u.clip, place.origin, layer, sink)
    write_run(values, count, spm, u.element, target)


@jit
def look_up(spm: Any, source: Any, target: Any, table: Any, count: Any) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
