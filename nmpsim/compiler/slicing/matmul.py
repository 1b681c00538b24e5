"""Products of two matrices that are both activations."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.compiler.slicing.context import Context
from nmpsim.compiler.slicing.conv import SUM_BYTES
from nmpsim.compiler.slicing.plan import (
    Arena,
    Box,
    Command,
    LayerPlan,
    TileStep,
    align,
    chunks,
    halvings,
    load,
    split,
    spread,
    store,
    too_large,
)
from nmpsim.compiler.slicing.weighted import clip_words
from nmpsim.compiler.work import Operation
from nmpsim.isa.table import Unit
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_MIDDLE, PART_ONLY


def plan_matmul(op: Operation, context: Context) -> LayerPlan:
    """Plan a matrix product; cores form a grid of rows and columns of the result."""
    target, lhs, rhs = op.operands
    rows, inner = lhs.shape
    columns = rhs.shape[1]
    wide = target.element_bytes
    words = {
        "element": target.element,
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        **context.profile.matmul(lhs, rhs, target, context.place),
        "out_offset": target.offset,
        **clip_words(op, target),
        "event_stride_y": columns,
    }
    left, right, result = (context.address_of(v) for v in (lhs, rhs, op.output))

    def steps(down: tuple[int, int], across: tuple[int, int]) -> Iterator[TileStep]:
        size = _tile(op, down[1] - down[0], across[1] - across[0], inner, context)
        arena = Arena(context.config)
        lefts, rights, outs = map(arena.take_twice, _buffer_sizes(size, wide))
        partial = arena.take(SUM_BYTES * wide * size.rows * size.columns)
        number = tile = 0
        for top, bottom in chunks(*down, size.rows):
            for first, last in chunks(*across, size.columns):
                for begin, end in chunks(0, inner, size.inner):
                    k, out = number % 2, outs[tile % 2]
                    h, w, d = bottom - top, last - first, end - begin
                    kind = {(True, True): PART_ONLY, (True, False): PART_FIRST}.get(
                        (begin == 0, end == inner), PART_LAST if end == inner else PART_MIDDLE
                    )
                    compute = Command(
                        "nmp.gemm",
                        {
                            **words,
                            "lhs": lefts[k],
                            "rhs": rights[k],
                            "output": out,
                            "rows": h,
                            "inner": d,
                            "columns": w,
                            "lhs_stride": d * wide,
                            "rhs_stride": w * wide,
                            "out_stride": w * wide,
                            "part": kind,
                            "partial": partial,
                            "event_origin": top * columns + first,
                        },
                    )
                    loads = (
                        load(_box(left, lefts[k], (top, begin), (h, d), inner, wide)),
                        load(_box(right, rights[k], (begin, first), (d, w), columns, wide)),
                    )
                    box = _box(result, out, (top, first), (h, w), columns, wide)
                    yield TileStep(loads, (compute,), (store(box),) if end == inner else ())
                    number += 1
                tile += 1

    down = min(rows, context.config.cores_count)
    across = min(columns, context.config.cores_count // down)
    cores = [tuple(steps(r, c)) for r in split(rows, down) for c in split(columns, across)]
    return LayerPlan(Unit.MAC, spread(cores, context.config), rows * inner * columns)


def _box(
    dram: int, spm: int, corner: tuple[int, int], size: tuple[int, int], columns: int, wide: int
) -> Box:
    """A tile of a matrix that has ``columns`` columns; corner and size are (rows, columns)."""
    run, row = size[1] * wide, columns * wide
    return Box(dram + corner[0] * row + corner[1] * wide, spm, run, size[0], 1, row, 0, run)


@attrs.frozen
class _Size:
    rows: int
    columns: int
    inner: int


def _buffer_sizes(size: _Size, wide: int) -> tuple[int, int, int]:
    """Bytes of the tiles of both sides and of the result."""
    return (
        size.rows * size.inner * wide,
        size.inner * size.columns * wide,
        size.rows * size.columns * wide,
    )


def _tile(op: Operation, rows: int, columns: int, inner: int, context: Context) -> _Size:
    """The size of a tile: as deep, then as wide, then as high as fits."""
    needs, wide = 0, op.output.element_bytes
    for deep in halvings(inner):
        for across in halvings(columns):
            for high in halvings(rows):
                size = _Size(high, across, deep)
                needs = 2 * sum(map(align, _buffer_sizes(size, wide)))
                needs += align(SUM_BYTES * wide * high * across)
                if needs <= context.config.scratchpad_bytes:
                    return size
    raise too_large(f"%{op.instruction.name}", needs, context.config, context.place)
