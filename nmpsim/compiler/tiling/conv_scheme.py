"""Tilings of a convolution, what each needs of the scratchpad, and which are promising."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.tiling.cost_model import Memory, RoughCost, Traffic, box_cycles
from nmpsim.compiler.tiling.plan import Integers, align, counts, divisions, halvings
from nmpsim.compiler.tiling.slices import Slicer, SliceSizes, takes_whole_groups
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.config import DeviceConfig
from nmpsim.isa.layouts import packed_bytes
from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES
from nmpsim.timing.compute import ceil_div, conv_cycles

GRIDS_AT_ONCE = 24
"""Grids of cores whose tilings are looked at together."""
SUM_BYTES = 4
"""Of a running sum, for each byte of an element."""


class Scheme(NamedTuple):
    """A grid of cores, the tiles of a core's share, and what stays while the other passes by.

    One of them, or the same fields as arrays: many.
    """

    across: Any
    """Ranges of output channels."""
    down: Any
    """Ranges of output rows, counted over all images."""
    beside: Any
    """Ranges of output columns."""
    atoms: Any
    """Atoms of a slice of output channels."""
    rows: Any
    columns: Any
    part: Any
    """Input channels of a group that one instruction takes."""
    input_stays: Any = False
    """Slices of weights pass by a tile of the input, instead of tiles by a slice."""

    @property
    def cores(self) -> Any:
        """Cores with work."""
        return self.across * self.down * self.beside

    @property
    def label(self) -> str:
        """For a reader: cores along channels, rows and columns."""
        stays = "input stays" if self.input_stays else "weights stay"
        blocks = "1 block" if self.atoms == 1 else f"{self.atoms} blocks"
        inputs = "1 input" if self.part == 1 else f"{self.part} inputs"
        return (
            f"{self.across}x{self.down}x{self.beside} cores, tiles {self.rows}x{self.columns},"
            f" {blocks} of {inputs}, {stays}"
        )

    def chosen(self, which: Integers) -> Scheme:
        """Some of many, by their indices or a mask."""
        return Scheme(*(column[which] for column in self))

    def each(self) -> list[Scheme]:
        """All of many."""
        columns = (column.tolist() for column in self)
        return [Scheme(*row) for row in zip(*columns, strict=True)]


@attrs.frozen
class Buffers:
    """Bytes of a core's scratchpad buffers, and how many there are of each."""

    weights: Any
    channels: Any
    scales: Any
    weight_copies: Any
    input: Any
    input_copies: Any
    output: Any
    output_copies: Any
    partial: Any

    @property
    def total(self) -> Any:
        """Bytes of all of them."""
        tables = align(self.weights) + align(self.channels) + align(self.scales)
        return (
            self.weight_copies * tables
            + self.input_copies * align(self.input)
            + self.output_copies * align(self.output)
            + align(self.partial)
        )


def share_of(layer: Weighted, scheme: Scheme) -> tuple[Any, Any]:
    """Rows and columns of the largest share."""
    total_rows = layer.images * layer.rows.out
    return ceil_div(total_rows, scheme.down), ceil_div(layer.columns.out, scheme.beside)


def buffers_of(layer: Weighted, sizes: SliceSizes, scheme: Scheme) -> Buffers:
    """What each core needs; what a core loads but once has one buffer."""
    rows, columns = share_of(layer, scheme)
    one_part = scheme.part >= layer.depth
    one_tile = (layer.images == 1) & (scheme.rows >= rows) & (scheme.columns >= columns)
    pixels = scheme.rows * scheme.columns
    in_pixels = layer.rows.extent(scheme.rows) * layer.columns.extent(scheme.columns)
    wide = layer.element_bytes
    return Buffers(
        packed_bytes(sizes.out, layer.rows.kernel, layer.columns.kernel * scheme.part * wide),
        sizes.out * CHANNEL_BYTES,
        sizes.out * (0 if layer.scale_records is None else SCALE_BYTES),
        2 - ((sizes.slices == 1) & one_part),
        in_pixels * sizes.groups * scheme.part * wide,
        2 - (one_tile & one_part & sizes.one_input),
        pixels * sizes.out * wide,
        2 - (one_tile & (sizes.slices == 1)),
        (1 - one_part) * SUM_BYTES * wide * pixels * sizes.out,
    )


def schemes_of(
    layer: Weighted,
    slicer: Slicer,
    config: DeviceConfig,
    memory: Memory,
    known: dict[Scheme, tuple[Scheme, ...]],
) -> tuple[Scheme, RoughCost]:
    """Every scheme worth a look that fits the scratchpad, and what they cost.

    Grids are looked at in groups, the most promising first, while one is left that could be faster
    than all schemes so far. ``known`` are the tilings of grids that were looked at with another
    memory.
    """
    grids, bounds = _grids(layer, slicer.atoms, config.cores_count, memory)
    groups: list[Scheme] = []
    costs: list[RoughCost] = []
    fastest = np.inf
    for begin in range(0, bounds.size, GRIDS_AT_ONCE):
        if bounds[begin] > fastest:
            break
        tilings: list[Scheme] = []
        for grid in grids[begin : begin + GRIDS_AT_ONCE]:
            if grid not in known:
                known[grid] = tuple(_tilings(layer, slicer, grid, config))
            tilings += known[grid]
        groups.append(_joined(tilings))
        costs.append(rough_cost_of(layer, slicer.atoms, groups[-1], memory))
        fastest = costs[-1].cycles.min(initial=fastest)
    schemes = _joined(groups)
    return schemes, rough_cost_of(layer, slicer.atoms, schemes, memory)


def _joined(schemes: list[Scheme]) -> Scheme:
    return Scheme(*(np.concatenate(column) for column in zip(*schemes, strict=True)))


