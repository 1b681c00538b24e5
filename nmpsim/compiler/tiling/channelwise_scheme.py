"""Tilings of an operation that keeps channels separate, and which are promising."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.cost_model import Memory, RoughCost, Traffic, box_cycles
from nmpsim.compiler.tiling.plan import Integers, align, counts, divisions, halvings
from nmpsim.compiler.tiling.weighted import has_tables
from nmpsim.compiler.tiling.window import Axis, axes
from nmpsim.config import DeviceConfig
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.lir.opcode import Kind
from nmpsim.timing.compute import ceil_div

VECTOR = 16
"""Channel ranges are multiples of this where there are enough channels."""
POOLS = frozenset({Kind.MAX_POOL, Kind.AVERAGE_POOL})


@attrs.frozen
class Image:
    """Geometry that all operations of this module share."""

    name: str
    images: int
    channels: int
    rows: Axis
    columns: Axis
    element_bytes: int
    tables: int = 0
    """Bytes of constants a channel needs in the scratchpad."""


class ChannelScheme(NamedTuple):
    """A grid of cores, and the tiles of a core's share; one, or the fields as arrays: many."""

    across: Any
    """Ranges of channels."""
    down: Any
    """Ranges of rows, counted over all images."""
    channels: Any
    rows: Any
    columns: Any

    @property
    def cores(self) -> Any:
        """Cores with work."""
        return self.across * self.down

    @property
    def label(self) -> str:
        """For a reader: cores along channels and rows."""
        channels = "1 channel" if self.channels == 1 else f"{self.channels} channels"
        return f"{self.across}x{self.down} cores, tiles {self.rows}x{self.columns} of {channels}"

    def chosen(self, which: Integers) -> ChannelScheme:
        """Some of many, by their indices or a mask."""
        return ChannelScheme(*(column[which] for column in self))

    def each(self) -> list[ChannelScheme]:
        """All of many."""
        columns = (column.tolist() for column in self)
        return [ChannelScheme(*row) for row in zip(*columns, strict=True)]


def is_depthwise(op: Operation) -> bool:
    """Whether each channel has a window of its own: a convolution with as many groups."""
    if op.kind is not Kind.CONVOLUTION:
        return False
    groups = int(str(op.instruction.attributes["Group"]))
    return groups > 1 and groups == op.operands[1].shape[3] == op.operands[0].shape[3]


def image_of(op: Operation) -> Image:
    """The geometry of a pool or a depthwise convolution."""
    source = op.operands[1]
    rows, columns = axes(op.instruction, source.shape, op.output.shape)
    tables = 0
    if op.kind not in POOLS:
        weights = rows.kernel * columns.kernel * source.element_bytes
        tables = weights + CHANNEL_BYTES + (SCALE_BYTES if has_tables(op) else 0)
    return Image(
        op.instruction.name,
        source.shape[0],
        source.shape[3],
        rows,
        columns,
        source.element_bytes,
        tables,
    )


def smallest_tile(image: Image) -> int:
    """Scratchpad bytes of the least there is: one channel of one result."""
    return int(needs(image, ChannelScheme(1, 1, 1, 1, 1)))


def buffer_sizes(image: Image, scheme: ChannelScheme) -> tuple[Any, Any, Any]:
    """Bytes of a tile's input, output and constants; there are two buffers of each."""
    in_pixels = image.rows.extent(scheme.rows) * image.columns.extent(scheme.columns)
    run = scheme.channels * image.element_bytes
    out = scheme.rows * scheme.columns * run
    return in_pixels * run, out, image.tables * scheme.channels


def needs(image: Image, scheme: ChannelScheme) -> Any:
    """Scratchpad bytes of a scheme."""
    return 2 * sum(map(align, buffer_sizes(image, scheme)))


def share_of(image: Image, scheme: ChannelScheme) -> tuple[Any, Any]:
    """Channels and rows of the largest share."""
    pieces = ceil_div(image.channels, VECTOR)
    channels = np.minimum(ceil_div(pieces, scheme.across) * VECTOR, image.channels)
    return channels, ceil_div(image.images * image.rows.out, scheme.down)


def simple_scheme(image: Image, config: DeviceConfig) -> ChannelScheme | None:
    """One obvious rule: as many cores as there is work for, rows first; the largest tile that fits.

    All columns if possible, then all channels, then rows.
    """
    total_rows = image.images * image.rows.out
    pieces = math.ceil(image.channels / VECTOR)
    cores = config.cores_count
    across = max(
        range(1, min(cores, pieces) + 1),
        key=lambda across: (min(across * min(cores // across, total_rows), cores), -across),
    )
    grid = ChannelScheme(across, min(cores // across, total_rows), 0, 0, 0)
    channels, rows = (int(n) for n in share_of(image, grid))
    for columns in halvings(image.columns.out):
        for depth in halvings(channels):
            for count in halvings(rows):
                scheme = grid._replace(channels=depth, rows=count, columns=columns)
                if needs(image, scheme) <= config.scratchpad_bytes:
                    return scheme
    return None


def schemes_of(image: Image, config: DeviceConfig) -> ChannelScheme:
    """Every scheme worth a look that fits; narrow tiles only where a whole row does not fit."""
    cores, found = config.cores_count, []
    for across in counts(math.ceil(image.channels / VECTOR), cores):
        for down in counts(image.images * image.rows.out, cores // across):
            grid = ChannelScheme(across, down, 0, 0, 0)
            channels, rows = (int(n) for n in share_of(image, grid))
            for columns in halvings(image.columns.out):
                every = np.meshgrid(halvings(channels), divisions(rows), indexing="ij")
                depth, high = (one.reshape(-1) for one in every)
                ones = np.ones_like(depth)
                tiled = ChannelScheme(ones * across, ones * down, depth, high, ones * columns)
                fits = needs(image, tiled) <= config.scratchpad_bytes
                found.append(tiled.chosen(fits))
                if fits.any():
                    break
    columns_of = zip(*found, strict=True)
    return ChannelScheme(*(np.concatenate(one) for one in columns_of))


Sums = Callable[[Any, int, Any], Any]
"""Cycles of a unit for (pixels, taps, channels)."""


def rough_cost_of(image: Image, scheme: ChannelScheme, sums: Sums, memory: Memory) -> RoughCost:
    """The rough cost of many schemes."""
    channels, rows = share_of(image, scheme)
    depth, high = np.minimum(scheme.channels, channels), np.minimum(scheme.rows, rows)
    slices = ceil_div(channels, scheme.channels)
    tiles = slices * ceil_div(rows, scheme.rows) * ceil_div(image.columns.out, scheme.columns)
    run, pixel = depth * image.element_bytes, image.channels * image.element_bytes
    in_rows = np.minimum(image.rows.extent(high), image.rows.size)
    in_columns = np.minimum(image.columns.extent(scheme.columns), image.columns.size)
    in_row, out_row = pixel * image.columns.size, pixel * image.columns.out
    tables = Traffic(slices, box_cycles(memory, depth * image.tables, 1, 0, 1, 0))
    load = Traffic(tiles, box_cycles(memory, run, in_columns, pixel, in_rows, in_row))
    store = Traffic(tiles, box_cycles(memory, run, scheme.columns, pixel, high, out_row))
    taps = image.rows.kernel * image.columns.kernel
    return RoughCost(
        scheme.cores,
        tiles * sums(high * scheme.columns, taps, depth),
        tiles,
        (tables, load) if image.tables else (load,),
        store,
    )
