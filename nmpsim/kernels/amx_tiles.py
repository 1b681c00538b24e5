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
    EmittedLoop,
    WindowRows,
    add_offset,
    declare_function,
    emit_run_loops,
    emit_switch,
    load,
    make_int_constant,
    make_int_vector_type,
    make_zero_constant,
    splat,
    store,
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


def emit_tile_configuration(b: IRBuilder, configuration: Value, pixels: Value) -> Any:
    """Emit ``ldtilecfg``, which clears the AMX tiles and configures them for ``pixels`` rows.

    Tiles lose what they held.
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
    return make_int_constant(0)


def emit_tile_release(b: IRBuilder, *_: Value) -> Any:
    """Emit ``tilerelease``, after which a context switch need not save the AMX tiles."""
    _emit_instruction(b, "tilerelease")
    return make_int_constant(0)


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
    """Emit code that sums products for ``across`` tiles of pixels and ``blocks`` channel blocks.

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
    loop = EmittedLoop(b, chunks, [inputs, weights], may_be_empty=True)
    inputs_at, weights_at = loop.values
    add_products(inputs_at, weights_at, block_stride)
    inputs_at, _ = loop.end(
        [b.add(inputs_at, row), b.add(weights_at, make_int_constant(TILE_BYTES))]
    )
    with b.if_then(b.icmp_unsigned("!=", has_tail, make_int_constant(0))):
        add_products(inputs_at, tails, make_int_constant(TILE_BYTES))
    for p, n, tile in sums:
        to = b.add(add_offset(b, out, p, next_out), make_int_constant(n * ROW_BYTES))
        _emit_instruction(b, "tilestored64", tile, b.inttoptr(to, _POINTER), out_stride)


def emit_block_dispatch(b: IRBuilder, across: Value, blocks: Value, *operands: Value) -> Any:
    """Emit a switch that selects the code of ``emit_block`` for the tile and block counts."""
    cases = {
        n * MAX_TILES + p: partial(emit_block, b, p, n, *operands)
        for n in range(1, MAX_TILES + 1)
        for p in range(1, MAX_TILES + 1)
    }
    return emit_switch(b, b.add(b.mul(blocks, make_int_constant(MAX_TILES)), across), cases)


def emit_gather(
    b: IRBuilder,
    pixels: Value,
    offsets: Value,
    window: WindowRows,
    patches: Value,
    patch_stride: Value,
) -> Any:
    """Emit code that copies the inputs of each pixel's window to contiguous bytes."""

    def copy_run(source: Value, patch: Value) -> list[Any]:
        large = EmittedLoop(
            b, b.lshr(window.steps, make_int_constant(4)), [source, patch], may_be_empty=True
        )
        at, to = large.values
        store(b, load(b, at, _ROW, 1), to, 1)
        rest = large.end(
            [b.add(at, make_int_constant(ROW_BYTES)), b.add(to, make_int_constant(ROW_BYTES))]
        )
        small = EmittedLoop(b, b.and_(window.steps, make_int_constant(15)), rest, may_be_empty=True)
        at, to = small.values
        store(b, load(b, at, I32, 1), to, 1)
        return small.end([b.add(at, make_int_constant(4)), b.add(to, make_int_constant(4))])[1:]

    over_pixels = EmittedLoop(b, pixels, [offsets, patches])
    offset, patch = over_pixels.values
    emit_run_loops(b, window, b.add(window.base, load(b, offset, I64, 8)), [patch], copy_run)
    over_pixels.end([b.add(offset, make_int_constant(8)), b.add(patch, patch_stride)])
    return make_int_constant(0)


def emit_pack_tails(
    b: IRBuilder, blocks: Value, weights: Value, block_stride: Value, steps: Value, tails: Value
) -> Any:
    """Emit code that copies each block's last 1 to 15 weight steps and pads them with zeros."""
    over_blocks = EmittedLoop(b, blocks, [weights, tails])
    source, tail = over_blocks.values
    row = make_int_constant(ROW_BYTES)
    copied = EmittedLoop(b, steps, [source, tail])
    at, to = copied.values
    store(b, load(b, at, _ROW, 1), to, 1)
    _, to = copied.end([b.add(at, row), b.add(to, row)])
    cleared = EmittedLoop(b, b.sub(make_int_constant(SIDE), steps), [to])
    store(b, make_zero_constant(_ROW), cleared.values[0], 1)
    cleared.end([b.add(cleared.values[0], row)])
    over_blocks.end([b.add(source, block_stride), add_offset(b, tail, TILE_BYTES)])
    return make_int_constant(0)
