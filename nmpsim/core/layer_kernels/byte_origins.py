"""Origins: where each byte of a scratchpad comes from while a layer's tiles are checked.

An origin is a number. A byte of DRAM has its offset: first the image, then the read-write memory.
Loads and stores copy origins, so two bytes with the same origin of DRAM are equal, whatever the
inputs are. The result that a tile computes for a DRAM byte has the origin of that byte plus
``RESULT``, even if it is never stored there. A load of a stored result gives this origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import Bytes, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import INT16, LOAD, STORE

Origins = npt.NDArray[np.int32]
Words = Sequence[int]
Shape = tuple[int, int, int]
"""Rows, columns, bytes or elements of a pixel."""

UNWRITTEN, CONSTANT, PARTIAL_SUM, RESULT = -1, -2, -1000, 1 << 30
"""Origin of a byte that the layer has not written. A byte ``b`` of padding has the origin
``CONSTANT - b``, and all bytes of partial sums number ``n`` have the origin ``PARTIAL_SUM - n``."""


MAX_EXTENT = 1 << 24
"""Maximum number of bytes from the first to the last byte of a tensor or transfer."""


class UnprovedError(Exception):
    """Exception raised if a layer's tiles are not proved to compute the claimed operation."""


def require(condition: Any) -> None:
    """Raise UnprovedError if a condition of the proof is false."""
    if not condition:
        raise UnprovedError


def view_region(
    memory: npt.NDArray[Any], start: int, shape: Sequence[int], steps: Sequence[int]
) -> Any:
    """Return a strided view of a one-dimensional array; raise UnprovedError if out of bounds."""
    size = memory.itemsize
    require(start >= 0 and min(steps) >= 0)
    try:
        strides = tuple([step * size for step in steps])
        return np.ndarray(shape, memory.dtype, memory, start * size, strides)
    except (TypeError, ValueError):
        raise UnprovedError from None


def make_constant_origins(value: int, element: int) -> Origins:
    """Return the origins that represent the bytes of a constant element, such as padding."""
    size = 2 if element == INT16 else 1
    pattern = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return CONSTANT - np.frombuffer(pattern, np.uint8).astype(np.int32)


@attrs.frozen
class TensorView:
    """View of a row-major tensor in DRAM: its address, rows, columns, and bytes of a pixel."""

    address: int
    rows: int
    columns: int
    nbytes: int

    @property
    def steps(self) -> tuple[int, int]:
        """Bytes from one row to the next, and from one pixel to the next."""
        return self.columns * self.nbytes, self.nbytes

    @property
    def end(self) -> int:
        """Address of the first byte after the tensor."""
        return self.address + self.rows * self.columns * self.nbytes

    def get_address(self, row: int, column: int, byte: int) -> int:
        """Return the address of a byte of a pixel."""
        return self.address + (row * self.columns + column) * self.nbytes + byte

    def covers(self, other: TensorView) -> bool:
        """Return whether two tensors have the same bytes, in whatever shape."""
        return (self.address, self.end) == (other.address, other.end)

    def overlaps(self, other: TensorView) -> bool:
        """Return whether two tensors have a byte in common."""
        return self.address < other.end and other.address < self.end


