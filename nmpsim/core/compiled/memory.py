"""Memory as one core sees it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Machine
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES, SCRATCHPAD_BASE
from nmpsim.kernels.array_types import Bytes, Int
from nmpsim.kernels.jit import jit, jit_inlined

NOWHERE, IMAGE, RAM, SCRATCHPAD, CONTROL = range(5)


@jit
def locate(m: Machine, address: Int, nbytes: Int) -> Any:
    """Locate an access: return its memory region, or NOWHERE if invalid, and its offset there."""
    offset = address - m.shared[0].image_base
    if 0 <= offset <= m.image.size - nbytes:
        return IMAGE, offset
    offset = address - m.shared[0].ram_base
    if 0 <= offset <= m.ram.size - nbytes:
        return RAM, offset
    offset = address - SCRATCHPAD_BASE
    if 0 <= offset <= m.shared[0].scratchpad_bytes - nbytes:
        return SCRATCHPAD, offset
    offset = address - CONTROL_BASE
    if 0 <= offset <= CONTROL_BYTES - nbytes:
        return CONTROL, offset
    return NOWHERE, offset


@jit
def is_shared(region: Int) -> Any:
    """Return whether other cores observe writes to a region."""
    return region in (RAM, CONTROL)


@jit_inlined
def get_memory(m: Machine, core: Int, region: Int) -> Any:
    """Return the bytes of a memory region; ``core`` selects the scratchpad."""
    if region == IMAGE:
        return m.image
    if region == RAM:
        return m.ram
    if region == SCRATCHPAD:
        return m.scratchpad[core]
    return m.control


@jit
def read(memory: Bytes, offset: Int, nbytes: Int) -> Any:
    """Read the little-endian unsigned integer of ``nbytes`` bytes at an offset in a memory."""
    if nbytes == 4:  # one load
        at = np.uintp(offset)
        low = np.int64(memory[at]) | np.int64(memory[at + np.uintp(1)]) << 8
        high = np.int64(memory[at + np.uintp(2)]) | np.int64(memory[at + np.uintp(3)]) << 8
        return low | high << 16
    value = np.int64(0)
    for i in range(nbytes):
        value |= np.int64(memory[offset + i]) << np.int64(8 * i)
    return value


@jit
def write(memory: Bytes, offset: Int, nbytes: Int, value: Int) -> None:
    """Write the low ``nbytes`` bytes of ``value``, little-endian, at an offset in a memory."""
    if nbytes == 4:  # one store
        at, word = np.uintp(offset), np.int64(value)
        memory[at], memory[at + np.uintp(1)] = np.uint8(word & 255), np.uint8(word >> 8 & 255)
        memory[at + np.uintp(2)] = np.uint8(word >> 16 & 255)
        memory[at + np.uintp(3)] = np.uint8(word >> 24 & 255)
        return
    for i in range(nbytes):
        memory[offset + i] = np.uint8((value >> np.int64(8 * i)) & 255)
