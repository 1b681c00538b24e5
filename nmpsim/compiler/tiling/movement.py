"""Operations that only move elements: copy, insert and extract, transpose.

A move is a box of up to six dimensions with a stride on either side. Dimensions that are
contiguous on both sides are joined; boxes are halved along their outermost dimension until they
fit and there are enough for all cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import attrs

from nmpsim.compiler.operations import Operation, row_major_strides
from nmpsim.compiler.tiling.context import Candidate, Context, Options
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import (
    Arena,
    Command,
    LayerPlan,
    StridedRuns,
    TileStep,
    align,
    load,
    plan_of,
    split,
    store,
    too_large,
)
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import Unit
from nmpsim.lir.opcodes import Kind, opcodes_of

TRANSPOSE_DIMENSIONS = 4
FEWER = (64, 32, 16, 8, 4, 1)
"""Numbers of cores that are tried."""
MAX_BYTES = 16384
"""Of a tile; more would only make the first load and the last store longer."""


@attrs.frozen
class Dimension:
    """``size`` elements; strides in bytes on the side that is read and the one that is written."""

    size: int
    read: int
    write: int


@attrs.frozen
class Move:
    """A box of elements; dimensions in the order of the result, outermost first."""

    source: int
    target: int
    element: int
    dimensions: tuple[Dimension, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that move."""
        return self.element * math.prod(d.size for d in self.dimensions)

    def halves(self) -> tuple[Move, Move]:
        """The box split along its outermost dimension that can be split."""
        index = next(i for i, d in enumerate(self.dimensions) if d.size > 1)
        d = self.dimensions[index]
        low = d.size // 2
        parts = (attrs.evolve(d, size=low), attrs.evolve(d, size=d.size - low))
        shapes = [(*self.dimensions[:index], part, *self.dimensions[index + 1 :]) for part in parts]
        return (
            attrs.evolve(self, dimensions=shapes[0]),
            attrs.evolve(
                self,
                source=self.source + low * d.read,
                target=self.target + low * d.write,
                dimensions=shapes[1],
            ),
        )


def joined(move: Move) -> Move:
    """The same move with as few dimensions as possible."""
    dimensions: list[Dimension] = []
    for d in move.dimensions:
        if d.size == 1:
            continue
        outer = dimensions[-1] if dimensions else None
        if outer and outer.read == d.size * d.read and outer.write == d.size * d.write:
            dimensions[-1] = Dimension(outer.size * d.size, d.read, d.write)
        else:
            dimensions.append(d)
    whole = dimensions or [Dimension(1, move.element, move.element)]
    return attrs.evolve(move, dimensions=tuple(whole))


_Strides = Sequence[int]
"""Elements from index to index of each dimension."""


@attrs.frozen
class _Box:
    """What one box of a move is, in elements: where it begins on either side, shape, strides."""

    shape: tuple[int, ...]
    read: _Strides
    write: _Strides
    source: int = 0
    target: int = 0


def _copied(op: Operation, read: _Strides, write: _Strides) -> list[_Box]:
    return [_Box(op.output.shape, read, write)]


def _transposed(op: Operation, read: _Strides, write: _Strides) -> list[_Box]:
    return [_Box(op.output.shape, [read[s] for s in _integers(op, "Shuffle")], write)]


def _extracted(op: Operation, read: _Strides, write: _Strides) -> list[_Box]:
    return [_Box(op.output.shape, read, write, source=_start(op, read))]


def _inserted(op: Operation, read: _Strides, write: _Strides) -> list[_Box]:
    """Several boxes if a part is inserted several times."""
    shape, start = op.operands[1].shape, _start(op, write)
    count, axis = (int(str(op.instruction.attributes[name])) for name in ("Count", "Axis"))
    step = shape[axis] * write[axis]
    return [_Box(shape, read, write, target=start + i * step) for i in range(count)]


def _start(op: Operation, strides: _Strides) -> int:
    return sum(o * s for o, s in zip(_integers(op, "Offsets"), strides, strict=True))


def _integers(op: Operation, name: str) -> list[int]:
    values = op.instruction.attributes[name]
    return [int(value) for value in values] if isinstance(values, tuple) else []


_BOXES: dict[str, Callable[[Operation, _Strides, _Strides], list[_Box]]] = exhaustive_table(
    "operations that move",
    {
        "copy": _copied,
        "transpose": _transposed,
        "extracttensor": _extracted,
        "inserttensor": _inserted,
    },
    opcodes_of(Kind.MOVE),
)


def moves_of(op: Operation, context: Context) -> list[Move]:
    """What an operation moves."""
    target, source = op.output, op.operands[1]
    element = source.type.dtype.itemsize
    from_, to = context.address_of(source), context.address_of(target)
    strides = row_major_strides(source.shape), row_major_strides(target.shape)
    return [
        joined(
            Move(
                from_ + element * box.source,
                to + element * box.target,
                element,
                tuple(
                    Dimension(size, element * read, element * write)
                    for size, read, write in zip(box.shape, box.read, box.write, strict=True)
                ),
            )
        )
        for box in _BOXES[op.instruction.opcode](op, *strides)
    ]


