"""What the values of a tensor instruction are calculated in: a scratchpad, DRAM, accounts.

Code that is compiled apart gets it as a row of addresses and sizes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numba
import numpy as np

from nmpsim.core.compiled.operands import scratchpad_of, sink_of
from nmpsim.core.state import LAYER, STAGES, Int64s, Machine
from nmpsim.isa.words import CHANNEL_BYTES, MOST_WORDS
from nmpsim.kernels.bench import bench_words
from nmpsim.kernels.calls import pointer
from nmpsim.kernels.jit import jit_allocating
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.saturate import Sink

carray: Any = numba.carray  # type: ignore[attr-defined]


class Workplace(NamedTuple):
    """One core's scratchpad, as bytes and as integers; accounts; DRAM with its addresses."""

    scratchpad: Any
    spm: Any
    sink: Any
    image: Any
    image_base: Any
    ram: Any
    ram_base: Any
    bench: Any
    """int64 memory of a thread's own that convolutions work in."""


class At(IntEnum):
    """Entries of a machine's row of places."""

    SCRATCHPAD = 0
    """Address of the first core's."""
    SCRATCHPAD_BYTES = 1
    """From one core's to the next one's."""
    IMAGE = 2
    IMAGE_BYTES = 3
    IMAGE_BASE = 4
    RAM = 5
    RAM_BYTES = 6
    RAM_BASE = 7
    LAYERS = 8
    LAYER_COUNT = 9
    CHANNEL_CUT = 10
    CHANNELS = 11
    BENCH = 12
    BENCH_WORDS = 13
    LOW_LAYER = 14
    """The first layer that was worked on ..."""
    HIGH_LAYER = 15
    """... and the last one."""


PLACES = len(At)
SCRATCHPAD, SCRATCHPAD_BYTES = int(At.SCRATCHPAD), int(At.SCRATCHPAD_BYTES)
IMAGE, IMAGE_BYTES, IMAGE_BASE = int(At.IMAGE), int(At.IMAGE_BYTES), int(At.IMAGE_BASE)
RAM, RAM_BYTES, RAM_BASE = int(At.RAM), int(At.RAM_BYTES), int(At.RAM_BASE)
LAYERS, LAYER_COUNT = int(At.LAYERS), int(At.LAYER_COUNT)
CHANNEL_CUT, CHANNELS = int(At.CHANNEL_CUT), int(At.CHANNELS)
BENCH, BENCH_WORDS = int(At.BENCH), int(At.BENCH_WORDS)
LOW_LAYER, HIGH_LAYER = int(At.LOW_LAYER), int(At.HIGH_LAYER)


def make_bench(m: Machine) -> Int64s:
    """Memory for the convolutions of a machine: each channel has a record in its scratchpad."""
    return np.zeros(bench_words(m.scratchpad.shape[1] // CHANNEL_BYTES), np.int64)


def places_of(m: Machine, layers: Any, channel_cut: Int64s, bench: Int64s) -> Int64s:
    """Addresses and sizes of a machine's arrays, with accounts and a bench of a thread's own."""
    row = np.zeros(PLACES, np.int64)
    row[SCRATCHPAD], row[SCRATCHPAD_BYTES] = m.scratchpad.ctypes.data, m.scratchpad.shape[1]
    row[IMAGE], row[IMAGE_BYTES] = m.image.ctypes.data, m.image.size
    row[RAM], row[RAM_BYTES] = m.ram.ctypes.data, m.ram.size
    row[IMAGE_BASE], row[RAM_BASE] = m.shared[0].image_base, m.shared[0].ram_base
    row[LAYERS], row[LAYER_COUNT] = layers.ctypes.data, layers.size
    row[CHANNEL_CUT], row[CHANNELS] = channel_cut.ctypes.data, channel_cut.shape[2]
    row[BENCH], row[BENCH_WORDS] = bench.ctypes.data, bench.size
    row[LOW_LAYER], row[HIGH_LAYER] = layers.size, -1
    return row


@jit_allocating
def workplace_at(places: Any, core: Any) -> Any:
    """The workplace of a core, from the address of a row of places."""
    p = carray(pointer(places), PLACES, np.int64)
    size = p[SCRATCHPAD_BYTES]
    start = p[SCRATCHPAD] + core * size
    return Workplace(
        carray(pointer(start), size, np.uint8),
        Scratchpad(
            carray(pointer(start), size, np.int8),
            carray(pointer(start), size // 2, np.int16),
            carray(pointer(start), size // 4, np.int32),
            carray(pointer(start), size // 8, np.int64),
        ),
        Sink(
            carray(pointer(p[LAYERS]), p[LAYER_COUNT], LAYER),
            carray(pointer(p[CHANNEL_CUT]), (STAGES, 2, p[CHANNELS]), np.int64),
        ),
        carray(pointer(p[IMAGE]), p[IMAGE_BYTES], np.uint8),
        p[IMAGE_BASE],
        carray(pointer(p[RAM]), p[RAM_BYTES], np.uint8),
        p[RAM_BASE],
        carray(pointer(p[BENCH]), p[BENCH_WORDS], np.int64),
    )


@jit_allocating
def words_at(words: Any) -> Any:
    """The words of a descriptor, from their address."""
    return carray(pointer(words), MOST_WORDS, np.int64)


def workplace_of(m: Any, core: Any) -> Workplace:
    """The workplace of a core where nothing is compiled."""
    shared = m.shared[0]
    return Workplace(
        m.scratchpad[core],
        scratchpad_of(m, core),
        sink_of(m),
        m.image,
        shared.image_base,
        m.ram,
        shared.ram_base,
        make_bench(m),
    )
