"""Int8 sums of products with AMX tiles.

Weights are read in place; those of a last chunk of fewer than 64 inputs are copied and padded with
zeros. The pixels of a tile must be equally far apart with contiguous inputs; other windows are
gathered first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.amx_tiles import (
    MAX_TILES,
    ROW_BYTES,
    SIDE,
    TILE_BYTES,
    emit_block_dispatch,
    emit_gather,
    emit_pack_tails,
    emit_tile_configuration,
    emit_tile_release,
)
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.pointers import get_address, make_window_rows
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import MAX_PIXELS

_configure: Any = define_function("configure_amx", emit_tile_configuration)
_gather: Any = define_function("gather_amx", emit_gather)
_pack_tails: Any = define_function("pack_tails_amx", emit_pack_tails)
_products: Any = define_function("products_amx", emit_block_dispatch)
_release: Any = define_function("release_amx", emit_tile_release)

_HAS_TAILS = 0
"""Word of the workspace: 1 if the tails of the weights are packed. ``_Workspace`` follows."""


class _Workspace(NamedTuple):
    """Addresses of the parts of a workspace, and bytes from patch to patch."""

    configuration: Int
    tails: Int
    patches: Int
    patch_stride: Int
    end: Int


@jit
def _workspace_at(address: Int, blocks: Int, depth: Int) -> Any:
    configuration = (address + 8 + ROW_BYTES - 1) & -ROW_BYTES
    tails = configuration + ROW_BYTES
    patches = tails + blocks * TILE_BYTES
    # An odd number of cache lines, so that the rows of a tile are in different cache sets.
    stride = ((depth + ROW_BYTES - 1) & -ROW_BYTES) | ROW_BYTES
    return _Workspace(configuration, tails, patches, stride, patches + MAX_PIXELS * stride)


@jit
def get_workspace_size_amx(blocks: Int, depth: Int) -> Any:
    """Return the workspace size in 64-bit words for blocks of weights with ``depth`` inputs."""
    return (_workspace_at(np.int64(0), blocks, depth).end + ROW_BYTES) >> 3


@jit
def initialize_workspace_amx(workspace: Int64s) -> None:
    """Initialize a workspace for new weights, whose tails are not packed yet."""
    workspace[_HAS_TAILS] = 0


@jit
def _uniform_stride(offsets: Int64s, pixels: Int) -> Any:
    """Return the bytes from pixel to pixel, or -1 if they differ."""
    step = offsets[min(1, pixels - 1)] - offsets[0]
    for p in range(1, pixels):
        if offsets[p] - offsets[p - 1] != step:
            return np.int64(-1)
    return step


@jit
def compute_products_amx(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    _: Int32s,
    workspace: Int64s,
    __: Int64s,
) -> None:
    """Compute the sums of Int8 products of windows and weights with AMX tiles."""
    rows = make_window_rows(get_address(inputs) + base, window, 4)
    steps, blocks = rows.rows * rows.runs * rows.steps, np.int64(out.shape[1]) // LANES
    chunks, rest = steps // SIDE, steps % SIDE
    block, block_stride = get_address(weights) + start, steps * ROW_BYTES
    w = _workspace_at(get_address(workspace), blocks, 4 * steps)
    if rest and not workspace[_HAS_TAILS]:
        _pack_tails((blocks, block + chunks * TILE_BYTES, block_stride, rest, w.tails))
        workspace[_HAS_TAILS] = 1
    patches, stride = rows.base + offsets[0], np.int64(-1)
    if rows.rows * rows.runs == 1 and rest == 0:
        stride = _uniform_stride(offsets, pixels)
    if stride < 0:
        patches, stride = w.patches, w.patch_stride
        _gather((pixels, get_address(offsets), rows, patches, stride))
    tiles = (pixels + SIDE - 1) // SIDE
    height = np.int64((pixels + tiles - 1) // tiles)
    _configure((w.configuration, height))
    row = 4 * out.shape[1]
    for n in range(0, blocks, MAX_TILES):
        of_blocks = (block + n * block_stride, block_stride)
        tail = (rest != 0, w.tails + n * TILE_BYTES)
        for t in range(0, tiles, MAX_TILES):
            # The last tile begins early enough to be as high as the others.
            p = min(t * height, pixels - height)
            apart = min((t + 1) * height, pixels - height) - p
            shape = (min(MAX_TILES, tiles - t), min(MAX_TILES, blocks - n))
            read = (patches + p * stride, stride, apart * stride, chunks)
            to = get_address(out) + p * row + n * ROW_BYTES
            _products((*shape, *read, *of_blocks, *tail, to, row, apart * row))
    _release(())
