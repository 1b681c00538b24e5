"""Convolution of Int8 elements whose sums 32 bits hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT8
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.conv_batches import (
    Batch,
    convolve_batches,
    input_window,
    is_contiguous,
    is_uniform,
)
from nmpsim.kernels.conv_workspace import ConvWorkspace
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.microkernel import (
    initialize_packed_weights,
    initialize_workspace,
    products,
    products_workspace_size,
)
from nmpsim.kernels.movement import Scratchpad, padded_row_length
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, ConvTile
from nmpsim.kernels.packed_weights import packed_weights_size
from nmpsim.kernels.result_table import scaling_mode
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import MAX_PIXELS


class Int8Buffers(NamedTuple):
    """Buffers of the products (see ``microkernel.py``)."""

    excess: Int32s
    workspace: Int64s
    packed: Int64s


@jit
def has_nonzero_padding(spm: Scratchpad, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """Return whether any weights after the last input of a kernel row are not zero."""
    length = w.kernel_w * w.in_channels
    tail, fours = length % 4, (length + 3) // 4
    if tail == 0:
        return False
    found = np.int8(0)
    for row in range(blocks * w.kernel_h):
        last = weights + ((row + 1) * fours - 1) * 4 * LANES
        values = spm.i8[last : last + 4 * LANES]
        for lane in range(LANES):
            for i in range(tail, 4):
                found |= values[4 * lane + i]
    return found != 0


@jit
def must_gather(spm: Scratchpad, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """Return whether windows cannot be read in place.

    Inputs are read in fours. What is read after a run must have weights of zero.
    """
    if is_contiguous(w, INT8):
        return has_nonzero_padding(spm, w, weights, blocks)
    return w.in_channels % 4 != 0


@jit
def multiply_int8(b: Batch, inputs: Int8s, base: Int, offsets: Int64s, pixels: Int) -> None:
    """Sum the products of some pixels' windows, from byte ``base`` of the inputs."""
    read, buffers = (inputs, base, offsets, b.window, b.elements, b.weights), b.buffers
    products(*read, pixels, b.sums, buffers.excess, buffers.workspace, buffers.packed)


@jit_allocating
def conv_int8(t: ConvTile, group: Int, workspace: ConvWorkspace) -> None:
    """Convolve one group of a tile; the tables in the workspace are those of its channels."""
    w, spm, count = t.shape, t.spm, workspace.run.size
    first = group * count
    lane = first % LANES
    depth = w.kernel_h * padded_row_length(w, INT8)
    weights = t.at.weights + (first - lane) * depth
    blocks = workspace.sums.shape[1] // LANES
    is_gathered = must_gather(spm, w, weights, blocks)
    words, size = products_workspace_size(blocks, depth), packed_weights_size(blocks, depth)
    scratch = packed = workspace.run
    if words:
        scratch = np.empty(words, np.int64)
        initialize_workspace(scratch)
        if t.parts.begins and t.parts.ends and t.at.partial >= 0:
            packed = spm.i64[t.at.partial >> 3 : (t.at.partial >> 3) + size]
        else:
            packed = np.empty(size, np.int64)
            initialize_packed_weights(packed)
    batch = Batch(
        spm.i8,
        input_window(w, INT8, is_gathered),
        weights,
        t.at.input + group * w.in_channels,
        first,
        lane,
        scaling_mode(t.q),
        is_gathered,
        True,
        is_uniform(w, INT8, lane, count),
        np.zeros((MAX_PIXELS, depth), np.int8) if is_gathered else workspace.results,
        workspace.sums,
        workspace.windows,
        workspace.results,
        workspace.table,
        Int8Buffers(workspace.excess, scratch, packed),
    )
    convolve_batches(t, struct_pointer(batch), workspace, multiply_int8)
