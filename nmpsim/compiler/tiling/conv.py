"""Planner of convolutions and fully connected layers on the MAC array.

Cores form a grid of ranges of output channels, output rows and output columns. A core loops over
slices of output channels and over tiles of the input, in either order. A convolution too deep for
one tile is summed in parts of its input channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nmpsim.bundle.debug import PackedConstantLocation
from nmpsim.bundle.elf import Buffer, LazyBytes, encode_array
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.conv_scheme import (
    ConvTiling,
    choose_simple_tiling,
    list_conv_tilings,
    plan_buffers,
)
from nmpsim.compiler.tiling.grid import (
    Integers,
    TileRanges,
    build_grid,
    compute_offsets,
    divide_ranges,
    divide_rows,
    split_evenly,
)
from nmpsim.compiler.tiling.image import ChannelRange, ImageTiles, add_table_load, make_window_words
from nmpsim.compiler.tiling.plan import (
    LOAD,
    STORE,
    LayerPlan,
    PlanBuilder,
    align_size,
    make_box_words,
)
from nmpsim.compiler.tiling.slices import ChannelSlicer, ChannelSlices
from nmpsim.compiler.tiling.weighted import WeightedLayer
from nmpsim.isa.layouts import count_packed_bytes, pack_weights
from nmpsim.isa.table import Unit
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    PART_FIRST,
    PART_LAST,
    PART_MIDDLE,
    PART_ONLY,
    SCALE_BYTES,
)

_SLICE, _ROWS, _COLUMNS, _PART = range(4)


def make_conv_options(layer: WeightedLayer, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of a convolution or fully connected layer."""
    config, slicer = context.config, ChannelSlicer(layer)
    simple = choose_simple_tiling(layer, slicer, config)
    if simple is None:
        smallest = ConvTiling(1, layer.total_rows, layer.axes[1].out, 1, 1, 1, 1)
        needs = plan_buffers(layer, slicer.sizes(slicer.atoms, 1), smallest).total
        raise context.make_size_error(needs)
    source, target = map(context.memory.get_address, (layer.source, layer.target))
    channels = context.add_constant("channels", layer.channel_records)
    records = layer.scale_records
    scales = None if records is None else context.add_constant("scales", records)
    known: dict[ConvTiling, tuple[ConvTiling, ...]] = {}

    def build(tiling: ConvTiling, is_final: bool) -> LayerPlan:
        slices = slicer.slices(tiling.across, tiling.atoms)
        parts = divide_ranges(((0, layer.depth),), tiling.part)
        pack_weights = _place_weights if is_final else _estimate_weights
        weights, nbytes = pack_weights(layer, context, slices, parts)
        rows = divide_rows(
            split_evenly(layer.total_rows, tiling.down), layer.axes[0].out, tiling.rows
        )
        columns = divide_ranges(split_evenly(layer.axes[1].out, tiling.beside), tiling.columns)
        inner = (_ROWS, _COLUMNS, _SLICE) if tiling.input_stays else (_SLICE, _ROWS, _COLUMNS)
        grid = build_grid((slices.channels, rows, columns, parts), (*inner, _PART))
        tiles = ImageTiles.from_grid(grid, *layer.axes)
        slice_of, part = grid.index[_SLICE], grid.index[_PART]
        part_begin, part_end = grid.begin[_PART], grid.end[_PART]
        groups = slices.groups[slice_of]
        first_input = slices.first_input[slice_of] + part_begin
        in_depth = part_end - part_begin
        inputs = ChannelRange(first_input, groups * in_depth, layer.channels, layer.element_bytes)
        count = slices.count[slice_of]
        results = ChannelRange(grid.begin[_SLICE], count, layer.out_channels, layer.element_bytes)

        builder = PlanBuilder(grid, Unit.MAC, config, layer.macs)
        buffers = plan_buffers(layer, slicer.sizes(tiling.across, tiling.atoms), tiling)
        new_weights, new_slice = grid.find_changes(slice_of, part), grid.find_changes(slice_of)
        rows_and_columns = grid.index[_ROWS], grid.index[_COLUMNS]
        new_input = grid.find_changes(*rows_and_columns, first_input)
        new_output = grid.find_changes(slice_of, *rows_and_columns)
        weights_at = builder.allocate_buffers(buffers.weights, buffers.weight_copies, new_weights)
        tables = align_size(buffers.channels) + buffers.scales
        channels_at = builder.allocate_buffers(tables, buffers.weight_copies, new_slice)
        scales_at = channels_at + align_size(buffers.channels)
        input_at = builder.allocate_buffers(buffers.input, buffers.input_copies, new_input)
        output_at = builder.allocate_buffers(buffers.output, buffers.output_copies, new_output)

        add_table_load(builder, channels, channels_at, results, CHANNEL_BYTES, new_slice)
        if scales is not None:
            add_table_load(builder, scales, scales_at, results, SCALE_BYTES, new_slice)
        which = slice_of * parts.begin.size + part
        builder.add_instructions(
            LOAD, make_box_words(weights[which], weights_at, nbytes[which]), new_weights
        )
        in_width = layer.axes[1].count_inputs(tiles.width)
        input_words = tiles.make_load_words(source, input_at, inputs, in_width)
        padding = tiles.make_padding_words(layer.element, layer.source.offset)
        builder.add_instructions(LOAD, input_words | padding, new_input)
        words = {
            **layer.words,
            "input": input_at,
            "weights": weights_at,
            "channels": channels_at,
            "scales": 0 if scales is None else scales_at,
            "output": output_at,
            "groups": groups,
            "in_channels": in_depth,
            "out_channels": count,
            **make_window_words(*layer.axes, "kernel", "stride", "dilation"),
            **tiles.make_shape_words(in_width, inputs.run_bytes, results.run_bytes),
            "part": select_part_words(part_begin == 0, part_end == layer.depth),
            "partial": builder.allocate_buffer(buffers.partial),
            **tiles.make_position_words(results),
        }
        builder.add_instructions("nmp.conv", words)
        is_last = part_end == layer.depth
        builder.add_instructions(STORE, tiles.make_store_words(target, output_at, results), is_last)
        return builder.build()

    key = (
        "conv",
        layer.images,
        layer.channels,
        layer.out_channels,
        layer.groups,
        layer.axes,
        layer.element,
        layer.scale_records is None,
        layer.is_exact,
        context.get_row_offsets(source, target),
    )
    return TilingOptions(
        key, simple, lambda memory: list_conv_tilings(layer, slicer, config, memory, known), build
    )


