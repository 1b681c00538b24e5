"""Planner of operations that process tensors element by element.

Cores divide a range of consecutive elements, and each core divides its share into tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.clip_bounds import get_clip_range, get_input_range
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost, Traffic, estimate_box_cycles
from nmpsim.compiler.tiling.grid import (
    Bounds,
    TileGrid,
    build_grid,
    divide_ranges,
    list_halvings,
    split_evenly,
)
from nmpsim.compiler.tiling.plan import (
    ALIGNMENT,
    LOAD,
    STORE,
    LayerPlan,
    PlanBuilder,
    make_box_words,
)
from nmpsim.compiler.tiling.weighted import make_clip_words
from nmpsim.diagnostics import format_count
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import Unit
from nmpsim.isa.words import (
    ACTIVATION_LEAKY,
    OP_ADD,
    OP_MAX,
    OP_MIN,
    OP_MUL,
    OP_SUB,
    RHS_ELEMENT,
    RHS_INT32,
)
from nmpsim.lir.opcodes import OPCODES, OpcodeKind, find_opcodes
from nmpsim.timing.compute import count_vector_cycles

BINARY = make_exhaustive_table(
    "the operations of nmp.eltwise",
    {
        "elementadd": OP_ADD,
        "elementsub": OP_SUB,
        "elementmax": OP_MAX,
        "elementmin": OP_MIN,
        "elementmul": OP_MUL,
        "batchedadd": OP_ADD,
    },
    find_opcodes(OpcodeKind.PAIR, OpcodeKind.BATCHED_ADD),
)
"""Opcode -> value of the word ``operation`` of ``nmp.eltwise``."""
SIMPLE_TILE = 4096
"""Most elements of a tile without a search; larger ones lengthen the first load and last store."""
TILE_SIZES = np.array([1024, 2048, 4096, 8192, 16384])
TABLE_BYTES = 256


class FlatTiling(NamedTuple):
    """Tiling, or array of tilings, of a range of consecutive elements."""

    cores: Any
    tile: Any
    """Most elements of a tile."""
    unit: Any
    """Tiles begin at multiples of this number of elements."""

    @property
    def label(self) -> str:
        """Text for reports: number of cores, and a tile's elements and alignment."""
        cores = format_count(self.cores, "core")
        return f"{cores}, tiles of {self.tile} elements at multiples of {self.unit}"


@attrs.frozen
class _FlatWork:
    """A range of consecutive elements, and what each element needs."""

    op: Operation
    elements: int
    buffer_bytes: int
    """Bytes of all buffers for each element of a tile."""
    addresses: tuple[int, ...]
    """DRAM addresses of the inputs, then of the result."""
    rows: int = 1
    """Number of times that the range is processed."""


