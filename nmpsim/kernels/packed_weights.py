"""Layout of weights packed for AVX2, which needs no compiler to be known."""

from __future__ import annotations

from typing import Any, NamedTuple

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.cpu_features import TARGET
from nmpsim.kernels.workspace_size import LANES

STEP_BYTES = 4 * LANES
"""Bytes of weights of four inputs; each of the two sides has those of eight channels."""
OFFSETS_BYTES = 16
"""Bytes of the input offsets of a residual step, one offset a side."""
STARTS_BYTES = 4 * LANES
STATE, FIRST_RESIDUALS = 0, 1
"""Words at the beginning: the state; the number of residual steps before those of each block.
``PackedWeights`` follows."""


class PackedWeights(NamedTuple):
    """Packed weights for AVX2, as the addresses of their sections.

    There is a copy for inputs of 0 to 127 and one for all inputs.
    """

    state: Int
    starts: Int
    """Initial sums of each block."""
    packed: Int
    """Weights of the main steps."""
    residuals: Int
    """Weights of the residual steps: what 16 bits cannot hold together with the main steps."""
    residual_offsets: Int
    end: Int


def locate_packed_weights(address: Int, blocks: Int, depth: Int) -> Any:
    """Return the addresses of the arrays of packed weights that begin at ``address``."""
    steps = blocks * (((depth >> 2) + 1) & -2)
    starts = address + ((8 * (FIRST_RESIDUALS + blocks + 1) + 63) & -64)
    packed = starts + blocks * STARTS_BYTES
    residuals = packed + steps * STEP_BYTES
    offsets = residuals + steps * STEP_BYTES
    end = (offsets + steps * OFFSETS_BYTES + 63) & -64
    return PackedWeights(address + 8 * STATE, starts, packed, residuals, offsets, end)


def _size_avx2(blocks: Int, depth: Int) -> Any:
    return locate_packed_weights(0, blocks, depth).end >> 2


def _size_zero(blocks: Int, depth: Int) -> Any:
    return 0 * blocks * depth


get_packed_weights_size = _size_avx2 if TARGET == "avx2" else _size_zero
"""``get_packed_weights_size(blocks, depth)`` returns the 64-bit words that the target needs to pack
blocks of weights of ``depth`` inputs each, of which only few are ever touched."""

FUNCTIONS = (locate_packed_weights, get_packed_weights_size)
"""Functions that compiled code calls."""
