"""The check of the contract, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract import check
from nmpsim.core.compiled.contract_state import Contract, make_contract
from nmpsim.core.shown import EVENT_WORDS
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit_entry
from nmpsim.kernels.numba_internals import struct_pointer


@jit_entry
def check_events(given: Contract, events: Int64s, words: Int64s, first_word: Int) -> Any:
    """As :func:`~nmpsim.core.compiled.contract.check`."""
    return check(struct_pointer(given), events, words, first_word)


def compile_check() -> None:
    """Compile the check, or read it from the cache."""
    nothing = np.zeros((0, EVENT_WORDS), np.int64)
    check_events(make_contract(1, 0, 0, 0, 1), nothing, nothing, 0)
