"""Digests of the rescale values of each layer, as the device's instructions used them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import ProgramStep
from nmpsim.experiments.identity import compute_digest
from nmpsim.isa.codec import descriptor_offsets
from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS, SCALE_RECORD

Int64s = npt.NDArray[np.int64]

_ENDINGS = ("_pre", "_mul", "_post", "_offset")
_NAMES = (
    "element",
    "profile",
    "operation",
    "divide",
    "activation",
    "result_scale",
    "clip_low",
    "clip_high",
    "clip_wanted",
    "in_low",
    "in_high",
    "empty_value",
    "value",
    "fill",
)
"""Descriptor words, besides the endings above, that define how sums become results."""
_PADS = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")
_CHANNELS = {"conv": "out_channels", "dwconv": "channels_count"}
"""Descriptors with scales for each channel -> the word with their number."""

_Number = tuple[int, bytes]
"""Index of a layer, and one of its rescale values."""


class UsedDescriptors:
    """Recorder of the descriptors that a run uses, for ``Device.run(work=...)``."""

    def __init__(self) -> None:
        self._chunks = [np.zeros((0, 4), np.int64)]

    def __call__(self, noted: Any) -> None:
        """Record the instructions since the last call."""
        rows = noted[noted.is_grant == 0]
        self._chunks.append(np.stack([rows.core, rows.layer, rows.pc, rows.descriptor], axis=1))

    def rows(self) -> Int64s:
        """Return int64 [instructions, 4]: core, layer, addresses of instruction and descriptor."""
        return np.concatenate(self._chunks)


def digest_rescale_values(bundle: Bundle, used: Int64s) -> tuple[str, ...]:
    """Return the digest of each layer's multipliers, shifts, offsets and clip ranges.

    A digest depends on which values occur, and on the channel of scales per channel. It does not
    depend on the tiling. It is empty for a layer that rescales nothing. Descriptors outside the
    bundle's read-only memory are ignored.

    Parameters
    ----------
    bundle
        The program.
    used
        Result of :meth:`UsedDescriptors.rows`.
    """
    found: list[set[bytes]] = [set() for _ in bundle.metadata.layers]
    for layer, number in _numbers(bundle, used):
        if layer < len(found):  # else it names no layer of the bundle
            found[layer].add(number)
    return tuple(compute_digest(sorted(numbers)) if numbers else "" for numbers in found)


def _numbers(bundle: Bundle, used: Int64s) -> Iterator[_Number]:
    uses = _uses(bundle, used)
    for one in uses.values():
        yield from _of_words(one)
    yield from _by_channel(bundle, uses)
    for step in bundle.metadata.steps:
        if step.kind == "host":
            yield from ((index, _of_host(step)) for index in step.layers)


@attrs.frozen(eq=False)
class _Uses:
    """All uses of one kind of descriptor, in the order of the run."""

    name: str
    order: Int64s
    cores: Int64s
    layers: Int64s
    values: npt.NDArray[np.int32]
    """[uses, words of the descriptor]."""

    def word(self, name: str) -> Int64s:
        """Return a word of all uses, as unsigned numbers."""
        column = self.values[:, descriptor_offsets(self.name)[name]]
        return column.view(np.uint32).astype(np.int64)

    def select(self, chosen: npt.NDArray[Any]) -> _Uses:
        """Return the chosen uses."""
        arrays = (self.order, self.cores, self.layers, self.values)
        return _Uses(self.name, *(array[chosen] for array in arrays))


def _uses(bundle: Bundle, used: Int64s) -> dict[str, _Uses]:
    """Return the uses of each kind of descriptor."""
    order = np.flatnonzero(_is_held(bundle, used[:, 2], 4))
    codes = _bytes_at(bundle, used[order, 2], 4).view("<u4")[:, 0]
    found = {}
    for instruction in INSTRUCTIONS:
        name = instruction.descriptor
        if name is None:
            continue
        own = order[codes & instruction.mask == instruction.match]
        own = own[_is_held(bundle, used[own, 3], DESCRIPTORS[name].nbytes)]
        cores, layers, _, addresses = used[own].T
        values = _bytes_at(bundle, addresses, DESCRIPTORS[name].nbytes).view("<i4")
        found[name] = _Uses(name, own, cores, layers, values)
    return found


def _is_held(bundle: Bundle, addresses: Int64s, nbytes: int) -> npt.NDArray[np.bool_]:
    """Return which addresses have this many bytes of read-only memory."""
    start = addresses - bundle.image_base
    return (start >= 0) & (start <= bundle.image.size - nbytes)


def _bytes_at(bundle: Bundle, addresses: Int64s, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return [addresses, nbytes] of read-only memory."""
    offsets = (addresses - bundle.image_base)[:, None] + np.arange(nbytes)
    return np.asarray(bundle.image[offsets], np.uint8)


def list_rescale_words(descriptor: str) -> tuple[str, ...]:
    """Return the names of a descriptor's words that define how sums become results."""
    words = [word.name for word in DESCRIPTORS[descriptor]]
    return tuple(name for name in words if name in _NAMES or name.endswith(_ENDINGS))


def _of_words(uses: _Uses) -> Iterator[_Number]:
    names = list_rescale_words(uses.name)
    if "fill" in names:  # of transfers that pad
        uses = uses.select(np.any([uses.word(pad) for pad in _PADS], axis=0))
    if not names or not uses.order.size:
        return
    title = f"{names}".encode()
    columns = [uses.values[:, descriptor_offsets(uses.name)[name]] for name in names]
    for layer, *row in np.unique(np.stack([uses.layers, *columns], axis=1), axis=0).tolist():
        yield layer, title + f"{row}".encode()


def _by_channel(bundle: Bundle, uses: Mapping[str, _Uses]) -> Iterator[_Number]:
    """Yield scales of each channel, as the instructions find them in the scratchpad."""
    for name, channels in _CHANNELS.items():
        own = uses[name].select(uses[name].word("scales") != 0)
        counts = own.word(channels)
        first = own.word("event_origin") % np.maximum(own.word("event_stride_x"), 1)
        sources = _sources(bundle, uses["load"], own, counts * SCALE_RECORD.nbytes)
        rows = np.stack([own.layers, sources, first, counts], axis=1)
        for layer, source, start, count in np.unique(rows[sources >= 0], axis=0).tolist():
            at = source + SCALE_RECORD.nbytes * np.arange(count)
            for channel, record in enumerate(_bytes_at(bundle, at, SCALE_RECORD.nbytes), start):
                yield layer, f"channel {channel}: ".encode() + record.tobytes()


def _sources(bundle: Bundle, loads: _Uses, uses: _Uses, nbytes: Int64s) -> Int64s:
    """Return the address of each table in read-only memory, or -1 if no single load brought it."""
    found = np.full(uses.order.size, -1, np.int64)
    starts, spm, dram, run = uses.word("scales"), *map(loads.word, ("spm", "dram", "run_bytes"))
    for core in np.unique(uses.cores):
        own = np.flatnonzero(loads.cores == core)
        for index in np.flatnonzero(uses.cores == core):
            offset = starts[index] - spm[own]
            fits = (offset >= 0) & (offset + nbytes[index] <= run[own])
            last = np.flatnonzero(fits & (loads.order[own] < uses.order[index]))[-1:]
            address = dram[own[last]] + offset[last]
            if last.size and _is_held(bundle, address, int(nbytes[index])).all():
                found[index] = address[0]
    return found


def _of_host(step: ProgramStep) -> bytes:
    tensors = [operand.tensor for operand in step.operands]
    return f"{step.numerics} {[(one.elem, one.scale, one.offset) for one in tensors]}".encode()
