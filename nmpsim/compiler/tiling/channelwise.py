"""Planner of operations that keep channels separate: depthwise convolutions and pools.

Cores form a grid of ranges of channels and of rows. The tiles of a core have as many rows, columns
and channels as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions, select_tilings
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost, Traffic, estimate_box_cycles
from nmpsim.compiler.tiling.grid import (
    build_grid,
    divide_ranges,
    divide_rows,
    list_divisions,
    list_halvings,
    list_part_counts,
    split_evenly,
)
from nmpsim.compiler.tiling.image import (
    ChannelRange,
    ImageTiles,
    SpatialAxis,
    add_table_load,
    make_spatial_axes,
    make_window_words,
)
from nmpsim.compiler.tiling.plan import (
    LOAD,
    STORE,
    LayerPlan,
    PlanBuilder,
    align_size,
    make_box_words,
)
from nmpsim.compiler.tiling.weighted import WeightedLayer, has_channel_scales, make_clip_words
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import format_count
from nmpsim.isa.table import Unit
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.timing.compute import ceil_div, count_depthwise_cycles, count_pool_cycles

VECTOR = 16
"""Ranges of channels are multiples of this if there are enough channels."""
POOLS = frozenset({OpcodeKind.MAX_POOL, OpcodeKind.AVERAGE_POOL})


@attrs.frozen
class ImageShape:
    """Shape of a pool or depthwise convolution: images, channels and spatial axes."""

    images: int
    channels: int
    axes: tuple[SpatialAxis, SpatialAxis]
    """Rows and columns."""
    element_bytes: int
    table_bytes: int = 0
    """Bytes of constants for each channel in the scratchpad."""

    @property
    def total_rows(self) -> int:
        """Rows of the result, summed over all images."""
        return self.images * self.axes[0].out


class ChannelTiling(NamedTuple):
    """Tiling, or array of tilings, of a pool or depthwise convolution."""

    across: Any
    """Number of ranges of channels."""
    down: Any
    """Number of ranges of rows, counted over all images."""
    channels: Any
    rows: Any
    columns: Any

    @property
    def cores(self) -> Any:
        """Number of cores with work."""
        return self.across * self.down

    @property
    def label(self) -> str:
        """Text for reports: the core grid, and the rows, columns and channels of a tile."""
        channels = format_count(self.channels, "channel")
        return f"{self.across}x{self.down} cores, tiles {self.rows}x{self.columns} of {channels}"


def is_depthwise(op: Operation) -> bool:
    """Return whether an operation is a convolution with one group for each channel."""
    if op.kind is not OpcodeKind.CONVOLUTION:
        return False
    groups = op.get_number("Group")
    return bool(groups > 1 and groups == op.operands[1].shape[3] == op.operands[0].shape[3])


def make_image_shape(op: Operation) -> ImageShape:
    """Return the shape of a pool or depthwise convolution and its constants' size."""
    source, axes, tables = op.operands[1], make_spatial_axes(op), 0
    if op.kind not in POOLS:
        weights = axes[0].kernel * axes[1].kernel * source.element_bytes
        tables = weights + CHANNEL_BYTES + (SCALE_BYTES if has_channel_scales(op) else 0)
    return ImageShape(source.shape[0], source.shape[3], axes, source.element_bytes, tables)


def compute_smallest_tile_bytes(shape: ImageShape) -> int:
    """Compute the scratchpad size in bytes of the smallest tile."""
    return int(compute_scratchpad_bytes(shape, ChannelTiling(1, 1, 1, 1, 1)))


def compute_buffer_sizes(shape: ImageShape, tiling: ChannelTiling) -> tuple[Any, Any, Any]:
    """Compute the sizes of a tile's input, result and constants in bytes."""
    rows, columns = shape.axes
    wide = shape.element_bytes
    in_pixels = rows.count_inputs(tiling.rows) * columns.count_inputs(tiling.columns)
    return (
        in_pixels * tiling.channels * wide,
        tiling.rows * tiling.columns * tiling.channels * wide,
        tiling.channels * shape.table_bytes,
    )


def compute_scratchpad_bytes(shape: ImageShape, tiling: ChannelTiling) -> Any:
    """Compute the scratchpad size in bytes of a tile's double buffers."""
    return 2 * sum(align_size(size) for size in compute_buffer_sizes(shape, tiling))


def compute_largest_share(shape: ImageShape, tiling: ChannelTiling) -> tuple[Any, Any]:
    """Compute the largest numbers of channels and of rows that one core computes."""
    blocks = ceil_div(shape.channels, VECTOR)
    channels = np.minimum(ceil_div(blocks, tiling.across) * VECTOR, shape.channels)
    return channels, ceil_div(shape.total_rows, tiling.down)


