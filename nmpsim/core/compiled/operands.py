"""What the words of a descriptor say, for kernels: offsets, scales, clips, accounts."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.kernels.jit import jit
from nmpsim.kernels.saturate import Clip, IntegerScale, Sink


@jit
def sink_of(m: Any) -> Any:
    """The machine's accounts of cut values."""
    return Sink(m.layers, m.channel_cut)


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
