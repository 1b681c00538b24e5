"""Memory layouts of operands, packing of weights, and amounts of work of tensor instructions.

Layout and work refer to words of a descriptor (:mod:`nmpsim.isa.descriptors`). Bounds checks, the
bytes that an instruction accesses, its multiplications and its cycles are derived from them.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.records import frozen

LANES = 16
"""Output channels of a block of weights."""
GROUP_BYTES = 4
"""Bytes of a kernel row that the MAC array reads at once: four Int8 or two Int16 inputs."""

Weights = npt.NDArray[Any]
"""Weights: int8 or int16."""


def pack_weights(weights: Weights) -> Weights:
    """Return weights packed for ``nmp.conv``, padded with zeros and flattened.

    Parameters
    ----------
    weights
        Array [out][ky][kx][in].

    Returns
    -------
    ndarray
        [out/16][ky][(kx*in)/n][16][n], flattened; n is 4 for int8, 2 for int16.
    """
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    blocks, groups = -(-out // LANES), -(-row // taken)
    padded = np.zeros((blocks * LANES, kernel_h, groups * taken), weights.dtype)
    padded[:out, :, :row] = weights.reshape(out, kernel_h, row)
    split = padded.reshape(blocks, LANES, kernel_h, groups, taken)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1)


def unpack_weights(packed: npt.NDArray[np.uint8], weights: Weights) -> None:
    """Unpack ``packed`` into the array ``weights``. This is the inverse of :func:`pack_weights`.

    Parameters
    ----------
    packed
        Packed weights.
    weights
        Array [out][ky][kx][in] that receives the weights.
    """
    out, kernel_h, kernel_w, depth = weights.shape
    row, taken = kernel_w * depth, GROUP_BYTES // weights.itemsize
    split = packed.view(weights.dtype).reshape(-1, kernel_h, -(-row // taken), LANES, taken)
    rows = split.transpose(0, 3, 1, 2, 4).reshape(split.shape[0] * LANES, kernel_h, -1)
    weights[...] = rows[:out, :, :row].reshape(weights.shape)


def count_packed_bytes(out: Any, kernel_h: int, row_bytes: Any) -> Any:
    """Return the size of packed weights in bytes.

    Parameters
    ----------
    out
        Output channels.
    kernel_h
        Kernel rows.
    row_bytes
        Bytes of a kernel row of one output channel.
    """
    groups = -(-row_bytes // GROUP_BYTES)
    return -(-out // LANES) * LANES * kernel_h * groups * GROUP_BYTES


class Alignment(Enum):
    """Alignment that a descriptor requires of an address or a stride."""

    NONE = ""
    ELEMENT = "even for Int16"
    SUM = "a multiple of 4, for Int16 of 8"
    """Alignment of a partial sum, which has four times the bytes of an element."""
    RIGHT_SIDE = "even for Int16, a multiple of 4 for int32"
    """Alignment of the type selected by ``rhs_kind``."""
    BYTES_4 = "a multiple of 4"
    BYTES_8 = "a multiple of 8"


class AccessDirection(IntEnum):
    """Direction of an operand access: read, write, or accumulation of partial sums."""

    READS = 0
    WRITES = 1
    """Written; in a partial sum, only by the last instruction."""
    SUMS = 2
    """Partial sums: read, written or both, depending on ``part``."""


class ItemSize(IntEnum):
    """Sizes of operand items that depend on descriptor words, encoded as negative numbers."""

    ELEMENT = -1
    """1 for Int8, 2 for Int16."""
    SUM = -2
    """4 for Int8, 8 for Int16."""
    RIGHT_SIDE = -3
    """4 if ``rhs_kind`` is int32, else an element's."""


@frozen
class RepeatAxis:
    """Axis of an operand: the names of the words that hold its step in bytes and its length.

    With ``windows`` the axis covers the input of windows: the words are the number of windows,
    their stride, taps and dilation.
    """

    step: str
    counts: tuple[str, ...] = ()
    windows: tuple[str, str, str, str] | None = None


@frozen
class OperandLayout:
    """Memory layout of an operand: a run of consecutive bytes, repeated along axes."""

    run: tuple[str, ...]
    axes: tuple[RepeatAxis, ...] = ()
    """Axes, the innermost one first."""
    size: int = ItemSize.ELEMENT
    is_blocked: bool = False
    """Whether weights are packed; ``run`` is output channels, kernel rows and columns, inputs."""
    in_any_order: bool = False
    """Whether any axis may be the innermost one."""


class ThroughputKind(IntEnum):
    """Kind of work that a unit does per cycle; it selects the formula for the unit's cycles."""

    TRANSFER = 0
    """A transfer, whose time depends on the DRAM."""
    PRODUCT = 1
    """A block of inputs along ``depth`` times a block of columns."""
    DEPTHWISE = 2
    """A block of columns."""
    LANES = 3
    """One column for each lane."""
    ELEMENT = 4
    """One element, from any address."""


@frozen
class InstructionWork:
    """Work of an instruction; each field lists descriptor words to be multiplied."""

    throughput: ThroughputKind
    rows: tuple[str, ...] = ()
    """Sequential work: pixels, taps, rows."""
    depth: tuple[str, ...] = ()
    """Inputs that are summed in parallel."""
    columns: tuple[str, ...] = ()
    """Results that are computed in parallel: channels, elements of a row."""
    groups: tuple[str, ...] = ()
    """Number of groups of columns; a block of columns belongs to one group."""
