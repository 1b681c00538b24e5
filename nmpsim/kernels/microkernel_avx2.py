"""Int8 sums of products of a few pixels with sixteen channels, with AVX2 instructions.

``vpmaddubsw`` multiplies unsigned inputs by signed weights and adds products in pairs, whose sum
must fit 16 bits. That of inputs of 0 to 127 always does. Other inputs are made unsigned by adding
128, and each lane's sum starts at minus 128 times its weights. Then two weights of the same sign
must be at most 128 together: a side's step with more is divided into two halves, the second of
which is a residual step.

With inputs of 0 to 127, 16 bits also hold two steps together if four weights of the same sign are
at most 258; otherwise the second step is a residual step.

Weights are packed accordingly when such inputs occur first: those of a whole layer once, by one of
the threads that need them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.atomics import atomic_load
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.packed_weights import (
    FIRST_RESIDUALS,
    OFFSETS_BYTES,
    STARTS_BYTES,
    STEP_BYTES,
    locate_packed_weights,
)
from nmpsim.kernels.pointers import get_address, make_window_rows
from nmpsim.kernels.vector_code import (
    I32,
    I64,
    LANES,
    EmittedLoop,
    WindowRows,
    add_offset,
    emit_run_loops,
    emit_switch,
    load,
    make_int_constant,
    make_int_vector_type,
    make_zero_constant,
    splat,
    store,
)
from nmpsim.kernels.weight_packing import PACKED, UNUSED, pack_blocks
from nmpsim.kernels.workspace_size import MAX_PIXELS

PIXELS = 6
"""Pixels of a register block: their sums, of sixteen channels, fill twelve of sixteen registers."""
PATCH_BYTES = 3 << 16
"""Bytes for the windows of pixels; more would exceed the host's inner caches."""
PAIR_PIXELS = 5
"""Pixels of a register block that takes two steps at a time."""
_BYTES, _PAIRS, _SUMS = (
    make_int_vector_type(8, 32),
    make_int_vector_type(16, 16),
    make_int_vector_type(32, 8),
)
_BOTH_SUMS = ir.LiteralStructType([_SUMS, _SUMS])


_SAME_INPUTS = "vpbroadcastd ($4,$5), %ymm14\nvpmaddubsw $2, %ymm14, %ymm15\n"
_OWN_INPUTS = (
    "vpbroadcastd ($4,$5), %ymm15\nvpbroadcastd ($4,$6), %ymm14\nvpmaddubsw $2, %ymm15, %ymm15\n"
)
"""Load four inputs of a pixel, for the left side into ymm15, for the right one into ymm14."""
_PRODUCTS = (
    "vpmaddubsw $3, %ymm14, %ymm14\n"
    "vpmaddwd ($7), %ymm15, %ymm15\n"
    "vpmaddwd ($7), %ymm14, %ymm14\n"
    "vpaddd %ymm15, $0, $0\n"
    "vpaddd %ymm14, $1, $1"
)
_CONSTRAINTS = "=x,=x,x,x,r,r,r,r,0,1,~{ymm14},~{ymm15},~{memory}"
_TWO_STEPS = (
    "vpbroadcastd ($3,$4), %ymm12\n"
    "vpbroadcastd 4($3,$4), %ymm13\n"
    "vpmaddubsw ($5), %ymm12, %ymm14\n"
    "vpmaddubsw 64($5), %ymm13, %ymm15\n"
    "vpmaddubsw 32($5), %ymm12, %ymm12\n"
    "vpmaddubsw 96($5), %ymm13, %ymm13\n"
    "vpaddw %ymm15, %ymm14, %ymm14\n"
    "vpaddw %ymm13, %ymm12, %ymm12\n"
    "vpmaddwd $2, %ymm14, %ymm14\n"
    "vpmaddwd $2, %ymm12, %ymm12\n"
    "vpaddd %ymm14, $0, $0\n"
    "vpaddd %ymm12, $1, $1"
)
_TWO_CONSTRAINTS = "=x,=x,x,r,r,r,0,1,~{ymm12},~{ymm13},~{ymm14},~{ymm15},~{memory}"


def _add_by_assembly(
    b: IRBuilder, code: str, constraints: str, operands: list[Any], sums: list[Any]
) -> list[Any]:
    """Return a pixel's sums after inline assembly; LLVM's own code would spill registers."""
    llvmlite.binding.initialize_native_asmparser()  # LLVM compiles it in this process
    given = [*operands, *sums]
    kind = ir.FunctionType(_BOTH_SUMS, [one.type for one in given])
    both = b.asm(kind, code, constraints, given, side_effect=True)
    return [b.extract_value(both, side) for side in range(2)]


