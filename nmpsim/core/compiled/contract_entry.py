"""The check of the contract, compiled.

What it consists of is plain Python, so that the reference engine needs no compiler for it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from nmpsim.core import access_cache
from nmpsim.core.compiled import (
    contract,
    contract_access,
    contract_found,
    contract_memory,
    contract_order,
    dram_conflicts,
)
from nmpsim.core.compiled.contract_state import Contract
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit_general
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.memory.pure import register_pure_functions

PLAIN_MODULES = (
    contract,
    contract_access,
    contract_found,
    contract_memory,
    contract_order,
    dram_conflicts,
    access_cache,
)
"""All of whose functions compiled code may call."""


@functools.cache
def register_plain_functions() -> None:
    """Let compiled code call what is plain Python; to be done before any of it is compiled."""
    register_pure_functions()
    for module in PLAIN_MODULES:
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                jit_general(function)


def check_events(given: Contract, events: Int64s, words: Int64s, first_word: Int) -> Any:
    """As :func:`~nmpsim.core.compiled.contract.check`."""
    return contract.check(struct_pointer(given), events, words, first_word)
