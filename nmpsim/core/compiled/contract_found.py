"""The first violation of the contract, as the check puts it down."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import AccessOrigin, Contract
from nmpsim.core.contract_events import ViolationField
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.memory.footprint import CODE, DESCRIPTOR, END, START, WHAT, WRITES

CASE, NUMBER, CORE, PC = (
    int(ViolationField.CASE),
    int(ViolationField.NUMBER),
    int(ViolationField.CORE),
    int(ViolationField.PC),
)
CYCLE, LAYER = int(ViolationField.CYCLE), int(ViolationField.LAYER)
FOUND_WHAT, FOUND_WRITES = int(ViolationField.WHAT), int(ViolationField.WRITES)
FOUND_START, FOUND_END = int(ViolationField.START), int(ViolationField.END)
OTHER_NUMBER, OTHER_CORE = int(ViolationField.OTHER_NUMBER), int(ViolationField.OTHER_CORE)
OTHER_PC, OTHER_LAYER = int(ViolationField.OTHER_PC), int(ViolationField.OTHER_LAYER)
OTHER_WHAT, OTHER_WRITES = int(ViolationField.OTHER_WHAT), int(ViolationField.OTHER_WRITES)
BY_NUMBER, BY_CORE, BY_PC, BY_LAYER = (
    int(one)
    for one in (AccessOrigin.NUMBER, AccessOrigin.CORE, AccessOrigin.PC, AccessOrigin.LAYER)
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
