"""All tiles of a convolution, with their instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nmpsim.compiler.tiling.conv_scheme import Buffers, Scheme
from nmpsim.compiler.tiling.plan import (
    Arena,
    Integers,
    LayerPlan,
    Part,
    StridedRuns,
    commands,
    core_ends,
    sizes_of,
    split,
)
from nmpsim.compiler.tiling.slices import Pieces
from nmpsim.compiler.tiling.tiles import (
    Area,
    Ranges,
    Tiles,
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
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.config import DeviceConfig
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


@attrs.frozen
class Addresses:
    """Where a convolution's operands lie in DRAM."""

    source: int
    target: int
    channels: int
    scales: int | None
    weights: Callable[[Pieces, Ranges], tuple[Integers, Integers]]
    """Address and bytes of the packed weights of all slices, part by part of the input channels."""


@attrs.frozen(eq=False)
class _Tile:
    """[tiles] of each."""

    piece: Integers
    first: Integers
    """Output channel."""
    count: Integers
    area: Area
    part: tuple[Integers, Integers]
    input: tuple[Integers, Integers]
    """First input channel, and how many of all groups."""
    groups: Integers


@attrs.frozen(eq=False)
class _Spm:
    """[tiles] scratchpad addresses."""

    weights: Integers
    channels: Integers
    scales: Integers
    input: Integers
    output: Integers
    partial: int


def conv_plan(
    layer: Weighted,
    scheme: Scheme,
    pieces: Pieces,
    buffers: Buffers,
    at: Addresses,
    config: DeviceConfig,
) -> LayerPlan:
    """Slices of weights pass by tiles of the input, or these by those; part by part."""
    rows = row_ranges(
        split(layer.images * layer.rows.out, scheme.down), layer.rows.out, scheme.rows
    )
    columns = ranges_of(split(layer.columns.out, scheme.beside), scheme.columns)
    parts = ranges_of(((0, layer.depth),), scheme.part)
    slices = Ranges(pieces.first, pieces.first + pieces.count, pieces.ends)
    inner = (_ROWS, _COLUMNS, _SLICE) if scheme.input_stays else (_SLICE, _ROWS, _COLUMNS)
    tiles = tiles_of((slices, rows, columns, parts), (*inner, _PART))
    tile = _tile(tiles, pieces, area_of(tiles, rows, columns, layer.rows), parts)
    new_weights = tiles.changes(tile.piece, tiles.at[_PART])
    new_tables = tiles.changes(tile.piece)
    new_input = tiles.changes(tiles.at[_ROWS], tiles.at[_COLUMNS], tile.input[0])
    new_output = tiles.changes(tile.piece, tiles.at[_ROWS], tiles.at[_COLUMNS])
    turns = (tiles.turns(new) for new in (new_weights, new_tables, new_input, new_output))
    spm = _scratchpad(buffers, config, *turns)
    weights, nbytes = at.weights(pieces, parts)
    key = tile.piece * parts.begin.size + tiles.at[_PART]
    loads = [
        *_tables(tile, at, spm, np.flatnonzero(new_tables)),
        _chosen(new_weights, StridedRuns(weights[key], spm.weights, nbytes[key]).words()),
        _chosen(new_input, _input_words(layer, tile, at.source, spm.input)),
    ]
    steps = tile.piece.size
    store = output_box(
        at.target,
        spm.output,
        tile.area,
        (layer.rows, layer.columns),
        (tile.first, tile.count),
        (layer.element_bytes, layer.out_channels * layer.element_bytes),
    )
    is_last = tile.part[1] == layer.depth
    return LayerPlan(
        Unit.MAC,
        core_ends(sizes_of(tiles.ends), config),
        commands("nmp.load", steps, *loads),
        commands("nmp.conv", steps, (np.arange(steps), _conv_words(layer, tile, at, spm))),
        commands("nmp.store", steps, _chosen(is_last, store.words())),
        layer.macs,
    )