def select_part_words(is_first: Integers, is_last: Integers) -> Integers:
    """Select the word ``part`` of each instruction: first, middle, last or only part of a sum."""
    return np.where(
        is_first,
        np.where(is_last, PART_ONLY, PART_FIRST),
        np.where(is_last, PART_LAST, PART_MIDDLE),
    )


def _estimate_weights(
    layer: WeightedLayer, context: PlanningContext, slices: ChannelSlices, parts: TileRanges
) -> tuple[Integers, Integers]:
    """Return [pieces] addresses and sizes that packed weights would have if placed next."""
    row = layer.axes[1].kernel * (parts.end - parts.begin) * layer.element_bytes
    nbytes = count_packed_bytes(slices.count[:, None], layer.axes[0].kernel, row).reshape(-1)
    return context.memory.get_next_address() + compute_offsets(align_size(nbytes))[:-1], nbytes


def _place_weights(
    layer: WeightedLayer, context: PlanningContext, slices: ChannelSlices, parts: TileRanges
) -> tuple[Integers, Integers]:
    """Place packed weights among the constants; return [pieces] their addresses and sizes."""
    _, nbytes = _estimate_weights(layer, context, slices, parts)
    outputs = slices.channels
    addresses = [
        context.add_constant(
            f"weights.{box[0].start}.{box[1].start}",
            LazyBytes(size, partial(_pack_box, layer, box)),
        )
        for size, box in zip(nbytes.tolist(), _boxes(outputs, parts), strict=True)
    ]
    context.memory.record_packed_constant(
        layer.constant,
        PackedConstantLocation(
            layer.constant.buffer.name,
            layer.order,
            (*outputs.begin.tolist(), layer.out_channels),
            (*parts.begin.tolist(), layer.depth),
            tuple(addresses),
        ),
    )
    return np.array(addresses), nbytes


def _boxes(outputs: TileRanges, inputs: TileRanges) -> Iterator[tuple[slice, slice]]:
    """Yield output channels and input channels of each piece of the weights."""
    outs, depths = (
        [slice(*edges) for edges in zip(one.begin.tolist(), one.end.tolist(), strict=True)]
        for one in (outputs, inputs)
    )
    return ((out, depth) for out in outs for depth in depths)


def _pack_box(layer: WeightedLayer, box: tuple[slice, slice]) -> Buffer:
    out, depth = box
    return encode_array(pack_weights(layer.weights[out, :, :, depth]))
