"""What a descriptor is made of: words, with what they may hold, and how to say many at once.

:mod:`nmpsim.isa.descriptors` is made of these.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.isa.layouts import NO_WORK, Alignment, Direction, Layout, Work
from nmpsim.records import frozen


@frozen
class Word:
    """One 32-bit word of a descriptor, and what it may hold; anything, if nothing is said.

    The address of an operand has a ``direction`` and a ``layout``.
    """

    name: str
    summary: str
    signed: bool = False
    address: bool = False
    choices: tuple[str, ...] = ()
    """Names of an enumeration's values."""
    least: int | None = None
    """The lowest value, if ``most``, the highest one, is given too."""
    most: int | None = None
    values: tuple[int, ...] = ()
    """All that it may hold, each at most 31."""
    is_element: bool = False
    """Is it a value of the element, such as a zero point?"""
    alignment: Alignment = Alignment.NONE
    direction: Direction | None = None
    layout: Layout | None = None
    in_place: bool = False
    """May the result lie exactly on this operand?"""
    may_fold: bool = False
    """May parts of this result lie on one another?"""
    is_optional: bool = False
    """Is there no operand if the address is 0?"""

    def __attrs_post_init__(self) -> None:
        if not self.address == (self.direction is not None) == (self.layout is not None):
            raise ValueError(f"{self.name}: an address has a direction and a layout")


MAX_SIZE = 1 << 20
"""Most channels, rows and columns of what is convolved; MAX_COUNT of anything else."""
MAX_COUNT = 1 << 26
"""Bytes of the largest scratchpad: no count or stride in there can be larger."""
MAX_DRAM_STRIDE = 1 << 31


@frozen
class Descriptor:
    """A record in memory that a tensor instruction points to: 32-bit words in this order."""

    name: str
    words: tuple[Word, ...]
    summary: str
    work: Work = NO_WORK

    @property
    def nbytes(self) -> int:
        """Bytes of the record."""
        return 4 * len(self.words)

    @property
    def operands(self) -> tuple[Word, ...]:
        """The addresses of what the instruction reads and writes, in the order of the words."""
        return tuple(word for word in self.words if word.direction is not None)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)


def between(least: int, most: int, *specs: tuple[str, str]) -> tuple[Word, ...]:
    """Unsigned words that hold a number of a range; each spec is a name and a summary."""
    return tuple(Word(name, summary, least=least, most=most) for name, summary in specs)


def sizes(*specs: tuple[str, str]) -> tuple[Word, ...]:
    """Sizes of what is convolved: 1 to MAX_SIZE."""
    return between(1, MAX_SIZE, *specs)


def counts(*specs: tuple[str, str]) -> tuple[Word, ...]:
    """Other sizes: 1 to MAX_COUNT."""
    return between(1, MAX_COUNT, *specs)


def strides(*specs: tuple[str, str], alignment: Alignment = Alignment.ELEMENT) -> tuple[Word, ...]:
    """Bytes from one to the next, in the scratchpad."""
    return tuple(attrs.evolve(w, alignment=alignment) for w in between(0, MAX_COUNT, *specs))


def reads(
    name: str,
    summary: str,
    layout: Layout,
    alignment: Alignment = Alignment.ELEMENT,
    *,
    in_place: bool = False,
) -> Word:
    """The address of an operand that is read."""
    return Word(
        name,
        summary,
        address=True,
        alignment=alignment,
        direction=Direction.READS,
        layout=layout,
        in_place=in_place,
    )


def writes(
    name: str,
    summary: str,
    layout: Layout,
    alignment: Alignment = Alignment.ELEMENT,
    *,
    may_fold: bool = False,
) -> Word:
    """The address of a result."""
    return Word(
        name,
        summary,
        address=True,
        alignment=alignment,
        direction=Direction.WRITES,
        layout=layout,
        may_fold=may_fold,
    )


def signed(name: str, summary: str) -> Word:
    """A signed word that may hold anything."""
    return Word(name, summary, signed=True)


def value(name: str, summary: str) -> Word:
    """A value of the element."""
    return Word(name, summary, signed=True, is_element=True)
