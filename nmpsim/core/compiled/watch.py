"""The instruction trace of the compiled engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.fetch import (
    decode_i_immediate,
    decode_rs1,
    decode_s_immediate,
)
from nmpsim.core.compiled.traps import WORD
from nmpsim.core.instruction_tables import IS_WRITE
from nmpsim.core.state import Machine
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.core.watch import FETCHED_AT
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit


@jit
def is_in_image(m: Machine, address: Int) -> Any:
    """Return whether an address is in the read-only image."""
    return 0 <= address - m.shared[0].image_base < m.image.size


@jit
def compute_access_address(number: Int, word: Int, source: Int) -> Any:
    """Compute the address of a load or store; ``source`` is the value of rs1."""
    offset = decode_s_immediate(word) if IS_WRITE[number] else decode_i_immediate(word)
    return (np.int64(source) + offset) & WORD


@jit
def read_rs1(m: Machine, stops: StopConditions, core: Int, word: Int) -> Any:
    """Return rs1 and record the pc for the trace, or return 0 if nothing is traced."""
    if stops.trace.shape[0] == 0:
        return np.int64(0)
    stops.noted[FETCHED_AT] = m.cores[core].pc
    return np.int64(m.cores[core].registers[decode_rs1(word)]) & WORD
