"""Int8 sums of products of a few pixels with many channels.

Weights are read as the instruction set stores them, ``[channels/16][rows][runs][bytes/4][16][4]``.
Inputs are read in place, too: a pixel is an offset, from which its rows and runs of bytes lie at
the same strides. A register block is some pixels by some blocks of sixteen channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.cpu_features import TARGET
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.microkernel_amx import (
    compute_products_amx,
    get_workspace_size_amx,
    initialize_workspace_amx,
)
from nmpsim.kernels.microkernel_avx2 import (
    compute_products_avx2,
    get_workspace_size_avx2,
    initialize_workspace_avx2,
)
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.pointers import get_address, make_window_rows
from nmpsim.kernels.vector_code import (
    I32,
    I64,
    INT32S,
    LANES,
    EmittedLoop,
    WindowRows,
    add_offset,
    call_intrinsic,
    emit_run_loops,
    emit_switch,
    load,
    load_corners,
    make_int_constant,
    make_int_vector_type,
    make_splat_constant,
    make_zero_constant,
    shuffle,
    splat,
    store,
)
from nmpsim.kernels.weight_packing import initialize_packed_weights_avx2
from nmpsim.kernels.workspace_size import MAX_PIXELS

_BYTES, _HALF_BYTES, _QUARTER_BYTES = (
    make_int_vector_type(8, lanes * LANES) for lanes in (4, 2, 1)
)
_PAIRS, _PRODUCTS = make_int_vector_type(16, 2 * LANES), make_int_vector_type(32, 2 * LANES)
_QUARTER = make_int_vector_type(32, 4)


class Int8Target(NamedTuple):
    """Kernel target for Int8 products, with the functions that emit code for it."""

    shapes: dict[int, tuple[int, ...]]
    """Blocks -> pixels of the register blocks."""
    sums: tuple[Any, ...]
    """Types of the vectors that hold the sums of one pixel and one block."""
    load_weights: Callable[[IRBuilder, Value], list[Any]]
    """Load the weights of four inputs and sixteen channels from an address."""
    load_inputs: Callable[[IRBuilder, Value], Any]
    """Load four inputs of a pixel from an address."""
    add_products: Callable[[IRBuilder, list[Any], list[Any], Value], list[Any]]
    """Return the sums with the products of weights and inputs added."""
    total: Callable[[IRBuilder, list[Any], Value], Any]
    """Return the sums in one vector, less the pixel's excess at an address."""
    has_excess: bool = False


def _add_dot_products(b: IRBuilder, sums: Value, unsigned: Value, signed: Value) -> Any:
    """Add four products of bytes to each sum; declared as in LLVM 14, which later ones accept."""
    name = "x86.avx512.vpdpbusd.512"
    return call_intrinsic(b, name, INT32S, sums, b.bitcast(unsigned, INT32S), signed)


VNNI = Int8Target(
    {4: (1, 2, 3, 4, 5), 2: (4, 5, 6, 7), 1: (7,)},
    (INT32S,),
    lambda b, address: [b.add(load(b, address, _BYTES, 1), make_splat_constant(_BYTES, -128))],
    lambda b, address: splat(b, load(b, address, I32, 1)),
    lambda b, sums, weights, inputs: [_add_dot_products(b, sums[0], weights[0], inputs)],
    lambda b, sums, excess: b.sub(sums[0], splat(b, load(b, excess, I32, 4))),
    has_excess=True,
)
"""AVX-512 VNNI: four products of unsigned and signed bytes are added at once.

Weights are made unsigned by adding 128. A pixel's inputs are then added 128 times too often: its
excess, which is subtracted in the end. With eight sums, none waits for its last product; 24 leave
LLVM too few registers for inputs that it loads ahead.
"""


def _add_pairs(b: IRBuilder, first: Value, second: Value) -> Any:
    """Return the sums of neighbouring lanes, those of the first vector first."""
    even = shuffle(b, first, second, list(range(0, 2 * LANES, 2)))
    odd = shuffle(b, first, second, list(range(1, 2 * LANES, 2)))
    return b.add(even, odd)


def _load_widened_weights(b: IRBuilder, address: Value) -> list[Any]:
    halves = [add_offset(b, address, 2 * LANES * side) for side in range(2)]
    return [b.sext(load(b, half, _HALF_BYTES, 1), _PAIRS) for half in halves]


