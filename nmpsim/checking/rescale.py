"""Digests of the rescale values of each layer, as the device's instructions used them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from nmpsim.analysis.tensor_instructions import (
    TensorInstruction,
    decode_tensor_instruction,
    read_image_bytes,
)
from nmpsim.bundle import Bundle
from nmpsim.experiments.identity import compute_digest
from nmpsim.isa.table import DESCRIPTORS, SCALE_RECORD
from nmpsim.kernels.array_types import Int64s

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


class DescriptorRecorder:
    """Recorder of the descriptors that a run uses, for ``Device.run(work=...)``."""

    def __init__(self) -> None:
        self._chunks = [np.zeros((0, 4), np.int64)]

    def __call__(self, noted: Any) -> None:
        """Record the instructions since the last call."""
        rows = noted[noted.is_grant == 0]
        self._chunks.append(np.stack([rows.core, rows.layer, rows.pc, rows.descriptor], axis=1))

    def get_rows(self) -> Int64s:
        """Return uses as int64 [uses, 4]: core, layer, instruction address, descriptor address."""
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
        Result of :meth:`DescriptorRecorder.get_rows`.
    """
    found: list[set[bytes]] = [set() for _ in bundle.metadata.layers]
    read = cache(partial(decode_tensor_instruction, bundle))
    for layer, pc, descriptor in np.unique(used[:, 1:], axis=0).tolist():
        instruction = read(pc, descriptor)
        if instruction is not None and instruction.words and layer < len(found):
            found[layer].update(_encode_words(instruction))
    for layer, number in _list_channel_scales(bundle, used, read):
        if layer < len(found):  # else it names no layer of the bundle
            found[layer].add(number)
    for step in bundle.metadata.steps:
        tensors = [operand.tensor for operand in step.operands]
        types = [(one.elem, one.scale, one.offset) for one in tensors]
        for index in step.layers if step.kind == "host" else ():
            found[index].add(f"{step.numerics} {types}".encode())
    return tuple(compute_digest(sorted(numbers)) if numbers else "" for numbers in found)


def list_rescale_words(descriptor: str) -> tuple[str, ...]:
    """Return the names of a descriptor's words that define how sums are rescaled."""
    words = [word.name for word in DESCRIPTORS[descriptor]]
    return tuple(name for name in words if name in _NAMES or name.endswith(_ENDINGS))


def _encode_words(instruction: TensorInstruction) -> Iterator[bytes]:
    """Yield the rescale words of an instruction as text; a load has some only if it pads."""
    names, words = list_rescale_words(instruction.name), instruction.words
    if names and ("fill" not in names or any(words[pad] for pad in _PADS)):
        values = [(words[name] + (1 << 31)) % (1 << 32) - (1 << 31) for name in names]
        yield f"{names}{values}".encode()


def _list_channel_scales(
    bundle: Bundle, used: Int64s, read: Callable[[int, int], TensorInstruction | None]
) -> Iterator[tuple[int, bytes]]:
    """Yield each layer's scales of channels, as instructions find them in the scratchpad."""
    loads: dict[int, list[Mapping[str, int]]] = defaultdict(list)
    """Core -> words of its loads so far."""
    searched: dict[tuple[int, int, int], tuple[int, int]] = {}
    """Core, address and size of a table -> number of searched loads, and its source."""
    tables: dict[tuple[int, int, int, int], None] = {}
    for core, layer, pc, descriptor in used.tolist():
        instruction = read(pc, descriptor)
        words = instruction.words if instruction is not None else {}
        if instruction is None or not words:
            continue
        if instruction.name == "load":
            loads[core].append(words)
        elif instruction.name in _CHANNELS and words["scales"]:
            count = words[_CHANNELS[instruction.name]]
            table = (core, words["scales"], count * SCALE_RECORD.nbytes)
            number, source = searched.get(table, (0, -1))
            for load in loads[core][number:]:
                offset = table[1] - load["spm"]
                if 0 <= offset <= load["run_bytes"] - table[2]:
                    source = load["dram"] + offset
            searched[table] = len(loads[core]), source
            first = words["event_origin"] % max(words["event_stride_x"], 1)
            tables[layer, source, first, count] = None
    size = SCALE_RECORD.nbytes
    for layer, source, first, count in tables:
        data = read_image_bytes(bundle, source, count * size)
        for channel in range(len(data) // size):
            record = data[channel * size : (channel + 1) * size]
            yield layer, f"channel {first + channel}: ".encode() + record
