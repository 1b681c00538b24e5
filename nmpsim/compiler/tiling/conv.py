"""Convolutions and fully connected layers on the MAC array.

Cores form a grid of ranges of output channels, output rows and output columns. Within a core,
slices of output channels pass by tiles of the input, or the other way round; a convolution too
deep for one tile goes over parts of its input channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from nmpsim.bundle.debug import PackedConstant
from nmpsim.bundle.elf import Buffer, LazyBytes, flat_bytes
from nmpsim.compiler.tiling.context import Candidate, Context, Options, best_rows
from nmpsim.compiler.tiling.conv_core import Addresses, conv_plan
from nmpsim.compiler.tiling.conv_scheme import (
    Scheme,
    buffers_of,
    schemes_of,
    simple_scheme,
)
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import Integers, LayerPlan, align, ends_of, too_large
from nmpsim.compiler.tiling.slices import Pieces, Slicer
from nmpsim.compiler.tiling.tiles import Ranges
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.isa.layouts import pack, packed_bytes


def conv_options(layer: Weighted, context: Context) -> Options[Scheme]:
    """The tilings of a convolution or fully connected layer."""
    config, slicer = context.config, Slicer(layer)
    simple = simple_scheme(layer, slicer, config)
    if simple is None:
        smallest = Scheme(1, layer.images * layer.rows.out, layer.columns.out, 1, 1, 1, 1)
        needs = buffers_of(layer, slicer.sizes(slicer.atoms, 1), smallest).total
        raise too_large(f"%{layer.name}", needs, config, context.place)
    source, target = context.address_of(layer.source), context.address_of(layer.target)
    channels = context.lay("channels", layer.channel_records)
    records = layer.scale_records
    scales = None if records is None else context.lay("scales", records)

    known: dict[Scheme, tuple[Scheme, ...]] = {}

    def ranked(memory: Memory) -> list[Candidate[Scheme]]:
        schemes, cost = schemes_of(layer, slicer, config, memory, known)
        return best_rows(schemes, cost)

    def build(scheme: Scheme, final: bool) -> LayerPlan:
        at = Addresses(source, target, channels, scales, _weights(layer, context, final))
        buffers = buffers_of(layer, slicer.sizes(scheme.across, scheme.atoms), scheme)
        pieces = slicer.pieces(scheme.across, scheme.atoms)
        return conv_plan(layer, scheme, pieces, buffers, at, config)

    return Options(_key(layer, context, source, target), simple, ranked, build)


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
        layer.is_exact,
        source % row,
        target % row,
    )


def _weights(
    layer: Weighted, context: Context, final: bool
) -> Callable[[Pieces, Ranges], tuple[Integers, Integers]]:
    """Packed weights, which the final plan alone lays down."""

    def weights(pieces: Pieces, parts: Ranges) -> tuple[Integers, Integers]:
        row = layer.columns.kernel * (parts.end - parts.begin) * layer.element_bytes
        nbytes = packed_bytes(pieces.count[:, None], layer.rows.kernel, row).reshape(-1)
        if not final:
            return context.next_address() + ends_of(align(nbytes))[:-1], nbytes
        addresses = [
            context.lay(
                f"weights.{box[0].start}.{box[1].start}",
                LazyBytes(size, partial(_packed, layer, box)),
            )
            for size, box in zip(nbytes.tolist(), _boxes(pieces, parts), strict=True)
        ]
        context.packed(
            layer.constant,
            PackedConstant(
                layer.constant.buffer.name,
                layer.order,
                (*pieces.first.tolist(), layer.out_channels),
                (*parts.begin.tolist(), layer.depth),
                tuple(addresses),
            ),
        )
        return np.array(addresses), nbytes

    return weights


def _boxes(pieces: Pieces, parts: Ranges) -> Iterator[tuple[slice, slice]]:
    """Output channels and input channels of each piece of the weights."""
    outs = zip(pieces.first.tolist(), (pieces.first + pieces.count).tolist(), strict=True)
    inputs = list(zip(parts.begin.tolist(), parts.end.tolist(), strict=True))
    return ((slice(*out), slice(*depth)) for out in outs for depth in inputs)


def _packed(layer: Weighted, box: tuple[slice, slice]) -> Buffer:
    out, depth = box
    return flat_bytes(pack(layer.weights[out, :, :, depth]))
