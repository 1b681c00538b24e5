"""Operations that keep channels separate: depthwise convolutions and pools.

Cores form a grid of channel ranges and row ranges; a core's tiles are as many rows, columns and
channels as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nmpsim.compiler.numerics import Average
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.channelwise_scheme import (
    VECTOR,
    ChannelScheme,
    Image,
    Sums,
    buffer_sizes,
    image_of,
    rough_cost_of,
    schemes_of,
    simple_scheme,
    smallest_tile,
)
from nmpsim.compiler.tiling.context import Candidate, Context, Options, best_rows
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import (
    Arena,
    Commands,
    Integers,
    LayerPlan,
    Part,
    StridedRuns,
    commands,
    core_ends,
    sizes_of,
    split,
    too_large,
)
from nmpsim.compiler.tiling.tiles import (
    Area,
    area_of,
    event_words,
    input_box,
    output_box,
    padding_words,
    ranges_of,
    row_ranges,
    tiles_of,
    window_words,
)
from nmpsim.compiler.tiling.weighted import Weighted, clip_words
from nmpsim.compiler.tiling.window import Need, numbers
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place
from nmpsim.isa.table import Unit
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.lir.opcode import Kind
from nmpsim.timing.compute import depthwise_cycles, pool_cycles


@attrs.frozen(eq=False)
class Tile:
    """[tiles] tiles of results, and the scratchpad addresses of what they need."""

    new: Integers
    """The first tile of each range of channels."""
    area: Area
    first: Integers
    depth: Integers
    """Channels."""
    needs: tuple[Need, Need]
    """Of rows and columns."""
    input: Integers
    output: Integers
    tables: Integers

    @property
    def steps(self) -> Integers:
        """All tiles."""
        return np.arange(self.first.size)


def _tiles(image: Image, scheme: ChannelScheme, config: DeviceConfig) -> tuple[Integers, Tile]:
    """Where each core's tiles begin, and all tiles."""
    blocks = tuple(
        (a * VECTOR, min(b * VECTOR, image.channels))
        for a, b in split(math.ceil(image.channels / VECTOR), scheme.across)
    )
    channels = ranges_of(blocks, scheme.channels)
    shares = split(image.images * image.rows.out, scheme.down)
    rows = row_ranges(shares, image.rows.out, scheme.rows)
    columns = ranges_of(((0, image.columns.out),), scheme.columns)
    tiles = tiles_of((channels, rows, columns), (0, 1, 2))
    piece, area = tiles.at[0], area_of(tiles, rows, columns, image.rows)
    new = tiles.changes(piece)
    arena = Arena(config)
    inputs, outputs, tables = (
        np.array(arena.take_twice(size)) for size in buffer_sizes(image, scheme)
    )
    turn = tiles.numbers % 2
    tile = Tile(
        np.flatnonzero(new),
        area,
        channels.begin[piece],
        channels.end[piece] - channels.begin[piece],
        (image.rows.need(*area.rows), image.columns.need(*area.columns)),
        inputs[turn],
        outputs[turn],
        tables[tiles.turns(new) % 2],
    )
    return core_ends(sizes_of(tiles.ends), config), tile


@attrs.frozen
class _Operation:
    """What an operation of this module does with its tiles."""

    unit: Unit
    sums: Sums
    addresses: tuple[int, int]
    """Of input and output."""
    commands: Callable[[Tile], tuple[Commands, Commands, Commands]]
    """Loads, computations and stores."""
    macs: int = 0


def _options(image: Image, operation: _Operation, context: Context) -> Options[ChannelScheme]:
    config = context.config
    simple = simple_scheme(image, config)
    if simple is None:
        raise too_large(f"%{image.name}", smallest_tile(image), config, context.place)

    def ranked(memory: Memory) -> list[Candidate[ChannelScheme]]:
        schemes = schemes_of(image, config)
        return best_rows(schemes, rough_cost_of(image, schemes, operation.sums, memory))

    def build(scheme: ChannelScheme, _: bool) -> LayerPlan:
        cores, tile = _tiles(image, scheme, config)
        return LayerPlan(operation.unit, cores, *operation.commands(tile), operation.macs)

    places = tuple(address % config.dram_row_bytes for address in operation.addresses)
    key = (operation.unit, attrs.evolve(image, name=""), places)
    return Options(key, simple, ranked, build)


def _boxes(
    image: Image, tile: Tile, source: int, target: int, padded: bool
) -> tuple[StridedRuns, StridedRuns]:
    """What is loaded and what is stored for each tile."""
    axes, channels = (image.rows, image.columns), (tile.first, tile.depth)
    pixel = (image.element_bytes, image.channels * image.element_bytes)
    return (
        input_box(source, tile.input, tile.needs, tile.area.image, axes, channels, pixel, padded),
        output_box(target, tile.output, tile.area, axes, channels, pixel),
    )