def _add_step(
    b: IRBuilder,
    sums: list[Any],
    corners: list[Any],
    positions: list[Any],
    weights: Value,
    ones: Value,
) -> list[Any]:
    """Add four inputs of each pixel times a step of weights.

    ``positions`` are those of the inputs, of both sides or of each.
    """
    block = [load(b, add_offset(b, weights, 32 * side), _BYTES, 1) for side in range(2)]
    code = (_SAME_INPUTS if len(positions) == 1 else _OWN_INPUTS) + _PRODUCTS
    added = []
    for p, corner in enumerate(corners):
        operands = [*block, corner, positions[0], positions[-1], ones]
        added += _add_by_assembly(b, code, _CONSTRAINTS, operands, sums[2 * p : 2 * p + 2])
    return added


def _add_two_steps(
    b: IRBuilder, sums: list[Any], corners: list[Any], position: Value, weights: Value, ones: Value
) -> list[Any]:
    """Add eight inputs of each pixel times two steps of weights."""
    added = []
    for p, corner in enumerate(corners):
        operands = [ones, corner, position, weights]
        added += _add_by_assembly(
            b, _TWO_STEPS, _TWO_CONSTRAINTS, operands, sums[2 * p : 2 * p + 2]
        )
    return added


def _emit_block(
    b: IRBuilder,
    pixels: int,
    in_pairs: bool,
    patches: Value,
    depth: Value,
    weights: Value,
    starts: Value,
    residual_count: Value,
    residual_offsets: Value,
    residuals: Value,
    out: Value,
    out_stride: Value,
    ones: Value,
) -> None:
    """Compute the sums of some pixels and one block."""
    corners = [add_offset(b, patches, p, depth) for p in range(pixels)]
    initial = [load(b, add_offset(b, starts, 32 * side), _SUMS, 4) for side in range(2)]
    loaded_ones = load(b, ones, _PAIRS, 8)
    unroll = 2 if in_pairs else 1
    count = b.lshr(b.add(depth, make_int_constant(4 * unroll - 4)), make_int_constant(1 + unroll))
    steps = EmittedLoop(b, count, [make_int_constant(0), weights, *(initial * pixels)])
    position, weights_at, *sums = steps.values
    if in_pairs:
        added = _add_two_steps(b, sums, corners, position, weights_at, loaded_ones)
    else:
        added = _add_step(b, sums, corners, [position], weights_at, ones)
    steps_in, steps_on = make_int_constant(4 * unroll), make_int_constant(STEP_BYTES * unroll)
    _, _, *sums = steps.end([b.add(position, steps_in), b.add(weights_at, steps_on), *added])
    rest = EmittedLoop(b, residual_count, [residual_offsets, residuals, *sums], may_be_empty=True)
    offsets_at, weights_at, *sums = rest.values
    positions = [load(b, add_offset(b, offsets_at, 8 * side), I64, 8) for side in range(2)]
    added = _add_step(b, sums, corners, positions, weights_at, ones)
    after = [
        b.add(offsets_at, make_int_constant(OFFSETS_BYTES)),
        b.add(weights_at, make_int_constant(STEP_BYTES)),
    ]
    _, _, *sums = rest.end([*after, *added])
    for p in range(pixels):
        for side in range(2):
            to = add_offset(b, add_offset(b, out, p, out_stride), 32 * side)
            store(b, sums[2 * p + side], to, 4)


def _emit_products(b: IRBuilder, pixels: Value, in_pairs: Value, *operands: Value) -> Any:
    """Compute the sums of up to PIXELS pixels, or of up to PAIR_PIXELS two steps at a time."""
    cases = {
        p + PIXELS * is_paired: partial(_emit_block, b, p, is_paired, *operands)
        for is_paired, most in ((False, PIXELS), (True, PAIR_PIXELS))
        for p in range(1, most + 1)
    }
    return emit_switch(b, b.add(pixels, b.mul(in_pairs, make_int_constant(PIXELS))), cases)


def _emit_gather(
    b: IRBuilder, pixels: Value, offsets: Value, window: WindowRows, flipped: Value, patches: Value
) -> Any:
    """Copy windows one after the other, with the bits of ``flipped`` inverted in each four bytes.

    Not 0 if any input is negative.
    """
    mask, none = b.trunc(flipped, I32), Constant(I32, 0)

    def copy_run(run: Value, patch: Value, found: Value) -> list[Any]:
        large = EmittedLoop(
            b, b.lshr(window.steps, make_int_constant(3)), [run, patch, found], may_be_empty=True
        )
        at, to, found = large.values
        values = load(b, at, _SUMS, 1)
        store(b, b.xor(values, splat(b, mask, 8)), to, 1)
        after = [
            b.add(at, make_int_constant(32)),
            b.add(to, make_int_constant(32)),
            b.or_(found, values),
        ]
        at, to, found = large.end(after)
        small = EmittedLoop(
            b, b.and_(window.steps, make_int_constant(7)), [at, to, none], may_be_empty=True
        )
        at, to, some = small.values
        value = load(b, at, I32, 1)
        store(b, b.xor(value, mask), to, 1)
        after = [
            b.add(at, make_int_constant(4)),
            b.add(to, make_int_constant(4)),
            b.or_(some, value),
        ]
        _, to, some = small.end(after)
        return [to, b.or_(found, b.insert_element(make_zero_constant(_SUMS), some, none))]

    over_pixels = EmittedLoop(b, pixels, [offsets, patches, make_zero_constant(_SUMS)])
    offset, *carried = over_pixels.values
    corner = b.add(window.base, load(b, offset, I64, 8))
    patch, found = emit_run_loops(b, window, corner, carried, copy_run)
    _, _, found = over_pixels.end([b.add(offset, make_int_constant(8)), patch, found])
    signs = b.icmp_signed("<", b.bitcast(found, _BYTES), make_zero_constant(_BYTES))
    return b.zext(b.bitcast(signs, I32), I64)


