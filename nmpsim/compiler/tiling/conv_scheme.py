"""Tilings of a convolution, what each needs of the scratchpad, and which are promising."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import attrs

from nmpsim.compiler.tiling.cost_model import Memory, RoughCost, Traffic, box_cycles
from nmpsim.compiler.tiling.plan import align, counts, divisions, halvings, split
from nmpsim.compiler.tiling.slices import atoms_of, slices_of, takes_whole_groups
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.compiler.tiling.weights import packed_bytes
from nmpsim.config import DeviceConfig
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.timing.compute import conv_cycles

MAX_GRIDS = 24
"""Grids of cores whose tilings are looked at."""
SUM_BYTES = 4
"""Of a running sum, for each byte of an element."""


@attrs.frozen
class Scheme:
    """A grid of cores, the tiles of a core's share, and what stays while the other passes by."""

    across: int
    """Ranges of output channels."""
    down: int
    """Ranges of output rows, counted over all images."""
    beside: int
    """Ranges of output columns."""
    atoms: int
    """Atoms of a slice of output channels."""
    rows: int
    columns: int
    part: int
    """Input channels of a group that one instruction takes."""
    input_stays: bool = False
    """Slices of weights pass by a tile of the input, instead of tiles by a slice."""

    @property
    def cores(self) -> int:
        """Cores with work."""
        return self.across * self.down * self.beside

    @property
    def label(self) -> str:
        """For a reader: cores along channels, rows and columns."""
        stays = "input" if self.input_stays else "weights"
        return (
            f"{self.across}x{self.down}x{self.beside} cores, tiles {self.rows}x{self.columns},"
            f" {self.atoms} blocks of {self.part} inputs, {stays} stay"
        )


@attrs.frozen
class Buffers:
    """Bytes of a core's scratchpad buffers, and how many there are of each."""

    weights: int
    channels: int
    scales: int
    weight_copies: int
    input: int
    input_copies: int
    output: int
    output_copies: int
    partial: int

    @property
    def total(self) -> int:
        """Bytes of all of them."""
        tables = align(self.weights) + align(self.channels) + align(self.scales)
        return (
            self.weight_copies * tables
            + self.input_copies * align(self.input)
            + self.output_copies * align(self.output)
            + align(self.partial)
        )


@attrs.frozen
class SliceSizes:
    """What slices of this many atoms come to, over all ranges of output channels."""

    out: int
    """Channels of the largest slice."""
    groups: int
    """Most groups of a slice."""
    slices: int
    """Most slices of a range."""
    one_input: bool
    """All slices of a range read the same input channels."""


def slice_sizes_of(layer: Weighted, across: int, atoms: int) -> SliceSizes:
    """Split each of ``across`` ranges into slices of ``atoms`` atoms."""
    whole = takes_whole_groups(layer)
    every = atoms_of(layer)
    ranges = [list(slices_of(every[a:b], atoms, whole)) for a, b in split(len(every), across)]
    return SliceSizes(
        max(s.count for slices in ranges for s in slices),
        max(s.groups for slices in ranges for s in slices),
        max(map(len, ranges)),
        all(len({s.first_input for s in slices}) == 1 for slices in ranges),
    )


def share_of(layer: Weighted, scheme: Scheme) -> tuple[int, int]:
    """Rows and columns of the largest share."""
    total_rows = layer.images * layer.rows.out
    return math.ceil(total_rows / scheme.down), math.ceil(layer.columns.out / scheme.beside)


def buffers_of(layer: Weighted, sizes: SliceSizes, scheme: Scheme) -> Buffers:
    """What each core needs; what a core loads but once has one buffer."""
    rows, columns = share_of(layer, scheme)
    one_part = scheme.part >= layer.depth
    one_tile = layer.images == 1 and scheme.rows >= rows and scheme.columns >= columns
    pixels = scheme.rows * scheme.columns
    in_pixels = layer.rows.extent(scheme.rows) * layer.columns.extent(scheme.columns)
    wide = layer.element_bytes
    return Buffers(
        packed_bytes(sizes.out, layer.rows.kernel, layer.columns.kernel * scheme.part * wide),
        sizes.out * CHANNEL_BYTES,
        0 if layer.scale_records is None else sizes.out * SCALE_BYTES,
        1 if sizes.slices == 1 and one_part else 2,
        in_pixels * sizes.groups * scheme.part * wide,
        1 if one_tile and one_part and sizes.one_input else 2,
        pixels * sizes.out * wide,
        1 if one_tile and sizes.slices == 1 else 2,
        0 if one_part else SUM_BYTES * wide * pixels * sizes.out,
    )


def schemes_of(layer: Weighted, config: DeviceConfig, memory: Memory) -> Iterator[Scheme]:
    """Every scheme worth a look that fits the scratchpad."""
    for grid in _promising_grids(layer, config.cores_count, memory):
        for atoms in halvings(grid.atoms):
            sizes = slice_sizes_of(layer, grid.across, atoms)
            yield from _tilings(layer, grid, atoms, sizes, config.scratchpad_bytes)


