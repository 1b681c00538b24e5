"""What kernels work on: a scratchpad, DRAM, counters, and the words of a descriptor.

A compiled kernel gets its context as a row of addresses and sizes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numba
import numpy as np

from nmpsim.core.state import LAYER, STAGES, Int64s, Machine
from nmpsim.core.whole.tasks import HOST_BYTES, ORIGIN
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CHANNEL_BYTES, MAX_WORDS
from nmpsim.kernels.array_types import Bytes, Int, Records
from nmpsim.kernels.function_pointers import pointer
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import Clip, IntegerScale
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.workspace_size import workspace_words


@jit
def saturation_counters_of(m: Machine) -> Any:
    """The machine's counters of saturated values."""
    return SaturationCounters(m.layers, m.channel_saturated)


@jit
def scratchpad_of(m: Machine, core: Int) -> Any:
    """A core's scratchpad as integers of each size."""
    return Scratchpad(
        m.scratchpad_i8[core],
        m.scratchpad_i16[core],
        m.scratchpad_i32[core],
        m.scratchpad_i64[core],
    )


@jit
def scale_at(d: Int64s, i: Int) -> Any:
    """The integer scale whose ``pre`` is word ``i``."""
    return IntegerScale(d[i], d[i + 1], d[i + 2])


@jit
def clip_at(d: Int64s, i: Int) -> Any:
    """The clip whose ``clip_low`` is word ``i``."""
    return Clip(d[i], d[i + 1], d[i + 2])


@jit
def at_spm(address: Int) -> Any:
    """Offset in the scratchpad."""
    return address - SCRATCHPAD_BASE


carray = numba.carray


class KernelContext(NamedTuple):
    """One core's scratchpad, as bytes and as integers; counters; DRAM with its addresses."""

    scratchpad: Bytes
    spm: Scratchpad
    counters: SaturationCounters
    image: Bytes
    image_base: Int
    ram: Bytes
    ram_base: Int
    workspace: Int64s
    """int64 working memory for convolutions, one for each thread."""


class ContextWord(IntEnum):
    """Entries of the row of a context."""

    SCRATCHPAD = 0
    """Address of the first core's."""
    SCRATCHPAD_BYTES = 1
    """Of each core."""
    IMAGE = 2
    IMAGE_BYTES = 3
    IMAGE_BASE = 4
    RAM = 5
    RAM_BYTES = 6
    RAM_BASE = 7
    LAYERS = 8
    LAYER_COUNT = 9
    CHANNEL_SATURATED = 10
    CHANNELS = 11
    WORKSPACE = 12
    WORKSPACE_WORDS = 13
    LOW_LAYER = 14
    """The first layer that kernels worked on ..."""
    HIGH_LAYER = 15
    """... and the last one."""
    SCRATCHPAD_STEP = 16
    """Bytes from one core's scratchpad to the next one's."""


CONTEXT_WORDS = len(ContextWord)
SCRATCHPAD, SCRATCHPAD_BYTES = int(ContextWord.SCRATCHPAD), int(ContextWord.SCRATCHPAD_BYTES)
SCRATCHPAD_STEP = int(ContextWord.SCRATCHPAD_STEP)
IMAGE, IMAGE_BYTES, IMAGE_BASE = (
    int(ContextWord.IMAGE),
    int(ContextWord.IMAGE_BYTES),
    int(ContextWord.IMAGE_BASE),
)
RAM, RAM_BYTES, RAM_BASE = (
    int(ContextWord.RAM),
    int(ContextWord.RAM_BYTES),
    int(ContextWord.RAM_BASE),
)
LAYERS, LAYER_COUNT = int(ContextWord.LAYERS), int(ContextWord.LAYER_COUNT)
CHANNEL_SATURATED, CHANNELS = int(ContextWord.CHANNEL_SATURATED), int(ContextWord.CHANNELS)
WORKSPACE, WORKSPACE_WORDS = int(ContextWord.WORKSPACE), int(ContextWord.WORKSPACE_WORDS)
LOW_LAYER, HIGH_LAYER = int(ContextWord.LOW_LAYER), int(ContextWord.HIGH_LAYER)


