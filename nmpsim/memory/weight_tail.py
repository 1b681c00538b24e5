"""Check that the padding of packed weights of ``nmp.conv`` is zero."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CONV

LANES = 16
"""Output channels of a block."""
BLOCK_BYTES = 4
"""Bytes of each lane of a block."""


def find_nonzero_padding(words: Any, scratchpad: Any) -> int:
    """Return the address of the first nonzero padding byte in packed weights; -1 if all are zero.

    ``words`` is a valid descriptor of ``nmp.conv``, ``scratchpad`` the memory of its core.
    """
    block = BLOCK_BYTES >> words[CONV.element]
    inputs, lanes = words[CONV.kernel_w] * words[CONV.in_channels], words[CONV.out_channels]
    used, full = (inputs % block) << words[CONV.element], lanes % LANES
    if used == 0 and full == 0:
        return -1
    blocks = (inputs + block - 1) // block
    groups = (lanes + LANES - 1) // LANES
    at = words[CONV.weights] - SCRATCHPAD_BASE
    for group in range(groups):
        first = full if full != 0 and group == groups - 1 else LANES
        for _ in range(words[CONV.kernel_h]):
            for piece in range(blocks):
                begin = used if used != 0 and piece == blocks - 1 else BLOCK_BYTES
                if begin < BLOCK_BYTES or first < LANES:
                    for lane in range(LANES):
                        for byte in range(begin if lane < first else 0, BLOCK_BYTES):
                            if scratchpad[at + lane * BLOCK_BYTES + byte] != 0:
                                return int(at + lane * BLOCK_BYTES + byte + SCRATCHPAD_BASE)
                at += LANES * BLOCK_BYTES
    return -1
