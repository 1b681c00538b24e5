"""Products of two matrices that are both activations."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.compiler import numerics
from nmpsim.compiler.slicing.context import Context
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
from nmpsim.compiler.slicing.weighted import clip_words, scale_words
from nmpsim.compiler.work import Operation
from nmpsim.isa.table import Unit
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_MIDDLE, PART_ONLY


def plan_matmul(op: Operation, context: Context) -> LayerPlan:
    """Plan a matrix product; cores form a grid of rows and columns of the result."""
    target, lhs, rhs = op.operands
    rows, inner = lhs.shape
    columns = rhs.shape[1]
    ratio = numerics.quotient(numerics.product(lhs.scale, rhs.scale), target.scale)
    words = {
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        **scale_words("out", numerics.scale_of(ratio, context.place)),
        "out_offset": target.offset,
        **clip_words(op, target),
        "event_stride_y": columns,
    }
    left, right, result = (context.address_of(v) for v in (lhs, rhs, op.output))

    def steps(down: tuple[int, int], across: tuple[int, int]) -> Iterator[TileStep]:
        high, wide, deep = _tile(op, down[1] - down[0], across[1] - across[0], inner, context)
        arena = Arena(context.config)
        lefts, rights = arena.take_twice(high * deep), arena.take_twice(deep * wide)
        outs, partial = arena.take_twice(high * wide), arena.take(4 * high * wide)
        number = tile = 0
        for top, bottom in chunks(*down, high):
            for first, last in chunks(*across, wide):
                for begin, end in chunks(0, inner, deep):
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
                            "lhs_stride": d,
                            "rhs_stride": w,
                            "out_stride": w,
                            "part": kind,
                            "partial": partial,
                            "event_origin": top * columns + first,
                        },
                    )
                    loads = (
                        load(Box(left + top * inner + begin, lefts[k], d, h, 1, inner, 0, d, 0)),
                        load(
                            Box(right + begin * columns + first, rights[k], w, d, 1, columns, 0, w)
                        ),
                    )
                    box = Box(result + top * columns + first, out, w, h, 1, columns, 0, w, 0)
                    yield TileStep(loads, (compute,), (store(box),) if end == inner else ())
                    number += 1
                tile += 1

    down = min(rows, context.config.cores_count)
    across = min(columns, context.config.cores_count // down)
    cores = [tuple(steps(r, c)) for r in split(rows, down) for c in split(columns, across)]
    return LayerPlan(Unit.MAC, spread(cores, context.config), rows * inner * columns)


def _tile(
    op: Operation, rows: int, columns: int, inner: int, context: Context
) -> tuple[int, int, int]:
    """Rows, columns and depth of a tile: as deep, then as wide, then as high as fits."""
    needs = 0
    for deep in halvings(inner):
        for wide in halvings(columns):
            for high in halvings(rows):
                needs = 2 * (align(high * deep) + align(deep * wide) + align(high * wide)) + align(
                    4 * high * wide
                )
                if needs <= context.config.scratchpad_bytes:
                    return high, wide, deep
    raise too_large(f"%{op.instruction.name}", needs, context.config, context.place)
