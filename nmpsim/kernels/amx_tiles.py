"""Sums of products in tiles of AMX, as LLVM IR: sixteen pixels by sixteen channels at a time.

A tile has up to sixteen rows of 64 bytes. One of inputs holds 64 of each pixel; one of weights lies
in memory as the instruction set has them: sixteen steps of a block, four inputs by sixteen channels
each. ``tdpbssd`` adds products of signed bytes modulo 2^32, so nothing has to be taken back.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nmpsim.kernels.vector_code import (
    I32,
    I64,
    Loop,
    ahead,
    constant,
    declared,
    load,
    splat,
    store,
    vector,
)

SIDE = 16
"""Rows of a tile, and numbers in a row of sums."""
ROW_BYTES = 64
"""Inputs of a pixel in a tile; bytes of any row."""
TILE_BYTES = SIDE * ROW_BYTES
MOST = 2
"""Tiles of pixels, and of channels, whose sums are added up at the same time: of eight tiles, four
hold sums, two inputs, two weights."""
_INPUTS, _WEIGHTS, _TILES = MOST * MOST, MOST * MOST + MOST, 8
_I8, _ROW = ir.IntType(8), vector(8, ROW_BYTES)
_POINTER, _NOTHING = _I8.as_pointer(), ir.VoidType()
_WIDTHS, _HEIGHTS = 16, 48
"""Bytes of a configuration: two for the width of each tile, one for its rows."""


def _instruction(b: ir.IRBuilder, name: str, *given: Any) -> None:
    """One of AMX; tiles are numbered."""
    arguments = [_I8(one) if isinstance(one, int) else one for one in given]
    kind = ir.FunctionType(_NOTHING, [one.type for one in arguments])
    b.call(declared(b, kind, f"llvm.x86.{name}"), arguments)


def _load_tile(b: ir.IRBuilder, tile: int, address: ir.Value, stride: ir.Value) -> None:
    _instruction(b, "tileloadd64", tile, b.inttoptr(address, _POINTER), stride)


def emit_configure(b: ir.IRBuilder, room: ir.Value, pixels: ir.Value) -> Any:
    """Tiles of some pixels, until they are released; 64 bytes at ``room`` say so.

    All that a thread had in tiles is lost.
    """
    fixed = [0] * ROW_BYTES
    fixed[0] = 1  # the kind of configuration
    fixed[_WIDTHS : _WIDTHS + 2 * _TILES : 2] = [ROW_BYTES] * _TILES
    fixed[_HEIGHTS : _HEIGHTS + _TILES] = [SIDE] * _TILES
    varies = [_HEIGHTS <= i < _HEIGHTS + _WEIGHTS for i in range(ROW_BYTES)]
    chosen = ir.Constant(ir.VectorType(ir.IntType(1), ROW_BYTES), varies)
    rows = splat(b, b.trunc(pixels, _I8), ROW_BYTES)
    store(b, b.select(chosen, rows, ir.Constant(_ROW, fixed)), room, 1)
    _instruction(b, "ldtilecfg", b.inttoptr(room, _POINTER))
    return constant(0)


def emit_release(b: ir.IRBuilder, _: ir.Value) -> Any:
    """The thread has no tiles any more, and nothing to be saved when it is interrupted."""
    _instruction(b, "tilerelease")
    return constant(0)


def emit_block(
    b: ir.IRBuilder,
    across: int,
    blocks: int,
    inputs: ir.Value,
    input_stride: ir.Value,
    next_inputs: ir.Value,
    chunks: ir.Value,
    weights: ir.Value,
    block_stride: ir.Value,
    has_tail: ir.Value,
    tails: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    next_out: ir.Value,
) -> None:
    """Sums of ``across`` tiles of pixels and some blocks, over chunks of 64 inputs.

    ``next_inputs`` and ``next_out`` are bytes from a tile of pixels to the next one. A last chunk
    has its weights at ``tails``.
    """
    sums = [(p, n, MOST * p + n) for p in range(across) for n in range(blocks)]
    row = constant(ROW_BYTES)

    def add(at: ir.Value, where: ir.Value, stride: ir.Value) -> None:
        for n in range(blocks):
            _load_tile(b, _WEIGHTS + n, ahead(b, where, n, stride), row)
        for p in range(across):
            _load_tile(b, _INPUTS + p, ahead(b, at, p, next_inputs), input_stride)
        for p, n, tile in sums:
            _instruction(b, "tdpbssd", tile, _INPUTS + p, _WEIGHTS + n)

    for _, _, tile in sums:
        _instruction(b, "tilezero", tile)
    loop = Loop(b, chunks, [inputs, weights], may_be_empty=True)
    at, where = loop.values
    add(at, where, block_stride)
    at, _ = loop.end([b.add(at, row), b.add(where, constant(TILE_BYTES))])
    with b.if_then(b.icmp_unsigned("!=", has_tail, constant(0))):
        add(at, tails, constant(TILE_BYTES))
    for p, n, tile in sums:
        to = b.add(ahead(b, out, p, next_out), constant(n * ROW_BYTES))
        _instruction(b, "tilestored64", tile, b.inttoptr(to, _POINTER), out_stride)


def emit_products(b: ir.IRBuilder, across: ir.Value, blocks: ir.Value, *where: ir.Value) -> Any:
    """As ``emit_block``, of one or two by one or two tiles."""
    done = b.append_basic_block("done")
    choice = b.switch(b.add(b.mul(blocks, constant(MOST)), across), done)
    for n, p in ((n, p) for n in range(1, MOST + 1) for p in range(1, MOST + 1)):
        shape = b.append_basic_block("shape")
        choice.add_case(constant(n * MOST + p), shape)
        b.position_at_end(shape)
        emit_block(b, p, n, *where)
        b.branch(done)
    b.position_at_end(done)
    return constant(0)


def emit_gather(
    b: ir.IRBuilder,
    pixels: ir.Value,
    offsets: ir.Value,
    base: ir.Value,
    rows: ir.Value,
    row_stride: ir.Value,
    runs: ir.Value,
    run_stride: ir.Value,
    fours: ir.Value,
    patches: ir.Value,
    patch_stride: ir.Value,
) -> Any:
    """Copy the windows of pixels, each to its patch."""
    over_pixels = Loop(b, pixels, [offsets, patches])
    offset, patch = over_pixels.values
    over_rows = Loop(b, rows, [b.add(base, load(b, offset, I64, 8)), patch])
    over_runs = Loop(b, runs, over_rows.values)
    large = Loop(b, b.lshr(fours, constant(4)), over_runs.values, may_be_empty=True)
    at, to = large.values
    store(b, load(b, at, _ROW, 1), to, 1)
    left = large.end([b.add(at, constant(ROW_BYTES)), b.add(to, constant(ROW_BYTES))])
    small = Loop(b, b.and_(fours, constant(15)), left, may_be_empty=True)
    at, to = small.values
    store(b, load(b, at, I32, 1), to, 1)
    _, to = small.end([b.add(at, constant(4)), b.add(to, constant(4))])
    _, to = over_runs.end([b.add(over_runs.values[0], run_stride), to])
    over_rows.end([b.add(over_rows.values[0], row_stride), to])
    over_pixels.end([b.add(offset, constant(8)), b.add(patch, patch_stride)])
    return constant(0)


def emit_pack(
    b: ir.IRBuilder,
    blocks: ir.Value,
    weights: ir.Value,
    block_stride: ir.Value,
    steps: ir.Value,
    tails: ir.Value,
) -> Any:
    """Copy the last steps of each block, 1 to 15 of them, and let zeros follow up to sixteen."""
    over_blocks = Loop(b, blocks, [weights, tails])
    where, tail = over_blocks.values
    row = constant(ROW_BYTES)
    copied = Loop(b, steps, [where, tail])
    at, to = copied.values
    store(b, load(b, at, _ROW, 1), to, 1)
    _, to = copied.end([b.add(at, row), b.add(to, row)])
    cleared = Loop(b, b.sub(constant(SIDE), steps), [to])
    store(b, ir.Constant(_ROW, None), cleared.values[0], 1)
    cleared.end([b.add(cleared.values[0], row)])
    over_blocks.end([b.add(where, block_stride), ahead(b, tail, TILE_BYTES)])
    return constant(0)
