"""Whole layers as instructions for the host: kernels that see all of its memory as a scratchpad."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.compiled.context_row import ORIGIN, SLOTS
from nmpsim.core.layer_kernels.tensors import Tensor
from nmpsim.core.layer_kernels.values import Words
from nmpsim.core.state import Bytes, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import LOAD

Instruction = tuple[int, Words]
"""Number and descriptor; of a whole layer, addresses are those that :class:`Host` gives."""
Task = Sequence[Instruction]
"""Instructions that a thread executes one after the other; all tasks of a layer may be at once."""

SLACK = 64
"""Bytes after an input that kernels may read but never use."""
_ALIGNMENT = 64


class Host:
    """Memory of the host that whole layers read and write."""

    def __init__(self, machine: Machine) -> None:
        shared = machine.shared[0]
        self.image = machine.image
        self._image_base, self._ram_base = int(shared.image_base), int(shared.ram_base)
        self._ram = machine.ram
        self.kept: list[Bytes] = []
        """What was made for whole layers; it must live as long as they do."""
        self.slots = SLOTS
        self._rooms: dict[int, Bytes] = {}
        self.max_channels = machine.scratchpad.shape[1] // 16

    def address(self, address: int) -> int:
        """The word that stands for an address in DRAM."""
        start = address - self._image_base
        if 0 <= start < self.image.size:
            return word_of(self.image, start)
        return word_of(self._ram, address - self._ram_base)

    def is_followed(self, end: int, nbytes: int) -> bool:
        """Do so many bytes lie after an address, in the same memory?"""
        start = end - self._image_base
        if 0 < start <= self.image.size:
            return start + nbytes <= self.image.size
        return end - self._ram_base + nbytes <= self._ram.size

    def keep(self, values: npt.NDArray[Any]) -> int:
        """The word that stands for a copy of some bytes."""
        values = values.reshape(-1).view(np.uint8)
        room = np.zeros(values.size + SLACK + _ALIGNMENT, np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        room[start : start + values.size] = values
        self.kept.append(room)
        return word_of(room, start)

    def reserve(self, words: int) -> int:
        """The word that stands for some 64-bit zeros: pages of the host's memory that are none
        before they are written. A process that is forked off has its own."""
        room = np.frombuffer(mmap.mmap(-1, 8 * words, access=mmap.ACCESS_COPY), np.uint8)
        self.kept.append(room)
        return word_of(room, 0)

    def room(self, slot: int, nbytes: int) -> int:
        """The word that stands for room of a slot, which its tasks use one after the other."""
        room = self._rooms.get(slot)
        if room is None or room.size < nbytes + SLACK + _ALIGNMENT:
            room = np.zeros(nbytes + SLACK + _ALIGNMENT, np.uint8)
            self._rooms[slot] = room
            self.kept.append(room)
        return word_of(room, -room.ctypes.data % _ALIGNMENT)


def word_of(memory: Bytes, start: int) -> int:
    """The word that stands for a byte of an array."""
    return int(memory.ctypes.data) + start - ORIGIN + SCRATCHPAD_BASE


def with_words(d: Words, indices: Any, changes: Mapping[str, int]) -> list[int]:
    """A descriptor with other words; ``indices`` is the table of its words."""
    changed = list(d)
    for name, value in changes.items():
        changed[getattr(indices, name)] = value
    return changed


def shares(count: int, parts: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Begin and end of at most ``parts`` even shares of 0 to ``count``, each of whole multiples."""
    units = -(-count // multiple)
    parts = max(1, min(parts, units))
    for part in range(parts):
        begin, end = units * part // parts, units * (part + 1) // parts
        yield begin * multiple, min(end * multiple, count)


def padded_rows(
    tensor: Tensor, first: int, rows: int, columns: int, to: int, element: int
) -> Words:
    """A load of some rows of a canvas, ``columns`` wide, with its padding."""
    top, bottom = max(first, tensor.above), min(first + rows, tensor.above + tensor.rows)
    count = max(bottom - top, 0)
    row = columns * tensor.nbytes
    words = {
        "dram": tensor.address + (top - tensor.above) * tensor.steps[0]
        if count
        else tensor.address,
        "spm": to,
        "run_bytes": tensor.nbytes,
        "count_x": tensor.columns,
        "count_y": count,
        "dram_stride_x": tensor.steps[1],
        "dram_stride_y": tensor.steps[0],
        "spm_stride_x": tensor.nbytes,
        "spm_stride_y": row,
        "pad_x_before": tensor.left,
        "pad_x_after": columns - tensor.left - tensor.columns,
        "pad_y_before": top - first if count else rows,
        "pad_y_after": first + rows - bottom if count else 0,
        "element": element,
        "fill": tensor.fill or 0,
    }
    return with_words([0] * len(LOAD), LOAD, words)
