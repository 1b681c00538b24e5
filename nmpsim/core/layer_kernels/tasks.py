"""Instructions of layer kernels, whose kernels see all host memory as a scratchpad."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.compiled.kernel_arguments import ORIGIN, SLOTS
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import (
    CONSTANT,
    TensorView,
    Words,
    make_constant_origins,
    require,
)
from nmpsim.core.state import Bytes, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import LOAD


class KernelStep(NamedTuple):
    """KernelStep of a layer kernel; addresses are those that :class:`HostMemory` returns."""

    number: int
    words: Words


Task = Sequence[KernelStep]
"""Instructions that one thread executes in order; the tasks of a layer may run in parallel."""

SLACK = 64
"""Bytes after an input that kernels may read but never use."""
_ALIGNMENT = 64
TASKS = 4
"""Number of tasks of a large layer that is split by rows, for as many threads."""
MIN_COLUMNS = 64
"""Columns or channels of a task, or a multiple, if a layer has too few rows."""


class Margins(NamedTuple):
    """Padding around a tensor: rows above and below, columns left and right, and its value."""

    above: int
    below: int
    left: int
    right: int
    fill: int

    def unite(self, other: Margins) -> Margins:
        """Return margins that contain both; raise UnprovedError if they have other values."""
        if not any(self[:4]):
            return other
        require(self.fill == other.fill or not any(other[:4]))
        above, below, left, right = map(max, self[:4], other[:4])
        return Margins(above, below, left, right, self.fill)


NO_MARGINS = Margins(0, 0, 0, 0, 0)


@attrs.frozen
class RelocatedTensor:
    """Tensor of a chain that layer kernels keep in host memory, because DRAM never has all of it.

    Its rows have padding for the convolutions that read it.
    """

    view: TensorView
    start: int
    """Descriptor word for the address of the first pixel."""
    row_step: int
    """Bytes from one row to the next."""


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
        self._tensors: dict[int, RelocatedTensor] = {}
        self.max_channels = machine.scratchpad.shape[1] // 16

    def encode_address(self, address: int) -> int:
        """Return the descriptor word with which a layer kernel accesses an address in DRAM."""
        start = address - self._image_base
        if 0 <= start < self.image.size:
            return encode_host_address(self.image, start)
        return encode_host_address(self._ram, address - self._ram_base)

    def begin_group(self) -> None:
        """Begin with other layers, of which no tensor is in host memory."""
        self._tensors = {}

    def place_tensor(self, view: TensorView, margins: Margins, element: int) -> None:
        """Place a tensor in host memory instead of DRAM.

        Parameters
        ----------
        view : TensorView
            The tensor.
        margins : Margins
            Padding around the tensor.
        element : int
            Element type of the tensor.
        """
        above, below, left, right, fill = margins
        row_step = (left + view.columns + right) * view.nbytes
        pattern = (CONSTANT - make_constant_origins(fill, element)).astype(np.uint8)
        padded = np.tile(pattern, (above + view.rows + below) * row_step // pattern.size)
        start = self.store_constant(padded) + above * row_step + left * view.nbytes
        self._tensors[view.address] = RelocatedTensor(view, start, row_step)

    def find_tensor(self, view: TensorView) -> RelocatedTensor | None:
        """Return where a tensor is in host memory; None if it is in DRAM."""
        return self._tensors.get(view.address)

    def encode_place(self, view: TensorView, row: int, column: int, byte: int) -> int:
        """Return the descriptor word for a byte of a pixel, which may be padding of the tensor."""
        found = self.find_tensor(view)
        if found is None:
            return self.encode_address(view.get_address(row, column, byte))
        row_step, pixel_step = self.get_steps(view)
        return found.start + row * row_step + column * pixel_step + byte

    def get_steps(self, view: TensorView) -> tuple[int, int]:
        """Return the bytes from one row to the next, and from one pixel to the next."""
        found = self.find_tensor(view)
        if found is None or found.view.steps[0] == found.row_step:
            return view.steps
        require(found.view == view)
        return found.row_step, view.nbytes

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
) -> KernelStep:
    """Return a load instruction for runs of ``run`` bytes, padded with elements ``fill``."""
    words = {"dram": dram, "spm": spm, "run_bytes": run, "element": element, "fill": fill}
    for name, axis in (("y", rows), ("x", runs)):
        before, after = f"pad_{name}_before", f"pad_{name}_after"
        names = (f"count_{name}", f"dram_stride_{name}", f"spm_stride_{name}", before, after)
        words |= zip(names, axis, strict=True)
    return KernelStep(OP.nmp_load, replace_words([0] * len(LOAD), LOAD, words))
