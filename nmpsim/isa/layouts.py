"""How an operand of a tensor instruction lies in memory, and how much work the instruction is.

Both name words of a descriptor (:mod:`nmpsim.isa.descriptors`); checks of bounds, the bytes that an
instruction touches, its multiplications and its cycles derive from them.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from nmpsim.records import frozen


class Alignment(Enum):
    """What an address or a stride is a multiple of."""

    NONE = ""
    ELEMENT = "even for Int16"
    SUM = "a multiple of 4, for Int16 of 8"
    """Of a running sum, which has four times the bytes of an element; where there is one."""
    RIGHT_SIDE = "even for Int16, a multiple of 4 for int32"
    """Of what ``rhs_kind`` says."""
    BYTES_4 = "a multiple of 4"
    BYTES_8 = "a multiple of 8"


class Direction(IntEnum):
    """What an instruction does with an operand."""

    READS = 0
    WRITES = 1
    """With partial sums, only the instruction that makes the result."""
    SUMS = 2
    """Partial sums: read, written or both, as ``part`` says."""


class Size(IntEnum):
    """Bytes of what a run has many of; a positive number is that many."""

    ELEMENT = -1
    """1 for Int8, 2 for Int16."""
    SUM = -2
    """4 for Int8, 8 for Int16."""
    RIGHT_SIDE = -3
    """4 if ``rhs_kind`` is int32, else an element's."""


@frozen
class Axis:
    """Repeats what is inside of it every ``step`` bytes, as often as all ``counts`` together say.

    With ``windows`` what the windows along this axis reach: the words for how many there are, from
    one to the next, taps of each, from tap to tap.
    """

    step: str
    counts: tuple[str, ...] = ()
    windows: tuple[str, str, str, str] | None = None


@frozen
class Layout:
    """Runs of bytes: the product of some words, each of that size; repeated along the axes."""

    run: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    """The innermost one first."""
    size: int = Size.ELEMENT
    is_blocked: bool = False
    """Weights in blocks; ``run`` is output channels, kernel rows, kernel columns, inputs."""
    in_any_order: bool = False
    """May any axis be the innermost one?"""


class Pace(IntEnum):
    """What a unit does in a cycle; :mod:`nmpsim.timing.work` has the formulas."""

    TRANSFER = 0
    """Nothing that is counted here: the DRAM serves it."""
    PRODUCT = 1
    """A block of inputs, along ``depth``, by a block of columns."""
    DEPTHWISE = 2
    """A block of columns."""
    LANES = 3
    """A column a lane."""
    ELEMENT = 4
    """One element, which may come from anywhere."""


@frozen
class Work:
    """How much an instruction has to do; each number is the product of some words."""

    pace: Pace
    rows: tuple[str, ...] = ()
    """What is done one after the other: pixels, taps, rows."""
    depth: tuple[str, ...] = ()
    """What is summed in each row, side by side."""
    columns: tuple[str, ...] = ()
    """What is done side by side: channels, elements of a row."""
    groups: tuple[str, ...] = ()
    """Into how many the columns fall that no block may mix."""


NO_WORK = Work(Pace.TRANSFER)
"""Of a transfer."""
