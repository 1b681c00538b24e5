"""Operations that keep channels separate: depthwise convolutions and pools.

Cores form a grid of channel ranges and row ranges; a core's tiles are as many rows, columns and
channels as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import attrs
import numpy as np

from nmpsim.compiler.numerics import Average
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
from nmpsim.compiler.tiling.context import Context
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.options import Options, best_first
from nmpsim.compiler.tiling.plan import (
    Arena,
    Command,
    LayerPlan,
    StridedRuns,
    TileStep,
    chunks,
    load,
    plan_of,
    split,
    spread,
    store,
    too_large,
)
from nmpsim.compiler.tiling.tiles import event_words, output_box, window_words
from nmpsim.compiler.tiling.weighted import Weighted, clip_words
from nmpsim.compiler.tiling.window import Need, numbers, row_tiles
from nmpsim.compiler.work import Operation
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place
from nmpsim.isa.table import Unit
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.lir.opcode import Kind
from nmpsim.timing.compute import depthwise_cycles, pool_cycles


@attrs.frozen
class Tile:
    """A tile of results and the buffers of its input and output."""

    image: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    channels: tuple[int, int]
    row_need: Need
    column_need: Need
    input: int
    output: int
    tables: int

    @property
    def depth(self) -> int:
        """Channels."""
        return self.channels[1] - self.channels[0]

    @property
    def out_h(self) -> int:
        """Rows of the result."""
        return self.rows[1] - self.rows[0]

    @property
    def out_w(self) -> int:
        """Columns of the result."""
        return self.columns[1] - self.columns[0]


def _tiles(
    image: Image,
    scheme: ChannelScheme,
    channels: tuple[int, int],
    rows: tuple[int, int],
    config: DeviceConfig,
) -> Iterator[tuple[Tile, bool]]:
    """A core's tiles; True with the first one of a range of channels."""
    arena = Arena(config)
    inputs, outputs, tables = map(arena.take_twice, buffer_sizes(image, scheme))
    number = 0
    for piece, (low, high) in enumerate(chunks(*channels, scheme.channels)):
        first = True
        for which, top, bottom in row_tiles(*rows, image.rows.out, scheme.rows):
            for left, right in chunks(0, image.columns.out, scheme.columns):
                yield (
                    Tile(
                        which,
                        (top, bottom),
                        (left, right),
                        (low, high),
                        image.rows.need(top, bottom),
                        image.columns.need(left, right),
                        inputs[number % 2],
                        outputs[number % 2],
                        tables[piece % 2],
                    ),
                    first,
                )
                first = False
                number += 1


@attrs.frozen
class _Operation:
    """What an operation of this module does with its tiles."""

    unit: Unit
    sums: Sums
    addresses: tuple[int, int]
    """Of input and output."""
    step: Callable[[Tile, bool], TileStep]
    macs: int = 0


def _options(image: Image, operation: _Operation, context: Context) -> Options[ChannelScheme]:
    config = context.config
    simple = simple_scheme(image, config)
    if simple is None:
        raise too_large(f"%{image.name}", smallest_tile(image), config, context.place)

    def ranked(memory: Memory) -> list[ChannelScheme]:
        return best_first(
            schemes_of(image, config),
            lambda s: rough_cost_of(image, s, operation.sums, memory).cycles,
        )

    def build(scheme: ChannelScheme, _: bool) -> LayerPlan:
        cores = []
        for a, b in split(math.ceil(image.channels / VECTOR), scheme.across):
            channels = (a * VECTOR, min(b * VECTOR, image.channels))
            for rows in split(image.images * image.rows.out, scheme.down):
                tiles = _tiles(image, scheme, channels, rows, config)
                cores.append(tuple(operation.step(tile, first) for tile, first in tiles))
        return plan_of(operation.unit, spread(cores, config), operation.macs)

    places = tuple(address % config.dram_row_bytes for address in operation.addresses)
    key = (operation.unit, attrs.evolve(image, name=""), places)
    return Options(key, simple, ranked, build)


