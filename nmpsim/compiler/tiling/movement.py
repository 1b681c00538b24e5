"""Planner of operations that only move elements: copy, insert, extract and transpose.

A move is a box of up to six dimensions with a stride on either side. Dimensions that are contiguous
on both sides are merged. Boxes are halved along their outermost dimension until they fit and there
are enough for all cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nmpsim.compiler.operations import Operation, compute_row_major_strides
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost, Traffic
from nmpsim.compiler.tiling.grid import Integers, TileGrid, split_evenly
from nmpsim.compiler.tiling.plan import ALIGNMENT, LOAD, STORE, LayerPlan, PlanBuilder
from nmpsim.diagnostics import format_count
from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.table import Unit
from nmpsim.lir.opcodes import OpcodeKind, find_opcodes

TRANSPOSE_DIMENSIONS = 4
CORE_COUNTS = (64, 32, 16, 8, 4, 1)
"""Numbers of cores that are tried."""
MAX_TILE_BYTES = 16384
"""Larger tiles would only lengthen the first load and the last store."""

check_exhaustive(
    "operations that move",
    ("copy", "transpose", "extracttensor", "inserttensor"),
    find_opcodes(OpcodeKind.MOVE),
)


class BoxDimension(NamedTuple):
    """Dimension of a box to move: its size, and its source and target strides in bytes."""

    size: int
    read: int
    write: int


class BoxMove(NamedTuple):
    """Move of a box of elements from one DRAM region to another."""

    source: int
    """DRAM address of the first element that is read."""
    target: int
    """DRAM address of the first element that is written."""
    element: int
    """Bytes of an element."""
    dimensions: tuple[BoxDimension, ...]

    @property
    def nbytes(self) -> int:
        """Size of the box in bytes."""
        return self.element * math.prod(d.size for d in self.dimensions)

    @property
    def is_reordering(self) -> bool:
        """Whether the elements are in a different order in the source and in the target."""
        reads = [d.read for d in self.dimensions]
        return reads != sorted(reads, reverse=True)

    def split(self) -> tuple[BoxMove, BoxMove]:
        """Split the move in half along the outermost dimension; return both moves."""
        index = next(i for i, d in enumerate(self.dimensions) if d.size > 1)
        d = self.dimensions[index]
        low = d.size // 2
        first, second = (
            (*self.dimensions[:index], d._replace(size=size), *self.dimensions[index + 1 :])
            for size in (low, d.size - low)
        )
        source, target = self.source + low * d.read, self.target + low * d.write
        return self._replace(dimensions=first), BoxMove(source, target, self.element, second)


def merge_dimensions(dimensions: Sequence[BoxDimension], element: int) -> tuple[BoxDimension, ...]:
    """Merge dimensions that are contiguous in source and target; return the new dimensions."""
    merged: list[BoxDimension] = []
    for d in dimensions:
        outer = merged[-1] if merged else None
        if d.size == 1:
            continue
        if outer and outer.read == d.size * d.read and outer.write == d.size * d.write:
            merged[-1] = d._replace(size=outer.size * d.size)
        else:
            merged.append(d)
    return tuple(merged) or (BoxDimension(1, element, element),)


def list_box_moves(op: Operation, context: PlanningContext) -> list[BoxMove]:
    """Return the box moves that compute an operation."""
    target, source = op.output, op.operands[1]
    read, write = compute_row_major_strides(source.shape), compute_row_major_strides(target.shape)
    shape, offsets = target.shape, op.get_integers("Offsets")
    starts = [(0, 0)]
    match op.instruction.opcode:
        case "transpose":
            read = tuple(read[d] for d in op.get_integers("Shuffle"))
        case "extracttensor":
            starts = [(int(np.dot(offsets, read)), 0)]
        case "inserttensor":
            shape, axis = source.shape, op.get_number("Axis")
            first, step = int(np.dot(offsets, write)), shape[axis] * write[axis]
            starts = [(0, first + i * step) for i in range(op.get_number("Count"))]
    element = source.element_bytes
    dimensions = [
        BoxDimension(size, element * r, element * w)
        for size, r, w in zip(shape, read, write, strict=True)
    ]
    merged = merge_dimensions(dimensions, element)
    from_, to = context.memory.get_address(source), context.memory.get_address(target)
    return [BoxMove(from_ + element * r, to + element * w, element, merged) for r, w in starts]


class MoveTiling(NamedTuple):
    """Tiling, or array of tilings, of a move: number of cores and maximum tile size in bytes."""

    cores: Any
    limit: Any

    @property
    def label(self) -> str:
        """Text for reports: number of cores and largest tile in bytes."""
        return f"{format_count(self.cores, 'core')}, tiles of at most {self.limit} bytes"


def make_move_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an operation that moves elements."""
    moves = list_box_moves(op, context)
    config = context.config
    reorders = any(move.is_reordering for move in moves)
    buffers = 4 if reorders else 3
    fit = config.scratchpad_bytes // buffers // ALIGNMENT * ALIGNMENT
    if fit < moves[0].element:
        raise context.make_size_error(ALIGNMENT * buffers)
    total = sum(move.nbytes for move in moves)

    def tiling(cores: int, tiles: int) -> MoveTiling:
        share = -(-total // (cores * tiles))
        return MoveTiling(cores, max(ALIGNMENT, min(fit, MAX_TILE_BYTES, share)))

    def candidates(_: DramModel) -> tuple[MoveTiling, RoughCost]:
        """Return a few tilings as equally fast: the DRAM limits them all."""
        every = [
            tiling(cores, tiles)
            for cores in CORE_COUNTS
            if cores <= config.cores_count
            for tiles in (1, 4)
        ]
        cores, limit = np.array(every).T
        return MoveTiling(cores, limit), RoughCost(1, 0, -(-total // limit), (), Traffic(0, 0))

    def build(chosen: MoveTiling, _: bool) -> LayerPlan:
        tiles = [tile for move in moves for tile in _tiles(move, chosen.limit, reorders)]
        grid = TileGrid.from_counts([b - a for a, b in split_evenly(len(tiles), chosen.cores)])
        builder = PlanBuilder(grid, Unit.VECTOR, config)
        size = grid.compute_core_maxima(np.array([tile.nbytes for tile in tiles]))
        if not reorders:  # the third buffer is for the load that overlaps a store
            buffer = builder.allocate_buffers(size, copies=3)
            _add_transfers(builder, LOAD, tiles, buffer, by_source=False)
            _add_transfers(builder, STORE, tiles, buffer, by_source=False)
            return builder.build()
        inputs, outputs = builder.allocate_buffers(size), builder.allocate_buffers(size)
        _add_transfers(builder, LOAD, tiles, inputs, by_source=True)
        rows = np.array([_transpose_row(tile) for tile in tiles]).transpose(1, 2, 0)
        names = [
            f"{name}_{d}"
            for d in range(TRANSPOSE_DIMENSIONS)
            for name in ("size", "in_stride", "out_stride")
        ]
        words: dict[str, Any] = dict(zip(names, rows.reshape(len(names), -1), strict=True))
        words |= {"input": inputs, "output": outputs, "element_bytes": moves[0].element}
        builder.add_instructions("nmp.transpose", words)
        _add_transfers(builder, STORE, tiles, outputs, by_source=False)
        return builder.build()

    key = [(*context.get_row_offsets(m.source, m.target), m.element, m.dimensions) for m in moves]
    return TilingOptions(("move", *key), tiling(config.cores_count, 1), candidates, build)


def _tiles(move: BoxMove, limit: int, reorders: bool) -> Iterator[BoxMove]:
    pending = [move]
    while pending:
        tile = pending.pop()
        is_deep = reorders and sum(d.size > 1 for d in tile.dimensions) > TRANSPOSE_DIMENSIONS
        if tile.nbytes > limit or is_deep:
            pending += reversed(tile.split())
        else:
            yield tile


def _packed(tile: BoxMove, by_source: bool) -> list[tuple[BoxDimension, int]]:
    """Return the dimensions and strides of a tile packed in the order of its source or result."""
    order = sorted(tile.dimensions, key=lambda d: -d.read) if by_source else tile.dimensions
    strides = compute_row_major_strides(tuple(d.size for d in order))
    return [(d, tile.element * s) for d, s in zip(order, strides, strict=True) if d.size > 1]


def _transpose_row(tile: BoxMove) -> list[tuple[int, int, int]]:
    """Return (size, in_stride, out_stride) of each dimension that a transpose has."""
    reads = {d.write: stride for d, stride in _packed(tile, by_source=True)}
    rows = [(d.size, reads[d.write], stride) for d, stride in _packed(tile, by_source=False)]
    return [(1, 0, 0)] * (TRANSPOSE_DIMENSIONS - len(rows)) + rows


def _add_transfers(
    builder: PlanBuilder, mnemonic: str, tiles: Sequence[BoxMove], spm: Integers, by_source: bool
) -> None:
    """Add the loads or stores of tiles that are packed in the scratchpad."""
    boxes = [
        (index, *box)
        for index, tile in enumerate(tiles)
        for box in _boxes(tile, mnemonic == LOAD, by_source)
    ]
    dimensions = (f"{name}_{d}" for d in "xy" for name in ("count", "dram_stride", "spm_stride"))
    names = ("dram", "spm", "run_bytes", *dimensions)
    index, *columns = np.array(boxes).T
    words = dict(zip(names, columns, strict=True))
    builder.add_tile_instructions(mnemonic, words | {"spm": spm[index] + words["spm"]}, index)


_Box: TypeAlias = tuple[int, ...]


def _boxes(tile: BoxMove, is_load: bool, by_source: bool) -> Iterator[_Box]:
    """Yield DRAM address, offset in the buffer, bytes of a run, and two dimensions of each box."""
    rows = [(d.size, d.read if is_load else d.write, s) for d, s in _packed(tile, by_source)]
    run = tile.element
    if rows and rows[-1][1] == tile.element:
        run *= rows.pop()[0]
    y, x = [(1, 0, 0)] * (2 - len(rows)) + rows[-2:]
    outer = rows[:-2]
    start = tile.source if is_load else tile.target
    for index in itertools.product(*(range(size) for size, _, _ in outer)):
        dram = sum(i * stride for i, (_, stride, _) in zip(index, outer, strict=True))
        offset = sum(i * stride for i, (_, _, stride) in zip(index, outer, strict=True))
        yield start + dram, offset, run, *x, *y
