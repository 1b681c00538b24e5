"""Checks of the data that a descriptor points to, for both engines.

The functions are plain Python; compiled code calls them, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.instruction_tables import CHANNELS_WORD, OP, SCALES_WORD
from nmpsim.core.state import Bytes, Int
from nmpsim.isa.words import CONV
from nmpsim.memory.checks import has_invalid_scale_table
from nmpsim.memory.weight_tail import find_nonzero_padding


def find_invalid_scale_table(number: Int, words: Any, scratchpad: Any) -> Any:
    """Return the index of the descriptor word whose scale table is invalid; -1 if all are valid.

    ``words`` is a valid descriptor, ``scratchpad`` the memory of its core.
    """
    table = SCALES_WORD[number]
    if table >= 0:  # both convolutions begin with the same words
        channels = words[CHANNELS_WORD[number]]
        element, profile = words[CONV.element], words[CONV.profile]
        if has_invalid_scale_table(scratchpad, words[table], channels, element, profile):
            return table
    return np.int64(-1)


def find_nonzero_weight_padding(number: Int, words: Any, scratchpad: Bytes) -> Any:
    """Return the address of the first nonzero padding byte of the weights; -1 if all are zero."""
    return find_nonzero_padding(words, scratchpad) if number == OP.nmp_conv else np.int64(-1)