@attrs.frozen
class MoveScheme:
    """Cores with work, and the most bytes of a tile."""

    cores: int
    limit: int

    @property
    def label(self) -> str:
        """For a reader."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{cores}, tiles of at most {self.limit} bytes"


def move_options(op: Operation, context: Context) -> Options[MoveScheme]:
    """The tilings of any operation of this module."""
    moves = moves_of(op, context)
    config = context.config
    reorders = any(_reorders(move) for move in moves)
    buffers = 4 if reorders else 3
    room = config.scratchpad_bytes // buffers // 64 * 64
    if room < moves[0].element:
        raise too_large(f"%{op.instruction.name}", 64 * buffers, config, context.place)
    total = sum(move.nbytes for move in moves)
    share = -(-total // config.cores_count)
    simple = MoveScheme(config.cores_count, max(64, min(room, MAX_BYTES, share)))

    def ranked(_: Memory) -> list[Candidate[MoveScheme]]:
        """Few are worth it: the DRAM bounds them all."""
        schemes = [
            MoveScheme(cores, max(64, min(room, MAX_BYTES, -(-total // (cores * tiles)))))
            for cores in FEWER
            if cores <= config.cores_count
            for tiles in (1, 4)
        ]
        return [Candidate(scheme, -(-total // scheme.limit)) for scheme in schemes]

    def build(scheme: MoveScheme, _: bool) -> LayerPlan:
        tiles = [tile for move in moves for tile in _tiles(move, scheme.limit, reorders)]
        steps = _transposes if reorders else _copies
        shares = split(len(tiles), scheme.cores)
        cores = [tuple(steps(tiles[a:b], context)) for a, b in shares]
        return plan_of(Unit.VECTOR, cores, config)

    row = config.dram_row_bytes
    places = tuple((m.source % row, m.target % row, m.element, m.dimensions) for m in moves)
    return Options(("move", places), simple, ranked, build)


def _reorders(move: Move) -> bool:
    """True if the order of elements changes."""
    reads = [d.read for d in move.dimensions]
    return reads != sorted(reads, reverse=True)


def _tiles(move: Move, limit: int, reorders: bool) -> Iterator[Move]:
    pending = [move]
    while pending:
        tile = pending.pop()
        deep = reorders and sum(d.size > 1 for d in tile.dimensions) > TRANSPOSE_DIMENSIONS
        if tile.nbytes > limit or deep:
            pending += reversed(tile.halves())
        else:
            yield tile


def _copies(tiles: list[Move], context: Context) -> Iterator[TileStep]:
    """Load and store; the third buffer is for the load that overlaps a store."""
    arena = Arena(context.config)
    size = max(tile.nbytes for tile in tiles)
    buffers = [arena.take(size) for _ in range(3)]
    for number, tile in enumerate(tiles):
        spm = buffers[number % 3]
        order = list(tile.dimensions)
        loads = tuple(load(box) for box in _boxes(tile.source, spm, tile, order, "read"))
        stores = tuple(store(box) for box in _boxes(tile.target, spm, tile, order, "write"))
        yield TileStep(loads, (), stores)


def _transposes(tiles: list[Move], context: Context) -> Iterator[TileStep]:
    """Load in the order of the source, reorder in the scratchpad, store in the result's order."""
    arena = Arena(context.config)
    size = max(align(tile.nbytes) for tile in tiles)
    inputs, outs = arena.take_twice(size), arena.take_twice(size)
    for number, tile in enumerate(tiles):
        k = number % 2
        by_source = sorted(tile.dimensions, key=lambda d: -d.read)
        by_target = list(tile.dimensions)
        loads = tuple(load(box) for box in _boxes(tile.source, inputs[k], tile, by_source, "read"))
        stores = tuple(store(box) for box in _boxes(tile.target, outs[k], tile, by_target, "write"))
        yield TileStep(loads, (_reorder(tile, by_source, inputs[k], outs[k]),), stores)


def _packed(dimensions: Sequence[Dimension], element: int) -> list[int]:
    """Strides in bytes of the dimensions laid down one in the other."""
    return [s * element for s in row_major_strides(tuple(d.size for d in dimensions))]


def _reorder(tile: Move, by_source: list[Dimension], source: int, target: int) -> Command:
    from_strides = dict(zip(map(id, by_source), _packed(by_source, tile.element), strict=True))
    to_strides = _packed(tile.dimensions, tile.element)
    rows = [
        (d.size, from_strides[id(d)], stride)
        for d, stride in zip(tile.dimensions, to_strides, strict=True)
        if d.size > 1
    ]
    rows = [(1, 0, 0)] * (TRANSPOSE_DIMENSIONS - len(rows)) + rows
    words = {"input": source, "output": target, "element_bytes": tile.element}
    for index, (size, read, write) in enumerate(rows):
        words |= {
            f"size_{index}": size,
            f"in_stride_{index}": read,
            f"out_stride_{index}": write,
        }
    return Command("nmp.transpose", words)


def _boxes(
    dram: int, spm: int, tile: Move, order: list[Dimension], side: str
) -> Iterator[StridedRuns]:
    """DMA boxes of a tile that is packed in the scratchpad in the given order of dimensions."""
    packed = _packed(order, tile.element)
    rows = [
        (d.size, d.read if side == "read" else d.write, stride)
        for d, stride in zip(order, packed, strict=True)
        if d.size > 1
    ]
    run = tile.element
    if rows and rows[-1][1] == tile.element:
        run *= rows.pop()[0]
    inner = rows[-2:]
    x = inner[-1] if inner else (1, 0, 0)
    y = inner[0] if len(inner) == 2 else (1, 0, 0)
    outer = rows[:-2]
    for index in itertools.product(*(range(size) for size, _, _ in outer)):
        far = sum(i * d for i, (_, d, _) in zip(index, outer, strict=True))
        near = sum(i * s for i, (_, _, s) in zip(index, outer, strict=True))
        yield StridedRuns(dram + far, spm + near, run, x[0], y[0], x[1], y[1], x[2], y[2])
