"""Operands of tensor instructions: element types, scales and scratchpad arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Int64s
from nmpsim.isa import words
from nmpsim.isa.descriptors import ELEMENTS as NAMES
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.records import frozen


def compute_addresses(start: int, *axes: tuple[int, int]) -> Int64s:
    """Compute the addresses of a strided array; each axis is (count, stride in bytes)."""
    addresses = np.array(start, np.int64)
    for count, stride in axes:
        addresses = addresses[..., None] + np.arange(count, dtype=np.int64) * stride
    return addresses


class Scratchpad:
    """View of a core's scratchpad as signed integers at aligned addresses.

    Values are int64, so that arithmetic on them does not wrap.
    """

    def __init__(self, core: Core) -> None:
        self._bytes = core.machine.scratchpad[core.number]
        self.program_formulas = core.machine.formulas
        """Text of the formulas of the program, as in ``Machine``."""
        self._views = {nbytes: self._bytes.view(f"i{nbytes}") for nbytes in (1, 2, 4, 8)}

    def read(self, nbytes: int, addresses: Int64s) -> Int64s:
        """Read integers of ``nbytes`` bytes at scratchpad addresses, as int64."""
        values: Any = self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes]
        return np.asarray(values, np.int64)

    def write(self, nbytes: int, addresses: Int64s, values: Int64s) -> None:
        """Write integers of ``nbytes`` bytes to scratchpad addresses."""
        self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes] = values

    def view(self, address: int, nbytes: int) -> Any:
        """Return a view of ``nbytes`` consecutive bytes at a scratchpad address."""
        start = address - SCRATCHPAD_BASE
        return self._bytes[start : start + nbytes]


Float32s = npt.NDArray[np.float32]

Descriptor = Mapping[str, int]
"""A descriptor: word name -> value."""


@frozen
class ElementType:
    """Element type of activations and weights, and the width of its accumulator."""

    nbytes: int
    accumulator_bits: int

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of a partial sum in memory."""
        return 4 * self.nbytes


INT8 = ElementType(nbytes=1, accumulator_bits=32)
INT16 = ElementType(nbytes=2, accumulator_bits=48)
ELEMENTS = make_exhaustive_table(
    f"{__name__}.ELEMENTS", {words.INT8: INT8, words.INT16: INT16}, range(len(NAMES))
)


def get_element_type(d: Descriptor) -> ElementType:
    """Return the element type of an instruction, or Int8 if its descriptor has no such word."""
    return ELEMENTS[d.get("element", words.INT8)]


def bits_to_float32(word: Any) -> Any:
    """Return integer words, signed or unsigned, reinterpreted as float32 values."""
    return np.asarray(word, np.int64).astype(np.uint32).view(np.float32)


@frozen
class Scale:
    """Real multiplier in the encoding of a profile: scalars, or arrays with a value per channel."""

    pre: Any
    mul: Any
    post: Any

    @property
    def factor(self) -> Any:
        """Float32 value of ``mul`` for float profiles."""
        return bits_to_float32(self.mul)

    @property
    def addend(self) -> Any:
        """Word ``post`` interpreted as float32; several float profiles add this value."""
        return bits_to_float32(self.post)


def get_scale(d: Descriptor, prefix: str) -> Scale:
    """Return the scale whose words in a descriptor begin with ``prefix``."""
    return Scale(d[f"{prefix}_pre"], d[f"{prefix}_mul"], d[f"{prefix}_post"])