def depthwise_options(op: Operation, layer: Weighted, context: Context) -> Options[ChannelScheme]:
    """The tilings of a convolution in which each channel has its own window."""
    taps = layer.rows.kernel * layer.columns.kernel
    scale_bytes = 0 if layer.scale_records is None else SCALE_BYTES
    wide = layer.element_bytes
    image = image_of(op)
    records = context.lay("channels", layer.channel_records)
    scales = layer.scale_records
    scale_table = 0 if scales is None else context.lay("scales", scales)
    by_tap = np.ascontiguousarray(layer.weights.reshape(layer.channels, taps).T)
    weights = context.lay("weights", by_tap)
    source, target = context.address_of(layer.source), context.address_of(layer.target)

    def tables(tile: Tile) -> list[Part]:
        new = tile.new
        first, depth, spm = tile.first[new], tile.depth[new], tile.tables[new]
        parts = [StridedRuns(records + first * CHANNEL_BYTES, spm, depth * CHANNEL_BYTES)]
        spm = spm + depth * CHANNEL_BYTES
        if scales is not None:
            parts.append(StridedRuns(scale_table + first * SCALE_BYTES, spm, depth * SCALE_BYTES))
        spm, run = spm + depth * scale_bytes, depth * wide
        parts.append(
            StridedRuns(weights + first * wide, spm, run, taps, 1, layer.channels * wide, 0, run)
        )
        return [(new, part.words()) for part in parts]

    def commands_of(tile: Tile) -> tuple[Commands, Commands, Commands]:
        run = tile.depth * wide
        scales_at = tile.tables + tile.depth * CHANNEL_BYTES
        columns = tile.needs[1]
        loads, stores = _boxes(image, tile, source, target, padded=True)
        pixel = tile.area.pixel(layer.rows, layer.columns)
        words = {
            **layer.words,
            "input": tile.input,
            "weights": scales_at + tile.depth * scale_bytes,
            "channels": tile.tables,
            "scales": scales_at if scales is not None else 0,
            "output": tile.output,
            "channels_count": tile.depth,
            **window_words(layer),
            "out_h": tile.area.height,
            "out_w": tile.area.width,
            "in_row_stride": (columns.before + columns.count + columns.after) * run,
            "in_pixel_stride": run,
            "out_row_stride": tile.area.width * run,
            "out_pixel_stride": run,
            **event_words(pixel, layer.columns, layer.out_channels, tile.first),
        }
        steps = tile.steps
        inputs = {**loads.words(), **padding_words(tile.needs, layer)}
        return (
            commands("nmp.load", steps.size, *tables(tile), (steps, inputs)),
            commands("nmp.dwconv", steps.size, (steps, words)),
            commands("nmp.store", steps.size, (steps, stores.words())),
        )

    def sums(pixels: Any, taps: int, channels: Any) -> Any:
        return depthwise_cycles(pixels, taps, channels, layer.element, context.costs)

    operation = _Operation(Unit.MAC, sums, (source, target), commands_of, layer.macs)
    return _options(image, operation, context)


def pool_options(op: Operation, context: Context) -> Options[ChannelScheme]:
    """The tilings of a maximum or average pool."""
    target, source = op.output, op.operands[1]
    image = image_of(op)
    rows, columns, wide = image.rows, image.columns, source.element_bytes
    source_at, target_at = context.address_of(source), context.address_of(target)
    average = op.kind is Kind.AVERAGE_POOL
    extra = _average_words(op, context) if average else {"empty_value": source.offset}

    def commands_of(tile: Tile) -> tuple[Commands, Commands, Commands]:
        run = tile.depth * wide
        row_need, column_need = tile.needs
        loads, stores = _boxes(image, tile, source_at, target_at, padded=False)
        words = {
            "input": tile.input,
            "output": tile.output,
            "element": source.element,
            "channels": tile.depth,
            "in_h": row_need.count,
            "in_w": column_need.count,
            "kernel_h": rows.kernel,
            "kernel_w": columns.kernel,
            "stride_h": rows.stride,
            "stride_w": columns.stride,
            "pad_top": row_need.first - row_need.origin,
            "pad_left": column_need.first - column_need.origin,
            "out_h": tile.area.height,
            "out_w": tile.area.width,
            "in_row_stride": column_need.count * run,
            "in_pixel_stride": run,
            "out_row_stride": tile.area.width * run,
            "out_pixel_stride": run,
            **extra,
        }
        if average:
            pixel = tile.area.pixel(rows, columns)
            words |= event_words(pixel, columns, image.channels, tile.first)
        steps = tile.steps
        return (
            commands("nmp.load", steps.size, (steps, loads.words())),
            commands("nmp.avgpool" if average else "nmp.maxpool", steps.size, (steps, words)),
            commands("nmp.store", steps.size, (steps, stores.words())),
        )

    def sums(pixels: Any, taps: int, channels: Any) -> Any:
        return pool_cycles(pixels, taps, channels, source.element, context.costs)

    operation = _Operation(Unit.VECTOR, sums, (source_at, target_at), commands_of)
    return _options(image, operation, context)


def average_of(op: Operation, place: Place) -> Average:
    """What a profile is asked of an average pool."""
    target, source = op.operands
    taps = math.prod(numbers(op.instruction, "Kernels"))
    counts_padding = bool(op.instruction.attributes["CountIncludePads"])
    has_padding = any(numbers(op.instruction, "Pads"))
    unsigned = bool(op.instruction.attributes.get("Unsigned"))
    is_global = bool(op.instruction.attributes.get("Global"))
    return Average(source, target, taps, counts_padding, has_padding, unsigned, is_global, place)


def _average_words(op: Operation, context: Context) -> dict[str, int]:
    target, source = op.operands
    window = average_of(op, context.place)
    return {
        "in_offset": source.offset,
        "out_offset": target.offset,
        **context.profile.average(window),
        **clip_words(op, target),
    }