def _promising_grids(layer: Weighted, cores: int, memory: Memory) -> list[Scheme]:
    """The grids that would be fastest if all transfers overlapped with all sums."""
    total_rows, atoms = layer.images * layer.rows.out, len(atoms_of(layer))
    grids = []
    for across in counts(atoms, cores):
        for down in counts(total_rows, cores // across):
            for beside in counts(layer.columns.out, cores // (across * down)):
                share = math.ceil(atoms / across)
                rows, columns = math.ceil(total_rows / down), math.ceil(layer.columns.out / beside)
                grids.append(Scheme(across, down, beside, share, rows, columns, layer.depth))
    return heapq.nsmallest(
        MAX_GRIDS, grids, key=lambda g: rough_cost_of(layer, atoms, g, memory).bound
    )


def _tilings(
    layer: Weighted, grid: Scheme, atoms: int, sizes: SliceSizes, capacity: int
) -> Iterator[Scheme]:
    """A grid's tiles; narrower ones only where a whole row does not fit."""
    for width in halvings(grid.columns):
        for height in divisions(grid.rows):
            tiling = _deepest(layer, grid, (atoms, height, width), sizes, capacity)
            if tiling is None:
                continue
            yield tiling
            several = sizes.slices > 1 and (height < grid.rows or width < grid.columns)
            if several and tiling.part == layer.depth and sizes.one_input:
                yield attrs.evolve(tiling, input_stays=True)
        if tiling is not None and tiling.part == layer.depth:
            return


def _deepest(
    layer: Weighted, grid: Scheme, tile: tuple[int, int, int], sizes: SliceSizes, capacity: int
) -> Scheme | None:
    """A tiling with the most input channels that fit, or None."""
    for part in halvings(layer.depth):
        if part < layer.depth and sizes.groups > 1:
            return None  # parts of several groups' inputs are not contiguous
        deep = Scheme(grid.across, grid.down, grid.beside, *tile, part)
        if buffers_of(layer, sizes, deep).total <= capacity:
            return deep
    return None


def simple_scheme(layer: Weighted, config: DeviceConfig) -> Scheme | None:
    """One obvious rule: all cores on what is larger, and the largest tile that fits.

    Output channels are shared out where there are more bytes of weights than of input, else rows;
    cores that are left take the other. Of a tile, as many input channels as possible come first,
    then whole rows, channels, rows.
    """
    atoms, total_rows = len(atoms_of(layer)), layer.images * layer.rows.out
    cores = config.cores_count
    if layer.weights.nbytes > layer.source.type.nbytes:
        across = min(atoms, cores)
        down = min(total_rows, cores // across)
    else:
        down = min(total_rows, cores)
        across = min(atoms, cores // down)
    share, rows = math.ceil(atoms / across), math.ceil(total_rows / down)
    sizes_of_count = {n: slice_sizes_of(layer, across, n) for n in halvings(share)}
    for part in halvings(layer.depth):
        for width in halvings(layer.columns.out):
            for count, sizes in sizes_of_count.items():
                if part < layer.depth and sizes.groups > 1:
                    continue
                for height in divisions(rows):
                    scheme = Scheme(across, down, 1, count, height, width, part)
                    if buffers_of(layer, sizes, scheme).total <= config.scratchpad_bytes:
                        return scheme
    return None


def rough_cost_of(layer: Weighted, atoms: int, scheme: Scheme, memory: Memory) -> RoughCost:
    """The rough cost of a scheme; ``atoms`` are those of the whole layer."""
    wide, kernel_h, kernel_w = layer.element_bytes, layer.rows.kernel, layer.columns.kernel
    rows, columns = share_of(layer, scheme)
    share = math.ceil(atoms / scheme.across)
    slices = math.ceil(share / scheme.atoms)
    per_atom = math.ceil(layer.out_channels / atoms)
    parts = math.ceil(layer.depth / scheme.part)
    tile_rows, tile_columns = min(scheme.rows, rows), min(scheme.columns, columns)
    tiles = math.ceil(rows / scheme.rows) * math.ceil(columns / scheme.columns)
    out = min(min(scheme.atoms, share) * per_atom, layer.out_channels)
    groups = min(scheme.atoms, share) if takes_whole_groups(layer) else 1
    steps = slices * tiles * parts
    sums = conv_cycles(
        rows * columns,
        kernel_h,
        kernel_w,
        scheme.part,
        min(share * per_atom, layer.out_channels),
        share if takes_whole_groups(layer) else 1,
        layer.element,
        memory.costs,
    )
    weights = packed_bytes(out, kernel_h, kernel_w * scheme.part * wide)
    weights += out * (CHANNEL_BYTES + (0 if layer.scale_records is None else SCALE_BYTES))
    passes = (slices if parts == 1 else steps) if not scheme.input_stays else slices * tiles
    if slices == parts == 1:
        passes = 1
    inputs = tiles if scheme.input_stays or (tiles == 1 and parts == 1) else steps
    in_row, out_row = layer.channels * wide, layer.out_channels * wide
    in_rows = min(layer.rows.extent(tile_rows), layer.rows.size)
    in_columns = min(layer.columns.extent(tile_columns), layer.columns.size)
    load = box_cycles(
        memory,
        groups * scheme.part * wide,
        in_columns,
        in_row,
        in_rows,
        in_row * layer.columns.size,
    )
    store = box_cycles(
        memory, out * wide, tile_columns, out_row, tile_rows, out_row * layer.columns.out
    )
    return RoughCost(
        scheme.cores,
        parts * sums + (steps - parts) * memory.costs.mac_startup_cycles,
        steps,
        (
            Traffic(passes, box_cycles(memory, weights, 1, 0, 1, 0)),
            Traffic(inputs, load),
        ),
        Traffic(slices * tiles, store),
    )
