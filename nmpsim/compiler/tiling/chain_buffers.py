"""Scratchpad buffers of a chain: its tensors, and the constants of its layers in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.bundle.debug import PackedConstantLocation
from nmpsim.bundle.elf import Buffer, LazyBytes, encode_array
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.tiling.chain_layers import (
    DEPTHWISE,
    Chain,
    ChainLayer,
    count_constant_bytes,
)
from nmpsim.compiler.tiling.chain_rows import (
    VECTOR,
    ChainTiling,
    TensorRows,
    has_all_channels,
)
from nmpsim.compiler.tiling.grid import Bounds, Integers
from nmpsim.compiler.tiling.plan import align_size
from nmpsim.compiler.tiling.weighted import WeightedLayer
from nmpsim.isa.layouts import count_packed_bytes, pack_weights
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CHANNEL_BYTES

MIN_CONSTANT_BYTES = 4096
"""Fewest bytes of a scratchpad for constants."""
MIN_GROUP_BYTES = 2048
MAX_GATHERED_BYTES = 4096
"""Most bytes of a result of all images of a core that are stored at once."""
RING_BYTES = 65536
"""Bytes for constants from which on a ring of them is large enough."""


@attrs.frozen(eq=False)
class ScratchpadLayout:
    """Scratchpad layout of a chain: addresses of its tensors, and the space for constants."""

    buffers: Mapping[str, tuple[int, ...]]
    """Addresses of each tensor's buffers, which strips use in turn."""
    constants: int
    """Address of the constants."""
    constant_bytes: int
    keeps_padding: bool
    """Whether each padded result has its own buffer, so that padding is written only once."""


