"""Instructions of layer kernels, whose kernels see all host memory as a scratchpad."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.compiled.kernel_arguments import ORIGIN, SLOTS
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import Words
from nmpsim.core.state import Bytes, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import LOAD

Instruction = tuple[int, Words]
"""Number and descriptor; addresses are those that :class:`HostMemory` returns."""
Task = Sequence[Instruction]
"""Instructions that one thread executes in order; the tasks of a layer may run in parallel."""

SLACK = 64
"""Bytes after an input that kernels may read but never use."""
_ALIGNMENT = 64
TASKS = 4
"""Number of tasks of a large layer that is split by rows, for as many threads."""
MIN_COLUMNS = 64
"""Columns or channels of a task, or a multiple, if a layer has too few rows."""


class HostMemory:
    """Host memory that layer kernels address: the machine's DRAM, constants and buffers."""

    def __init__(self, machine: Machine) -> None:
        shared = machine.shared[0]
        self.image = machine.image
        self._image_base, self._ram_base = int(shared.image_base), int(shared.ram_base)
        self._ram = machine.ram
        self.kept: list[Bytes] = []
        """Arrays made for layer kernels, which must live as long as they do."""
        self.slots = SLOTS
        self._rooms: dict[int, Bytes] = {}
        self.max_channels = machine.scratchpad.shape[1] // 16

    def encode_address(self, address: int) -> int:
        """Return the descriptor word with which a layer kernel accesses an address in DRAM."""
        start = address - self._image_base
        if 0 <= start < self.image.size:
            return encode_host_address(self.image, start)
        return encode_host_address(self._ram, address - self._ram_base)

    def has_bytes_after(self, end: int, nbytes: int) -> bool:
        """Return whether ``nbytes`` bytes of the same memory follow the address ``end``."""
        start = end - self._image_base
        if 0 < start <= self.image.size:
            return start + nbytes <= self.image.size
        return end - self._ram_base + nbytes <= self._ram.size

    def store_constant(self, values: npt.NDArray[Any]) -> int:
        """Store a copy of an array; return the descriptor word for its address."""
        values = values.reshape(-1).view(np.uint8)
        room = np.zeros(values.size + SLACK + _ALIGNMENT, np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        room[start : start + values.size] = values
        self.kept.append(room)
        return encode_host_address(room, start)

    def reserve_zeros(self, words: int) -> int:
        """Reserve ``words`` 64-bit zeros; return the descriptor word for their address.

        A forked process has its own.
        """
        room = np.frombuffer(mmap.mmap(-1, 8 * words, access=mmap.ACCESS_COPY), np.uint8)
        self.kept.append(room)
        return encode_host_address(room, 0)

    def get_buffer(self, slot: int, nbytes: int) -> int:
        """Return the descriptor word for the buffer of a slot, enlarged to ``nbytes`` if needed."""
        room = self._rooms.get(slot)
        if room is None or room.size < nbytes + SLACK + _ALIGNMENT:
            room = np.zeros(nbytes + SLACK + _ALIGNMENT, np.uint8)
            self._rooms[slot] = room
            self.kept.append(room)
        return encode_host_address(room, -room.ctypes.data % _ALIGNMENT)


def encode_host_address(memory: Bytes, start: int) -> int:
    """Return the descriptor word for the host address of a byte of an array."""
    return int(memory.ctypes.data) + start - ORIGIN + SCRATCHPAD_BASE


def replace_words(d: Words, indices: Any, changes: Mapping[str, int]) -> list[int]:
    """Return a copy of a descriptor with the words in ``changes`` replaced."""
    changed = list(d)
    for name, value in changes.items():
        changed[getattr(indices, name)] = value
    return changed


def split_evenly(count: int, parts: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Split ``range(count)`` into at most ``parts`` equal ranges, aligned to ``multiple``."""
    units = -(-count // multiple)
    parts = max(1, min(parts, units))
    for part in range(parts):
        begin, end = units * part // parts, units * (part + 1) // parts
        yield begin * multiple, min(end * multiple, count)


def split_area(rows: int, columns: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Split an area into tasks: yield pairs of a row range and a column range."""
    for group in split_evenly(columns, -(-TASKS // min(rows, TASKS)), MIN_COLUMNS):
        yield from ((band, group) for band in split_evenly(rows, TASKS))


LoadAxis = tuple[int, int, int, int, int]
"""Rows or runs of a load: number, DRAM stride, scratchpad stride, padding before and after."""


def make_load(
    dram: int, spm: int, run: int, rows: LoadAxis, runs: LoadAxis, element: int = 0, fill: int = 0
) -> Instruction:
    """Return a load instruction for runs of ``run`` bytes, padded with elements ``fill``."""
    words = {"dram": dram, "spm": spm, "run_bytes": run, "element": element, "fill": fill}
    for name, axis in (("y", rows), ("x", runs)):
        before, after = f"pad_{name}_before", f"pad_{name}_after"
        names = (f"count_{name}", f"dram_stride_{name}", f"spm_stride_{name}", before, after)
        words |= zip(names, axis, strict=True)
    return OP.nmp_load, replace_words([0] * len(LOAD), LOAD, words)