def _tile(tiles: Tiles, pieces: Pieces, area: Area, parts: Ranges) -> _Tile:
    piece, part = tiles.at[_SLICE], tiles.at[_PART]
    begin, end = parts.begin[part], parts.end[part]
    groups = pieces.groups[piece]
    return _Tile(
        piece,
        pieces.first[piece],
        pieces.count[piece],
        area,
        (begin, end),
        (pieces.first_input[piece] + begin, groups * (end - begin)),
        groups,
    )


def _scratchpad(
    buffers: Buffers,
    config: DeviceConfig,
    weights: Integers,
    tables: Integers,
    inputs: Integers,
    outputs: Integers,
) -> _Spm:
    """Buffers are used in turn; what is asked for again stays where it is."""
    arena = Arena(config)

    def ring(copies: int, *sizes: int) -> Integers:
        return np.array([[arena.take(size) for size in sizes] for _ in range(copies)]).T

    (of_weights,) = ring(buffers.weight_copies, buffers.weights)
    channels, scales = ring(buffers.weight_copies, buffers.channels, buffers.scales)
    (of_inputs,) = ring(buffers.input_copies, buffers.input)
    (of_outputs,) = ring(buffers.output_copies, buffers.output)
    return _Spm(
        of_weights[weights % buffers.weight_copies],
        channels[tables % buffers.weight_copies],
        scales[tables % buffers.weight_copies],
        of_inputs[inputs % buffers.input_copies],
        of_outputs[outputs % buffers.output_copies],
        arena.take(buffers.partial),
    )


def _chosen(which: Integers, words: dict[str, Any]) -> Part:
    """The instructions of some tiles, of words for all of them."""
    at = np.flatnonzero(which)
    return at, {
        name: value[at] if isinstance(value, np.ndarray) else value for name, value in words.items()
    }


def _tables(tile: _Tile, at: Addresses, spm: _Spm, new: Integers) -> list[Part]:
    first, count = tile.first[new], tile.count[new]
    places = [(at.channels, spm.channels, CHANNEL_BYTES)]
    if at.scales is not None:
        places.append((at.scales, spm.scales, SCALE_BYTES))
    return [
        (new, StridedRuns(dram + first * nbytes, to[new], count * nbytes).words())
        for dram, to, nbytes in places
    ]


def _input_words(layer: Weighted, tile: _Tile, source: int, spm: Integers) -> dict[str, Any]:
    needs = layer.rows.need(*tile.area.rows), layer.columns.need(*tile.area.columns)
    wide = layer.element_bytes
    box = input_box(
        source,
        spm,
        needs,
        tile.area.image,
        (layer.rows, layer.columns),
        tile.input,
        (wide, layer.channels * wide),
        padded=True,
    )
    return {**box.words(), **padding_words(needs, layer)}


def _conv_words(layer: Weighted, tile: _Tile, at: Addresses, spm: _Spm) -> dict[str, Any]:
    run, out_pixel = tile.input[1] * layer.element_bytes, tile.count * layer.element_bytes
    is_first, is_last = tile.part[0] == 0, tile.part[1] == layer.depth
    pixel = tile.area.pixel(layer.rows, layer.columns)
    return {
        **layer.words,
        "input": spm.input,
        "weights": spm.weights,
        "channels": spm.channels,
        "scales": 0 if at.scales is None else spm.scales,
        "output": spm.output,
        "groups": tile.groups,
        "in_channels": tile.part[1] - tile.part[0],
        "out_channels": tile.count,
        **window_words(layer),
        "out_h": tile.area.height,
        "out_w": tile.area.width,
        "in_row_stride": layer.columns.extent(tile.area.width) * run,
        "in_pixel_stride": run,
        "out_row_stride": tile.area.width * out_pixel,
        "out_pixel_stride": out_pixel,
        "part": _places_in_sum(is_first, is_last),
        "partial": spm.partial,
        **event_words(pixel, layer.columns, layer.out_channels, tile.first),
    }


def _places_in_sum(is_first: Integers, is_last: Integers) -> Integers:
    return np.where(
        is_first,
        np.where(is_last, PART_ONLY, PART_FIRST),
        np.where(is_last, PART_LAST, PART_MIDDLE),
    )
