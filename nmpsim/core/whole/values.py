"""Where each byte of a recorded run comes from: numbers of values instead of values.

A number stands for one byte that somebody has computed or that was there before: a byte of the
image, a byte of DRAM before the run, a byte of a layer's result. Copies carry numbers along, so two
places with the same number hold the same byte, whatever the inputs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.state import Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import INT16, LOAD, STORE

Numbers = npt.NDArray[np.int32]
Words = Sequence[int]

INITIAL, UNSET, CONSTANT = -1, -2, -3
"""What a scratchpad held before; a place that nobody has read; a byte ``b`` of padding is
``CONSTANT - b``."""
MAX_NUMBERS = 1 << 30
NOTHING = np.zeros(0, np.int32)


class UnprovedError(Exception):
    """What ``layers`` do is not understood: they must be replayed as they were recorded."""

    def __init__(self, *layers: int) -> None:
        super().__init__(*layers)
        self.layers = frozenset(layers)


def box(memory: npt.NDArray[Any], start: int, shape: Sequence[int], steps: Sequence[int]) -> Any:
    """A view of ``memory`` [n]: axes of ``shape``, ``steps`` elements apart, from ``start`` on."""
    size = memory.itemsize
    if start < 0 or min(steps) < 0:
        raise UnprovedError
    try:
        return np.ndarray(
            shape, memory.dtype, memory, start * size, [step * size for step in steps]
        )
    except (TypeError, ValueError):  # beyond the end
        raise UnprovedError from None


def overlaps(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Might two indices be the same place? Axes from the outermost to the innermost."""
    inner = 1
    for count, step in zip(reversed(shape), reversed(steps), strict=True):
        if count > 1 and step < inner:
            return True
        inner += (count - 1) * step
    return False


def constant(value: int, element: int) -> Numbers:
    """Numbers of the bytes of an element that holds a value."""
    size = 2 if element == INT16 else 1
    pattern = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return (CONSTANT - np.frombuffer(pattern, np.uint8).astype(np.int32)).astype(np.int32)


def spm_box(d: Words) -> tuple[int, tuple[int, int, int], tuple[int, int, int]]:
    """Start, shape and steps of what a store reads."""
    shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
    steps = d[STORE.spm_stride_y], d[STORE.spm_stride_x], 1
    return d[STORE.spm] - SCRATCHPAD_BASE, shape, steps


class Memories:
    """Numbers of all memory that a recorded run knows.

    ``recorded`` is DRAM as the recording leaves it, ``planned`` as the plan does that has whole
    layers in the place of some. ``writers`` say which of these layers wrote a byte of a scratchpad,
    plus one: with whole layers that byte is not there.
    """

    def __init__(self, machine: Machine) -> None:
        shared = machine.shared[0]
        self.image_base, self.ram_base = int(shared.image_base), int(shared.ram_base)
        self.image_bytes, self.ram_bytes = machine.image.size, machine.ram.size
        self.used = self.image_bytes + self.ram_bytes
        """Numbers given out so far: the first ones are those of the image, then those of DRAM."""
        first = np.arange(self.image_bytes, self.used, dtype=np.int32)
        self.recorded, self.planned = first, first.copy()
        shape = machine.scratchpad.shape
        self.scratchpads = [np.full(shape[1], INITIAL, np.int32) for _ in range(shape[0])]
        self.writers = [np.zeros(shape[1], np.int32) for _ in range(shape[0])]

    def new(self, count: int) -> int:
        """The first of ``count`` numbers that nobody has."""
        first = self.used
        self.used += count
        if self.used > MAX_NUMBERS:
            raise UnprovedError
        return first

    def dram(self, memory: Numbers, d: Words) -> Any:
        """Numbers of a transfer's side in DRAM [rows, runs, bytes]; the image never changes."""
        shape = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
        steps = d[LOAD.dram_stride_y], d[LOAD.dram_stride_x], 1
        start = d[LOAD.dram] - self.image_base
        if not 0 <= start < self.image_bytes:
            return box(memory, d[LOAD.dram] - self.ram_base, shape, steps)
        numbers: Any = np.arange(start, start + shape[2], dtype=np.int32)
        for axis in (1, 0):
            if shape[axis] > 1:
                numbers = numbers + (np.arange(shape[axis], dtype=np.int32) * steps[axis]).reshape(
                    -1, *[1] * (2 - axis)
                )
        return np.broadcast_to(numbers, shape)

    def load(self, core: int, d: Words, writer: int) -> Numbers:
        """A load; ``writer`` is 0 or the whole layer that it is for, plus one.

        What the recording has in DRAM there.
        """
        runs, rows = d[LOAD.count_x], d[LOAD.count_y]
        left, above = d[LOAD.pad_x_before], d[LOAD.pad_y_before]
        shape = (
            above + rows + d[LOAD.pad_y_after],
            left + runs + d[LOAD.pad_x_after],
            d[LOAD.run_bytes],
        )
        if 0 in shape:
            return NOTHING
        steps = d[LOAD.spm_stride_y], d[LOAD.spm_stride_x], 1
        if overlaps(shape, steps):
            raise UnprovedError
        start = d[LOAD.spm] - SCRATCHPAD_BASE
        target = box(self.scratchpads[core], start, shape, steps)
        box(self.writers[core], start, shape, steps)[...] = writer
        if shape[:2] != (rows, runs):
            pattern = constant(d[LOAD.fill], d[LOAD.element])
            for byte, number in enumerate(pattern):
                target[..., byte :: pattern.size] = number
        if runs * rows == 0:
            return NOTHING
        numbers: Numbers = self.dram(self.recorded, d)
        target[above : above + rows, left : left + runs] = numbers
        return numbers

    def store(self, core: int, d: Words) -> Numbers:
        """A store; what it writes. Raises UnprovedError for the image."""
        shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
        if 0 in shape:
            return NOTHING
        is_image = 0 <= d[STORE.dram] - self.image_base < self.image_bytes
        if is_image or overlaps(shape, (d[STORE.dram_stride_y], d[STORE.dram_stride_x], 1)):
            raise UnprovedError
        numbers: Numbers = box(self.scratchpads[core], *spm_box(d))
        self.dram(self.recorded, d)[...] = numbers
        return numbers

    def writers_of(
        self, core: int, start: int, shape: Sequence[int], steps: Sequence[int]
    ) -> set[int]:
        """The whole layers that wrote some bytes of a scratchpad."""
        found = np.unique(box(self.writers[core], start, shape, steps))
        return {int(layer) - 1 for layer in found if layer > 0}
