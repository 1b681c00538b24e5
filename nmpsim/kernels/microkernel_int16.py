"""Int16 sums of products of a few pixels with several channels.

Written as LLVM IR, because Numba's loops reach only a few per cent of a processor's speed: 16-bit
pairs are multiplied and their products added in pairs. LLVM compiles this to ``vpmaddwd`` or its
equivalent; AVX-512 VNNI also adds them to a sum with the same instruction.

32 bits hold the sum of only a few products. So each sum has two parts of 32 bits, and after some
steps everything above the low 16 bits is carried to the high part. The number of steps follows from
the magnitudes of weights and inputs: a sum of products is at most the largest input times the sum
of the weights, and at most the root of the product of both sums of squares (Cauchy-Schwarz).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.kernels.array_types import Int, Int16s, Int32s, Int64s
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.pointers import get_address, make_window_rows
from nmpsim.kernels.targets import TARGETS
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
    emit_signed_max,
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
from nmpsim.kernels.workspace_size import LEVELS, MAX_PIXELS

STEP_BYTES = 4 * LANES
"""Bytes of weights of two inputs, which are a step."""
MAX_PRODUCTS: Any = np.int64((1 << 31) - (1 << 16))
"""Largest sum of the products between two carries; 16 bits remain from the steps before."""

GRANULE = 16
"""Inputs whose squares are summed together: those of the steps of the middle level."""

_PAIRS, _WIDE_SUMS = make_int_vector_type(16, 2 * LANES), make_int_vector_type(64)


def _multiply_pairs(b: IRBuilder, weights: Value, inputs: Value) -> Any:
    """Return the sums of the products of 16-bit pairs."""
    count = weights.type.count
    wide = make_int_vector_type(32, count)
    products = b.mul(b.sext(weights, wide), b.sext(inputs, wide))
    even = shuffle(b, products, products, list(range(0, count, 2)))
    odd = shuffle(b, products, products, list(range(1, count, 2)))
    return b.add(even, odd)


class Int16Target(NamedTuple):
    """Kernel target for Int16 products, with the functions that emit code for it."""

    shapes: dict[int, int]
    """Blocks -> most pixels of a register block."""
    add_products: Callable[[IRBuilder, Value, Value, Value], Any]
    """Return the sums with the products of pairs of weights and inputs added."""
    carry: Callable[[IRBuilder, Value, Value], Any]
    """Return the high parts of sums with the high halves of the low parts added."""


def _add_dot_products(b: IRBuilder, total: Value, weights: Value, inputs: Value) -> Any:
    operands = b.bitcast(weights, INT32S), b.bitcast(inputs, INT32S)
    return call_intrinsic(b, "x86.avx512.vpdpwssd.512", INT32S, total, *operands)


VNNI = Int16Target(
    {2: 6, 1: 8},
    _add_dot_products,
    lambda b, high, total: _add_dot_products(b, high, total, Constant(_PAIRS, [0, 1] * LANES)),
)
"""AVX-512 VNNI: one instruction adds products of pairs, or high halves, to a sum.

