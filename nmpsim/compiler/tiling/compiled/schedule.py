"""The order of a core's instructions in one layer, with the waits that make its tiles overlap.

While the unit computes tile t, the results of t-1 are stored and the operands of t+1 are loaded.
Operands and results lie in two buffers each, used in turn; so before a unit begins tile t the
loads of t and the stores of t-2 must be done, and before the loads of t+1 begin, tile t-1 must be
computed.

An item is (kind, argument): a load, store or computation with its row in the plan's table, or a
wait until this many of a unit's instructions are unfinished.
"""

from __future__ import annotations

from typing import Any

from nmpsim.compiler.tiling.compiled.items import (
    ARGUMENT,
    COMPUTE,
    KIND,
    LOAD,
    MAX_OUTSTANDING,
    STORE,
    WAIT,
)
from nmpsim.kernels.jit import jit_general


@jit_general
def _add(items: Any, count: int, kind: int, argument: int) -> int:
    items[count, KIND] = kind
    items[count, ARGUMENT] = argument
    return count + 1


@jit_general
def _add_rows(items: Any, count: int, kind: int, ends: Any, step: int) -> int:
    for row in range(ends[step], ends[step + 1]):
        count = _add(items, count, kind, row)
    return count


def schedule(cores: Any, loads: Any, computes: Any, stores: Any, items: Any, begins: Any) -> Any:
    """Put all cores' items int64 [n, 2], one core after the other; how many they are.

    ``begins`` [cores + 1] is where each core's begin. ``cores`` and the ends of the three tables
    are as in ``LayerPlan``.
    """
    count = 0
    begins[0] = 0
    for core in range(cores.size - 1):
        first, end = cores[core], cores[core + 1]
        if first < end:
            count = _add_rows(items, count, LOAD, loads, first)
        for step in range(first, end):
            count = _add(items, count, WAIT + LOAD, 0)
            count = _add(items, count, WAIT + STORE, 0)
            count = _add_rows(items, count, COMPUTE, computes, step)
            if step > first:
                newest = min(computes[step + 1] - computes[step], MAX_OUTSTANDING)
                count = _add(items, count, WAIT + COMPUTE, newest)
                count = _add_rows(items, count, STORE, stores, step - 1)
            if step + 1 < end:
                count = _add_rows(items, count, LOAD, loads, step + 1)
        if first < end:
            count = _add(items, count, WAIT + COMPUTE, 0)
            count = _add_rows(items, count, STORE, stores, end - 1)
            count = _add(items, count, WAIT + STORE, 0)
        begins[core + 1] = count
    return count
