"""Workspace of a thread for convolutions, with the tables of the last channels.

Consecutive tiles of a layer mostly have the same channels. So the tables are only filled again if
the records in the scratchpad or words of the descriptor (the key) differ from those of last time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import CHANNEL_BYTES, INT16, SCALE_BYTES
from nmpsim.kernels.accumulate import find_max_magnitude
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.channel_tables import fill_channel_table, fill_initial_sums
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import MacTile, OperandOffsets, Quantizer
from nmpsim.kernels.result_table import PARAMETER_ROWS, clear_counts, copy_parameters_to_blocks
from nmpsim.kernels.workspace_size import (
    COUNT_ROWS,
    FIRST_KEY,
    HAS_OFFSETS,
    HEAD_WORDS,
    IS_VALID,
    KEY_WORDS,
    LANES,
    MAX_PIXELS,
    MAX_START,
    TABLE_ROWS,
)

_RECORD = CHANNEL_BYTES // 8
_SCALE = SCALE_BYTES // 4
_LINE = 64
"""Bytes of a cache line of the host, to which vectors of sums are aligned."""


class ConvWorkspace(NamedTuple):
    """Workspace of a convolution: channel tables, their cache key, and buffers for pixels."""

    head: Int64s
    """int64 [HEAD_WORDS]"""
    records: Int64s
    """int64 [2 * channels] as in the scratchpad; scales int32 [7 * channels], too"""
    scales: Int32s
    table: Int64s
    """int64 [TABLE_ROWS, channels] (see ``channels.py``)"""
    parameters: Int64s
    """int64 [blocks, PARAMETER_ROWS, LANES], and counts int32 [blocks, COUNT_ROWS, LANES] (see
    ``result_table.py``)"""
    counts: Int32s
    run: Int64s
    """int64 [channels]"""
    offsets: Int64s
    """int64 [MAX_PIXELS]"""
    windows: Int32s
    """int32 [MAX_PIXELS], like ``excess``"""
    excess: Int32s
    sums: Int32s
    """int32 [MAX_PIXELS, lanes], and results int8"""
    results: Int8s


@jit_allocating
def divide_workspace(memory: Int64s, channels: Int, lanes: Int) -> Any:
    """Return a workspace whose arrays, for ``channels`` channels, are sections of ``memory``."""
    offsets = HEAD_WORDS + MAX_PIXELS
    records = offsets + _RECORD * channels
    table = records + TABLE_ROWS * channels
    run = table + channels
    words = memory[run:].view(np.int32)
    words = words[(-np.int64(words.ctypes.data) & (_LINE - 1)) >> 2 :]
    excess = 2 * MAX_PIXELS
    parameters = excess + 2 * PARAMETER_ROWS * lanes
    counts = parameters + COUNT_ROWS * lanes
    sums = counts + MAX_PIXELS * lanes
    results = sums + MAX_PIXELS * lanes // 4
    return ConvWorkspace(
        memory[:HEAD_WORDS],
        memory[offsets:records],
        words[results : results + _SCALE * channels],
        memory[records:table].reshape((TABLE_ROWS, channels)),
        words[excess:parameters].view(np.int64).reshape((lanes // LANES, PARAMETER_ROWS, LANES)),
        words[parameters:counts].reshape((lanes // LANES, COUNT_ROWS, LANES)),
        memory[table:run],
        memory[HEAD_WORDS:offsets],
        words[:MAX_PIXELS],
        words[MAX_PIXELS:excess],
        words[counts:sums].reshape((MAX_PIXELS, lanes)),
        words[sums:results].view(np.int8).reshape((MAX_PIXELS, lanes)),
    )


@jit
def write_table_key(
    at: OperandOffsets, q: Quantizer, begins: bool, workspace: ConvWorkspace
) -> Any:
    """Write the key of the channel tables, without the channel records, to the workspace head.

    They include the clip: the counts keep the extreme results of tiles in which none was limited.
    """
    words = (
        workspace.run.size,
        q.element,
        q.profile,
        q.weight_offset,
        q.bias.pre,
        q.bias.mul,
        q.bias.post,
        q.out.pre,
        q.out.mul,
        q.out.post,
        q.out_offset,
        q.result_scale,
        q.leaky,
        np.int64(begins),
        np.int64(at.scales < 0),
        q.clip.low,
        q.clip.high,
    )
    key = workspace.head[FIRST_KEY + KEY_WORDS :]
    for i in range(KEY_WORDS):
        key[i] = words[i]


@jit
def starts_with(values: Int32s | Int64s, others: Int32s | Int64s) -> Any:
    """Return whether ``values`` starts with the elements of ``others``."""
    difference = np.int64(0)
    for i in range(others.size):
        difference |= np.int64(values[i] ^ others[i])
    return difference == 0


@jit
def are_tables_valid(spm: ScratchpadViews, at: OperandOffsets, workspace: ConvWorkspace) -> Any:
    """Return whether the channel tables still match the new key and the scratchpad's records."""
    words = workspace.head[FIRST_KEY:]
    if workspace.head[IS_VALID] == 0 or not starts_with(words, words[KEY_WORDS:]):
        return False
    if at.scales >= 0 and not starts_with(spm.i32[at.scales >> 2 :], workspace.scales):
        return False
    return starts_with(spm.i64[at.channels >> 3 :], workspace.records)


@jit
def copy_words(source: Int32s | Int64s, target: Int32s | Int64s) -> None:
    """Fill ``target`` with the first elements of ``source``."""
    for i in range(target.size):
        target[i] = source[i]


@jit
def store_key(spm: ScratchpadViews, at: OperandOffsets, workspace: ConvWorkspace) -> None:
    """Mark the channel tables as valid and store their key and channel records."""
    words = workspace.head[FIRST_KEY:]
    copy_words(words[KEY_WORDS:], words[:KEY_WORDS])
    if at.scales >= 0:
        copy_words(spm.i32[at.scales >> 2 :], workspace.scales)
    copy_words(spm.i64[at.channels >> 3 :], workspace.records)
    workspace.head[IS_VALID] = 1


@jit
def update_tables(t: MacTile, first: Int, workspace: ConvWorkspace) -> None:
    """Fill the channel tables for a group that starts at channel ``first``, if they are invalid."""
    spm, at, q, begins = t.spm, t.at, t.q, t.parts.begins
    write_table_key(at, q, begins, workspace)
    if first == 0 and are_tables_valid(spm, at, workspace):
        return
    table = workspace.table
    is_unsaturated, most, offsets = not begins, np.int64(0), np.int64(0)
    fill_channel_table(spm, at, q, first, table)
    if begins:
        pixels = t.shape.out_h * t.shape.out_w
        is_unsaturated = fill_initial_sums(spm, at, q, first, table, pixels, t.place, t.counters)
        most = find_max_magnitude(table[START])
    for c in range(workspace.run.size):
        offsets |= table[OFFSET, c]
    workspace.head[MAX_START], workspace.head[HAS_OFFSETS] = most, 1 if offsets != 0 else 0
    workspace.head[IS_VALID] = 0
    copy_parameters_to_blocks(table, begins, first % LANES, workspace.parameters)
    clear_counts(workspace.counts)
    if q.element != INT16 and first == 0 and is_unsaturated:
        store_key(spm, at, workspace)
