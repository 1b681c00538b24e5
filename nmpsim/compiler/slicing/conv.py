"""Convolutions and fully connected layers on the MAC array.

Cores form a grid: columns take output channels, rows take output rows. Within a core, output
channels are cut into slices whose weights stay in the scratchpad while tiles of rows pass by; a
convolution too deep for one tile goes over parts of its input channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.compiler.slicing.context import Context
from nmpsim.compiler.slicing.plan import (
    Arena,
    Box,
    Command,
    LayerPlan,
    TileStep,
    align,
    chunks,
    halvings,
    load,
    split,
    spread,
    store,
    too_large,
)
from nmpsim.compiler.slicing.slices import (
    Slice,
    atoms_of,
    composition,
    slices_of,
    takes_whole_groups,
)
from nmpsim.compiler.slicing.weighted import Weighted
from nmpsim.compiler.slicing.weights import pack, packed_bytes
from nmpsim.compiler.slicing.window import row_tiles
from nmpsim.isa.table import Unit
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    PART_FIRST,
    PART_LAST,
    PART_MIDDLE,
    PART_ONLY,
    SCALE_BYTES,
)
from nmpsim.timing.compute import conv_cycles

SUM_BYTES = 4
"""Of a running sum, for each byte of an element."""


@attrs.frozen
class Tiling:
    """How a core's share is cut."""

    atoms: int
    """Atoms of a slice."""
    rows: int
    columns: int
    part: int
    """Input channels of a group that one instruction takes."""


def plan_conv(layer: Weighted, context: Context) -> LayerPlan:
    """Plan a convolution or fully connected layer."""
    atoms = atoms_of(layer)
    grid_columns, grid_rows = _grid(layer, len(atoms), context)
    shares = [
        (atoms[a:b], rows)
        for a, b in split(len(atoms), grid_columns)
        for rows in split(layer.images * layer.rows.out, grid_rows)
    ]
    constants = _Constants(layer, context)
    tilings: dict[tuple[tuple[tuple[int, int], ...], int], Tiling] = {}
    cores = []
    for share, rows in shares:
        like = composition(share), rows[1] - rows[0]
        if like not in tilings:
            tilings[like] = _tiling(layer, share, like[1], context)
        cores.append(tuple(_Core(layer, context, constants, tilings[like]).steps(share, rows)))
    return LayerPlan(Unit.MAC, spread(cores, context.config), layer.macs)


