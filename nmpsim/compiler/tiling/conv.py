"""Convolutions and fully connected layers on the MAC array.

Cores form a grid of ranges of output channels, output rows and output columns. Within a core,
slices of output channels pass by tiles of the input, or the other way round; a convolution too
deep for one tile goes over parts of its input channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from nmpsim.compiler.tiling.context import Context
from nmpsim.compiler.tiling.conv_core import Addresses, ConvCore, Share
from nmpsim.compiler.tiling.conv_scheme import (
    Scheme,
    buffers_of,
    rough_cost_of,
    schemes_of,
    simple_scheme,
    slice_sizes_of,
)
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.options import Options, best_first
from nmpsim.compiler.tiling.plan import LayerPlan, align, plan_of, split, spread, too_large
from nmpsim.compiler.tiling.slices import Slice, atoms_of
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.compiler.tiling.weights import pack, packed_bytes
from nmpsim.isa.table import Unit


def conv_options(layer: Weighted, context: Context) -> Options[Scheme]:
    """The tilings of a convolution or fully connected layer."""
    config = context.config
    simple = simple_scheme(layer, config)
    if simple is None:
        smallest = Scheme(1, layer.images * layer.rows.out, layer.columns.out, 1, 1, 1, 1)
        needs = buffers_of(layer, slice_sizes_of(layer, len(atoms_of(layer)), 1), smallest).total
        raise too_large(f"%{layer.name}", needs, config, context.place)
    source, target = context.address_of(layer.source), context.address_of(layer.target)
    channels = context.lay("channels", layer.channel_records)
    records = layer.scale_records
    scales = None if records is None else context.lay("scales", records)
    atoms = len(atoms_of(layer))

    def ranked(memory: Memory) -> list[Scheme]:
        return best_first(
            schemes_of(layer, config, memory),
            lambda s: rough_cost_of(layer, atoms, s, memory).cycles,
        )

    def build(scheme: Scheme, final: bool) -> LayerPlan:
        weights = _weights(layer, context, final)
        at = Addresses(source, target, channels, scales, weights)
        buffers = buffers_of(layer, slice_sizes_of(layer, scheme.across, scheme.atoms), scheme)
        cores = [
            tuple(ConvCore(layer, scheme, buffers, at, config).steps(share))
            for share in _shares(layer, scheme)
        ]
        return plan_of(Unit.MAC, spread(cores, config), layer.macs)

    return Options(_key(layer, context, source, target), simple, ranked, build)


def _shares(layer: Weighted, scheme: Scheme) -> Iterable[Share]:
    atoms = atoms_of(layer)
    for a, b in split(len(atoms), scheme.across):
        for rows in split(layer.images * layer.rows.out, scheme.down):
            for columns in split(layer.columns.out, scheme.beside):
                yield Share(atoms[a:b], rows, columns)


def _key(layer: Weighted, context: Context, source: int, target: int) -> tuple[object, ...]:
    row = context.config.dram_row_bytes
    return (
        "conv",
        layer.images,
        layer.channels,
        layer.out_channels,
        layer.groups,
        layer.rows,
        layer.columns,
        layer.element,
        layer.scale_records is None,
        source % row,
        target % row,
    )


def _weights(
    layer: Weighted, context: Context, final: bool
) -> Callable[[Slice, int, int], tuple[int, int]]:
    """Packed weights; what several cores need is laid down once, and by the final plan only."""
    laid: dict[tuple[int, int, int], tuple[int, int]] = {}
    drafted = context.next_address()

    def weights(piece: Slice, begin: int, end: int) -> tuple[int, int]:
        nonlocal drafted
        key = (piece.first, piece.count, begin)
        if key not in laid and final:
            rows = layer.weights[piece.first : piece.first + piece.count, :, :, begin:end]
            packed = pack(np.ascontiguousarray(rows))
            laid[key] = context.lay(f"weights.{piece.first}.{begin}", packed), packed.nbytes
        elif key not in laid:
            row = layer.columns.kernel * (end - begin) * layer.element_bytes
            nbytes = packed_bytes(piece.count, layer.rows.kernel, row)
            laid[key] = drafted, nbytes
            drafted += align(nbytes)
        return laid[key]

    return weights
