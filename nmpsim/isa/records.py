"""Classes of descriptors and their words, and functions that create words."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.isa.layouts import (
    NO_COMPUTATION,
    AccessDirection,
    Alignment,
    InstructionWork,
    OperandLayout,
)
from nmpsim.records import frozen


@frozen
class Word:
    """A 32-bit word of a descriptor and its valid values.

    The address of an operand has a ``direction`` and a ``layout``.
    """

    name: str
    summary: str
    signed: bool = False
    address: bool = False
    choices: tuple[str, ...] = ()
    """Names of the values of an enumeration."""
    least: int | None = None
    """Lowest value; ``most`` is the highest one."""
    most: int | None = None
    values: tuple[int, ...] = ()
    """All valid values, each at most 31."""
    is_element: bool = False
    """Whether it is a value of the element type, such as a zero point."""
    alignment: Alignment = Alignment.NONE
    direction: AccessDirection | None = None
    layout: OperandLayout | None = None
    in_place: bool = False
    """Whether the result may be stored exactly over this operand."""
    may_overlap_itself: bool = False
    """Whether parts of this result may overlap each other."""
    is_optional: bool = False
    """Whether an address of 0 means that there is no operand."""

    def __attrs_post_init__(self) -> None:
        if not self.address == (self.direction is not None) == (self.layout is not None):
            raise ValueError(f"{self.name}: an address has a direction and a layout")


MAX_SIZE = 1 << 20
"""Largest number of channels, rows or columns of a convolution."""
MAX_COUNT = 1 << 26
"""Largest count or stride within a scratchpad: the bytes of the largest scratchpad."""
MAX_DRAM_STRIDE = 1 << 31


@frozen
class Descriptor:
    """A record of 32-bit words with the parameters of a tensor instruction."""

    name: str
    words: tuple[Word, ...]
    summary: str
    work: InstructionWork = NO_COMPUTATION

    @property
    def nbytes(self) -> int:
        """Size of the record in bytes."""
        return 4 * len(self.words)

    @property
    def operands(self) -> tuple[Word, ...]:
        """Words that are addresses of operands, in order."""
        return tuple(word for word in self.words if word.direction is not None)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)


def make_ranged_words(least: int, most: int, *specs: tuple[str, str]) -> tuple[Word, ...]:
    """Create unsigned words with a common range from their names and summaries."""
    return tuple(Word(name, summary, least=least, most=most) for name, summary in specs)


def make_size_words(*specs: tuple[str, str]) -> tuple[Word, ...]:
    """Create words for sizes of a convolution, from 1 to MAX_SIZE."""
    return make_ranged_words(1, MAX_SIZE, *specs)


def make_count_words(*specs: tuple[str, str]) -> tuple[Word, ...]:
    """Create words for counts, from 1 to MAX_COUNT."""
    return make_ranged_words(1, MAX_COUNT, *specs)


def make_stride_words(
    *specs: tuple[str, str], alignment: Alignment = Alignment.ELEMENT
) -> tuple[Word, ...]:
    """Create words for strides in the scratchpad, in bytes."""
    return tuple(
        attrs.evolve(w, alignment=alignment) for w in make_ranged_words(0, MAX_COUNT, *specs)
    )


def make_input_word(
    name: str,
    summary: str,
    layout: OperandLayout,
    alignment: Alignment = Alignment.ELEMENT,
    *,
    in_place: bool = False,
) -> Word:
    """Create the address word of an operand that is read."""
    return Word(
        name,
        summary,
        address=True,
        alignment=alignment,
        direction=AccessDirection.READS,
        layout=layout,
        in_place=in_place,
    )


def make_output_word(
    name: str,
    summary: str,
    layout: OperandLayout,
    alignment: Alignment = Alignment.ELEMENT,
    *,
    may_overlap_itself: bool = False,
) -> Word:
    """Create the address word of an operand that is written."""
    return Word(
        name,
        summary,
        address=True,
        alignment=alignment,
        direction=AccessDirection.WRITES,
        layout=layout,
        may_overlap_itself=may_overlap_itself,
    )


def make_signed_word(name: str, summary: str) -> Word:
    """Create a signed word without limits."""
    return Word(name, summary, signed=True)


def make_element_value_word(name: str, summary: str) -> Word:
    """Create a word for a value of the element type, such as a zero point."""
    return Word(name, summary, signed=True, is_element=True)