def make_workspace(m: Machine) -> Int64s:
    """Working memory for convolutions of as many channels as fit into a scratchpad."""
    return np.zeros(workspace_words(m.scratchpad.shape[1] // CHANNEL_BYTES), np.int64)


def put_scratchpads(rows: Int64s, m: Machine) -> None:
    """Let kernels see the scratchpads of the cores; rows [..., CONTEXT_WORDS]."""
    rows[..., SCRATCHPAD], rows[..., SCRATCHPAD_BYTES] = (
        m.scratchpad.ctypes.data,
        m.scratchpad.shape[1],
    )
    rows[..., SCRATCHPAD_STEP] = m.scratchpad.shape[1]


def put_host_memory(rows: Int64s) -> None:
    """Let kernels see all memory of the host as if it were the scratchpad of each core."""
    rows[..., SCRATCHPAD], rows[..., SCRATCHPAD_BYTES] = ORIGIN, HOST_BYTES
    rows[..., SCRATCHPAD_STEP] = 0


def context_row(
    m: Machine, layers: Records, channel_saturated: Int64s, workspace: Int64s
) -> Int64s:
    """Addresses and sizes of a machine's arrays, with the counters and workspace of a thread."""
    row = np.zeros(CONTEXT_WORDS, np.int64)
    put_scratchpads(row, m)
    row[IMAGE], row[IMAGE_BYTES] = m.image.ctypes.data, m.image.size
    row[RAM], row[RAM_BYTES] = m.ram.ctypes.data, m.ram.size
    row[IMAGE_BASE], row[RAM_BASE] = m.shared[0].image_base, m.shared[0].ram_base
    row[LAYERS], row[LAYER_COUNT] = layers.ctypes.data, layers.size
    row[CHANNEL_SATURATED], row[CHANNELS] = (
        channel_saturated.ctypes.data,
        channel_saturated.shape[2],
    )
    row[WORKSPACE], row[WORKSPACE_WORDS] = workspace.ctypes.data, workspace.size
    row[LOW_LAYER], row[HIGH_LAYER] = layers.size, -1
    return row


@jit_allocating
def context_at(row: Int, core: Int) -> Any:
    """The context of a core, from the address of a row."""
    p = carray(pointer(row), CONTEXT_WORDS, np.int64)
    size = p[SCRATCHPAD_BYTES]
    start = p[SCRATCHPAD] + core * p[SCRATCHPAD_STEP]
    return KernelContext(
        carray(pointer(start), size, np.uint8),
        Scratchpad(
            carray(pointer(start), size, np.int8),
            carray(pointer(start), size // 2, np.int16),
            carray(pointer(start), size // 4, np.int32),
            carray(pointer(start), size // 8, np.int64),
        ),
        SaturationCounters(
            carray(pointer(p[LAYERS]), p[LAYER_COUNT], LAYER),
            carray(pointer(p[CHANNEL_SATURATED]), (STAGES, 2, p[CHANNELS]), np.int64),
        ),
        carray(pointer(p[IMAGE]), p[IMAGE_BYTES], np.uint8),
        p[IMAGE_BASE],
        carray(pointer(p[RAM]), p[RAM_BYTES], np.uint8),
        p[RAM_BASE],
        carray(pointer(p[WORKSPACE]), p[WORKSPACE_WORDS], np.int64),
    )


@jit_allocating
def words_at(words: Int) -> Any:
    """The words of a descriptor, from their address."""
    return carray(pointer(words), MAX_WORDS, np.int64)


def python_context(m: Machine, core: Int) -> KernelContext:
    """The context of a core, without compiled code."""
    shared = m.shared[0]
    return KernelContext(
        m.scratchpad[core],
        scratchpad_of(m, core),
        saturation_counters_of(m),
        m.image,
        shared.image_base,
        m.ram,
        shared.ram_base,
        make_workspace(m),
    )