def _options(
    work: _FlatWork,
    context: PlanningContext,
    grid: Callable[[Bounds, int], TileGrid],
    add_commands: Callable[[PlanBuilder], None],
) -> TilingOptions:
    """Return the tilings of a range; ``grid`` takes the cores' shares and the size of a tile."""
    config, wide = context.config, work.op.output.element_bytes
    fit = (config.scratchpad_bytes - 8 * ALIGNMENT) // work.buffer_bytes
    if fit < 1:
        raise context.make_size_error(work.buffer_bytes + 8 * ALIGNMENT)
    row = max(config.dram_row_bytes // wide, ALIGNMENT)

    def candidates(memory: DramModel) -> tuple[FlatTiling, RoughCost]:
        units = list(dict.fromkeys((row, ALIGNMENT)))
        every = np.meshgrid(list_halvings(config.cores_count), units, TILE_SIZES, indexing="ij")
        cores, unit, tile = map(np.ravel, every)
        useful = (unit <= tile) & (tile <= fit) & ((cores - 1) * unit < work.elements)
        cores, unit, tile = cores[useful], unit[useful], tile[useful]
        share = -(-work.elements // (cores * unit)) * unit
        tiles = -(-share // tile) * work.rows
        largest = np.minimum(tile, share)
        moved = Traffic(tiles, estimate_box_cycles(memory, largest * wide, aligned=unit % row == 0))
        compute = count_vector_cycles(tiles, largest, wide - 1, context.costs)
        loads = (moved,) * (len(work.addresses) - 1)
        return FlatTiling(cores, tile, unit), RoughCost(cores, compute, tiles, loads, moved)

    def build(tiling: FlatTiling, _: bool) -> LayerPlan:
        unit = tiling.unit
        shares = split_evenly(-(-work.elements // unit), tiling.cores)
        bounds = tuple((a * unit, min(b * unit, work.elements)) for a, b in shares)
        builder = PlanBuilder(grid(bounds, tiling.tile), Unit.VECTOR, config)
        add_commands(builder)
        return builder.build()

    simple = FlatTiling(config.cores_count, min(fit, SIMPLE_TILE), ALIGNMENT)
    offsets = context.get_row_offsets(*work.addresses)
    opcode = work.op.instruction.opcode
    key = (opcode, work.elements, wide, work.rows, work.buffer_bytes, offsets)
    return TilingOptions(key, simple, candidates, build)


def _flat_options(
    op: Operation,
    inputs: tuple[BufferView, ...],
    copies: int,
    add_compute: Callable[[PlanBuilder, Any, Any, Any], None],
    context: PlanningContext,
) -> TilingOptions:
    """Return the tilings of an operation whose operands all have the shape of the result.

    ``copies`` is the number of buffers of each operand. ``add_compute`` gets a plan's builder, the
    addresses of inputs and result in the scratchpad, and the number of elements of each tile.
    """
    wide = op.output.element_bytes
    addresses = tuple(context.memory.get_address(view) for view in (*inputs, op.output))
    has_table = op.kind is OpcodeKind.LOOK_UP
    table = context.memory.get_address(op.operands[2]) if has_table else 0

    def grid(bounds: Bounds, tile: int) -> TileGrid:
        return build_grid((divide_ranges(bounds, tile),))

    def add_commands(builder: PlanBuilder) -> None:
        begin, count = builder.grid.begin[0], builder.grid.end[0] - builder.grid.begin[0]
        table_at = builder.allocate_buffer(TABLE_BYTES) if op.kind in _UNARY else 0
        size = builder.grid.compute_core_maxima(count) * wide
        buffers: list[Any] = [builder.allocate_buffers(size, copies) for _ in addresses]
        *loads, store = (
            make_box_words(dram + begin * wide, spm, count * wide)
            for dram, spm in zip(addresses, buffers, strict=True)
        )
        for words in loads:
            builder.add_instructions(LOAD, words)
        if has_table:
            table_words = make_box_words(table, table_at, TABLE_BYTES)
            builder.add_instructions(LOAD, table_words, builder.grid.is_first)
            buffers.insert(1, table_at)
        add_compute(builder, buffers, begin, count)
        builder.add_instructions(STORE, store)

    buffer_bytes = copies * wide * len(addresses)
    work = _FlatWork(op, op.output.type.elements, buffer_bytes, addresses)
    return _options(work, context, grid, add_commands)


_UNARY = frozenset({OpcodeKind.CLIP, OpcodeKind.RESCALE, OpcodeKind.LOOK_UP})


def make_binary_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an elementwise operation of two tensors."""
    constant = make_pair_words(op, context) | {"rows": 1}

    def add_compute(builder: PlanBuilder, buffers: Any, begin: Any, count: Any) -> None:
        addresses = dict(zip(("lhs", "rhs", "output"), buffers, strict=True))
        builder.add_instructions(
            "nmp.eltwise", constant | addresses | {"columns": count, "event_origin": begin}
        )

    return _flat_options(op, op.operands[1:], 2, add_compute, context)


def make_unary_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of a clip, rescale, leaky ReLU or table lookup."""
    constant = {} if op.kind is OpcodeKind.LOOK_UP else _unary_words(op, context)

    def add_compute(builder: PlanBuilder, buffers: Any, begin: Any, count: Any) -> None:
        words = {"input": buffers[0], "output": buffers[-1], "count": count}
        if op.kind is OpcodeKind.LOOK_UP:
            builder.add_instructions("nmp.lut", words | {"table": buffers[1]})
        else:
            builder.add_instructions("nmp.rescale", constant | words | {"event_origin": begin})

    return _flat_options(op, op.operands[1:2], 2, add_compute, context)


def make_splat_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an operation that fills a tensor with one value."""
    view = op.output
    value = view.clamp(context.profile.quantize(op.get_number("Value"), view))

    def add_compute(builder: PlanBuilder, buffers: Any, begin: Any, count: Any) -> None:
        largest = builder.grid.compute_core_maxima(count)[builder.grid.core]
        words = {"element": view.element, "output": buffers[0], "count": largest, "value": value}
        builder.add_instructions("nmp.fill", words, builder.grid.is_first)

    return _flat_options(op, (), 1, add_compute, context)


def make_batched_add_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an addition of one tensor to each item of a batch."""
    _, batch, piece = op.operands
    wide, slice_wide = batch.element_bytes, piece.element_bytes
    rows = batch.shape[0]
    columns = batch.type.elements // rows
    constant = make_pair_words(op, context)
    left, right, target = (context.memory.get_address(view) for view in (batch, piece, op.output))

    def core_grid(share: tuple[int, int], tile: int) -> TileGrid:
        """Return the grid of a core; its tiles have as many rows as fit."""
        width = min(tile, share[1] - share[0])
        workspace = context.config.scratchpad_bytes - 8 * ALIGNMENT - 2 * slice_wide * width
        high = max(1, min(rows, workspace // (4 * wide * width)))
        return build_grid((divide_ranges((share,), tile), divide_ranges(((0, rows),), high)))

    def grid(bounds: Bounds, tile: int) -> TileGrid:
        return TileGrid.concatenate([core_grid(share, tile) for share in bounds])

    def add_commands(builder: PlanBuilder) -> None:
        grid = builder.grid
        (first, top), (count, lines) = grid.begin, grid.end - grid.begin
        new_slice = grid.find_changes(first)
        width = grid.compute_core_maxima(count)
        size = grid.compute_core_maxima(lines) * width * wide
        slices = builder.allocate_buffers(slice_wide * width, changed=new_slice)
        batches, outs = builder.allocate_buffers(size), builder.allocate_buffers(size)
        run, origin = count * wide, top * columns + first
        loads, stores = (
            make_box_words(
                dram + origin * wide,
                spm,
                run,
                lines,
                dram_stride_x=columns * wide,
                spm_stride_x=run,
            )
            for dram, spm in ((left, batches), (target, outs))
        )
        builder.add_instructions(LOAD, loads)
        piece_words = make_box_words(right + slice_wide * first, slices, slice_wide * count)
        builder.add_instructions(LOAD, piece_words, new_slice)
        words = {
            "lhs": batches,
            "rhs": slices,
            "output": outs,
            "rows": lines,
            "columns": count,
            "lhs_stride": run,
            "out_stride": run,
            "event_origin": origin,
            "event_stride_y": columns,
        }
        builder.add_instructions("nmp.eltwise", constant | words)
        builder.add_instructions(STORE, stores)

    buffer_bytes = 2 * slice_wide + 4 * wide
    work = _FlatWork(op, columns, buffer_bytes, (left, target), rows)
    return _options(work, context, grid, add_commands)


def make_pair_words(op: Operation, context: PlanningContext) -> dict[str, int]:
    """Make the descriptor words that all tiles of an operation on two tensors share."""
    target, lhs, rhs = op.operands
    return {
        "operation": BINARY[op.instruction.opcode],
        "rhs_kind": RHS_INT32 if rhs.type.elem == "i32" else RHS_ELEMENT,
        "element": lhs.element,
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        "out_offset": target.offset,
        **context.profile.get_factor_words(op, context.place),
        **make_clip_words(op, target),
    }


def _unary_words(op: Operation, context: PlanningContext) -> dict[str, int]:
    target, source = op.operands[:2]
    bounds = OPCODES[op.instruction.opcode].limits
    low, high = source.limits
    clips = make_clip_words(op, target)
    if bounds is not None and bounds[1] is not None and not context.profile.clips_the_input:
        clips = make_clip_words(op, target, *get_clip_range(op, target))
    elif bounds is not None:
        low, high = get_input_range(op)
    return {
        "element": source.element,
        "in_low": low,
        "in_high": high,
        "in_offset": source.offset,
        "activation": 0 if op.get_number("Alpha") is None else ACTIVATION_LEAKY,
        **context.profile.get_factor_words(op, context.place),
        "out_offset": target.offset,
        **clips,
    }
