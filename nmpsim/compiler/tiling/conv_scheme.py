"""Tilings of a convolution, the scratchpad buffers they need, and their rough costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.tiling.context import list_tilings, select_tilings
from nmpsim.compiler.tiling.cost_model import DramModel, RoughCost, Traffic, estimate_box_cycles
from nmpsim.compiler.tiling.grid import Integers, list_divisions, list_halvings, list_part_counts
from nmpsim.compiler.tiling.plan import align_size
from nmpsim.compiler.tiling.slices import ChannelSlicer, SliceSizes, must_keep_groups_whole
from nmpsim.compiler.tiling.weighted import WeightedLayer
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import format_count
from nmpsim.isa.layouts import count_packed_bytes
from nmpsim.isa.words import CHANNEL_BYTES
from nmpsim.timing.compute import ceil_div, count_conv_cycles

GRIDS_AT_ONCE = 24
"""Grids of cores whose tilings are evaluated together."""
SUM_BYTES = 4
"""Bytes of a partial sum for each byte of an element."""


class ConvTiling(NamedTuple):
    """Tiling, or array of tilings, of a convolution: cores, tiles and loop order."""

    across: Any
    """Number of ranges of output channels."""
    down: Any
    """Number of ranges of output rows, counted over all images."""
    beside: Any
    """Number of ranges of output columns."""
    atoms: Any
    """Atoms of a slice of output channels."""
    rows: Any
    columns: Any
    part: Any
    """Input channels of a group that one instruction takes."""
    input_stays: Any = False
    """Whether a core loops over slices of weights for each tile of the input, or vice versa."""

    @property
    def cores(self) -> Any:
        """Number of cores with work."""
        return self.across * self.down * self.beside

    @property
    def label(self) -> str:
        """Text for reports: core grid, tile size, channels, and the operand that stays loaded."""
        blocks, inputs = format_count(self.atoms, "block"), format_count(self.part, "input")
        return (
            f"{self.across}x{self.down}x{self.beside} cores, tiles {self.rows}x{self.columns},"
            f" {blocks} of {inputs}, {'input stays' if self.input_stays else 'weights stay'}"
        )


@attrs.frozen
class ConvBuffers:
    """Scratchpad buffers of a core: size in bytes and number of copies of each."""

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
        """Size of all buffers in bytes."""
        tables = align_size(self.weights) + align_size(self.channels) + align_size(self.scales)
        return (
            self.weight_copies * tables
            + self.input_copies * align_size(self.input)
            + self.output_copies * align_size(self.output)
            + align_size(self.partial)
        )


def compute_largest_share(layer: WeightedLayer, tiling: ConvTiling) -> tuple[Any, Any]:
    """Compute the largest numbers of rows and of columns that one core computes."""
    return (
        ceil_div(layer.total_rows, tiling.down),
        ceil_div(layer.axes[1].out, tiling.beside),
    )


def plan_buffers(layer: WeightedLayer, sizes: SliceSizes, tiling: ConvTiling) -> ConvBuffers:
    """Plan the scratchpad buffers of each core for a tiling and return their sizes."""
    rows, columns = compute_largest_share(layer, tiling)
    one_part = tiling.part >= layer.depth
    one_tile = (layer.images == 1) & (tiling.rows >= rows) & (tiling.columns >= columns)
    pixels = tiling.rows * tiling.columns
    in_pixels = layer.axes[0].count_inputs(tiling.rows) * layer.axes[1].count_inputs(tiling.columns)
    wide, kernel_h, kernel_w = layer.element_bytes, layer.axes[0].kernel, layer.axes[1].kernel
    return ConvBuffers(
        count_packed_bytes(sizes.out, kernel_h, kernel_w * tiling.part * wide),
        sizes.out * CHANNEL_BYTES,
        sizes.out * layer.scale_bytes,
        2 - ((sizes.slices == 1) & one_part),
        in_pixels * sizes.groups * tiling.part * wide,
        2 - (one_tile & one_part & sizes.one_input),
        pixels * sizes.out * wide,
        2 - (one_tile & (sizes.slices == 1)),
        (1 - one_part) * SUM_BYTES * wide * pixels * sizes.out,
    )


def list_conv_tilings(
    layer: WeightedLayer,
    slicer: ChannelSlicer,
    config: DeviceConfig,
    memory: DramModel,
    known: dict[ConvTiling, tuple[ConvTiling, ...]],
) -> tuple[ConvTiling, RoughCost]:
    """Return the useful tilings that fit the scratchpad, as arrays, with their rough costs.

    Grids of cores are evaluated in groups, the most promising first, as long as one is left that
    could be faster than all tilings so far. ``known`` caches the tilings of each grid.
    """
    grids, bounds = _grids(layer, slicer.atoms, config.cores_count, memory)
    groups: list[ConvTiling] = []
    fastest = np.inf
    for begin in range(0, bounds.size, GRIDS_AT_ONCE):
        if bounds[begin] > fastest:
            break
        tilings: list[ConvTiling] = []
        for grid in grids[begin : begin + GRIDS_AT_ONCE]:
            if grid not in known:
                known[grid] = tuple(_tilings(layer, slicer, grid, config))
            tilings += known[grid]
        groups.append(_joined(tilings))
        cost = estimate_cost(layer, slicer.atoms, groups[-1], memory)
        fastest = cost.cycles.min(initial=fastest)
    every = _joined(groups)
    return every, estimate_cost(layer, slicer.atoms, every, memory)


def _joined(tilings: list[ConvTiling]) -> ConvTiling:
    return ConvTiling(*(np.concatenate(column) for column in zip(*tilings, strict=True)))


def _grids(
    layer: WeightedLayer, atoms: int, cores: int, memory: DramModel
) -> tuple[list[ConvTiling], Integers]:
    """Return all grids of cores and a lower bound of their cost, the lowest first.

    The bound assumes that all transfers overlap with all sums. It is that of one tile for each
    core: smaller tiles neither move nor compute less.
    """
    grids = [
        (across, down, beside)
        for across in list_part_counts(atoms, cores)
        for down in list_part_counts(layer.total_rows, cores // across)
        for beside in list_part_counts(layer.axes[1].out, cores // (across * down))
    ]
    across, down, beside = np.array(grids, np.int64).T
    depth, stays = np.full_like(across, layer.depth), np.zeros(across.size, bool)
    every = ConvTiling(across, down, beside, ceil_div(atoms, across), 0, 0, depth, stays)
    rows, columns = compute_largest_share(layer, every)
    every = every._replace(rows=rows, columns=columns)
    bound = estimate_cost(layer, atoms, every, memory).bound
    order = np.argsort(bound, kind="stable")
    return list_tilings(select_tilings(every, order)), bound[order]


def _tilings(
    layer: WeightedLayer, slicer: ChannelSlicer, grid: ConvTiling, config: DeviceConfig
) -> Iterator[ConvTiling]:
    """Yield the tilings of a grid that fit.

    Tiles are narrower only where whole rows of all input channels do not fit, and take fewer input
    channels only where that changes the sums.
    """
    atoms, widths, heights = (
        list_halvings(grid.atoms),
        list_halvings(grid.columns),
        list_divisions(grid.rows),
    )
    every = np.meshgrid(
        atoms, widths, heights, list_halvings(layer.depth), indexing="ij", copy=False
    )
    shape, (atoms_of_slice, columns, rows, part) = every[0].shape, map(np.ravel, every)
    across, down, beside = (np.full_like(part, n) for n in grid[:3])
    tilings = ConvTiling(across, down, beside, atoms_of_slice, rows, columns, part)
    sizes = SliceSizes(
        *np.array([slicer.sizes(grid.across, n) for n in atoms])
        .repeat(part.size // len(atoms), axis=0)
        .T
    )
    fits = plan_buffers(layer, sizes, tilings).total <= config.scratchpad_bytes
    fits &= (sizes.groups == 1) | (part == layer.depth)  # parts of several groups are not adjacent
    fitting = fits.reshape(shape)
    if not layer.is_exact:
        fitting = fitting & (np.cumsum(fitting, axis=3) == 1)
    is_whole = fitting[:, :, -1, 0]
    wanted = np.cumsum(is_whole, axis=1) - is_whole == 0
    chosen = (fitting & wanted[:, :, None, None]).ravel()
    several = (sizes.slices > 1) & ((rows < grid.rows) | (columns < grid.columns))
    both = chosen & several & (part == layer.depth) & (sizes.one_input == 1)
    for which, input_stays in ((chosen, False), (both, True)):
        yield select_tilings(tilings._replace(input_stays=np.full(part.size, input_stays)), which)


def choose_simple_tiling(
    layer: WeightedLayer, slicer: ChannelSlicer, config: DeviceConfig
) -> ConvTiling | None:
    """Choose a tiling without a search, or return None if no tile fits the scratchpad.

    Cores share output channels where there are more bytes of weights than of input, else rows;
    the remaining cores divide the other. A tile takes as many input channels as possible first,
    then whole rows, channels, rows.
    """
    atoms, cores = slicer.atoms, config.cores_count
    if layer.weights.nbytes > layer.source.type.nbytes:
        across = min(atoms, cores)
        down = min(layer.total_rows, cores // across)
    else:
        down = min(layer.total_rows, cores)
        across = min(atoms, cores // down)
    rows = ceil_div(layer.total_rows, down)
    for part in list_halvings(layer.depth):
        for width in list_halvings(layer.axes[1].out):
            for count in list_halvings(ceil_div(atoms, across)):
                sizes = slicer.sizes(across, count)
                if part < layer.depth and sizes.groups > 1:
                    continue
                for height in list_divisions(rows):
                    tiling = ConvTiling(across, down, 1, count, height, width, part)
                    if plan_buffers(layer, sizes, tiling).total <= config.scratchpad_bytes:
                        return tiling
    return None


def estimate_cost(
    layer: WeightedLayer, atoms: int, tiling: ConvTiling, memory: DramModel
) -> RoughCost:
    """Estimate the cost of one or more tilings without a simulation."""
    row_axis, column_axis = layer.axes
    wide, kernel_h, kernel_w = layer.element_bytes, row_axis.kernel, column_axis.kernel
    rows, columns = compute_largest_share(layer, tiling)
    share = ceil_div(atoms, tiling.across)
    slices = ceil_div(share, tiling.atoms)
    per_atom = ceil_div(layer.out_channels, atoms)
    parts = ceil_div(layer.depth, tiling.part)
    tile_rows, tile_columns = np.minimum(tiling.rows, rows), np.minimum(tiling.columns, columns)
    tiles = ceil_div(rows, tiling.rows) * ceil_div(columns, tiling.columns)
    taken = np.minimum(tiling.atoms, share)
    out = np.minimum(taken * per_atom, layer.out_channels)
    whole = must_keep_groups_whole(layer)
    groups = taken if whole else 1
    steps = slices * tiles * parts
    sums = count_conv_cycles(
        rows * columns,
        kernel_h,
        kernel_w,
        tiling.part,
        np.minimum(share * per_atom, layer.out_channels),
        share if whole else 1,
        layer.element,
        memory.costs,
    )
    weights = count_packed_bytes(out, kernel_h, kernel_w * tiling.part * wide)
    weights = weights + out * (CHANNEL_BYTES + layer.scale_bytes)
    passes = np.where(parts == 1, slices, steps)
    passes = np.where(tiling.input_stays, slices * tiles, passes)
    passes = np.where((slices == 1) & (parts == 1), 1, passes)
    once = tiling.input_stays | ((tiles == 1) & (parts == 1))
    inputs = np.where(once, tiles, steps)
    in_pixel, out_pixel = layer.channels * wide, layer.out_channels * wide
    in_rows = np.minimum(row_axis.count_inputs(tile_rows), row_axis.size)
    in_columns = np.minimum(column_axis.count_inputs(tile_columns), column_axis.size)
    in_run, in_row = groups * tiling.part * wide, in_pixel * column_axis.size
    load = estimate_box_cycles(memory, in_run, in_columns, in_pixel, in_rows, in_row)
    out_row = out_pixel * column_axis.out
    store = estimate_box_cycles(memory, out * wide, tile_columns, out_pixel, tile_rows, out_row)
    return RoughCost(
        tiling.cores,
        parts * sums + (steps - parts) * memory.costs.mac_startup_cycles,
        steps,
        (Traffic(passes, estimate_box_cycles(memory, weights)), Traffic(inputs, load)),
        Traffic(slices * tiles, store),
    )