Two vectors for each sum of a register block, and those of a step, fill 32 registers.
"""
PORTABLE = Int16Target(
    {1: 4},
    lambda b, total, weights, inputs: b.add(total, _multiply_pairs(b, weights, inputs)),
    lambda b, high, total: b.add(high, b.ashr(total, make_splat_constant(INT32S, 16))),
)
"""Any processor: products of pairs widened to 32 bits."""

_target = VNNI if FEATURES.issuperset(TARGETS["vnni"]) else PORTABLE


def _unsigned_min(b: IRBuilder, one: Value, other: Value) -> Any:
    return b.select(b.icmp_unsigned("<", one, other), one, other)


def _count_chunks(b: IRBuilder, count: Value, size: Value) -> Any:
    """Return ``ceil(count / size)``."""
    return b.udiv(b.add(count, b.sub(size, make_int_constant(1))), size)


def _emit_block(
    b: IRBuilder,
    pixels: int,
    blocks: int,
    offsets: Value,
    window: WindowRows,
    steps: Value,
    weights: Value,
    block_stride: Value,
    out: Value,
    out_stride: Value,
) -> None:
    """Compute the sums of one register block, carried after ``steps`` steps and after each run."""
    low_bits = make_splat_constant(INT32S, 0xFFFF)
    corners = load_corners(b, window, offsets, pixels)
    sum_count = pixels * blocks
    chunks = _count_chunks(b, window.steps, steps)

    def emit_run(position: Value, weights_at: Value, *before: Value) -> list[Any]:
        over_chunks = EmittedLoop(b, chunks, [window.steps, position, weights_at, *before])
        left, position, weights_at, *sums = over_chunks.values
        count = _unsigned_min(b, steps, left)
        over_steps = EmittedLoop(b, count, [position, weights_at, *sums[:sum_count]])
        position, weights_at, *totals = over_steps.values
        values = [
            load(b, add_offset(b, weights_at, n, block_stride), _PAIRS, 2) for n in range(blocks)
        ]
        added = []
        for p, corner in enumerate(corners):
            inputs = b.bitcast(splat(b, load(b, b.add(corner, position), I32, 2)), _PAIRS)
            for n in range(blocks):
                added.append(_target.add_products(b, totals[p * blocks + n], values[n], inputs))
        after = [
            b.add(position, make_int_constant(4)),
            b.add(weights_at, make_int_constant(STEP_BYTES)),
            *added,
        ]
        position, weights_at, *totals = over_steps.end(after)
        carried = zip(sums[sum_count:], totals, strict=True)
        highs = [_target.carry(b, high, total) for high, total in carried]
        lows = [b.and_(total, low_bits) for total in totals]
        return over_chunks.end([b.sub(left, count), position, weights_at, *lows, *highs])[2:]

    initial = [make_zero_constant(INT32S)] * (2 * sum_count)
    _, *sums = emit_run_loops(b, window, make_int_constant(0), [weights, *initial], emit_run)
    shift = make_splat_constant(_WIDE_SUMS, 16)
    for i, (low, high) in enumerate(zip(sums[:sum_count], sums[sum_count:], strict=True)):
        total = b.add(b.shl(b.sext(high, _WIDE_SUMS), shift), b.sext(low, _WIDE_SUMS))
        to = add_offset(b, out, i // blocks, out_stride)
        store(b, total, add_offset(b, to, 8 * LANES * (i % blocks)), 8)


def _emit_products(b: IRBuilder, pixels: Value, blocks: Value, *operands: Any) -> Any:
    """Compute the sums of a register block of one of the target's shapes."""
    cases = {
        n * MAX_PIXELS + p: partial(_emit_block, b, p, n, *operands)
        for n, most in _target.shapes.items()
        for p in range(1, most + 1)
    }
    return emit_switch(b, b.add(b.mul(blocks, make_int_constant(MAX_PIXELS)), pixels), cases)


def _emit_bounds(
    b: IRBuilder, weights: Value, runs: Value, run_steps: Value, steps: Value, bounds: Value
) -> Any:
    """Compute each lane's largest sums over ``steps`` steps of weights.

    They are the sum of the magnitudes of one sign, that of all magnitudes, and that of squares.
    """
    ones, no_sums = make_splat_constant(_PAIRS, 1), [make_zero_constant(INT32S)] * 3
    chunks = _count_chunks(b, run_steps, steps)
    over_runs = EmittedLoop(b, runs, [weights, *no_sums])
    over_chunks = EmittedLoop(b, chunks, [run_steps, *over_runs.values])
    left, weights_at, *most = over_chunks.values
    count = _unsigned_min(b, steps, left)
    over_steps = EmittedLoop(b, count, [weights_at, *no_sums])
    weights_at, positive, negative, squares = over_steps.values
    value = load(b, weights_at, _PAIRS, 2)
    above = emit_signed_max(b, value, make_zero_constant(_PAIRS))
    added = [
        b.add(positive, _multiply_pairs(b, above, ones)),
        b.sub(negative, _multiply_pairs(b, b.sub(value, above), ones)),
        b.add(squares, _sum_squares(b, value)),
    ]
    weights_at, *sums = over_steps.end([b.add(weights_at, make_int_constant(STEP_BYTES)), *added])
    found = emit_signed_max(b, *sums[:2]), b.add(*sums[:2]), sums[2]
    most = [emit_signed_max(b, *two) for two in zip(found, most, strict=True)]
    most = over_runs.end(over_chunks.end([b.sub(left, count), weights_at, *most])[1:])[1:]
    for row, bound in enumerate(most):
        store(b, bound, add_offset(b, bounds, STEP_BYTES * row), 4)
    return make_int_constant(0)


