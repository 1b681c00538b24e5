"""What kernels keep of weights, and how much room it takes: numbers that need no compiler."""

from __future__ import annotations

from typing import Any, NamedTuple

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.cpu_features import FLAVOUR
from nmpsim.kernels.numba_settings import IS_PLAIN
from nmpsim.kernels.workspace_size import LANES

STEP = 4 * LANES
"""Bytes of weights of four inputs: those of eight channels are on each side."""
PLACES = 16
"""Bytes of the two places of a rest."""
STARTS_BYTES = 4 * LANES
STATE, FIRSTS = 0, 1
"""Words of what AVX2 keeps: whether it is there; how many rests come before those of each block.
What follows is ``Kept``. It is there once for inputs of 0 to 127, and once for all inputs."""


class Kept(NamedTuple):
    """Addresses of what is made of weights for AVX2."""

    state: Int
    starts: Int
    packed: Int
    rests: Int
    places: Int
    end: Int


def kept_at(address: Int, blocks: Int, depth: Int) -> Any:
    """What is kept of some blocks of weights, of ``depth`` inputs each."""
    steps = blocks * (((depth >> 2) + 1) & -2)
    starts = address + ((8 * (FIRSTS + blocks + 1) + 63) & -64)
    packed = starts + blocks * STARTS_BYTES
    rests = packed + steps * STEP
    places = rests + steps * STEP
    end = (places + steps * PLACES + 63) & -64
    return Kept(address + 8 * STATE, starts, packed, rests, places, end)


def _words_avx2(blocks: Int, depth: Int) -> Any:
    return kept_at(0, blocks, depth).end >> 2


def _no_words(blocks: Int, depth: Int) -> Any:
    return 0 * blocks * depth


kept_words = _words_avx2 if FLAVOUR == "avx2" and not IS_PLAIN else _no_words
"""``kept_words(blocks, depth)``: 64-bit words for what is kept of some blocks of weights, of
``depth`` inputs in each lane; few of them are ever touched."""

FUNCTIONS = (kept_at, kept_words)
"""What compiled code calls."""
