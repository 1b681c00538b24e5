"""How an operand of a tensor instruction lies in memory, weights included, and its work.

Both name words of a descriptor (:mod:`nmpsim.isa.descriptors`); checks of bounds, the bytes that an
instruction touches, its multiplications and its cycles derive from them.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.records import frozen

LANES = 16
GROUP_BYTES = 4
"""What the array takes of a kernel row at once: four Int8 inputs, or two of Int16."""

Weights = npt.NDArray[Any]
"""int8 or int16"""


def pack(weights: Weights) -> Weights:
    """[out][ky][kx][in] to [out/16][ky][(kx*in)/n][16][n], zero beyond the edges, flat.

    n is 4 for int8, 2 for int16.
    """
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    blocks, groups = -(-out // LANES), -(-row // taken)
    padded = np.zeros((blocks * LANES, kernel_h, groups * taken), weights.dtype)
    padded[:out, :, :row] = weights.reshape(out, kernel_h, row)
    split = padded.reshape(blocks, LANES, kernel_h, groups, taken)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1)


def unpack(packed: npt.NDArray[np.uint8], weights: Weights) -> None:
    """Fill ``weights``, [out][ky][kx][in], with what :func:`pack` has made of them."""
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    split = packed.view(weights.dtype).reshape(-1, kernel_h, -(-row // taken), LANES, taken)
    rows = split.transpose(0, 3, 1, 2, 4).reshape(split.shape[0] * LANES, kernel_h, -1)
    weights[...] = rows[:out, :, :row].reshape(weights.shape)


def packed_bytes(out: Any, kernel_h: int, row_bytes: Any) -> Any:
    """Bytes of packed weights; a kernel row has ``row_bytes`` of one output channel."""
    groups = -(-row_bytes // GROUP_BYTES)
    return -(-out // LANES) * LANES * kernel_h * groups * GROUP_BYTES


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