def _grids(
    layer: Weighted, atoms: int, cores: int, memory: Memory
) -> tuple[list[Scheme], Integers]:
    """All grids, and what each would take if all transfers overlapped with all sums, least first.

    No scheme of a grid costs less: none moves or computes less than one with a single tile.
    """
    total_rows = layer.images * layer.rows.out
    grids = [
        (across, down, beside)
        for across in counts(atoms, cores)
        for down in counts(total_rows, cores // across)
        for beside in counts(layer.columns.out, cores // (across * down))
    ]
    across, down, beside = np.array(grids, np.int64).T
    rows, columns = ceil_div(total_rows, down), ceil_div(layer.columns.out, beside)
    depth, stays = np.full_like(across, layer.depth), np.zeros(across.size, bool)
    every = Scheme(across, down, beside, ceil_div(atoms, across), rows, columns, depth, stays)
    bound = rough_cost_of(layer, atoms, every, memory).bound
    order = np.argsort(bound, kind="stable")
    return every.chosen(order).each(), bound[order]


def _tilings(
    layer: Weighted, slicer: Slicer, grid: Scheme, config: DeviceConfig
) -> Iterator[Scheme]:
    """A grid's tilings that fit.

    Narrower tiles only where whole rows of all input channels do not fit; and fewer input channels,
    where they change the sums.
    """
    atoms, widths, heights = halvings(grid.atoms), halvings(grid.columns), divisions(grid.rows)
    every = np.meshgrid(atoms, widths, heights, halvings(layer.depth), indexing="ij", copy=False)
    shape, (atoms_of_slice, columns, rows, part) = every[0].shape, map(np.ravel, every)
    across, down, beside = (np.full_like(part, n) for n in grid[:3])
    schemes = Scheme(across, down, beside, atoms_of_slice, rows, columns, part)
    sizes = SliceSizes(
        *np.array([slicer.sizes(grid.across, n) for n in atoms])
        .repeat(part.size // len(atoms), axis=0)
        .T
    )
    fits = buffers_of(layer, sizes, schemes).total <= config.scratchpad_bytes
    fits &= (sizes.groups == 1) | (part == layer.depth)  # parts of several groups are apart
    fitting = fits.reshape(shape)
    if not layer.is_exact:
        fitting = fitting & (np.cumsum(fitting, axis=3) == 1)
    is_whole = fitting[:, :, -1, 0]
    wanted = np.cumsum(is_whole, axis=1) - is_whole == 0
    chosen = (fitting & wanted[:, :, None, None]).ravel()
    several = (sizes.slices > 1) & ((rows < grid.rows) | (columns < grid.columns))
    again = chosen & several & (part == layer.depth) & (sizes.one_input == 1)
    for which, input_stays in ((chosen, False), (again, True)):
        some = schemes._replace(input_stays=np.full(part.size, input_stays))
        yield some.chosen(which)


def simple_scheme(layer: Weighted, slicer: Slicer, config: DeviceConfig) -> Scheme | None:
    """One obvious rule: all cores on what is larger, and the largest tile that fits.

    Output channels are shared out where there are more bytes of weights than of input, else rows;
    cores that are left take the other. Of a tile, as many input channels as possible come first,
    then whole rows, channels, rows.
    """
    atoms, total_rows = slicer.atoms, layer.images * layer.rows.out
    cores = config.cores_count
    if layer.weights.nbytes > layer.source.type.nbytes:
        across = min(atoms, cores)
        down = min(total_rows, cores // across)
    else:
        down = min(total_rows, cores)
        across = min(atoms, cores // down)
    share, rows = ceil_div(atoms, across), ceil_div(total_rows, down)
    sizes_of_count = {n: slicer.sizes(across, n) for n in halvings(share)}
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
    """The rough cost of many schemes; ``atoms`` are those of the whole layer."""
    wide, kernel_h, kernel_w = layer.element_bytes, layer.rows.kernel, layer.columns.kernel
    rows, columns = share_of(layer, scheme)
    share = ceil_div(atoms, scheme.across)
    slices = ceil_div(share, scheme.atoms)
    per_atom = ceil_div(layer.out_channels, atoms)
    parts = ceil_div(layer.depth, scheme.part)
    tile_rows, tile_columns = np.minimum(scheme.rows, rows), np.minimum(scheme.columns, columns)
    tiles = ceil_div(rows, scheme.rows) * ceil_div(columns, scheme.columns)
    taken = np.minimum(scheme.atoms, share)
    out = np.minimum(taken * per_atom, layer.out_channels)
    whole = takes_whole_groups(layer)
    groups = taken if whole else 1
    steps = slices * tiles * parts
    sums = conv_cycles(
        rows * columns,
        kernel_h,
        kernel_w,
        scheme.part,
        np.minimum(share * per_atom, layer.out_channels),
        share if whole else 1,
        layer.element,
        memory.costs,
    )
    weights = packed_bytes(out, kernel_h, kernel_w * scheme.part * wide)
    weights = weights + out * (CHANNEL_BYTES + (0 if layer.scale_records is None else SCALE_BYTES))
    passes = np.where(parts == 1, slices, steps)
    passes = np.where(scheme.input_stays, slices * tiles, passes)
    passes = np.where((slices == 1) & (parts == 1), 1, passes)
    once = scheme.input_stays | ((tiles == 1) & (parts == 1))
    inputs = np.where(once, tiles, steps)
    in_row, out_row = layer.channels * wide, layer.out_channels * wide
    in_rows = np.minimum(layer.rows.extent(tile_rows), layer.rows.size)
    in_columns = np.minimum(layer.columns.extent(tile_columns), layer.columns.size)
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
