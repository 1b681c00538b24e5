"""What the words of a descriptor say, for kernels: offsets, scales, clips, accounts."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.saturate import Clip, IntegerScale, Sink


@jit
def sink_of(m: Any) -> Any:
    """The machine's accounts of cut values."""
    return Sink(m.layers, m.channel_cut)


@jit
def scratchpad_of(m: Any, core: Any) -> Any:
    """A core's scratchpad as integers of each size."""
    return Scratchpad(
        m.scratchpad_i8[core],
        m.scratchpad_i16[core],
        m.scratchpad_i32[core],
        m.scratchpad_i64[core],
    )


@jit
def scale_at(d: Any, i: Any) -> Any:
    """The integer scale whose ``pre`` is word ``i``."""
    return IntegerScale(d[i], d[i + 1], d[i + 2])


@jit
def clip_at(d: Any, i: Any) -> Any:
    """The clip whose ``clip_low`` is word ``i``."""
    return Clip(d[i], d[i + 1], d[i + 2])


@jit
def at_spm(address: Any) -> Any:
    """Offset in the scratchpad."""
    return address - SCRATCHPAD_BASE
