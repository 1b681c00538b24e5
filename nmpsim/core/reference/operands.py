"""What the words of a descriptor stand for: elements, real multipliers, scratchpad arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Int64s
from nmpsim.isa import words
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.shared_words import ELEMENTS as NAMES
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.records import frozen


def grid(start: int, *axes: tuple[int, int]) -> Int64s:
    """Addresses of a box; each axis is (count, bytes from one to the next)."""
    addresses = np.array(start, np.int64)
    for count, stride in axes:
        addresses = addresses[..., None] + np.arange(count, dtype=np.int64) * stride
    return addresses


class Scratchpad:
    """Signed integers at addresses that are multiples of their bytes.

    They come as int64, so that arithmetic on them does not wrap.
    """

    def __init__(self, core: Core) -> None:
        machine = core.machine
        self._bytes = machine.scratchpad[core.number]
        self._views = {
            1: machine.scratchpad_i8[core.number],
            2: machine.scratchpad_i16[core.number],
            4: machine.scratchpad_i32[core.number],
            8: machine.scratchpad_i64[core.number],
        }

    def read(self, nbytes: int, addresses: Int64s) -> Int64s:
        """Return the integers of ``nbytes`` bytes at scratchpad addresses, as int64."""
        values: Any = self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes]
        return np.asarray(values, np.int64)

    def write(self, nbytes: int, addresses: Int64s, values: Int64s) -> None:
        """Store integers of ``nbytes`` bytes."""
        self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes] = values

    def run(self, address: int, nbytes: int) -> Any:
        """A view of consecutive bytes."""
        start = address - SCRATCHPAD_BASE
        return self._bytes[start : start + nbytes]


Float32s = npt.NDArray[np.float32]

Words = Mapping[str, int]
"""A descriptor: word name -> value."""


@frozen
class Element:
    """What activations and weights are, and how wide the array sums them."""

    nbytes: int
    accumulator_bits: int

    @property
    def wide(self) -> int:
        """0 for one byte, 1 for two: what cost functions ask for."""
        return self.nbytes - 1

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of a partial sum in memory."""
        return 4 * self.nbytes


INT8 = Element(nbytes=1, accumulator_bits=32)
INT16 = Element(nbytes=2, accumulator_bits=48)
ELEMENTS = exhaustive_table(
    f"{__name__}.ELEMENTS", {words.INT8: INT8, words.INT16: INT16}, range(len(NAMES))
)


def element_of(d: Words) -> Element:
    """The element that an instruction works on; Int8 where its descriptor does not ask."""
    return ELEMENTS[d.get("element", words.INT8)]


def float_of_bits(word: Any) -> Any:
    """The float32 whose bits a word holds, signed or not; or an array of them."""
    return np.asarray(word, np.int64).astype(np.uint32).view(np.float32)


@frozen
class Scale:
    """A real multiplier as the profile takes it; each may also be an array, one value a channel."""

    pre: Any
    mul: Any
    post: Any

    @property
    def factor(self) -> Any:
        """The float32 that ``mul`` holds for a float profile."""
        return float_of_bits(self.mul)

    @property
    def addend(self) -> Any:
        """The float32 that ``post`` holds where a float profile adds it."""
        return float_of_bits(self.post)


def scale_of(d: Words, prefix: str) -> Scale:
    """The scale whose words begin with ``prefix``."""
    return Scale(d[f"{prefix}_pre"], d[f"{prefix}_mul"], d[f"{prefix}_post"])
