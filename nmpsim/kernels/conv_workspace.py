"""A thread's workspace: arrays that convolutions work in, and the tables that stay on it.

Consecutive tiles of a layer mostly have the same channels. So the tables of channels are made again
only if the records in the scratchpad, or the words of the descriptor, are no longer those that they
were made of.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import CHANNEL_BYTES, INT16, SCALE_BYTES
from nmpsim.kernels.accumulate import largest
from nmpsim.kernels.array_types import Float64s, Int, Int8s, Int32s, Int64s
from nmpsim.kernels.channel_tables import put_channels, put_starts
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import Operands, Parts, Place, Quantizer
from nmpsim.kernels.result_table import fill_result_table
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.workspace_size import (
    FIRST_WORD,
    HAS_OFFSETS,
    HEAD,
    INTEGERS,
    IS_KEPT,
    LANES,
    MAX_PIXELS,
    MAX_START,
    REALS,
    ROWS,
    WORDS,
)

_RECORD = CHANNEL_BYTES // 8
_SCALE = SCALE_BYTES // 4
_LINE = 64
"""Bytes of a cache line of the host: vectors of sums lie on one."""


class ConvWorkspace(NamedTuple):
    """Tables of some channels, what they are made of, and room for some pixels."""

    head: Int64s
    """int64 [FIRST_WORD + 2 * WORDS]"""
    records: Int64s
    """int64 [2 * channels] as in the scratchpad; scales int32 [7 * channels], too"""
    scales: Int32s
    integers: Int64s
    """int64 [INTEGERS, channels], and reals float64 [REALS, channels]: ``kernels/channels.py``"""
    reals: Float64s
    table: Int32s
    """int32 [blocks, ROWS, LANES]: ``kernels/requantize_int32.py``"""
    run: Int64s
    """int64 [channels]"""
    offsets: Int64s
    """int64 [MAX_PIXELS]"""
    windows: Int32s
    """int32 [MAX_PIXELS], and excess"""
    excess: Int32s
    sums: Int32s
    """int32 [MAX_PIXELS, lanes], and results int8"""
    results: Int8s


@jit_allocating
def workspace_at(memory: Int64s, channels: Int, lanes: Int) -> Any:
    """A workspace for ``channels`` channels, in ``lanes`` lanes, on int64 memory."""
    offsets = HEAD + MAX_PIXELS
    records = offsets + _RECORD * channels
    integers = records + INTEGERS * channels
    reals = integers + REALS * channels
    run = reals + channels
    words = memory[run:].view(np.int32)
    words = words[(-np.int64(words.ctypes.data) & (_LINE - 1)) >> 2 :]
    excess = 2 * MAX_PIXELS
    table = excess + ROWS * lanes
    sums = table + MAX_PIXELS * lanes
    results = sums + MAX_PIXELS * lanes // 4
    return ConvWorkspace(
        memory[:HEAD],
        memory[offsets:records],
        words[results : results + _SCALE * channels],
        memory[records:integers].reshape((INTEGERS, channels)),
        memory[integers:reals].view(np.float64).reshape((REALS, channels)),
        words[excess:table].reshape((lanes // LANES, ROWS, LANES)),
        memory[reals:run],
        memory[HEAD:offsets],
        words[:MAX_PIXELS],
        words[MAX_PIXELS:excess],
        words[table:sums].reshape((MAX_PIXELS, lanes)),
        words[sums:results].view(np.int8).reshape((MAX_PIXELS, lanes)),
    )


@jit
def put_words(at: Operands, q: Quantizer, begins: bool, workspace: ConvWorkspace) -> Any:
    """Write down what the tables of Int8 on integer scales are made of, in addition to the records.

    The clip is among it: the table keeps the smallest and largest results of tiles of which it
    limited none.
    """
    now = workspace.head[FIRST_WORD + WORDS :]
    now[0] = workspace.run.size
    now[1] = q.element
    now[2] = q.profile
    now[3] = q.weight_offset
    now[4] = q.bias.pre
    now[5] = q.bias.mul
    now[6] = q.bias.post
    now[7] = q.out.pre
    now[8] = q.out.mul
    now[9] = q.out.post
    now[10] = q.out_offset
    now[11] = q.result_scale
    now[12] = q.leaky
    now[13] = 1 if begins else 0
    now[14] = 1 if at.scales < 0 else 0
    now[15] = q.clip.low
    now[16] = q.clip.high


@jit
def is_equal(values: Int32s | Int64s, others: Int32s | Int64s) -> Any:
    """True if integers are the same."""
    difference = np.int64(0)
    for i in range(others.size):
        difference |= np.int64(values[i] ^ others[i])
    return difference == 0


@jit
def are_kept(spm: Scratchpad, at: Operands, workspace: ConvWorkspace) -> Any:
    """True if the tables are those of all channels of a convolution, whose words are there."""
    words = workspace.head[FIRST_WORD:]
    if workspace.head[IS_KEPT] == 0 or not is_equal(words, words[WORDS:]):
        return False
    if at.scales >= 0 and not is_equal(spm.i32[at.scales >> 2 :], workspace.scales):
        return False
    return is_equal(spm.i64[at.channels >> 3 :], workspace.records)


@jit
def copy(taken: Int32s | Int64s, given: Int32s | Int64s) -> None:
    """Fill ``given``."""
    for i in range(given.size):
        given[i] = taken[i]


@jit
def keep(spm: Scratchpad, at: Operands, workspace: ConvWorkspace) -> None:
    """Take note of what the tables are made of."""
    words = workspace.head[FIRST_WORD:]
    copy(words[WORDS:], words[:WORDS])
    if at.scales >= 0:
        copy(spm.i32[at.scales >> 2 :], workspace.scales)
    copy(spm.i64[at.channels >> 3 :], workspace.records)
    workspace.head[IS_KEPT] = 1


@jit
def put_tables(
    spm: Scratchpad,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    first: Int,
    pixels: Int,
    place: Place,
    counters: SaturationCounters,
    workspace: ConvWorkspace,
) -> None:
    """The tables of the channels from ``first`` on, unless they are there."""
    put_words(at, q, parts.begins, workspace)
    if first == 0 and are_kept(spm, at, workspace):
        return
    integers = workspace.integers
    is_quiet, most, offsets = not parts.begins, np.int64(0), np.int64(0)
    put_channels(spm, at, q, first, integers, workspace.reals)
    if parts.begins:
        is_quiet = put_starts(spm, at, q, first, integers, pixels, place, counters)
        most = largest(integers[START])
    for c in range(workspace.run.size):
        offsets |= integers[OFFSET, c]
    workspace.head[MAX_START], workspace.head[HAS_OFFSETS] = most, 1 if offsets != 0 else 0
    workspace.head[IS_KEPT] = 0
    if q.element != INT16:
        fill_result_table(
            integers, workspace.reals, parts.begins, first % LANES, q, workspace.table
        )
        if first == 0 and is_quiet:
            keep(spm, at, workspace)