def _load_widened_inputs(b: IRBuilder, address: Value) -> Any:
    four = b.sext(load(b, address, make_int_vector_type(8, 4), 1), make_int_vector_type(16, 4))
    return b.bitcast(splat(b, b.bitcast(four, I64), LANES // 2), _PAIRS)


def _add_widened(b: IRBuilder, sums: list[Any], weights: list[Any], inputs: Value) -> list[Any]:
    wide = b.sext(inputs, _PRODUCTS)
    products = [b.mul(b.sext(half, _PRODUCTS), wide) for half in weights]
    return [
        b.add(total, _add_pairs(b, product, product))
        for total, product in zip(sums, products, strict=True)
    ]


PORTABLE = Int8Target(
    {1: (1, 2)},
    (INT32S, INT32S),
    _load_widened_weights,
    _load_widened_inputs,
    _add_widened,
    lambda b, sums, _: _add_pairs(b, *sums),
)
"""Any processor: bytes widened to 16 bits, products added in pairs.

LLVM compiles this to ``vpmaddwd`` or its equivalent where the processor has one.
"""


def _add_sdot(b: IRBuilder, sums: list[Any], weights: list[Any], inputs: Value) -> list[Any]:
    return [
        call_intrinsic(b, "aarch64.neon.sdot.v4i32.v16i8", _QUARTER, total, some, inputs)
        for total, some in zip(sums, weights, strict=True)
    ]


def _join_quarters(b: IRBuilder, sums: list[Any], _: Value) -> Any:
    low, high = (shuffle(b, sums[i], sums[i + 1], list(range(8))) for i in (0, 2))
    return shuffle(b, low, high, list(range(LANES)))


SDOT = Int8Target(
    {1: (1, 2, 3, 4, 5, 6)},
    (_QUARTER,) * 4,
    lambda b, address: [
        load(b, add_offset(b, address, 16 * i), _QUARTER_BYTES, 1) for i in range(4)
    ],
    lambda b, address: b.bitcast(splat(b, load(b, address, I32, 1), 4), _QUARTER_BYTES),
    _add_sdot,
    _join_quarters,
)
"""Arm's ``sdot``: four products of signed bytes are added to each of four lanes.

Of 32 registers, the sums of six pixels and one block take 24, its weights four.
"""

_target = {"vnni": VNNI, "sdot": SDOT}.get(TARGET, PORTABLE)


def emit_block(
    b: IRBuilder,
    target: Int8Target,
    pixels: int,
    blocks: int,
    offsets: Value,
    window: WindowRows,
    weights: Value,
    block_stride: Value,
    out: Value,
    out_stride: Value,
    excess: Value,
) -> None:
    """Emit code that computes the sums of one register block with a target's instructions."""
    parts = len(target.sums)
    corners = load_corners(b, window, offsets, pixels)

    def emit_run(position: Value, weights_at: Value, *sums: Any) -> list[Any]:
        loop = EmittedLoop(b, window.steps, [position, weights_at, *sums])
        position, weights_at, *totals = loop.values
        of_blocks = [
            target.load_weights(b, add_offset(b, weights_at, n, block_stride))
            for n in range(blocks)
        ]
        added = []
        for p in range(pixels):
            inputs = target.load_inputs(b, b.add(corners[p], position))
            for n in range(blocks):
                first = (p * blocks + n) * parts
                added += target.add_products(b, totals[first : first + parts], of_blocks[n], inputs)
        after = [
            b.add(position, make_int_constant(4)),
            b.add(weights_at, make_int_constant(4 * LANES)),
            *added,
        ]
        return loop.end(after)[1:]

    initial = [make_zero_constant(kind) for kind in target.sums] * (pixels * blocks)
    _, *sums = emit_run_loops(b, window, make_int_constant(0), [weights, *initial], emit_run)
    for p in range(pixels):
        for n in range(blocks):
            first = (p * blocks + n) * parts
            to = add_offset(b, add_offset(b, out, p, out_stride), 4 * LANES * n)
            total = target.total(b, sums[first : first + parts], add_offset(b, excess, 4 * p))
            store(b, total, to, 4)


def _emit_products(b: IRBuilder, pixels: Value, blocks: Value, *operands: Any) -> Any:
    """Compute the sums of a register block of one of the target's shapes."""
    cases = {
        n * MAX_PIXELS + p: partial(emit_block, b, _target, p, n, *operands)
        for n, shapes in _target.shapes.items()
        for p in shapes
    }
    return emit_switch(b, b.add(b.mul(blocks, make_int_constant(MAX_PIXELS)), pixels), cases)


def _emit_excess(b: IRBuilder, offsets: Value, window: WindowRows, out: Value) -> Any:
    """Compute 128 times the sum of the inputs of EXCESS_PIXELS pixels."""
    lanes = Constant(INT32S, list(range(LANES)))
    corners = load_corners(b, window, offsets, EXCESS_PIXELS)
    chunks = b.lshr(b.add(window.steps, make_int_constant(LANES - 1)), make_int_constant(4))

    def emit_run(position: Value, *before: Value) -> list[Any]:
        loop = EmittedLoop(b, chunks, [position, window.steps, *before])
        position, left, *totals = loop.values
        is_loaded = b.icmp_unsigned("<", lanes, splat(b, b.trunc(left, I32)))
        ones = make_splat_constant(_BYTES, 1)
        added = [
            _add_dot_products(b, total, ones, _masked_load(b, b.add(corner, position), is_loaded))
            for total, corner in zip(totals, corners, strict=True)
        ]
        after = [
            b.add(position, make_int_constant(4 * LANES)),
            b.sub(left, make_int_constant(LANES)),
            *added,
        ]
        return loop.end(after)[2:]

    totals = emit_run_loops(
        b, window, make_int_constant(0), [make_zero_constant(INT32S)] * EXCESS_PIXELS, emit_run
    )
    while len(totals) > 1:
        totals = [_add_pairs(b, *two) for two in zip(totals[::2], totals[1::2], strict=True)]
    total = _add_pairs(b, totals[0], totals[0])
    sums = shuffle(b, total, total, list(range(EXCESS_PIXELS)))
    store(b, b.shl(sums, make_splat_constant(sums.type, 7)), out, 4)
    return make_int_constant(0)


def _masked_load(b: IRBuilder, address: Value, mask: Value) -> Any:
    """Load 32-bit lanes; those whose flag is not set are 0."""
    pointer = b.inttoptr(address, INT32S.as_pointer())
    name = "masked.load.v16i32.p0"
    return call_intrinsic(
        b, name, INT32S, pointer, Constant(I32, 1), mask, make_zero_constant(INT32S)
    )


EXCESS_PIXELS = 8
"""Pixels whose inputs one call sums up."""
_HAS_EXCESS = _target.has_excess
_excess: Any = define_function("excess", _emit_excess)
_products: Any = define_function("products", _emit_products)


def _choose_shape(pixels: int, blocks: int) -> tuple[int, int]:
    """Return pixels and blocks of the next register block, given those that are left.

    It has as many blocks as still let it take all pixels, or else the most. The pixels are divided
    evenly.
    """
    shapes = {n: counts for n, counts in _target.shapes.items() if n <= blocks}
    most = {n: min(counts[-1], pixels) for n, counts in shapes.items()}
    n = max(most, key=lambda n: (most[n], n))
    parts = -(-pixels // most[n])
    return next(p for p in shapes[n] if p * parts >= pixels), n


_MAX_BLOCKS = max(_target.shapes)
_SHAPES = np.array(
    [[_choose_shape(p, n) for n in range(1, _MAX_BLOCKS + 1)] for p in range(1, MAX_PIXELS + 1)],
    np.int64,
)
"""[pixels left - 1, blocks left - 1] -> pixels and blocks of the next register block."""


@jit
def _products_any(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    excess: Int32s,
    _: Int64s,
    __: Int64s,
) -> None:
    rows = make_window_rows(get_address(inputs) + base, window, 4)
    stride = rows.rows * rows.runs * rows.steps * (4 * LANES)
    pixel, excess_at = get_address(offsets), get_address(excess)
    if _HAS_EXCESS:
        for first in range(0, pixels, EXCESS_PIXELS):
            _excess((pixel + 8 * first, rows, excess_at + 4 * first))
    block, to, row = get_address(weights) + start, get_address(out), 4 * out.shape[1]
    left = out.shape[1] // LANES
    while left > 0:
        blocks = _SHAPES[pixels - 1, min(left, _MAX_BLOCKS) - 1, 1]
        p = np.int64(0)
        while p < pixels:
            count = _SHAPES[pixels - p - 1, blocks - 1, 0]
            written = (to + p * row, row, excess_at + 4 * p)
            _products((count, blocks, pixel + 8 * p, rows, block, stride, *written))
            p += count
        left -= blocks
        block += blocks * stride
        to += blocks * (4 * LANES)


@jit
def _size_zero(blocks: Int, depth: Int) -> Any:
    return 0 * blocks * depth


@jit
def _do_nothing(workspace: Int64s) -> None:
    pass


_implementations: Any = {
    "amx": (compute_products_amx, get_workspace_size_amx, initialize_workspace_amx, _do_nothing),
    "avx2": (
        compute_products_avx2,
        get_workspace_size_avx2,
        initialize_workspace_avx2,
        initialize_packed_weights_avx2,
    ),
}
products, products_workspace_size, initialize_workspace, initialize_packed_weights = (
    _implementations.get(TARGET, (_products_any, _size_zero, _do_nothing, _do_nothing))
)
"""Functions of the target.

``products(inputs, base, offsets, window, weights, start, pixels, out, excess, workspace, packed)``
computes ``out[p, lane]``: the products of a pixel's window with a lane's weights, summed modulo
2^32. inputs int8, from byte ``base``; offsets int64 in bytes, the last one repeated to MAX_PIXELS;
weights int8, blocks from byte ``start``; out int32 [MAX_PIXELS, blocks * 16], whose rows after
``pixels`` may be overwritten; excess int32 [MAX_PIXELS] and workspace int64 hold intermediate
results; packed int64 holds packed weights, which several threads may use at the same time.

``products_workspace_size(blocks, depth)`` returns the 64-bit words of a workspace for blocks of
weights of ``depth`` inputs in each lane. ``initialize_workspace(workspace)`` must be called before
the first products with other weights, and so must ``initialize_packed_weights(packed)``, unless the
array holds zeros.
"""