class DramOrigins:
    """Converter between DRAM addresses and origins; origins number the bytes of image and RAM."""

    def __init__(self, machine: Machine) -> None:
        shared = machine.shared[0]
        self.image: Bytes = machine.image
        self.has_formulas = machine.formulas.size > 0
        """Whether the program replaces formulas of profiles."""
        self._image_base, self._ram_base = int(shared.image_base), int(shared.ram_base)
        self.ram_bytes = machine.ram.size
        self._end = machine.image.size + machine.ram.size
        self._counting = np.arange(0, dtype=np.int32)
        self.scratchpad_bytes = machine.scratchpad.shape[1]
        self._stored: list[tuple[int, npt.NDArray[np.bool_]]] = []

    def get_origin(self, address: int, nbytes: int) -> int:
        """Return the origin of the byte at a DRAM address, the first of ``nbytes`` bytes.

        Raises UnprovedError if they are not all in the image or all in read-write memory.
        """
        require(nbytes > 0)
        start, size = address - self._image_base, self.image.size
        if 0 <= start < size:
            require(start + nbytes <= size)
            return start
        start = address - self._ram_base
        require(start >= 0 and size + start + nbytes <= min(self._end, RESULT))
        return size + start

    def get_tensor_origins(self, tensor: TensorView) -> Origins:
        """Return the origins of a tensor's bytes, [rows, columns, bytes]."""
        shape = tensor.rows, tensor.columns, tensor.nbytes
        return self._view_range(tensor.address, shape, tensor.steps)

    def begin_group(self) -> None:
        """Begin with other layers, which have not stored any result."""
        self._stored = []

    def add_results(self, tensor: TensorView) -> npt.NDArray[np.bool_]:
        """Add the results of a layer; return which bytes are stored, which the caller updates."""
        nbytes = tensor.end - tensor.address
        stored = np.zeros(nbytes, np.bool_)
        self._stored.append((self.get_origin(tensor.address, nbytes), stored))
        return stored

    def get_loaded_origins(self, d: Words) -> Origins:
        """Return the origins of the DRAM bytes that a load reads, with the results stored so far.

        Shape: [rows, runs, bytes].
        """
        origins = self.get_transfer_origins(d)
        low, high = int(origins[0, 0, 0]), int(origins[-1, -1, -1])
        for first, stored in self._stored:
            if low < first + stored.size and first <= high:
                which = np.clip(origins - first, 0, stored.size - 1)
                is_result = (origins - first == which) & stored[which]
                origins = np.where(is_result, origins + RESULT, origins)
        return origins

    def get_transfer_origins(self, d: Words) -> Origins:
        """Return the origins of the DRAM bytes of a load or store, [rows, runs, bytes]."""
        counts = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
        return self._view_range(
            d[LOAD.dram], counts, (d[LOAD.dram_stride_y], d[LOAD.dram_stride_x])
        )

    def _view_range(self, address: int, shape: Shape, steps: tuple[int, int]) -> Origins:
        (rows, columns, run), (row, column) = shape, steps
        require(min(shape) > 0)
        extent = (rows - 1) * row + (columns - 1) * column + run
        require(extent <= MAX_EXTENT)
        first = self.get_origin(address, extent)
        if extent > self._counting.size:
            self._counting = np.arange(2 * extent, dtype=np.int32)
        origins: Origins = first + view_region(self._counting, 0, shape, (row, column, 1))
        return origins

    def find_address_offset(self, origins: Origins) -> int:
        """Return the offset from origins to addresses; raise UnprovedError for mixed memories."""
        require(origins.min() >= 0 and origins.max() < self._end)
        in_ram = origins >= self.image.size
        require(in_ram.all() or not in_ram.any())
        return self._ram_base - self.image.size if in_ram[0] else self._image_base


class TileScratchpad:
    """Scratchpad model that stores the origin of each byte while tiles are checked."""

    def __init__(self, dram: DramOrigins) -> None:
        self._dram = dram
        self.origins: Origins = np.full(dram.scratchpad_bytes, UNWRITTEN, np.int32)

    def keep_constants(self) -> None:
        """Begin with another layer, which of the bytes so far may read only constants in DRAM."""
        self.origins[self.origins.view(np.uint32) >= self._dram.image.size] = UNWRITTEN

    def read(self, address: int, shape: Sequence[int], steps: Sequence[int]) -> Origins:
        """Return a view of the origins of a scratchpad region [rows, columns, bytes]."""
        origins: Origins = view_region(self.origins, address - SCRATCHPAD_BASE, shape, (*steps, 1))
        return origins

    def write(self, address: int, steps: Sequence[int], origins: Origins) -> None:
        """Set the origins of a scratchpad region; raise UnprovedError if its elements overlap."""
        (rows, columns, run), (row, column) = origins.shape, steps
        require(columns == 1 or column >= run)
        require(rows == 1 or row >= (columns - 1) * column + run)
        self.read(address, origins.shape, steps)[...] = origins

    def load(self, d: Words) -> None:
        """Set the origins of the scratchpad bytes that a load writes, including its padding."""
        left, above = d[LOAD.pad_x_before], d[LOAD.pad_y_before]
        rows, runs = d[LOAD.count_y], d[LOAD.count_x]
        shape = (
            above + rows + d[LOAD.pad_y_after],
            left + runs + d[LOAD.pad_x_after],
            d[LOAD.run_bytes],
        )
        steps = d[LOAD.spm_stride_y], d[LOAD.spm_stride_x]
        if 0 in shape:
            return
        loaded = self._dram.get_loaded_origins(d) if rows * runs else None
        if loaded is None or shape != loaded.shape:
            padding = make_constant_origins(d[LOAD.fill], d[LOAD.element])
            require(shape[2] % padding.size == 0)
            tiled = np.tile(padding, shape[2] // padding.size)
            self.write(d[LOAD.spm], steps, np.broadcast_to(tiled, shape))
        if loaded is not None:
            start = d[LOAD.spm] + above * steps[0] + left * steps[1]
            self.write(start, steps, loaded)

    def read_store(self, d: Words) -> Origins:
        """Return the origins of the bytes that a store reads, [rows, runs, bytes]."""
        shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
        return self.read(d[STORE.spm], shape, (d[STORE.spm_stride_y], d[STORE.spm_stride_x]))
