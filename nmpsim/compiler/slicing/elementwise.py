"""Operations that go through tensors element by element."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.compiler.fuse import clip_range, input_range
from nmpsim.compiler.slicing.context import Context
from nmpsim.compiler.slicing.plan import (
    ALIGNMENT,
    Arena,
    Box,
    Command,
    LayerPlan,
    TileStep,
    chunks,
    load,
    split,
    spread,
    store,
    too_large,
)
from nmpsim.compiler.slicing.weighted import clip_words
from nmpsim.compiler.work import Operation, View
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

BINARY = {
    "elementadd": OP_ADD,
    "elementsub": OP_SUB,
    "elementmax": OP_MAX,
    "elementmin": OP_MIN,
    "elementmul": OP_MUL,
    "batchedadd": OP_ADD,
}
MOST = 4096
"""Elements of a tile; more would only make the first load and the last store longer."""


def _shares(
    total: int, per_element: int, context: Context, name: str
) -> list[list[tuple[int, int]]]:
    """Each core's tiles of a flat range, where every element needs ``per_element`` bytes."""
    fit = (context.config.scratchpad_bytes - 8 * ALIGNMENT) // per_element
    if fit < 1:
        raise too_large(f"%{name}", per_element + 8 * ALIGNMENT, context.config, context.place)
    pieces = -(-total // ALIGNMENT)
    shares = [
        (a * ALIGNMENT, min(b * ALIGNMENT, total))
        for a, b in split(pieces, context.config.cores_count)
    ]
    return [chunks(a, b, min(fit, MOST)) for a, b in shares]


def plan_binary(op: Operation, context: Context) -> LayerPlan:
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

    def steps(tiles: list[tuple[int, int]]) -> Iterator[TileStep]:
        size = max(b - a for a, b in tiles)
        arena = Arena(context.config)
        lefts, rights, outs = (arena.take_twice(size * wide) for _ in range(3))
        for number, (a, b) in enumerate(tiles):
            k, count = number % 2, b - a
            compute = Command(
                "nmp.eltwise",
                {
                    **words,
                    "lhs": lefts[k],
                    "rhs": rights[k],
                    "output": outs[k],
                    "columns": count,
                    "event_origin": a,
                },
            )
            begin, run = a * wide, count * wide
            yield TileStep(
                (load(Box(left + begin, lefts[k], run)), load(Box(right + begin, rights[k], run))),
                (compute,),
                (store(Box(target + begin, outs[k], run)),),
            )

    shares = _shares(op.output.type.elements, 6 * wide, context, op.instruction.name)
    return LayerPlan(Unit.VECTOR, spread([tuple(steps(s)) for s in shares], context.config))


def plan_batchedadd(op: Operation, context: Context) -> LayerPlan:
    """Plan the addition of one slice to every element of a batch."""
    _, batch, piece = op.operands
    wide, slice_wide = batch.element_bytes, piece.element_bytes
    rows = batch.shape[0]
    columns = batch.type.elements // rows
    words = {
        "operation": OP_ADD,
        "rhs_kind": RHS_INT32 if piece.type.elem == "i32" else RHS_ELEMENT,
        **_pair_words(op, context),
    }
    left, right, target = (context.address_of(v) for v in (batch, piece, op.output))
    shares = _shares(columns, 2 * slice_wide + 4 * wide, context, op.instruction.name)

    def steps(tiles: list[tuple[int, int]]) -> Iterator[TileStep]:
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
                loads = [load(Box(left + begin, batches[k], *box))]
                if top == 0:
                    slice_box = Box(right + slice_wide * a, slices[which % 2], slice_wide * count)
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
                out_box = Box(target + begin, outs[k], *box)
                yield TileStep(tuple(loads), (compute,), (store(out_box),))
                number += 1

    return LayerPlan(Unit.VECTOR, spread([tuple(steps(s)) for s in shares], context.config))


def _pair_words(op: Operation, context: Context) -> dict[str, int]:
    target, lhs, rhs = op.operands
    return {
        "element": lhs.element,
        "lhs_offset": lhs.offset,
        "rhs_offset": rhs.offset,
        **context.profile.pair(op.instruction.opcode, (target, lhs, rhs), context.place),
        "out_offset": target.offset,
        **clip_words(op, target),
    }


def plan_unary(op: Operation, context: Context) -> LayerPlan:
    """Plan relu, clip, leaky relu, max with a constant, rescaling, or a table look-up."""
    source = op.operands[1]
    look_up = op.instruction.opcode == "intlookuptable"
    words = {} if look_up else _unary_words(op, context)
    table = context.address_of(op.operands[2]) if look_up else 0
    start, target = context.address_of(source), context.address_of(op.output)
    wide = source.element_bytes

    def steps(tiles: list[tuple[int, int]]) -> Iterator[TileStep]:
        size = max(b - a for a, b in tiles) * wide
        arena = Arena(context.config)
        table_at = arena.take(256)
        inputs, outs = arena.take_twice(size), arena.take_twice(size)
        for number, (a, b) in enumerate(tiles):
            k, count = number % 2, b - a
            begin, run = a * wide, count * wide
            loads = [load(Box(start + begin, inputs[k], run))]
            places = {"input": inputs[k], "output": outs[k], "count": count}
            if look_up:
                compute = Command("nmp.lut", {**places, "table": table_at})
                if number == 0:
                    loads.append(load(Box(table, table_at, 256)))
            else:
                compute = Command("nmp.rescale", {**words, **places, "event_origin": a})
            yield TileStep(tuple(loads), (compute,), (store(Box(target + begin, outs[k], run)),))

    shares = _shares(op.output.type.elements, 4 * wide, context, op.instruction.name)
    return LayerPlan(Unit.VECTOR, spread([tuple(steps(s)) for s in shares], context.config))


def _unary_words(op: Operation, context: Context) -> dict[str, int]:
    target, source = op.operands[:2]
    opcode = op.instruction.opcode
    low, high = source.limits
    clips = clip_words(op, target)
    if opcode == "clip" and not context.profile.clips_the_input:
        clips = clip_words(op, target, *clip_range(op, target))
    elif opcode in ("relu", "clip", "cpumaxsplat"):
        low, high = input_range(op)
    leaky = opcode == "leakyrelu"
    alpha = float(str(op.instruction.attributes["Alpha"])) if leaky else None
    return {
        "element": source.element,
        "in_low": low,
        "in_high": high,
        "in_offset": source.offset,
        "activation": ACTIVATION_LEAKY if leaky else 0,
        **context.profile.unary(source, target, alpha, context.place),
        "out_offset": target.offset,
        **clips,
    }


def plan_splat(op: Operation, context: Context) -> LayerPlan:
    """Plan a tensor that is filled with one value."""
    view: View = op.output
    real = float(str(op.instruction.attributes["Value"]))
    value = view.held(context.profile.quantized(real, view))
    wide = view.element_bytes
    target = context.address_of(view)

    def steps(tiles: list[tuple[int, int]]) -> Iterator[TileStep]:
        size = max(b - a for a, b in tiles)
        buffer = Arena(context.config).take(size * wide)
        words = {"element": view.element, "output": buffer, "count": size, "value": value}
        fill = Command("nmp.fill", words)
        for number, (a, b) in enumerate(tiles):
            computes = (fill,) if number == 0 else ()
            box = Box(target + a * wide, buffer, (b - a) * wide)
            yield TileStep((), computes, (store(box),))

    shares = _shares(view.type.elements, wide, context, op.instruction.name)
    return LayerPlan(Unit.VECTOR, spread([tuple(steps(s)) for s in shares], context.config))
