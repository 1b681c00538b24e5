"""Plain Python functions that compiled code calls, and the compiled check of the contract."""

from __future__ import annotations

import functools
from typing import Any

from nmpsim.core import access_cache, code_regions, descriptor_data, host_registers, watch
from nmpsim.core.compiled import (
    contract,
    contract_order,
    contract_state,
    cycle_accounting,
    dram_conflicts,
    synchronization,
    units,
)
from nmpsim.core.compiled.contract_state import ContractState
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.memory.pure import register_functions, register_pure_functions

PLAIN_MODULES = (
    *(contract, contract_order, contract_state, dram_conflicts, access_cache, watch),
    *(cycle_accounting, code_regions, descriptor_data, host_registers, units, synchronization),
)
"""Modules whose functions compiled code may call."""


@functools.cache
def register_plain_functions() -> None:
    """Register plain Python functions for compiled code; call this before any compilation."""
    register_pure_functions()
    register_functions(*PLAIN_MODULES)


def check_events(given: ContractState, events: Int64s, words: Int64s, first_word: Int) -> Any:
    """Check events in order; return False at a violation or if the check must start again."""
    return contract.check_events(struct_pointer(given), events, words, first_word)
