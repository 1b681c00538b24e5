"""Products of two matrices that are both activations."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.context import Candidate, Context, Options, best_first
from nmpsim.compiler.tiling.conv_scheme import SUM_BYTES
from nmpsim.compiler.tiling.cost_model import Memory, RoughCost, Traffic, box_cycles
from nmpsim.compiler.tiling.plan import (
    Arena,
    Command,
    LayerPlan,
    StridedRuns,
    TileStep,
    align,
    chunks,
    counts,
    halvings,
    load,
    plan_of,
    split,
    store,
    too_large,
)
from nmpsim.compiler.tiling.weighted import clip_words
from nmpsim.isa.table import Unit
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_MIDDLE, PART_ONLY
from nmpsim.timing.compute import gemm_cycles


@attrs.frozen
class MatmulScheme:
    """A grid of cores; tiles are the largest that fit."""

    down: int
    across: int

    @property
    def cores(self) -> int:
        """Cores with work."""
        return self.down * self.across

    @property
    def label(self) -> str:
        """For a reader: cores along rows and columns."""
        return f"{self.down}x{self.across} cores, the largest tiles"


def matmul_options(op: Operation, context: Context) -> Options[MatmulScheme]:
    """The tilings of a matrix product; cores form a grid of rows and columns of the result."""
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

    def schemes() -> Iterator[MatmulScheme]:
        for down in counts(rows, context.config.cores_count):
            for across in counts(columns, context.config.cores_count // down):
                yield MatmulScheme(down, across)

    def rough_cost(scheme: MatmulScheme, memory: Memory) -> RoughCost:
        h, w = -(-rows // scheme.down), -(-columns // scheme.across)
        size = _tile(op, h, w, inner, context)
        high, wider, parts = -(-h // size.rows), -(-w // size.columns), -(-inner // size.inner)
        steps = high * wider * parts
        left_box = (size.inner * wide, size.rows, inner * wide, 1, 0)
        right_box = (size.columns * wide, size.inner, columns * wide, 1, 0)
        out_box = (size.columns * wide, size.rows, columns * wide, 1, 0)
        compute = gemm_cycles(high * size.rows, inner, w, target.element, memory.costs)
        loads = tuple(Traffic(steps, box_cycles(memory, *box)) for box in (left_box, right_box))
        store_traffic = Traffic(high * wider, box_cycles(memory, *out_box))
        return RoughCost(scheme.cores, compute, steps, loads, store_traffic)

    def ranked(memory: Memory) -> list[Candidate[MatmulScheme]]:
        every = list(schemes())
        return best_first(every, [rough_cost(one, memory) for one in every])

    def build(scheme: MatmulScheme, _: bool) -> LayerPlan:
        downs, acrosses = split(rows, scheme.down), split(columns, scheme.across)
        cores = [tuple(steps(r, c)) for r in downs for c in acrosses]
        return plan_of(Unit.MAC, cores, context.config, rows * inner * columns)

    down = min(rows, context.config.cores_count)
    simple = MatmulScheme(down, min(columns, context.config.cores_count // down))
    places = tuple(at % context.config.dram_row_bytes for at in (left, right, result))
    return Options(
        ("matmul", rows, inner, columns, wide, places),
        simple,
        ranked,
        build,
    )


def _box(
    dram: int, spm: int, corner: tuple[int, int], size: tuple[int, int], columns: int, wide: int
) -> StridedRuns:
    """A tile of a matrix that has ``columns`` columns; corner and size are (rows, columns)."""
    run, row = size[1] * wide, columns * wide
    return StridedRuns(dram + corner[0] * row + corner[1] * wide, spm, run, size[0], 1, row, 0, run)


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