def _grid(layer: Weighted, atoms: int, context: Context) -> tuple[int, int]:
    """Cores along channels and along rows, by the device's own costs; not all must work.

    Each row of cores loads all weights, each column the whole input.
    """
    cores = context.config.cores_count
    total_rows = layer.images * layer.rows.out
    in_bytes = layer.images * layer.rows.size * layer.columns.size * layer.channels
    in_bytes *= layer.element_bytes

    def cost(grid: tuple[int, int]) -> tuple[float, tuple[int, int]]:
        across, down = grid
        rows = math.ceil(total_rows / down)
        channels = math.ceil(atoms / across) * layer.out_channels // atoms
        cycles = conv_cycles(
            rows * layer.columns.out,
            layer.rows.kernel,
            layer.columns.kernel,
            layer.depth,
            channels,
            1,
            layer.element,
            context.costs,
        )
        halo = layer.rows.extent(rows) * down / max(layer.rows.size * layer.images, 1)
        moved = layer.weights.nbytes * down + in_bytes * across * max(halo, 1.0)
        dram = moved / context.config.dram_bytes_per_cycle
        return max(cycles, dram) + min(cycles, dram) / 8, grid

    return min(
        (
            (across, down)
            for across in range(1, min(cores, atoms) + 1)
            for down in range(1, min(cores // across, total_rows) + 1)
        ),
        key=cost,
    )


def _tiling(layer: Weighted, atoms: list[Slice], rows: int, context: Context) -> Tiling:
    """The tiling that moves the fewest bytes among those that fit."""
    best: tuple[float, Tiling] | None = None
    for part in halvings(layer.depth):
        if part < layer.depth and best is not None:
            break
        for columns in halvings(layer.columns.out):
            for count in halvings(len(atoms)):
                tiling = _fitting(layer, atoms, Tiling(count, rows, columns, part), context)
                if tiling is not None:
                    candidate = (_moved(layer, atoms, rows, tiling), tiling)
                    best = candidate if best is None else min(best, candidate, key=lambda c: c[0])
            if best is not None:
                break
    if best is None:
        smallest = Tiling(1, 1, 1, 1)
        raise too_large(
            f"%{layer.name}", _needs(layer, atoms, smallest), context.config, context.place
        )
    return best[1]


def _fitting(
    layer: Weighted, atoms: list[Slice], wanted: Tiling, context: Context
) -> Tiling | None:
    """``wanted`` with as many rows as fit, or None if not even one does."""
    if wanted.part < layer.depth and wanted.atoms > 1 and takes_whole_groups(layer):
        return None  # parts of several groups' inputs are not contiguous
    low, high = 0, wanted.rows
    while low < high:
        middle = (low + high + 1) // 2
        tiling = attrs.evolve(wanted, rows=middle)
        if _needs(layer, atoms, tiling) <= context.config.scratchpad_bytes:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        return None
    # Two tiles at least, where they are worth it, so that transfers and sums overlap.
    rows = -(-wanted.rows // 2) if low == wanted.rows >= 8 else low
    return attrs.evolve(wanted, rows=rows)


def _needs(layer: Weighted, atoms: list[Slice], tiling: Tiling) -> int:
    """Scratchpad bytes of a tiling."""
    sizes = _sizes(layer, atoms, tiling)
    weight_buffers = 1 if _stays(layer, atoms, tiling) else 2
    return (
        weight_buffers * (align(sizes.weights) + align(sizes.channels) + align(sizes.scales))
        + 2 * (align(sizes.input) + align(sizes.output))
        + align(sizes.partial)
    )


def _stays(layer: Weighted, atoms: list[Slice], tiling: Tiling) -> bool:
    """True if the weights of a core's only slice are loaded once."""
    slices = list(slices_of(atoms, tiling.atoms, takes_whole_groups(layer)))
    return len(slices) == 1 and tiling.part >= layer.depth


@attrs.frozen
class _Sizes:
    weights: int
    channels: int
    scales: int
    input: int
    output: int
    partial: int


def _sizes(layer: Weighted, atoms: list[Slice], tiling: Tiling) -> _Sizes:
    """Bytes of the largest tile's buffers."""
    slices = list(slices_of(atoms, tiling.atoms, takes_whole_groups(layer)))
    out = max(s.count for s in slices)
    groups = max(s.groups for s in slices)
    pixels = tiling.rows * tiling.columns
    in_pixels = layer.rows.extent(tiling.rows) * layer.columns.extent(tiling.columns)
    wide = layer.element_bytes
    return _Sizes(
        packed_bytes(out, layer.rows.kernel, layer.columns.kernel * tiling.part * wide),
        out * CHANNEL_BYTES,
        0 if layer.scale_records is None else out * SCALE_BYTES,
        in_pixels * groups * tiling.part * wide,
        pixels * out * wide,
        SUM_BYTES * wide * pixels * out if tiling.part < layer.depth else 0,
    )


def _moved(layer: Weighted, atoms: list[Slice], rows: int, tiling: Tiling) -> float:
    """Bytes that a core moves, plus what each tile costs in set-up, as bytes."""
    sizes = _sizes(layer, atoms, tiling)
    slices = len(list(slices_of(atoms, tiling.atoms, takes_whole_groups(layer))))
    tiles = math.ceil(rows / tiling.rows) * math.ceil(layer.columns.out / tiling.columns)
    parts = math.ceil(layer.depth / tiling.part)
    per_tile = sizes.input + sizes.output + 1024
    weights = sizes.weights * (1 if parts == 1 else tiles)
    return slices * parts * (weights + tiles * per_tile)


class _Constants:
    """Lays down weights and tables; what several cores need is laid down once."""

    def __init__(self, layer: Weighted, context: Context) -> None:
        self._layer = layer
        self._add = context.add_constant
        self._weights: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.channels = self._add("channels", layer.channel_records)
        records = layer.scale_records
        self.scales = None if records is None else self._add("scales", records)

    def weights(self, part: Slice, begin: int, end: int) -> tuple[int, int]:
        """Address and bytes of the packed weights of a slice and a range of input channels."""
        key = (part.first, part.count, begin)
        if key not in self._weights:
            rows = self._layer.weights[part.first : part.first + part.count, :, :, begin:end]
            packed = pack(np.ascontiguousarray(rows))
            name = f"weights.{part.first}.{begin}"
            self._weights[key] = (self._add(name, packed), packed.nbytes)
        return self._weights[key]


class _Core:
    """One core's buffers and steps."""

    def __init__(
        self, layer: Weighted, context: Context, constants: _Constants, tiling: Tiling
    ) -> None:
        self._layer = layer
        self._context = context
        self._constants = constants
        self._tiling = tiling
        self._source = context.address_of(layer.source)
        self._target = context.address_of(layer.target)

    def steps(self, atoms: list[Slice], rows: tuple[int, int]) -> Iterator[TileStep]:
        """Slice by slice, tile by tile, part by part."""
        layer, tiling = self._layer, self._tiling
        self._allocate(atoms)
        tile_number = step_number = 0
        weight_loads = -1
        for piece in slices_of(atoms, tiling.atoms, takes_whole_groups(layer)):
            tables = self._load_tables(piece)
            stays = tiling.part >= layer.depth
            first_of_slice = True
            for image, top, bottom in row_tiles(*rows, layer.rows.out, tiling.rows):
                for left, right in chunks(0, layer.columns.out, tiling.columns):
                    for begin, end in chunks(0, layer.depth, tiling.part):
                        loads: list[Command] = []
                        if first_of_slice or not stays:
                            weight_loads += 1
                            if first_of_slice:
                                self._table_buffer = self._next_tables
                                loads += tables
                            first_of_slice = False
                            loads.append(self._load_weights(piece, begin, end, weight_loads))
                        tile = _Tile(
                            piece,
                            image,
                            (top, bottom),
                            (left, right),
                            (begin, end),
                            piece.groups * (end - begin) * layer.element_bytes,
                            self.inputs[step_number % 2],
                            self.outputs[tile_number % 2],
                            self.weights[weight_loads % len(self.weights)],
                        )
                        loads.append(self._load_input(tile))
                        last = end == layer.depth
                        stores = (self._store(tile),) if last else ()
                        yield TileStep(tuple(loads), (self._conv(tile),), stores)
                        step_number += 1
                    tile_number += 1

    def _allocate(self, atoms: list[Slice]) -> None:
        sizes = _sizes(self._layer, atoms, self._tiling)
        copies = 1 if _stays(self._layer, atoms, self._tiling) else 2
        arena = Arena(self._context.config)
        self.weights = [arena.take(sizes.weights) for _ in range(copies)]
        self.channels = [arena.take(sizes.channels) for _ in range(copies)]
        self.scales = [arena.take(sizes.scales) for _ in range(copies)]
        self.inputs = arena.take_twice(sizes.input)
        self.outputs = arena.take_twice(sizes.output)
        self.partial = arena.take(sizes.partial)
        self._next_tables = -1
        self._table_buffer = 0

    def _load_tables(self, piece: Slice) -> list[Command]:
        self._next_tables += 1
        which = self._next_tables % len(self.channels)
        records = self._constants.channels + piece.first * CHANNEL_BYTES
        loads = [load(Box(records, self.channels[which], piece.count * CHANNEL_BYTES))]
        if self._constants.scales is not None:
            records = self._constants.scales + piece.first * SCALE_BYTES
            loads.append(load(Box(records, self.scales[which], piece.count * SCALE_BYTES)))
        return loads

    def _load_weights(self, piece: Slice, begin: int, end: int, number: int) -> Command:
        address, nbytes = self._constants.weights(piece, begin, end)
        return load(Box(address, self.weights[number % len(self.weights)], nbytes))

    def _load_input(self, tile: _Tile) -> Command:
        layer = self._layer
        rows = layer.rows.need(*tile.rows)
        columns = layer.columns.need(*tile.columns)
        run = tile.run
        pixel = layer.channels * layer.element_bytes
        row = pixel * layer.columns.size
        first = (tile.piece.first_input + tile.part[0]) * layer.element_bytes
        offset = ((tile.image * layer.rows.size + rows.first) * row) + columns.first * pixel + first
        return load(
            Box(
                self._source + offset,
                tile.input,
                run,
                columns.count,
                rows.count,
                pixel,
                row,
                run,
                run * (columns.before + columns.count + columns.after),
            ),
            pad_x_before=columns.before,
            pad_x_after=columns.after,
            pad_y_before=rows.before,
            pad_y_after=rows.after,
            element=layer.element,
            fill=layer.source.offset,
        )

    def _conv(self, tile: _Tile) -> Command:
        layer, piece = self._layer, tile.piece
        which = self._table_buffer % len(self.channels)
        out_h, out_w = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        out_pixel = piece.count * layer.element_bytes
        in_w = layer.columns.extent(out_w)
        first, last = tile.part[0] == 0, tile.part[1] == layer.depth
        part = {(True, True): PART_ONLY, (True, False): PART_FIRST, (False, False): PART_MIDDLE}
        return Command(
            "nmp.conv",
            {
                **layer.words,
                "input": tile.input,
                "weights": tile.weights,
                "channels": self.channels[which],
                "scales": self.scales[which] if self._constants.scales is not None else 0,
                "output": tile.output,
                "groups": piece.groups,
                "in_channels": tile.part[1] - tile.part[0],
                "out_channels": piece.count,
                **window_words(layer),
                "out_h": out_h,
                "out_w": out_w,
                "in_row_stride": in_w * tile.run,
                "in_pixel_stride": tile.run,
                "out_row_stride": out_w * out_pixel,
                "out_pixel_stride": out_pixel,
                "part": part.get((first, last), PART_LAST),
                "partial": self.partial,
                **event_words(layer, tile.image, tile.rows[0], tile.columns[0], piece.first),
            },
        )

    def _store(self, tile: _Tile) -> Command:
        return store(
            output_box(
                self._layer,
                self._target,
                tile.output,
                tile.image,
                tile.rows,
                tile.columns,
                (tile.piece.first, tile.piece.count),
            )
        )


@attrs.frozen
class _Tile:
    piece: Slice
    image: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    part: tuple[int, int]
    run: int
    """Bytes of a pixel of the input tile."""
    input: int
    output: int
    weights: int


def window_words(layer: Weighted) -> dict[str, int]:
    """Kernel, stride and dilation."""
    return {
        "kernel_h": layer.rows.kernel,
        "kernel_w": layer.columns.kernel,
        "stride_h": layer.rows.stride,
        "stride_w": layer.columns.stride,
        "dilation_h": layer.rows.dilation,
        "dilation_w": layer.columns.dilation,
    }


def event_words(layer: Weighted, image: int, row: int, column: int, channel: int) -> dict[str, int]:
    """Where a tile lies in the layer's output."""
    pixel = (image * layer.rows.out + row) * layer.columns.out + column
    return {
        "event_origin": pixel * layer.out_channels + channel,
        "event_stride_y": layer.columns.out * layer.out_channels,
        "event_stride_x": layer.out_channels,
    }


def output_box(
    layer: Weighted,
    target: int,
    spm: int,
    image: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    channels: tuple[int, int],
) -> Box:
    """The DRAM box of a tile of results; ``channels`` is (first, count)."""
    wide = layer.element_bytes
    run, stride = channels[1] * wide, layer.out_channels * wide
    width = columns[1] - columns[0]
    pixel = (image * layer.rows.out + rows[0]) * layer.columns.out + columns[0]
    return Box(
        target + pixel * stride + channels[0] * wide,
        spm,
        run,
        width,
        rows[1] - rows[0],
        stride,
        layer.columns.out * stride,
        run,
        width * run,
    )
