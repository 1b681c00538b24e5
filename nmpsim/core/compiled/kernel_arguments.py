"""Arguments of compiled functions: context rows, recorder buffers and the state of a replay.

Separate from the compiled functions, so that cached kernels run without importing Numba.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.dram_conflicts import KINDS, RANGE_WORDS, RANGES
from nmpsim.core.contract_events import EVENT_WORDS
from nmpsim.core.state import Int64s, Machine
from nmpsim.isa.words import CHANNEL_BYTES, MAX_WORDS
from nmpsim.kernels.array_types import Records
from nmpsim.kernels.workspace_size import workspace_size

ORIGIN = 64
"""Host address of byte 0 of the scratchpad that stands for all host memory."""
HOST_BYTES = 1 << 62
SLOTS = 8
"""Maximum number of tasks of layer kernels that run at the same time, each with input buffers."""


class ContextWord(IntEnum):
    """Entries of a context row: addresses and sizes of what a kernel accesses."""

    SCRATCHPAD = 0
    """Address of the first core's scratchpad."""
    SCRATCHPAD_BYTES = 1
    """Size of each scratchpad."""
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
    """Lowest layer that kernels have worked on."""
    HIGH_LAYER = 15
    """Highest layer that kernels have worked on."""
    SCRATCHPAD_STEP = 16
    """Bytes from one core's scratchpad to the next one's."""


CONTEXT_WORDS = len(ContextWord)
(
    SCRATCHPAD,
    SCRATCHPAD_BYTES,
    IMAGE,
    IMAGE_BYTES,
    IMAGE_BASE,
    RAM,
    RAM_BYTES,
    RAM_BASE,
    LAYERS,
    LAYER_COUNT,
    CHANNEL_SATURATED,
    CHANNELS,
    WORKSPACE,
    WORKSPACE_WORDS,
    LOW_LAYER,
    HIGH_LAYER,
    SCRATCHPAD_STEP,
) = map(int, ContextWord)


def make_workspace(m: Machine) -> Int64s:
    """Allocate the workspace for convolutions whose channels fit into a scratchpad."""
    return np.zeros(workspace_size(m.scratchpad.shape[1] // CHANNEL_BYTES), np.int64)


def use_scratchpads(rows: Int64s, m: Machine) -> None:
    """Point context rows [..., CONTEXT_WORDS] at the scratchpads of the cores."""
    rows[..., SCRATCHPAD] = m.scratchpad.ctypes.data
    rows[..., SCRATCHPAD_BYTES] = rows[..., SCRATCHPAD_STEP] = m.scratchpad.shape[1]


def use_host_memory(rows: Int64s) -> None:
    """Point context rows [..., CONTEXT_WORDS] at all host memory, in place of every scratchpad."""
    rows[..., SCRATCHPAD], rows[..., SCRATCHPAD_BYTES] = ORIGIN, HOST_BYTES
    rows[..., SCRATCHPAD_STEP] = 0


def make_context_row(
    m: Machine, layers: Records, channel_saturated: Int64s, workspace: Int64s
) -> Int64s:
    """Make the context row of a machine, with the counters and the workspace of a thread."""
    row = np.zeros(CONTEXT_WORDS, np.int64)
    use_scratchpads(row, m)
    row[IMAGE], row[IMAGE_BYTES] = m.image.ctypes.data, m.image.size
    row[RAM], row[RAM_BYTES] = m.ram.ctypes.data, m.ram.size
    row[IMAGE_BASE], row[RAM_BASE] = m.shared[0].image_base, m.shared[0].ram_base
    row[LAYERS], row[LAYER_COUNT] = layers.ctypes.data, layers.size
    row[CHANNEL_SATURATED] = channel_saturated.ctypes.data
    row[CHANNELS] = channel_saturated.shape[2]
    row[WORKSPACE], row[WORKSPACE_WORDS] = workspace.ctypes.data, workspace.size
    row[LOW_LAYER], row[HIGH_LAYER] = layers.size, -1
    return row


# --- recording ------------------------------------------------------------------------------------

NUMBER, LAYER, WORDS = range(3)
"""Entries of a recorded instruction; WORDS is the first word of its descriptor."""
CORE, EPOCH, FIRST_WORD = range(3)
"""Entries of a recorder row; the recorded instruction begins at FIRST_WORD."""
ITEM_WORDS = FIRST_WORD + WORDS + MAX_WORDS
USED, CURRENT_EPOCH, EVENTS_USED = range(3)
"""Entries of ``Recorder.counters``."""
COUNTERS = 3
EVENTS_PER_ITEM = 2
"""Rows of events for each recorded instruction; synchronization needs the additional ones."""
NO_RESULT = -1
"""Result of the event loop if compiling was interrupted or the program cannot be recorded."""


class Recorder(NamedTuple):
    """Buffers of a recording; without rows nothing is recorded."""

    items: Int64s
    """[rows, ITEM_WORDS] recorded tensor instructions."""
    counters: Int64s
    """[COUNTERS]"""
    ranges: Int64s
    """[cores, KINDS, RANGES, RANGE_WORDS] DRAM ranges that the epoch's transfers access."""
    accessed: Int64s
    """[RANGE_WORDS] temporary memory."""
    events: Int64s
    """[EVENTS_PER_ITEM * rows, ContractEvent] input of the contract check."""


class LoopContext(NamedTuple):
    """Kernels and recording buffers of the event loop."""

    addresses: Int64s
    """[instructions] addresses of compiled kernels; 0 for those that were not needed yet."""
    prepare: int
    """Address of a function that compiles the kernel of an instruction."""
    kernel_context: Int64s
    """[CONTEXT_WORDS] see :class:`ContextWord`."""
    items: Int64s
    """This and the following fields are those of :class:`Recorder`."""
    counters: Int64s
    ranges: Int64s
    accessed: Int64s
    events: Int64s


def make_recorder(cores: int, rows: int) -> Recorder:
    """Make an empty recorder."""
    return Recorder(
        np.zeros((rows, ITEM_WORDS), np.int64),
        np.zeros(COUNTERS, np.int64),
        np.zeros((cores, KINDS, RANGES, RANGE_WORDS), np.int64),
        np.zeros(RANGE_WORDS, np.int64),
        np.zeros((EVENTS_PER_ITEM * rows, EVENT_WORDS), np.int64),
    )


# --- replay ---------------------------------------------------------------------------------------

LINE = 8
"""64-bit words of a host cache line; threads share data on separate lines."""
MAIN_THREAD: Any = np.int64(0)
"""The thread that runs the device."""


class SharedWord(IntEnum):
    """State that the threads of a replay share, each entry on its own cache line."""

    IS_ACTIVE = 0
    """1 during a replay."""
    EPOCH = 1
    PARTS = 2
    """Address of the epoch's parts, [parts, PART_WORDS]."""
    ITEMS = 3
    """Address of the recording's instructions."""
    HAS_DIVERGED = 4
    """1 if values invalidate the recording: an impossible table of scales, or (if IS_STRICT)
    weights that break the contract."""
    IS_STRICT = 5
    """1 if weights must keep to the contract."""


class ReplayContext(NamedTuple):
    """Arrays that the threads of a replay share."""

    addresses: Int64s
    """[instructions] addresses of compiled kernels."""
    kernel_contexts: Int64s
    """[threads, CONTEXT_WORDS] see :class:`ContextWord`."""
    shares: Int64s
    """[threads, LINE] unclaimed parts of each thread's share, in the first word of each line."""
    done: Int64s
    """[threads, LINE] parts that each thread has completed, in the first word of each line."""
    shared: Int64s
    """[SharedWord, LINE] first word of each line."""
