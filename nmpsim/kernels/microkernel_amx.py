"""Sums of products of a few pixels with many channels at once, with the tiles of AMX.

Weights are read in place; of a last chunk of fewer than 64 inputs they are copied, and zeros
follow. The pixels of a tile must be equally far apart and have all their inputs in a row; where
they do not, their windows are gathered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.amx_tiles import (
    MOST,
    ROW_BYTES,
    SIDE,
    TILE_BYTES,
    emit_configure,
    emit_gather,
    emit_pack,
    emit_products,
    emit_release,
)
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.vector_code import LANES, function_of
from nmpsim.kernels.workspace_size import MAX_PIXELS

_configure: Any = function_of("configure_amx", emit_configure)
_gather: Any = function_of("gather_amx", emit_gather)
_pack: Any = function_of("pack_amx", emit_pack)
_products: Any = function_of("products_amx", emit_products)
_release: Any = function_of("release_amx", emit_release)

_HAS_TAILS = 0
"""Word of the room: 1 if the last chunks of weights are there. What follows is ``_Room``."""


class _Room(NamedTuple):
    """Addresses of what products work in, and bytes from patch to patch."""

    configuration: Int
    tails: Int
    patches: Int
    stride: Int
    end: Int


@jit
def _room_at(address: Int, blocks: Int, depth: Int) -> Any:
    """The room at an address for some blocks of weights of ``depth`` inputs each."""
    configuration = (address + 8 + ROW_BYTES - 1) & -ROW_BYTES
    tails = configuration + ROW_BYTES
    patches = tails + blocks * TILE_BYTES
    # An odd number of a cache's lines: the rows of a tile are then in different sets of it.
    stride = ((depth + ROW_BYTES - 1) & -ROW_BYTES) | ROW_BYTES
    return _Room(configuration, tails, patches, stride, patches + MAX_PIXELS * stride)


@jit
def room_words_amx(blocks: Int, depth: Int) -> Any:
    """64-bit words that products need, for some blocks of weights of ``depth`` inputs each."""
    return (_room_at(np.int64(0), blocks, depth).end + ROW_BYTES) >> 3


@jit
def clear_room_amx(room: Int64s) -> None:
    """Products with weights that the room has not seen follow."""
    room[_HAS_TAILS] = 0


@jit
def _step_of(offsets: Int64s, pixels: Int) -> Any:
    """Bytes from pixel to pixel; -1 if they are not always the same."""
    step = offsets[min(1, pixels - 1)] - offsets[0]
    for p in range(1, pixels):
        if offsets[p] - offsets[p - 1] != step:
            return np.int64(-1)
    return step


@jit
def products_amx(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    _: Int32s,
    room: Int64s,
    __: Int64s,
) -> None:
    """See ``products`` of :mod:`~nmpsim.kernels.microkernel`."""
    rows, runs = np.int64(window.rows), np.int64(window.runs)
    row_stride, run_stride = np.int64(window.row_stride), np.int64(window.run_stride)
    fours = np.int64((window.length + 3) >> 2)
    steps, blocks = rows * runs * fours, np.int64(out.shape[1]) // LANES
    chunks, rest = steps // SIDE, steps % SIDE
    block, block_stride = np.int64(weights.ctypes.data) + start, steps * ROW_BYTES
    r = _room_at(np.int64(room.ctypes.data), blocks, 4 * steps)
    if rest and not room[_HAS_TAILS]:
        _pack((blocks, block + chunks * TILE_BYTES, block_stride, rest, r.tails))
        room[_HAS_TAILS] = 1
    corner = np.int64(inputs.ctypes.data) + base
    patches, stride = corner + offsets[0], np.int64(-1)
    if rows * runs == 1 and rest == 0:
        stride = _step_of(offsets, pixels)
    if stride < 0:
        where = (corner, rows, row_stride, runs, run_stride, fours)
        patches, stride = r.patches, r.stride
        _gather((np.int64(pixels), np.int64(offsets.ctypes.data), *where, patches, stride))
    tiles = (pixels + SIDE - 1) // SIDE
    height = np.int64((pixels + tiles - 1) // tiles)
    _configure((r.configuration, height))
    row = 4 * np.int64(out.shape[1])
    for n in range(0, blocks, MOST):
        of_blocks = (block + n * block_stride, block_stride)
        tail = (np.int64(rest != 0), r.tails + n * TILE_BYTES)
        for t in range(0, tiles, MOST):
            # The last tile begins early enough to be as high as the others.
            p = min(t * height, pixels - height)
            apart = min((t + 1) * height, pixels - height) - p
            taken = (np.int64(min(MOST, tiles - t)), min(np.int64(MOST), blocks - n))
            read = (patches + p * stride, stride, apart * stride, chunks)
            to = np.int64(out.ctypes.data) + p * row + n * ROW_BYTES
            _products((*taken, *read, *of_blocks, *tail, to, row, apart * row))
    _release((np.int64(0),))