def lay_out_scratchpad(
    chain: Chain,
    tiling: ChainTiling,
    rows: Mapping[str, TensorRows],
    channels: Bounds,
    capacity: int,
) -> ScratchpadLayout | None:
    """Lay out the tensors of a chain in the scratchpads; return None if the tensors do not fit."""
    sizes = _compute_sizes(chain, tiling, rows, channels)
    wanted = _count_wanted_bytes(count_constant_bytes(chain) // tiling.across)
    place = partial(_place_tensors, chain, tiling, rows, sizes, capacity)
    if tiling.strips == 1:
        for copies in (2, 1) if tiling.images > 1 else (1,):
            layout = place(copies, keeps_padding=True)
            if layout is not None and layout.constant_bytes >= wanted:
                return layout
    layout = place(2 if tiling.strips > 1 else 1, keeps_padding=False)
    if layout is None or layout.constant_bytes < MIN_CONSTANT_BYTES:
        return None
    if tiling.strips > 1 and layout.constant_bytes < wanted:
        return None
    return layout


def _count_wanted_bytes(constant_bytes: int) -> int:
    """Return the size of the memory for constants with which none is loaded too late."""
    return min(constant_bytes * 51 // 50 + MIN_GROUP_BYTES, RING_BYTES)


def get_fewest_constant_bytes(constant_bytes: int, strips: Integers) -> Integers:
    """Return the minimum bytes for constants in a scratchpad, for numbers of strips [N]."""
    return np.where(strips > 1, _count_wanted_bytes(constant_bytes), MIN_CONSTANT_BYTES)


def count_needed_bytes(chain: Chain, tiling: ChainTiling, rows: Mapping[str, TensorRows]) -> int:
    """Count the bytes that the tensors and the largest piece of constants need in a scratchpad."""
    sizes = _compute_sizes(chain, tiling, rows, ((0, chain.result.channels),))
    layout = _place_tensors(chain, tiling, rows, sizes, 1 << 32, 1, keeps_padding=False)
    assert layout is not None
    pieces = [MIN_CONSTANT_BYTES]
    for layer in chain.layers:
        if layer.weighted is not None:
            piece = ConstantPiece(0, 0, min(VECTOR, layer.weighted.out_channels), 0)
            _, offset = piece.list_offsets(layer.weighted)
            pieces.append(align_size(offset + count_weight_bytes(layer, piece.end)))
    return layout.constants - SCRATCHPAD_BASE + max(pieces)


def _compute_sizes(
    chain: Chain, tiling: ChainTiling, rows: Mapping[str, TensorRows], channels: Bounds
) -> Mapping[str, int]:
    """Compute the size of each tensor in a scratchpad in bytes, for the core with the most."""
    widest = max(end - begin for begin, end in channels)
    sizes = {}
    for name, tensor in chain.tensors.items():
        own = rows[name]
        high = int((own.held.size + own.above + own.below).max())
        pixels = high * (tensor.columns + own.left + own.right)
        count = tensor.channels if has_all_channels(chain, name, tiling.across) else widest
        copies = tiling.images if is_gathered(chain, tiling, name) else 1
        sizes[name] = align_size(copies * pixels * count * tensor.element_bytes)
    return sizes


def is_gathered(chain: Chain, tiling: ChainTiling, name: str) -> bool:
    """Return whether a core gathers a small result of all its images, and then stores it once."""
    if name not in chain.stored or any(name in layer.inputs for layer in chain.layers):
        return False
    nbytes = tiling.images * chain.tensors[name].nbytes
    return tiling.images > 1 and nbytes <= MAX_GATHERED_BYTES


def _place_tensors(
    chain: Chain,
    tiling: ChainTiling,
    rows: Mapping[str, TensorRows],
    sizes: Mapping[str, int],
    capacity: int,
    copies: int,
    *,
    keeps_padding: bool,
) -> ScratchpadLayout | None:
    """Place tensors by first fit, the largest first; tensors not live at once share bytes.

    ``copies`` is the number of buffers of each tensor that is loaded or stored in every turn.
    """
    end = len(chain.layers)
    lives: list[tuple[int, str, int, int]] = []
    for name in chain.tensors:
        users = [at for at, layer in enumerate(chain.layers) if name in layer.inputs]
        writers = [at for at, layer in enumerate(chain.layers) if layer.output == name]
        birth, death = min(writers, default=-1), max(users, default=end)
        is_single = is_gathered(chain, tiling, name)
        is_moved = (not writers or name in chain.stored) and not is_single
        if name in chain.stored:
            death = end
        if (
            (copies > 1 and is_moved)
            or (keeps_padding and writers and rows[name].has_padding)
            or is_single
        ):
            birth, death = -1, end
        lives += [(sizes[name], name, birth, death)] * (copies if is_moved else 1)
    placed: list[tuple[int, int, int, int]] = []
    buffers: dict[str, tuple[int, ...]] = {}
    for size, name, birth, death in sorted(lives, key=lambda life: -life[0]):
        start = 0
        for low, high, first, last in sorted(placed):
            if first <= death and birth <= last:
                if start + size <= low:
                    break
                start = max(start, high)
        placed.append((start, start + size, birth, death))
        buffers[name] = (*buffers.get(name, ()), SCRATCHPAD_BASE + start)
    top = max(high for _, high, _, _ in placed)
    if top > capacity:
        return None
    return ScratchpadLayout(buffers, SCRATCHPAD_BASE + top, capacity - top, keeps_padding)


class ConstantPiece(NamedTuple):
    """Constants of a range of output channels: channel records, scale records and weights."""

    layer: int
    """Position of the layer in the chain."""
    begin: int
    """First output channel."""
    end: int
    offset: int
    """Offset of the piece in its group, in bytes."""

    def list_offsets(self, weighted: WeightedLayer) -> tuple[int, int]:
        """Return the byte offsets of the scale records and the weights within the piece."""
        count = self.end - self.begin
        scales = count * CHANNEL_BYTES
        return scales, scales + count * weighted.scale_bytes


@attrs.frozen(eq=False)
class ConstantGroup:
    """Group of constants of consecutive layers, which one load instruction transfers."""

    address: int
    """Address in DRAM."""
    nbytes: int
    pieces: tuple[ConstantPiece, ...]


def count_weight_bytes(layer: ChainLayer, count: int) -> int:
    """Return the size in bytes of the weights of ``count`` output channels, as stored in DRAM."""
    weighted = layer.weighted
    assert weighted is not None
    columns = weighted.axes[1].kernel * weighted.element_bytes
    if layer.mnemonic == DEPTHWISE:
        return count * weighted.axes[0].kernel * columns
    row = columns * weighted.depth
    return int(count_packed_bytes(count, weighted.axes[0].kernel, row))


def group_constants(
    chain: Chain, channels: tuple[int, int] | None, group_bytes: int, space: int
) -> list[ConstantGroup] | None:
    """Group the constants of a range of channels; return None if they exceed ``space``.

    The groups are in the order of use and have no address yet. ``channels`` is None for all.
    """
    groups: list[ConstantGroup] = []
    pieces: list[ConstantPiece] = []
    nbytes = 0
    limit = max(group_bytes, MIN_GROUP_BYTES)

    def finish_group() -> None:
        nonlocal pieces, nbytes
        if pieces:
            groups.append(ConstantGroup(0, nbytes, tuple(pieces)))
        pieces, nbytes = [], 0

    for position, layer in enumerate(chain.layers):
        if layer.weighted is None:
            continue
        begin, end = channels or (0, layer.weighted.out_channels)
        most = min(limit, space * 5 // 11)
        step = max(VECTOR, most // layer.channel_bytes // VECTOR * VECTOR)
        for first in range(begin, end, step):
            count = min(step, end - first)
            piece = ConstantPiece(position, first, first + count, nbytes)
            size = align_size(
                piece.list_offsets(layer.weighted)[1] + count_weight_bytes(layer, count)
            )
            if pieces and nbytes + size > limit * 5 // 4:
                finish_group()
                piece = piece._replace(offset=0)
            pieces.append(piece)
            nbytes += size
            if nbytes > space:
                return None
    finish_group()
    return groups


PlaceGroup = Callable[[Chain, ConstantGroup], int]
"""Returns the address of a group of constants."""


def estimate_addresses(memory: ProgramMemory) -> PlaceGroup:
    """Return a function that estimates the DRAM address of each next group of constants."""
    address = memory.get_next_address()

    def place(_: Chain, group: ConstantGroup) -> int:
        nonlocal address
        start = address
        address += align_size(group.nbytes)
        return start

    return place


def add_constants(memory: ProgramMemory) -> PlaceGroup:
    """Return a function that adds a group of constants to a program and returns its address."""

    def place(chain: Chain, group: ConstantGroup) -> int:
        name = f"{chain.layers[group.pieces[0].layer].name}.constants"
        data = LazyBytes(group.nbytes, partial(_encode_group, chain, group))
        return memory.add_constant(name, data)

    return place


def _encode_group(chain: Chain, group: ConstantGroup) -> Buffer:
    data = np.zeros(group.nbytes, np.uint8)
    for piece in group.pieces:
        layer = chain.layers[piece.layer]
        weighted = layer.weighted
        assert weighted is not None
        some = slice(piece.begin, piece.end)
        scales, weights = piece.list_offsets(weighted)
        parts = [(0, weighted.channel_records[some]), (weights, _lay_out_weights(layer, some))]
        if weighted.scale_records is not None:
            parts.append((scales, weighted.scale_records[some]))
        for offset, array in parts:
            encoded = np.frombuffer(encode_array(array), np.uint8)
            start = piece.offset + offset
            data[start : start + encoded.size] = encoded
    return data.data


def _lay_out_weights(layer: ChainLayer, channels: slice) -> Array:
    """Return the weights of output channels in the layout of the layer's instruction."""
    assert layer.weighted is not None
    weights = layer.weighted.weights[channels]
    if layer.mnemonic == DEPTHWISE:
        return np.ascontiguousarray(weights.reshape(weights.shape[0], -1).T)
    return pack_weights(weights)


def record_packed_weights(
    chain: Chain, groups: list[list[ConstantGroup]], memory: ProgramMemory
) -> None:
    """Record the addresses of packed convolution weights, so that the weights are stored once."""
    for position, layer in enumerate(chain.layers):
        weighted = layer.weighted
        if weighted is None or layer.mnemonic == DEPTHWISE:
            continue
        if len(weighted.constant.shape) == 2 and weighted.axes[0].kernel > 1:
            continue  # the weights are packed as those of a convolution
        found: dict[int, int] = {}
        for group in (group for own in groups for group in own):
            for piece in group.pieces:
                if piece.layer == position:
                    _, offset = piece.list_offsets(weighted)
                    found[piece.begin] = group.address + piece.offset + offset
        outputs, addresses = zip(*sorted(found.items()), strict=True)
        location = PackedConstantLocation(
            weighted.constant.buffer.name,
            weighted.order,
            (*outputs, weighted.out_channels),
            (0, weighted.depth),
            addresses,
        )
        memory.record_packed_constant(weighted.constant, location)