def _sum_squares(b: IRBuilder, values: Value) -> Any:
    """Return an upper bound of the sum of two squares divided by 256, as an unsigned number."""
    squares = _multiply_pairs(b, values, values)
    shifted = b.lshr(squares, make_splat_constant(squares.type, 8))
    return b.add(shifted, make_splat_constant(squares.type, 1))


def _emit_energy(b: IRBuilder, inputs: Value, granules: Value, known: Value) -> Any:
    """Return the maximum of ``known`` and of the sums of squares of GRANULE inputs."""
    lanes, first = GRANULE // 2, Constant(I32, 0)
    most = b.insert_element(
        make_zero_constant(make_int_vector_type(32, lanes)), b.trunc(known, I32), first
    )
    loop = EmittedLoop(b, granules, [inputs, most])
    at, most = loop.values
    sums = _sum_squares(b, load(b, at, make_int_vector_type(16, GRANULE), 2))
    distance = lanes // 2
    while distance:
        sums = b.add(sums, shuffle(b, sums, sums, [i ^ distance for i in range(lanes)]))
        distance //= 2
    _, most = loop.end([b.add(at, make_int_constant(2 * GRANULE)), emit_signed_max(b, most, sums)])
    return b.zext(b.extract_element(most, first), I64)


_products: Any = define_function("products_int16", _emit_products)
_bounds: Any = define_function("bounds_int16", _emit_bounds)
_energy: Any = define_function("energy_int16", _emit_energy)
_MAX_PIXELS_OF = np.array([0, *(_target.shapes.get(n, 0) for n in (1, 2))], np.int64)
"""Blocks -> most pixels of a register block; 0 if there is none of so many blocks."""


@jit
def compute_products_int16(
    inputs: Int16s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    steps: Int,
    weights: Int16s,
    start: Int,
    pixels: Int,
    out: Int64s,
) -> None:
    """Write the Int16 sums of products of windows and weights to ``out`` [pixels, lanes].

    The sums are exact if the products of ``steps`` steps are at most MAX_PRODUCTS.

    Parameters
    ----------
    inputs, base
        int16, and the byte to which offsets are added.
    offsets
        int64 [pixels] in bytes.
    window
        Its strides are in bytes, its length in elements.
    steps, pixels
        Number of steps per sum, and of pixels.
    weights, start
        int16, blocks from element ``start`` as the instruction set stores them.
    out
        int64 [pixels or more, blocks * 16].
    """
    rows = make_window_rows(get_address(inputs) + base, window, 2)
    stride = rows.rows * rows.runs * rows.steps * STEP_BYTES
    pixel, row = get_address(offsets), 8 * out.shape[1]
    block, to = get_address(weights) + 2 * start, get_address(out)
    left = out.shape[1] // LANES
    while left > 0:
        blocks = np.int64(2 if left > 1 and _MAX_PIXELS_OF[2] > 0 else 1)
        parts = (pixels + _MAX_PIXELS_OF[blocks] - 1) // _MAX_PIXELS_OF[blocks]
        p = np.int64(0)
        while p < pixels:
            count = (pixels - p + parts - 1) // parts
            read = (pixel + 8 * p, rows, steps, block, stride)
            _products((count, blocks, *read, to + p * row, row))
            p += count
            parts -= 1
        left -= blocks
        block += blocks * stride
        to += blocks * (8 * LANES)


