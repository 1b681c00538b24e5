"""Sums of products in AMX tiles, as LLVM IR: sixteen pixels by sixteen channels at a time.

A tile has up to sixteen rows of 64 bytes. A row of inputs holds 64 inputs of a pixel. Weights are
loaded as the instruction set stores them: a row holds four inputs of sixteen channels.
``tdpbssd`` adds products of signed bytes modulo 2^32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.kernels.vector_code import (
    I32,
    I64,
    Loop,
    WindowRows,
    add_offset,
    declare_function,
    emit_run_loops,
    load,
    make_int_constant,
    make_int_vector_type,
    make_zero_constant,
    splat,
    store,
    switch,
)

SIDE = 16
"""Rows of a tile, and sums in a row."""
ROW_BYTES = 64
"""Bytes of a row: inputs of one pixel, or four inputs of sixteen channels."""
TILE_BYTES = SIDE * ROW_BYTES
MAX_TILES = 2
"""Tiles of pixels, and of channels, in a register block: of the eight tiles, four hold sums, two
inputs and two weights."""
_INPUTS, _WEIGHTS, _TILES = MAX_TILES * MAX_TILES, MAX_TILES * MAX_TILES + MAX_TILES, 8
_I8, _ROW = ir.IntType(8), make_int_vector_type(8, ROW_BYTES)
_POINTER = _I8.as_pointer()
_WIDTHS, _HEIGHTS = 16, 48
"""Bytes of a configuration at which the widths (two bytes a tile) and heights (one) begin."""


def _emit_instruction(b: IRBuilder, name: str, *operands: Any) -> None:
    """Emit an AMX instruction; integers are numbers of tiles."""
    arguments = [_I8(one) if isinstance(one, int) else one for one in operands]
    kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
    b.call(declare_function(b, kind, f"llvm.x86.{name}"), arguments)


def _load_tile(b: IRBuilder, tile: int, address: Value, stride: Value) -> None:
    _emit_instruction(b, "tileloadd64", tile, b.inttoptr(address, _POINTER), stride)


def emit_configure(b: IRBuilder, configuration: Value, pixels: Value) -> None:
    """Emit code that configures the thread's tiles for ``pixels`` pixels.

    It needs 64 bytes at ``configuration``. The tiles lose their contents.
    """
    fixed = [0] * ROW_BYTES
    fixed[0] = 1  # the kind of configuration
    fixed[_WIDTHS : _WIDTHS + 2 * _TILES : 2] = [ROW_BYTES] * _TILES
    fixed[_HEIGHTS : _HEIGHTS + _TILES] = [SIDE] * _TILES
    depends_on_pixels = [_HEIGHTS <= i < _HEIGHTS + _WEIGHTS for i in range(ROW_BYTES)]
    mask = Constant(make_int_vector_type(1, ROW_BYTES), depends_on_pixels)
    rows = splat(b, b.trunc(pixels, _I8), ROW_BYTES)
    store(b, b.select(mask, rows, Constant(_ROW, fixed)), configuration, 1)
    _emit_instruction(b, "ldtilecfg", b.inttoptr(configuration, _POINTER))


def emit_release(b: IRBuilder, *_: Value) -> None:
    """Emit code that releases the thread's tiles, which speeds up context switches."""
    _emit_instruction(b, "tilerelease")


def emit_block(
    b: IRBuilder,
    across: int,
    blocks: int,
    inputs: Value,
    input_stride: Value,
    next_inputs: Value,
    chunks: Value,
    weights: Value,
    block_stride: Value,
    has_tail: Value,
    tails: Value,
    out: Value,
    out_stride: Value,
    next_out: Value,
) -> None:
    """Emit code that computes the sums of ``across`` tiles of pixels and ``blocks`` channel blocks.

    ``chunks`` are of 64 inputs; a last, shorter chunk has its weights at ``tails``. ``next_inputs``
    and ``next_out`` are bytes from one tile of pixels to the next.
    """
    sums = [(p, n, MAX_TILES * p + n) for p in range(across) for n in range(blocks)]
    row = make_int_constant(ROW_BYTES)

    def add_products(inputs_at: Value, weights_at: Value, stride: Value) -> None:
        for n in range(blocks):
            _load_tile(b, _WEIGHTS + n, add_offset(b, weights_at, n, stride), row)
        for p in range(across):
            _load_tile(b, _INPUTS + p, add_offset(b, inputs_at, p, next_inputs), input_stride)
        for p, n, tile in sums:
            _emit_instruction(b, "tdpbssd", tile, _INPUTS + p, _WEIGHTS + n)

    for _, _, tile in sums:
        _emit_instruction(b, "tilezero", tile)
    loop = Loop(b, chunks, [inputs, weights], [ROW_BYTES, TILE_BYTES], may_be_empty=True)
    inputs_at, weights_at = loop.values
    add_products(inputs_at, weights_at, block_stride)
    inputs_at, _ = loop.end()
    with b.if_then(b.icmp_unsigned("!=", has_tail, make_int_constant(0))):
        add_products(inputs_at, tails, make_int_constant(TILE_BYTES))
    for p, n, tile in sums:
        to = b.add(add_offset(b, out, p, next_out), make_int_constant(n * ROW_BYTES))
        _emit_instruction(b, "tilestored64", tile, b.inttoptr(to, _POINTER), out_stride)


def emit_products(b: IRBuilder, across: Value, blocks: Value, *operands: Value) -> Any:
    """Emit the code of :func:`emit_block` for one or two tiles of pixels and one or two blocks."""
    cases = {
        n * MAX_TILES + p: partial(emit_block, b, p, n, *operands)
        for n in range(1, MAX_TILES + 1)
        for p in range(1, MAX_TILES + 1)
    }
    return switch(b, b.add(b.mul(blocks, make_int_constant(MAX_TILES)), across), cases)


def emit_gather(
    b: IRBuilder,
    pixels: Value,
    offsets: Value,
    window: WindowRows,
    patches: Value,
    patch_stride: Value,
) -> None:
    """Emit code that copies each pixel's window into a patch of contiguous bytes."""

    def copy_run(source: Value, patch: Value) -> list[Any]:
        at = [source, patch]
        rows, words = (
            b.lshr(window.steps, make_int_constant(4)),
            b.and_(window.steps, make_int_constant(15)),
        )
        for count, kind, size in ((rows, _ROW, ROW_BYTES), (words, I32, 4)):
            loop = Loop(b, count, at, [size, size], may_be_empty=True)
            store(b, load(b, loop.values[0], kind, 1), loop.values[1], 1)
            at = loop.end()
        return at[1:]

    over_pixels = Loop(b, pixels, [offsets, patches], [8, patch_stride])
    offset, patch = over_pixels.values
    emit_run_loops(b, window, b.add(window.base, load(b, offset, I64, 8)), [patch], copy_run)
    over_pixels.end()


def emit_pack_tails(
    b: IRBuilder, blocks: Value, weights: Value, block_stride: Value, steps: Value, tails: Value
) -> None:
    """Emit code that copies the last 1 to 15 steps of each block of weights, padded to sixteen."""
    over_blocks = Loop(b, blocks, [weights, tails], [block_stride, TILE_BYTES])
    copied = Loop(b, steps, over_blocks.values, [ROW_BYTES, ROW_BYTES])
    at, to = copied.values
    store(b, load(b, at, _ROW, 1), to, 1)
    _, to = copied.end()
    cleared = Loop(b, b.sub(make_int_constant(SIDE), steps), [to], [ROW_BYTES])
    store(b, make_zero_constant(_ROW), cleared.values[0], 1)
    cleared.end()
    over_blocks.end()
