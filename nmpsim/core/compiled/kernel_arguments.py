"""Arguments of compiled functions: contexts of kernels, recorder buffers and the state of a replay.

Separate from the compiled functions, so that cached kernels run without importing Numba.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.custom_profiles import get_profile_words
from nmpsim.core.compiled.dram_conflicts import KINDS, RANGE_WORDS, RANGES
from nmpsim.core.contract_events import EVENT_WORDS
from nmpsim.core.state import Int64s, Machine, make_discarded_counters
from nmpsim.isa.words import CHANNEL_BYTES, MAX_WORDS
from nmpsim.kernels.array_types import Records
from nmpsim.kernels.workspace_size import get_workspace_size

ORIGIN = 64
"""Host address of byte 0 of the scratchpad that stands for all host memory."""
HOST_BYTES = 1 << 62
SLOTS = 8
"""Maximum number of tasks of layer kernels that run at the same time, each with input buffers."""


CONTEXT = np.dtype(
    [
        (name, "i8")
        for name in (
            *("scratchpad", "scratchpad_bytes", "scratchpad_step"),
            *("image", "image_bytes", "image_base", "ram", "ram_bytes", "ram_base"),
            *("layers", "layer_count", "channel_saturated", "channels"),
            *("workspace", "workspace_words", "low_layer", "high_layer", "profiles"),
            *("discarded_layers", "discarded_channels"),
        )
    ]
)
"""Context of kernels: addresses and sizes of the memory that they access.

``scratchpad`` is the first core's; ``scratchpad_step`` is the distance to that of the next core.
``low_layer`` and ``high_layer`` are the lowest and the highest layer that kernels have worked on.
``profiles`` is the address of the words that stand for the profiles in kernels.
``discarded_layers`` and ``discarded_channels`` are those of counters that nobody reads.
"""
DISCARDED_COUNTERS = make_discarded_counters()


def make_workspace(m: Machine) -> Int64s:
    """Allocate the workspace for convolutions whose channels fit into a scratchpad."""
    return np.zeros(get_workspace_size(m.scratchpad.shape[1] // CHANNEL_BYTES), np.int64)


def use_scratchpads(contexts: Any, m: Machine) -> None:
    """Set the addresses in kernel contexts, in place, to the scratchpads of the cores."""
    contexts["scratchpad"] = m.scratchpad.ctypes.data
    contexts["scratchpad_bytes"] = contexts["scratchpad_step"] = m.scratchpad.shape[1]


def use_host_memory(contexts: Any) -> None:
    """Set the addresses in kernel contexts, in place, to all host memory."""
    contexts["scratchpad"], contexts["scratchpad_bytes"] = ORIGIN, HOST_BYTES
    contexts["scratchpad_step"] = 0


def make_context(m: Machine, layers: Records, channel_saturated: Int64s, workspace: Int64s) -> Any:
    """Return a thread's kernel context, an array of one record, with its counters and workspace."""
    shared, size = m.shared[0], m.scratchpad.shape[1]
    fields = (
        *(m.scratchpad.ctypes.data, size, size),
        *(m.image.ctypes.data, m.image.size, shared.image_base),
        *(m.ram.ctypes.data, m.ram.size, shared.ram_base, layers.ctypes.data, layers.size),
        *(channel_saturated.ctypes.data, channel_saturated.shape[2]),
        *(workspace.ctypes.data, workspace.size, layers.size, -1),
        get_profile_words(m.formulas).ctypes.data,
        *(counters.ctypes.data for counters in DISCARDED_COUNTERS),
    )
    return np.array([fields], CONTEXT)


# --- recording ------------------------------------------------------------------------------------

NUMBER, LAYER, ACCOUNT, WORDS = range(4)
"""Entries of a recorded instruction: its number, its layer, the layer whose counters include its
results (or NOT_OWNED), and the first word of its descriptor."""
CORE, EPOCH, DESCRIPTOR, FIRST_WORD = range(4)
"""Entries of a recorder row; the recorded instruction begins at FIRST_WORD."""
ITEM_WORDS = FIRST_WORD + WORDS + MAX_WORDS
USED, CURRENT_EPOCH, EVENTS_USED = range(3)
"""Entries of ``RecordingBuffers.counters``."""
COUNTERS = 3
EVENTS_PER_ITEM = 2
"""Rows of events for each recorded instruction; synchronization needs the additional ones."""
NO_RESULT = -1
"""Result of the event loop if compiling was interrupted or the program cannot be recorded."""


class RecordingBuffers(NamedTuple):
    """Buffers for a recording; buffers without rows disable recording."""

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
    """Context of the event loop: addresses of kernels, and recording buffers."""

    addresses: Int64s
    """[instructions] addresses of compiled kernels; 0 for those that were not needed yet."""
    prepare: int
    """Address of a function that compiles the kernel of an instruction."""
    kernel_context: Any
    """[1] of CONTEXT."""
    items: Int64s
    """This and the following fields are those of :class:`RecordingBuffers`."""
    counters: Int64s
    ranges: Int64s
    accessed: Int64s
    events: Int64s


def make_recording_buffers(cores: int, rows: int) -> RecordingBuffers:
    """Return empty recording buffers for at most ``rows`` tensor instructions."""
    return RecordingBuffers(
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
    """Indices of the state entries that the threads of a replay share, one cache line each."""

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
    """Context of a replay: arrays that all its threads share."""

    addresses: Int64s
    """[instructions] addresses of compiled kernels."""
    kernel_contexts: Any
    """[threads] of CONTEXT."""
    shares: Int64s
    """[threads, LINE] unclaimed parts of each thread's share, in the first word of each line."""
    done: Int64s
    """[threads, LINE] parts that each thread has completed, in the first word of each line."""
    shared: Int64s
    """[SharedWord, LINE] first word of each line."""