@jit
def bound_energy(inputs: Int16s, start: Int, granules: Int, known: Int) -> Any:
    """Return an upper bound of the sums of 16 squared inputs, divided by 256; at least ``known``.

    ``inputs`` are int16, granules from element ``start``; ``known`` is returned if it is larger.
    """
    return _energy((get_address(inputs) + 2 * start, granules, known))


_MIDDLE = 3
"""Level to begin with, at which carries take a fifth of the time."""
MIDDLE_STEPS = 1 << _MIDDLE
"""Steps between carries at the middle level."""
_LOW_WORD: Any = np.int64((1 << 32) - 1)
_MAX_SQUARES: Any = np.int64(((1 << 23) - (1 << 8)) ** 2)
"""Largest product of both sums of squares, each divided by 256."""


class CarrySearch(NamedTuple):
    """Search for the number of steps between carries: weights, input range and workspace."""

    weights: Int16s
    start: Int
    """First element of the weights."""
    runs: Int
    run_steps: Int
    """Steps in each of the runs of weights."""
    low: Int
    high: Int
    """Range of the inputs, which includes 0."""
    is_cached: bool
    """Whether the bounds are kept for the next search; if not, fewer are computed."""
    bounds: Int64s
    """int64 [2 * LEVELS]: bounds of the weights, -1 where not computed yet."""
    workspace: Int32s
    """int32 [3 * LANES]"""


@jit
def _compute_bounds(s: CarrySearch, level: Int) -> None:
    """Store the bounds of one level, over all lanes."""
    address, workspace = get_address(s.weights) + 2 * s.start, s.workspace
    _bounds((address, s.runs, s.run_steps, np.int64(1) << level, get_address(workspace)))
    one_sign, all_weights, squares = np.int64(0), np.int64(0), np.int64(0)
    for lane in range(LANES):
        one_sign = max(one_sign, np.int64(workspace[lane]))
        all_weights = max(all_weights, np.int64(workspace[LANES + lane]))
        squares = max(squares, np.int64(workspace[2 * LANES + lane]))
    s.bounds[LEVELS + level] = squares
    s.bounds[level] = one_sign << np.int64(32) | all_weights


@jit
def _is_exact(s: CarrySearch, energy: Int, level: Int) -> Any:
    """Return whether the products of a level's steps are at most MAX_PRODUCTS."""
    bounds = s.bounds
    # Several threads may compute the same bounds; either number may be visible first.
    if bounds[level] < 0 or bounds[LEVELS + level] < 0:
        _compute_bounds(s, level)
    one_sign, all_weights = bounds[level] >> np.int64(32), bounds[level] & _LOW_WORD
    less, more = min(s.high, -s.low), max(s.high, -s.low)
    if less * all_weights + (more - less) * one_sign <= MAX_PRODUCTS:
        return True
    squares = energy << max(level - _MIDDLE, 0)
    return energy >= 0 and squares * bounds[LEVELS + level] <= _MAX_SQUARES


@jit
def find_carry_steps(s: CarrySearch, energy: Int) -> Any:
    """Return the steps between carries for which no sum can overflow, or 0 if 1 step may.

    ``energy`` is the bound of :func:`bound_energy` for the inputs of any MIDDLE_STEPS steps, or
    negative if it is not known.
    """
    level = np.int64(_MIDDLE)
    while not _is_exact(s, energy, level):
        if level == 0:
            return np.int64(0)
        level -= 1
    if s.is_cached and level == _MIDDLE:
        while level < LEVELS - 1 and _is_exact(s, energy, level + 1):
            level += 1
    return np.int64(1) << level