def _input_box(image: Image, source: int, tile: Tile, spm: int, spm_row: int) -> StridedRuns:
    """The existing part of a tile's input."""
    rows, columns = tile.row_need, tile.column_need
    pixel, run = image.channels * image.element_bytes, tile.depth * image.element_bytes
    row = pixel * image.columns.size
    offset = (tile.image * image.rows.size + rows.first) * row
    offset += columns.first * pixel + tile.channels[0] * image.element_bytes
    return StridedRuns(
        source + offset, spm, run, columns.count, rows.count, pixel, row, run, spm_row
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

    def step(tile: Tile, first: bool) -> TileStep:
        depth, low = tile.depth, tile.channels[0]
        run = depth * wide
        channels_at = tile.tables
        scales_at = channels_at + depth * CHANNEL_BYTES
        weights_at = scales_at + depth * scale_bytes
        loads = []
        if first:
            loads.append(
                load(StridedRuns(records + low * CHANNEL_BYTES, channels_at, depth * CHANNEL_BYTES))
            )
            if scales is not None:
                loads.append(
                    load(
                        StridedRuns(scale_table + low * SCALE_BYTES, scales_at, depth * SCALE_BYTES)
                    )
                )
            box = StridedRuns(
                weights + low * wide, weights_at, run, taps, 1, layer.channels * wide, 0, run
            )
            loads.append(load(box))
        rows, columns = tile.row_need, tile.column_need
        width = columns.before + columns.count + columns.after
        loads.append(
            load(
                _input_box(image, source, tile, tile.input, width * run),
                pad_x_before=columns.before,
                pad_x_after=columns.after,
                pad_y_before=rows.before,
                pad_y_after=rows.after,
                element=layer.element,
                fill=layer.source.offset,
            )
        )
        compute = Command(
            "nmp.dwconv",
            {
                **layer.words,
                "input": tile.input,
                "weights": weights_at,
                "channels": channels_at,
                "scales": scales_at if scales is not None else 0,
                "output": tile.output,
                "channels_count": depth,
                **window_words(layer),
                "out_h": tile.out_h,
                "out_w": tile.out_w,
                "in_row_stride": width * run,
                "in_pixel_stride": run,
                "out_row_stride": tile.out_w * run,
                "out_pixel_stride": run,
                **event_words(layer, tile.image, tile.rows[0], tile.columns[0], low),
            },
        )
        box = output_box(
            layer, target, tile.output, tile.image, tile.rows, tile.columns, (low, depth)
        )
        return TileStep(tuple(loads), (compute,), (store(box),))

    def sums(pixels: int, taps: int, channels: int) -> int:
        return depthwise_cycles(pixels, taps, channels, layer.element, context.costs)

    operation = _Operation(Unit.MAC, sums, (source, target), step, layer.macs)
    return _options(image, operation, context)


def pool_options(op: Operation, context: Context) -> Options[ChannelScheme]:
    """The tilings of a maximum or average pool."""
    target, source = op.output, op.operands[1]
    image = image_of(op)
    rows, columns, wide = image.rows, image.columns, source.element_bytes
    source_at, target_at = context.address_of(source), context.address_of(target)
    average = op.kind is Kind.AVERAGE_POOL
    extra = _average_words(op, context) if average else {"empty_value": source.offset}

    def step(tile: Tile, _: bool) -> TileStep:
        run = tile.depth * wide
        row = tile.column_need.count * run
        pixel = (tile.image * rows.out + tile.rows[0]) * columns.out + tile.columns[0]
        words = {
            "input": tile.input,
            "output": tile.output,
            "element": source.element,
            "channels": tile.depth,
            "in_h": tile.row_need.count,
            "in_w": tile.column_need.count,
            "kernel_h": rows.kernel,
            "kernel_w": columns.kernel,
            "stride_h": rows.stride,
            "stride_w": columns.stride,
            "pad_top": tile.row_need.first - tile.row_need.origin,
            "pad_left": tile.column_need.first - tile.column_need.origin,
            "out_h": tile.out_h,
            "out_w": tile.out_w,
            "in_row_stride": row,
            "in_pixel_stride": run,
            "out_row_stride": tile.out_w * run,
            "out_pixel_stride": run,
            **extra,
        }
        if average:
            words["event_origin"] = pixel * image.channels + tile.channels[0]
            words["event_stride_y"] = columns.out * image.channels
            words["event_stride_x"] = image.channels
        compute = Command("nmp.avgpool" if average else "nmp.maxpool", words)
        stride = image.channels * wide
        box = StridedRuns(
            target_at + pixel * stride + tile.channels[0] * wide,
            tile.output,
            run,
            tile.out_w,
            tile.out_h,
            stride,
            columns.out * stride,
            run,
            tile.out_w * run,
        )
        loads = (load(_input_box(image, source_at, tile, tile.input, row)),)
        return TileStep(loads, (compute,), (store(box),))

    def sums(pixels: int, taps: int, channels: int) -> int:
        return pool_cycles(pixels, taps, channels, source.element, context.costs)

    operation = _Operation(Unit.VECTOR, sums, (source_at, target_at), step)
    return _options(image, operation, context)


def average_of(op: Operation, place: Place) -> Average:
    """What a profile is asked of an average pool."""
    target, source = op.operands
    taps = math.prod(numbers(op.instruction, "Kernels"))
    counts_padding = bool(op.instruction.attributes["CountIncludePads"])
    has_padding = any(numbers(op.instruction, "Pads"))
    unsigned = bool(op.instruction.attributes.get("Unsigned"))
    return Average(source, target, taps, counts_padding, has_padding, unsigned, place)


def _average_words(op: Operation, context: Context) -> dict[str, int]:
    target, source = op.operands
    window = average_of(op, context.place)
    return {
        "in_offset": source.offset,
        "out_offset": target.offset,
        **context.profile.average(window),
        **clip_words(op, target),
    }
