"""What the words of a descriptor stand for: elements and real multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.isa import words
from nmpsim.isa.shared_words import ELEMENTS as NAMES
from nmpsim.isa.total import total
from nmpsim.records import frozen

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
ELEMENTS = total(f"{__name__}.ELEMENTS", {words.INT8: INT8, words.INT16: INT16}, range(len(NAMES)))


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
