"""Planner of products of two matrices that are both activations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.conv import select_part_words
from nmpsim.compiler.tiling.conv_scheme import SUM_BYTES
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost, Traffic, estimate_box_cycles
from nmpsim.compiler.tiling.grid import (
    TileGrid,
    build_grid,
    divide_ranges,
    list_halvings,
    list_part_counts,
    split_evenly,
)
from nmpsim.compiler.tiling.plan import (
    LOAD,
    STORE,
    LayerPlan,
    PlanBuilder,
    align_size,
    make_box_words,
)
from nmpsim.compiler.tiling.weighted import make_clip_words
from nmpsim.isa.table import Unit
from nmpsim.timing.compute import ceil_div, count_gemm_cycles


class MatmulTiling(NamedTuple):
    """Tiling, or array of tilings, of a matrix product: its grid of cores."""

    down: Any
    across: Any

    @property
    def label(self) -> str:
        """Text for reports: the grid of cores."""
        return f"{self.down}x{self.across} cores, the largest tiles"


def make_matmul_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of a matrix product of two activations."""
    target, lhs, rhs = op.operands
    (rows, inner), columns, wide = lhs.shape, rhs.shape[1], target.element_bytes
    config = context.config
    constant = {
        "element": target.element,
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        **context.profile.get_factor_words(op, context.place),
        "out_offset": target.offset,
        **make_clip_words(op, target),
        "event_stride_y": columns,
    }
    addresses = left, right, result = tuple(map(context.memory.get_address, (lhs, rhs, op.output)))

    def tile_size(rows: int, columns: int) -> tuple[int, int, int]:
        """Return the rows, columns and inner size of a tile: as deep, then as wide as fits."""
        needs = 0
        for deep in list_halvings(inner):
            for across in list_halvings(columns):
                for high in list_halvings(rows):
                    sizes = (high * deep, deep * across, high * across)
                    needs = 2 * sum(align_size(size * wide) for size in sizes)
                    needs += align_size(SUM_BYTES * wide * high * across)
                    if needs <= config.scratchpad_bytes:
                        return high, across, deep
        raise context.make_size_error(needs)

    def core_grid(down: tuple[int, int], across: tuple[int, int]) -> TileGrid:
        shares = (down, across, (0, inner))
        sizes = tile_size(down[1] - down[0], across[1] - across[0])
        ranges = [divide_ranges((share,), size) for share, size in zip(shares, sizes, strict=True)]
        return build_grid(ranges)

    def candidates(memory: DramModel) -> tuple[MatmulTiling, RoughCost]:
        cores = config.cores_count
        grids = [
            (down, across)
            for down in list_part_counts(rows, cores)
            for across in list_part_counts(columns, cores // down)
        ]
        down, across = np.array(grids, np.int64).T
        shares = [(ceil_div(rows, down), ceil_div(columns, across)) for down, across in grids]
        h, w = np.array(shares, np.int64).T
        sizes = [tile_size(*share) for share in shares]
        high, wider, deep = np.array(sizes, np.int64).T
        results = ceil_div(h, high) * ceil_div(w, wider)
        steps = results * ceil_div(inner, deep)
        compute = count_gemm_cycles(
            ceil_div(h, high) * high, inner, w, target.element, memory.costs
        )
        load_left, load_right, store = (
            estimate_box_cycles(memory, width * wide, height, stride * wide)
            for width, height, stride in (
                (deep, high, inner),
                (wider, deep, columns),
                (wider, high, columns),
            )
        )
        loads = Traffic(steps, load_left), Traffic(steps, load_right)
        cost = RoughCost(down * across, compute, steps, loads, Traffic(results, store))
        return MatmulTiling(down, across), cost

    def build(tiling: MatmulTiling, _: bool) -> LayerPlan:
        downs, acrosses = split_evenly(rows, tiling.down), split_evenly(columns, tiling.across)
        grid = TileGrid.concatenate([core_grid(r, c) for r in downs for c in acrosses])
        builder = PlanBuilder(grid, Unit.MAC, config, rows * inner * columns)
        (top, first, begin), (h, w, d) = grid.begin, grid.end - grid.begin
        high, wider, deep = map(grid.compute_core_maxima, (h, w, d))
        left_at, right_at = (
            builder.allocate_buffers(n * wide) for n in (high * deep, deep * wider)
        )
        new_result = grid.find_changes(top, first)
        output_at = builder.allocate_buffers(high * wider * wide, changed=new_result)
        partial = builder.allocate_buffer(SUM_BYTES * wide * high * wider)
        builder.add_instructions(LOAD, _box(left, left_at, (top, begin), (h, d), inner, wide))
        builder.add_instructions(LOAD, _box(right, right_at, (begin, first), (d, w), columns, wide))
        is_last = grid.end[2] == inner
        words = {
            "lhs": left_at,
            "rhs": right_at,
            "output": output_at,
            "rows": h,
            "inner": d,
            "columns": w,
            "lhs_stride": d * wide,
            "rhs_stride": w * wide,
            "out_stride": w * wide,
            "part": select_part_words(begin == 0, is_last),
            "partial": partial[grid.core],
            "event_origin": top * columns + first,
        }
        builder.add_instructions("nmp.gemm", constant | words)
        builder.add_instructions(
            STORE, _box(result, output_at, (top, first), (h, w), columns, wide), is_last
        )
        return builder.build()

    down = min(rows, config.cores_count)
    simple = MatmulTiling(down, min(columns, config.cores_count // down))
    key = ("matmul", rows, inner, columns, wide, context.get_row_offsets(*addresses))
    return TilingOptions(key, simple, candidates, build)


def _box(
    dram: int, spm: Any, corner: tuple[Any, Any], size: tuple[Any, Any], columns: int, wide: int
) -> dict[str, Any]:
    """Return the words of a transfer of a tile; corner and size are (rows, columns)."""
    run, row = size[1] * wide, columns * wide
    address = dram + corner[0] * row + corner[1] * wide
    return make_box_words(address, spm, run, size[0], dram_stride_x=row, spm_stride_x=run)