_products: Any = define_function("products_avx2", _emit_products)
_gather: Any = define_function("gather_avx2", _emit_gather)

_ONES, _ZEROS, _PATCHES = 0, 4, 12
"""Words of the workspace: sixteen ones of 16 bits; sixteen zeros of 32 bits, the initial sums where
no input is negative; windows of pixels."""
_ALL_ONES: Any = np.int64(0x0001_0001_0001_0001)
_SIGNS: Any = np.int64(0x8080_8080)
"""Sign bits of four inputs."""


@jit
def _max_gathered(depth: Int) -> Any:
    """Return the number of pixels whose windows fit a workspace."""
    return min(max(PATCH_BYTES // depth // PIXELS, 1) * PIXELS, MAX_PIXELS)


@jit
def _gathered_at_once(pixels: Int, depth: Int) -> Any:
    """Return the number of pixels to gather at a time: an even share of all."""
    most = _max_gathered(depth)
    shares = (pixels + most - 1) // most
    return min(((pixels + shares - 1) // shares + PIXELS - 1) // PIXELS * PIXELS, most)


@jit
def get_workspace_size_avx2(_: Int, depth: Int) -> Any:
    """Return the workspace size in 64-bit words for windows of ``depth`` inputs."""
    return _PATCHES + ((_max_gathered(depth) * depth + 7) >> 3) + 1


@jit
def initialize_workspace_avx2(workspace: Int64s) -> None:
    """Write the constants that AVX2 code reads to a new workspace."""
    workspace[_ONES:_ZEROS] = _ALL_ONES
    workspace[_ZEROS:_PATCHES] = 0


@jit
def compute_products_avx2(
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
    packed: Int64s,
) -> None:
    """Compute the sums of Int8 products of windows and weights with AVX2 instructions."""
    rows = make_window_rows(get_address(inputs) + base, window, 4)
    steps, blocks = rows.rows * rows.runs * rows.steps, np.int64(out.shape[1]) // LANES
    original, at = get_address(weights) + start, get_address(workspace)
    patches = at + 8 * _PATCHES
    pair_words, half_words = packed[: packed.size >> 1], packed[packed.size >> 1 :]
    pairs = locate_packed_weights(get_address(pair_words), blocks, 4 * steps)
    halves = locate_packed_weights(get_address(half_words), blocks, 4 * steps)
    at_once = _gathered_at_once(pixels, 4 * steps)
    for first in range(0, pixels, at_once):
        count = min(at_once, pixels - first)
        windows = (count, get_address(offsets) + 8 * first, rows)
        is_any = atomic_load(halves.state) == PACKED
        signs = _SIGNS if is_any else np.int64(0)
        if _gather((*windows, signs, patches)) != 0 and not is_any:
            pack_blocks(original, steps, blocks, half_words, False)
            is_any = True
            _gather((*windows, _SIGNS, patches))
        in_pairs = not is_any and atomic_load(pairs.state) != UNUSED
        if in_pairs and atomic_load(pairs.state) != PACKED:
            pack_blocks(original, steps, blocks, pair_words, True)
        w, words = (pairs, pair_words) if in_pairs else (halves, half_words)
        most = PAIR_PIXELS if in_pairs else PIXELS
        for block in range(blocks):
            block_at, starts = original + block * steps * STEP_BYTES, at + 8 * _ZEROS
            residuals, before = np.int64(0), np.int64(0)
            if in_pairs or is_any:
                block_at = w.packed + block * ((w.residuals - w.packed) // blocks)
                starts = w.starts + block * STARTS_BYTES
                before = words[FIRST_RESIDUALS + block]
                residuals = words[FIRST_RESIDUALS + block + 1] - before
            of_block = (
                block_at,
                starts,
                residuals,
                w.residual_offsets + before * OFFSETS_BYTES,
                w.residuals + before * STEP_BYTES,
            )
            p, row = np.int64(0), 4 * np.int64(out.shape[1])
            to = get_address(out) + first * row + 4 * block * LANES
            while p < count:
                left = count - p
                taken = left // ((left + most - 1) // most)
                patch = (patches + p * 4 * steps, 4 * steps)
                _products((taken, in_pairs, *patch, *of_block, to + p * row, row, at + 8 * _ONES))
                p += taken