def choose_simple_tiling(shape: ImageShape, config: DeviceConfig) -> ChannelTiling | None:
    """Choose a tiling without a search, or return None if no tile fits the scratchpad.

    Cores divide the rows first. Tiles have all columns if possible, then all channels, then rows.
    """
    cores, total_rows = config.cores_count, shape.total_rows
    across = max(
        range(1, min(cores, ceil_div(shape.channels, VECTOR)) + 1),
        key=lambda across: (min(across * min(cores // across, total_rows), cores), -across),
    )
    grid = ChannelTiling(across, min(cores // across, total_rows), 0, 0, 0)
    channels, rows = (int(n) for n in compute_largest_share(shape, grid))
    for columns in list_halvings(shape.axes[1].out):
        for depth in list_halvings(channels):
            for count in list_halvings(rows):
                tiling = grid._replace(channels=depth, rows=count, columns=columns)
                if compute_scratchpad_bytes(shape, tiling) <= config.scratchpad_bytes:
                    return tiling
    return None


def list_channel_tilings(shape: ImageShape, config: DeviceConfig) -> ChannelTiling:
    """Return the useful tilings that fit the scratchpad, as one tiling whose fields are arrays."""
    cores, found = config.cores_count, []
    for across in list_part_counts(ceil_div(shape.channels, VECTOR), cores):
        for down in list_part_counts(shape.total_rows, cores // across):
            grid = ChannelTiling(across, down, 0, 0, 0)
            channels, rows = (int(n) for n in compute_largest_share(shape, grid))
            for columns in list_halvings(shape.axes[1].out):
                every = np.meshgrid(list_halvings(channels), list_divisions(rows), indexing="ij")
                depth, high = (one.reshape(-1) for one in every)
                ones = np.ones_like(depth)
                tiled = ChannelTiling(ones * across, ones * down, depth, high, ones * columns)
                fits = compute_scratchpad_bytes(shape, tiled) <= config.scratchpad_bytes
                found.append(select_tilings(tiled, fits))
                if fits.any():
                    break
    return ChannelTiling(*(np.concatenate(column) for column in zip(*found, strict=True)))


UnitCycles = Callable[[Any, int, Any], Any]
"""Returns the cycles of a unit for numbers of pixels, taps and channels."""


def estimate_cost(
    shape: ImageShape, tiling: ChannelTiling, unit_cycles: UnitCycles, memory: DramModel
) -> RoughCost:
    """Estimate the cost of one or more tilings without a simulation."""
    row_axis, column_axis = shape.axes
    channels, rows = compute_largest_share(shape, tiling)
    depth, high = np.minimum(tiling.channels, channels), np.minimum(tiling.rows, rows)
    slices = ceil_div(channels, tiling.channels)
    tiles = slices * ceil_div(rows, tiling.rows) * ceil_div(column_axis.out, tiling.columns)
    run, pixel = depth * shape.element_bytes, shape.channels * shape.element_bytes
    in_rows = np.minimum(row_axis.count_inputs(high), row_axis.size)
    in_columns = np.minimum(column_axis.count_inputs(tiling.columns), column_axis.size)
    in_row, out_row = pixel * column_axis.size, pixel * column_axis.out
    tables = Traffic(slices, estimate_box_cycles(memory, depth * shape.table_bytes))
    load = Traffic(tiles, estimate_box_cycles(memory, run, in_columns, pixel, in_rows, in_row))
    store = Traffic(tiles, estimate_box_cycles(memory, run, tiling.columns, pixel, high, out_row))
    return RoughCost(
        tiling.cores,
        tiles * unit_cycles(high * tiling.columns, row_axis.kernel * column_axis.kernel, depth),
        tiles,
        (tables, load) if shape.table_bytes else (load,),
        store,
    )


@attrs.frozen
class _Tiles:
    """The tiles of a layer with their buffers in the scratchpad."""

    builder: PlanBuilder
    image: ImageTiles
    channels: ChannelRange
    input: Any
    output: Any
    tables: Any
    new_channels: Any
    """[tiles] Whether a tile is the core's first with its channels."""


def _options(
    shape: ImageShape,
    unit: Unit,
    unit_cycles: UnitCycles,
    addresses: tuple[int, int],
    add_commands: Callable[[_Tiles], None],
    context: PlanningContext,
    macs: int = 0,
) -> TilingOptions:
    """Return the tilings of an operation whose commands are added by ``add_commands``."""
    config = context.config
    simple = choose_simple_tiling(shape, config)
    if simple is None:
        raise context.make_size_error(compute_smallest_tile_bytes(shape))

    def candidates(memory: DramModel) -> tuple[ChannelTiling, RoughCost]:
        tilings = list_channel_tilings(shape, config)
        return tilings, estimate_cost(shape, tilings, unit_cycles, memory)

    def build(tiling: ChannelTiling, _: bool) -> LayerPlan:
        blocks = tuple(
            (a * VECTOR, min(b * VECTOR, shape.channels))
            for a, b in split_evenly(math.ceil(shape.channels / VECTOR), tiling.across)
        )
        rows, columns = shape.axes
        grid = build_grid(
            (
                divide_ranges(blocks, tiling.channels),
                divide_rows(split_evenly(shape.total_rows, tiling.down), rows.out, tiling.rows),
                divide_ranges(((0, columns.out),), tiling.columns),
            )
        )
        builder = PlanBuilder(grid, unit, config, macs)
        input_size, output_size, table_size = compute_buffer_sizes(shape, tiling)
        first, new = grid.begin[0], grid.find_changes(grid.index[0])
        tiles = _Tiles(
            builder,
            ImageTiles.from_grid(grid, *shape.axes),
            ChannelRange(first, grid.end[0] - first, shape.channels, shape.element_bytes),
            builder.allocate_buffers(input_size),
            builder.allocate_buffers(output_size),
            builder.allocate_buffers(table_size, changed=new),
            new,
        )
        add_commands(tiles)
        builder.add_instructions(
            STORE, tiles.image.make_store_words(addresses[1], tiles.output, tiles.channels)
        )
        return builder.build()

    key = (unit, shape, context.get_row_offsets(*addresses))
    return TilingOptions(key, simple, candidates, build)


def make_depthwise_options(
    op: Operation, layer: WeightedLayer, context: PlanningContext
) -> TilingOptions:
    """Return the tiling options of a depthwise convolution."""
    taps, wide = layer.axes[0].kernel * layer.axes[1].kernel, layer.element_bytes
    records = context.add_constant("channels", layer.channel_records)
    scales = layer.scale_records
    scale_table = 0 if scales is None else context.add_constant("scales", scales)
    by_tap = np.ascontiguousarray(layer.weights.reshape(layer.channels, taps).T)
    weights = context.add_constant("weights", by_tap)
    source, target = map(context.memory.get_address, (layer.source, layer.target))

    def add_commands(tiles: _Tiles) -> None:
        builder, image, channels = tiles.builder, tiles.image, tiles.channels
        scales_at = tiles.tables + channels.count * CHANNEL_BYTES
        weights_at = scales_at + channels.count * layer.scale_bytes
        run, in_width = channels.run_bytes, layer.axes[1].count_inputs(image.width)
        add_table_load(builder, records, tiles.tables, channels, CHANNEL_BYTES, tiles.new_channels)
        if scales is not None:
            add_table_load(
                builder, scale_table, scales_at, channels, SCALE_BYTES, tiles.new_channels
            )
        weights_box = make_box_words(
            weights + channels.first * wide,
            weights_at,
            run,
            taps,
            dram_stride_x=layer.channels * wide,
            spm_stride_x=run,
        )
        builder.add_instructions(LOAD, weights_box, tiles.new_channels)
        input_words = image.make_load_words(source, tiles.input, channels, in_width)
        padding = image.make_padding_words(layer.element, layer.source.offset)
        builder.add_instructions(LOAD, input_words | padding)
        words = {
            **layer.words,
            "input": tiles.input,
            "weights": weights_at,
            "channels": tiles.tables,
            "scales": scales_at if scales is not None else 0,
            "output": tiles.output,
            "channels_count": channels.count,
            **make_window_words(*layer.axes, "kernel", "stride", "dilation"),
            **image.make_shape_words(in_width, run, run),
            **image.make_position_words(channels),
        }
        builder.add_instructions("nmp.dwconv", words)

    def unit_cycles(pixels: Any, taps: int, channels: Any) -> Any:
        return count_depthwise_cycles(pixels, taps, channels, layer.element, context.costs)

    addresses = (source, target)
    return _options(
        make_image_shape(op), Unit.MAC, unit_cycles, addresses, add_commands, context, layer.macs
    )


def make_pool_words(op: Operation, context: PlanningContext) -> dict[str, int]:
    """Make the descriptor words that all tiles of a maximum or average pool share."""
    source = op.operands[1]
    if op.kind is OpcodeKind.MAX_POOL:
        return {"element": source.element, "empty_value": source.offset}
    return {
        "element": source.element,
        "in_offset": source.offset,
        "out_offset": op.operands[0].offset,
        **context.profile.get_factor_words(op, context.place),
        **make_clip_words(op, op.operands[0]),
    }


def make_pool_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of a maximum or average pool."""
    target, source = op.output, op.operands[1]
    shape = make_image_shape(op)
    addresses = context.memory.get_address(source), context.memory.get_address(target)
    is_average = op.kind is OpcodeKind.AVERAGE_POOL
    constant = make_pool_words(op, context)

    def add_commands(tiles: _Tiles) -> None:
        image, channels = tiles.image, tiles.channels
        rows, columns, run = image.rows, image.columns, channels.run_bytes
        tiles.builder.add_instructions(
            LOAD, image.make_load_words(addresses[0], tiles.input, channels, columns.count)
        )
        words = {
            "input": tiles.input,
            "output": tiles.output,
            "channels": channels.count,
            "in_h": rows.count,
            "in_w": columns.count,
            **make_window_words(*shape.axes, "kernel", "stride"),
            "pad_top": rows.first - rows.origin,
            "pad_left": columns.first - columns.origin,
            **image.make_shape_words(columns.count, run, run),
            **constant,
        }
        if is_average:
            words |= image.make_position_words(channels)
        tiles.builder.add_instructions("nmp.avgpool" if is_average else "nmp.maxpool", words)

    def unit_cycles(pixels: Any, taps: int, channels: Any) -> Any:
        return count_pool_cycles(pixels, taps, channels, source.element, context.costs)

    return _options(shape, Unit.VECTOR, unit_cycles, addresses, add_commands, context)
