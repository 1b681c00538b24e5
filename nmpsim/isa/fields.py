"""Bit fields of instruction words, and kinds of instructions."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise

from nmpsim.diagnostics import fail
from nmpsim.records import frozen


class InstructionKind(IntEnum):
    """Kind of an instruction, from which the engines select the code that executes it."""

    UPPER = 0
    JUMP = 1
    BRANCH = 2
    LOAD = 3
    STORE = 4
    IMMEDIATE = 5
    """Integer arithmetic on a register and an immediate."""
    REGISTER = 6
    """Integer arithmetic on two registers, except multiply and divide."""
    MULTIPLY = 7
    DIVIDE = 8
    FENCE = 9
    SYSTEM = 10
    CSR = 11
    TENSOR = 12
    SYNC = 13


@frozen
class BitRange:
    """Range of consecutive bits of a value, and its position in an instruction word."""

    word_bit: int
    value_bit: int
    width: int


@frozen
class BitField:
    """The bit field of an operand in an instruction word.

    A signed field is in two's complement. Bits of the value below the lowest piece, as branch
    offsets have them, must be zero.
    """

    name: str
    pieces: tuple[BitRange, ...]
    signed: bool = False

    def __attrs_post_init__(self) -> None:
        covered = sorted((p.value_bit, p.width) for p in self.pieces)
        for (low, width), (following, _) in pairwise(covered):
            if low + width != following:
                raise ValueError(f"field {self.name} leaves a gap or overlaps at bit {low + width}")
        if self.mask.bit_count() != sum(p.width for p in self.pieces):
            raise ValueError(f"pieces of field {self.name} overlap in the word")

    @property
    def mask(self) -> int:
        """Mask of the word's bits that belong to the field."""
        return sum(((1 << p.width) - 1) << p.word_bit for p in self.pieces)

    @property
    def lowest_bit(self) -> int:
        """Index of the lowest encoded bit of the value; all bits below are zero."""
        return min(p.value_bit for p in self.pieces)

    @property
    def bits(self) -> int:
        """Width in bits of the decoded value, including low bits that are always zero."""
        return max(p.value_bit + p.width for p in self.pieces)

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value that the field can hold."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - (1 << self.lowest_bit)
        return 0, (1 << self.bits) - (1 << self.lowest_bit)

    def encode(self, value: int) -> int:
        """Encode a value as bits of the word; raise UserError (ISA001) if it is out of range."""
        low, high = self.range
        if not low <= value <= high or value & ((1 << self.lowest_bit) - 1):
            step = f", a multiple of {1 << self.lowest_bit}" if self.lowest_bit else ""
            raise fail(
                "ISA001",
                f"the value of {self.name} is out of range",
                found=value,
                expected=f"{low} to {high}{step}",
            )
        return sum(
            ((value >> p.value_bit) & ((1 << p.width) - 1)) << p.word_bit for p in self.pieces
        )

    def decode(self, word: int) -> int:
        """Return the value of the field in an instruction word."""
        value = sum(
            ((word >> p.word_bit) & ((1 << p.width) - 1)) << p.value_bit for p in self.pieces
        )
        if self.signed and value >> (self.bits - 1):
            value -= 1 << self.bits
        return value


def make_contiguous_field(
    name: str, word_bit: int, width: int, *, signed: bool = False
) -> BitField:
    """Return a bit field of ``width`` contiguous bits that begins at bit ``word_bit``."""
    return BitField(name, (BitRange(word_bit, 0, width),), signed)
