"""Operations that go through tensors element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np

from nmpsim.compiler.clip_bounds import input_range, limits_on
from nmpsim.compiler.operations import Operation, View
from nmpsim.compiler.tiling.context import Candidate, Context, Options, best_first
from nmpsim.compiler.tiling.cost_model import Memory, RoughCost, Traffic, box_cycles
from nmpsim.compiler.tiling.plan import (
    ALIGNMENT,
    Arena,
    Command,
    Commands,
    Integers,
    LayerPlan,
    StridedRuns,
    TileStep,
    chunks,
    commands,
    core_ends,
    halvings,
    load,
    plan_of,
    sizes_of,
    split,
    store,
    too_large,
)
from nmpsim.compiler.tiling.tiles import Bounds, ranges_of, tiles_of
from nmpsim.compiler.tiling.weighted import clip_words
from nmpsim.config import DeviceConfig
from nmpsim.isa.exhaustive import exhaustive_table
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
from nmpsim.lir.opcodes import OPCODES, Kind, opcodes_of
from nmpsim.timing.compute import vector_cycles

BINARY = exhaustive_table(
    "the operations of nmp.eltwise",
    {
        "elementadd": OP_ADD,
        "elementsub": OP_SUB,
        "elementmax": OP_MAX,
        "elementmin": OP_MIN,
        "elementmul": OP_MUL,
        "batchedadd": OP_ADD,
    },
    opcodes_of(Kind.PAIR, Kind.BATCHED_ADD),
)
"""Opcode -> operation of ``nmp.eltwise``."""
_KNOWN_AS = {operation: opcode for opcode, operation in reversed(BINARY.items())}
"""Operation -> the first opcode with it, by whose name profiles know its arithmetic."""
MOST = 4096
"""Elements of a tile of the simple rule; more lengthen first loads and last stores."""
TILES = (1024, 2048, 4096, 8192, 16384)


@attrs.frozen
class FlatScheme:
    """A flat range split into as many shares as cores work, and each into tiles."""

    cores: int
    tile: int
    """Elements of a tile, at most."""
    unit: int
    """Tiles begin at multiples of this many elements."""

    @property
    def label(self) -> str:
        """For a reader."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{cores}, tiles of {self.tile} elements at multiples of {self.unit}"


Tiles = list[tuple[int, int]]


@attrs.frozen(eq=False)
class Flat:
    """The tiles of all cores."""

    cores: Integers
    """[cores + 1] where each core's begin"""
    begin: Integers
    """[tiles] first element"""
    count: Integers
    """[tiles] elements"""
    core: Integers
    """[tiles] whose it is"""
    number: Integers
    """[tiles] which of its core's"""
    arena: Arena

    @property
    def steps(self) -> Integers:
        """All tiles."""
        return np.arange(self.begin.size)

    def buffers(self, element_bytes: int, copies: int = 2) -> Integers:
        """[tiles] addresses of buffers in turn, as large as the largest tile of the core."""
        edges = np.flatnonzero(self.number == 0)
        size = np.maximum.reduceat(self.count, edges) * element_bytes
        taken = np.stack(np.broadcast_arrays(*(self.arena.take(size) for _ in range(copies))))
        each: Integers = np.broadcast_to(taken, (copies, size.size))
        return each[self.number % copies, self.core]


def _flat(shares: Bounds, tile: int, config: DeviceConfig) -> Flat:
    """The tiles of each core's share."""
    ranges = ranges_of(shares, tile)
    tiles = tiles_of((ranges,), (0,))
    return Flat(
        core_ends(sizes_of(tiles.ends), config),
        ranges.begin,
        ranges.end - ranges.begin,
        tiles.core,
        tiles.numbers,
        Arena(config),
    )


@attrs.frozen
class _Range:
    """A flat range of elements, and what each needs."""

    op: Operation
    total: int
    scratchpad_bytes: int
    """For each element, all buffers together."""
    addresses: tuple[int, ...]
    """Of what is loaded, then of the result."""
    rows: int = 1
    """How many times the range passes by."""


