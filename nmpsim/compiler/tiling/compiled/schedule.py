"""The order of a core's instructions in one layer, with waits that let its tiles overlap.

While the unit computes tile t, the results of t-1 are stored and the operands of t+1 are loaded.
Operands and results have two buffers each, used in turn. So the loads of t and the stores of t-2
must be done before the unit begins tile t, and tile t-1 before the loads of t+1 begin.

An item is (kind, argument): a load, store or computation with its row in the plan's table, or a
wait until at most so many of a unit's instructions are unfinished.
"""

from __future__ import annotations

from typing import Any

from nmpsim.compiler.tiling.compiled.items import (
    ARGUMENT,
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


def schedule_instructions(
    unit: int, cores: Any, loads: Any, computes: Any, stores: Any, items: Any, begins: Any
) -> Any:
    """Write the instructions and waits of all cores to ``items`` in order; return their number.

    ``begins`` [cores + 1] receives the offset of each core's first item. ``unit`` is the unit of
    the computations. ``cores`` and the ends of the three tables are those of ``LayerPlan``.
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
            count = _add_rows(items, count, unit, computes, step)
            if step > first:
                newest = min(computes[step + 1] - computes[step], MAX_OUTSTANDING)
                count = _add(items, count, WAIT + unit, newest)
                count = _add_rows(items, count, STORE, stores, step - 1)
            if step + 1 < end:
                count = _add_rows(items, count, LOAD, loads, step + 1)
        if first < end:
            count = _add(items, count, WAIT + unit, 0)
            count = _add_rows(items, count, STORE, stores, end - 1)
            count = _add(items, count, WAIT + STORE, 0)
        begins[core + 1] = count
    return count
