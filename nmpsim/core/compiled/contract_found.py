"""The first violation of the contract, as the check puts it down."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import Contract, Doer
from nmpsim.core.shown import Found
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.memory.footprint import CODE, DESCRIPTOR, END, START, WHAT, WRITES

CASE, NUMBER, CORE, PC = int(Found.CASE), int(Found.NUMBER), int(Found.CORE), int(Found.PC)
CYCLE, LAYER = int(Found.CYCLE), int(Found.LAYER)
FOUND_WHAT, FOUND_WRITES = int(Found.WHAT), int(Found.WRITES)
FOUND_START, FOUND_END = int(Found.START), int(Found.END)
OTHER_NUMBER, OTHER_CORE = int(Found.OTHER_NUMBER), int(Found.OTHER_CORE)
OTHER_PC, OTHER_LAYER = int(Found.OTHER_PC), int(Found.OTHER_LAYER)
OTHER_WHAT, OTHER_WRITES = int(Found.OTHER_WHAT), int(Found.OTHER_WRITES)
BY_NUMBER, BY_CORE, BY_PC, BY_LAYER = (
    int(one) for one in (Doer.NUMBER, Doer.CORE, Doer.PC, Doer.LAYER)
)
FETCH_ORDER = np.int64(NUMBER_OF_CASE["fetch_order"])


def is_found(c: Contract) -> Any:
    """Has there been a violation?"""
    return c.found[CASE] >= 0


def report(c: Contract, case: Int, touches: Int64s, row: Int) -> None:
    """A violation of the instruction that is checked; the first one counts."""
    if is_found(c):
        return
    c.found[CASE] = case
    c.found[FOUND_WHAT] = touches[row, WHAT]
    c.found[FOUND_WRITES] = 1 if row <= touches[0, WRITES] else 0
    c.found[FOUND_START] = touches[row, START]
    c.found[FOUND_END] = touches[row, END]


def report_pair(
    c: Contract, case: Int, touches: Int64s, row: Int, others: Int64s, other: Int
) -> None:
    """As ``report``, with the touch of the earlier instruction."""
    if is_found(c):
        return
    what = touches[row, WHAT]
    report(c, FETCH_ORDER if what in (DESCRIPTOR, CODE) else case, touches, row)
    c.found[FOUND_START] = max(touches[row, START], others[other, START])
    c.found[FOUND_END] = min(touches[row, END], others[other, END])
    c.found[OTHER_NUMBER] = others[0, BY_NUMBER]
    c.found[OTHER_CORE] = others[0, BY_CORE]
    c.found[OTHER_PC] = others[0, BY_PC]
    c.found[OTHER_LAYER] = others[0, BY_LAYER]
    c.found[OTHER_WHAT] = others[other, WHAT]
    c.found[OTHER_WRITES] = 1 if other <= others[0, WRITES] else 0