def _options(
    flat: _Range, context: Context, plan: Callable[[Bounds, int], LayerPlan]
) -> Options[FlatScheme]:
    """The tilings of a flat range; ``plan`` takes the cores' shares and the size of a tile."""
    config = context.config
    name, wide = flat.op.instruction.name, flat.op.output.element_bytes
    fit = (config.scratchpad_bytes - 8 * ALIGNMENT) // flat.scratchpad_bytes
    if fit < 1:
        needs = flat.scratchpad_bytes + 8 * ALIGNMENT
        raise too_large(f"%{name}", needs, config, context.place)
    row = max(config.dram_row_bytes // wide, ALIGNMENT)

    def schemes() -> Iterator[FlatScheme]:
        for cores in halvings(config.cores_count):
            for unit in dict.fromkeys((row, ALIGNMENT)):
                for tile in TILES:
                    if unit <= tile <= fit and (cores - 1) * unit < flat.total:
                        yield FlatScheme(cores, tile, unit)

    def rough_cost(scheme: FlatScheme, memory: Memory) -> RoughCost:
        share = -(-flat.total // (scheme.cores * scheme.unit)) * scheme.unit
        tile = min(scheme.tile, share)
        tiles = -(-share // scheme.tile) * flat.rows
        aligned = scheme.unit % row == 0
        moved = Traffic(tiles, box_cycles(memory, tile * wide, 1, 0, 1, 0, aligned))
        compute = vector_cycles(tiles, tile, wide - 1, context.costs)
        loads = (moved,) * (len(flat.addresses) - 1)
        return RoughCost(scheme.cores, compute, tiles, loads, moved)

    def ranked(memory: Memory) -> list[Candidate[FlatScheme]]:
        every = list(schemes())
        return best_first(every, [rough_cost(one, memory) for one in every])

    def build(scheme: FlatScheme, _: bool) -> LayerPlan:
        pieces = -(-flat.total // scheme.unit)
        shares = split(pieces, scheme.cores)
        bounds = tuple((a * scheme.unit, min(b * scheme.unit, flat.total)) for a, b in shares)
        return plan(bounds, scheme.tile)

    simple = FlatScheme(config.cores_count, min(fit, MOST), ALIGNMENT)
    places = tuple(address % config.dram_row_bytes for address in flat.addresses)
    key = (flat.op.instruction.opcode, flat.total, wide, flat.rows, flat.scratchpad_bytes, places)
    return Options(key, simple, ranked, build)


def binary_options(op: Operation, context: Context) -> Options[FlatScheme]:
    """Plan add, sub, max, min or mul of tensors of one shape."""
    _, lhs, rhs = op.operands
    words = {
        "operation": BINARY[op.instruction.opcode],
        "rhs_kind": RHS_ELEMENT,
        "rows": 1,
        **_pair_words(op, context),
    }
    wide = lhs.element_bytes
    left, right, target = (context.address_of(v) for v in (lhs, rhs, op.output))

    def plan(shares: Bounds, tile: int) -> LayerPlan:
        flat = _flat(shares, tile, context.config)
        left_at, right_at, out_at = (flat.buffers(wide) for _ in range(3))
        begin, run, steps = flat.begin * wide, flat.count * wide, flat.steps
        compute = {
            **words,
            "lhs": left_at,
            "rhs": right_at,
            "output": out_at,
            "columns": flat.count,
            "event_origin": flat.begin,
        }
        return LayerPlan(
            Unit.VECTOR,
            flat.cores,
            commands(
                "nmp.load",
                steps.size,
                (steps, StridedRuns(left + begin, left_at, run).words()),
                (steps, StridedRuns(right + begin, right_at, run).words()),
            ),
            commands("nmp.eltwise", steps.size, (steps, compute)),
            _stores(target + begin, out_at, run),
        )

    return _options(
        _Range(op, op.output.type.elements, 6 * wide, (left, right, target)), context, plan
    )


def _stores(dram: Integers, spm: Integers, run: Integers) -> Commands:
    """One of each tile."""
    return commands(
        "nmp.store", run.size, (np.arange(run.size), StridedRuns(dram, spm, run).words())
    )


def batchedadd_options(op: Operation, context: Context) -> Options[FlatScheme]:
    """Plan the addition of one slice to every element of a batch."""
    _, batch, piece = op.operands
    wide, slice_wide = batch.element_bytes, piece.element_bytes
    rows = batch.shape[0]
    columns = batch.type.elements // rows
    words = {
        "operation": BINARY[op.instruction.opcode],
        "rhs_kind": RHS_INT32 if piece.type.elem == "i32" else RHS_ELEMENT,
        **_pair_words(op, context),
    }
    left, right, target = (context.address_of(v) for v in (batch, piece, op.output))

    def steps(tiles: Tiles) -> Iterator[TileStep]:
        width = max(b - a for a, b in tiles)
        room = context.config.scratchpad_bytes - 8 * ALIGNMENT - 2 * slice_wide * width
        high = max(1, min(rows, room // (4 * wide * width)))
        arena = Arena(context.config)
        slices = arena.take_twice(slice_wide * width)
        batches, outs = (arena.take_twice(high * width * wide) for _ in range(2))
        number = 0
        for which, (a, b) in enumerate(tiles):
            for top, bottom in chunks(0, rows, high):
                k, count, lines = number % 2, b - a, bottom - top
                run, begin = count * wide, (top * columns + a) * wide
                box = (run, lines, 1, columns * wide, 0, run, 0)
                loads = [load(StridedRuns(left + begin, batches[k], *box))]
                if top == 0:
                    slice_box = StridedRuns(
                        right + slice_wide * a, slices[which % 2], slice_wide * count
                    )
                    loads.append(load(slice_box))
                compute = Command(
                    "nmp.eltwise",
                    {
                        **words,
                        "lhs": batches[k],
                        "rhs": slices[which % 2],
                        "output": outs[k],
                        "rows": lines,
                        "columns": count,
                        "lhs_stride": run,
                        "rhs_stride": 0,
                        "out_stride": run,
                        "event_origin": top * columns + a,
                        "event_stride_y": columns,
                    },
                )
                out_box = StridedRuns(target + begin, outs[k], *box)
                yield TileStep(tuple(loads), (compute,), (store(out_box),))
                number += 1

    def plan(shares: Bounds, tile: int) -> LayerPlan:
        cores = [list(steps(chunks(a, b, tile))) for a, b in shares]
        return plan_of(Unit.VECTOR, cores, context.config)

    needs = 2 * slice_wide + 4 * wide
    return _options(_Range(op, columns, needs, (left, target), rows), context, plan)


def is_unsigned(op: Operation) -> bool:
    """Whether an operation's tensors are those of uint8 less 128."""
    return bool(op.instruction.attributes.get("Unsigned"))


def _pair_words(op: Operation, context: Context) -> dict[str, int]:
    target, lhs, rhs = op.operands
    opcode = op.instruction.opcode
    known_as = _KNOWN_AS[BINARY[opcode]] if op.kind is Kind.PAIR else opcode
    return {
        "element": lhs.element,
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        "out_offset": target.offset,
        **context.profile.pair(known_as, (target, lhs, rhs), context.place, is_unsigned(op)),
        **clip_words(op, target),
    }


def unary_options(op: Operation, context: Context) -> Options[FlatScheme]:
    """Plan relu, clip, leaky relu, max with a constant, rescaling, or a table look-up."""
    source = op.operands[1]
    look_up = op.kind is Kind.LOOK_UP
    words = {} if look_up else _unary_words(op, context)
    table = context.address_of(op.operands[2]) if look_up else 0
    start, target = context.address_of(source), context.address_of(op.output)
    wide = source.element_bytes

    def plan(shares: Bounds, tile: int) -> LayerPlan:
        flat = _flat(shares, tile, context.config)
        table_at = flat.arena.take(256)
        in_at, out_at = flat.buffers(wide), flat.buffers(wide)
        begin, run, steps = flat.begin * wide, flat.count * wide, flat.steps
        places = {"input": in_at, "output": out_at, "count": flat.count}
        loads = [(steps, StridedRuns(start + begin, in_at, run).words())]
        if look_up:
            first = np.flatnonzero(flat.number == 0)
            loads.append((first, StridedRuns(table, table_at, 256).words()))
            computes = commands("nmp.lut", steps.size, (steps, {**places, "table": table_at}))
        else:
            named = {**words, **places, "event_origin": flat.begin}
            computes = commands("nmp.rescale", steps.size, (steps, named))
        return LayerPlan(
            Unit.VECTOR,
            flat.cores,
            commands("nmp.load", steps.size, *loads),
            computes,
            _stores(target + begin, out_at, run),
        )

    return _options(_Range(op, op.output.type.elements, 4 * wide, (start, target)), context, plan)


def _unary_words(op: Operation, context: Context) -> dict[str, int]:
    target, source = op.operands[:2]
    row = OPCODES[op.instruction.opcode]
    low, high = source.limits
    clips = clip_words(op, target)
    has_two_limits = row.limits is not None and row.limits[1] is not None
    if has_two_limits and not context.profile.clips_the_input:
        clips = clip_words(op, target, *limits_on(op, target))
    elif row.limits is not None:
        low, high = input_range(op)
    slope = op.instruction.attributes.get("Alpha")
    alpha = None if slope is None else float(str(slope))
    return {
        "element": source.element,
        "in_low": low,
        "in_high": high,
        "in_offset": source.offset,
        "activation": 0 if alpha is None else ACTIVATION_LEAKY,
        **context.profile.unary(source, target, alpha, context.place),
        "out_offset": target.offset,
        **clips,
    }


def splat_options(op: Operation, context: Context) -> Options[FlatScheme]:
    """Plan a tensor that is filled with one value."""
    view: View = op.output
    real = float(str(op.instruction.attributes["Value"]))
    value = view.held(context.profile.quantized(real, view))
    wide = view.element_bytes
    target = context.address_of(view)

    def plan(shares: Bounds, tile: int) -> LayerPlan:
        flat = _flat(shares, tile, context.config)
        buffer, first = flat.buffers(wide, 1), np.flatnonzero(flat.number == 0)
        largest = np.maximum.reduceat(flat.count, first)
        fill = {
            "element": view.element,
            "output": buffer[first],
            "count": largest,
            "value": value,
        }
        steps = flat.steps
        return LayerPlan(
            Unit.VECTOR,
            flat.cores,
            commands("nmp.load", steps.size, (steps[:0], {})),
            commands("nmp.fill", steps.size, (first, fill)),
            _stores(target + flat.begin * wide, buffer, flat.count * wide),
        )

    return _options(_Range(op, view.type.elements, wide, (target,)), context, plan)
