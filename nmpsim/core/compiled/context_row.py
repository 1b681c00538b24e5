"""The row of addresses and sizes from which a compiled kernel gets its context."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from nmpsim.core.state import Int64s, Machine
from nmpsim.isa.words import CHANNEL_BYTES
from nmpsim.kernels.array_types import Records
from nmpsim.kernels.workspace_size import workspace_size

ORIGIN = 64
"""Address of the host that is byte 0 of the scratchpad that is all of its memory."""
HOST_BYTES = 1 << 62
SLOTS = 8
"""Tasks of whole layers that may be executed at the same time, each with room for its inputs."""


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
    return np.zeros(workspace_size(m.scratchpad.shape[1] // CHANNEL_BYTES), np.int64)


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
