"""Breakpoints on places: layers, addresses, cycles, traps; and where steps end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER
from nmpsim.core.stops import ANY_INSTRUCTION, Row
from nmpsim.debugger.breakpoints import AtAddress, AtCycle, AtLayer, Breakpoint, Hit, OnTrap
from nmpsim.debugger.execution import Execution, Pause, Why


def place_hits(
    active: Sequence[Breakpoint], pause: Pause, execution: Execution, layer: int | None, since: int
) -> list[Hit]:
    """The breakpoints on places that a pause met.

    ``layer`` is the one that comes next, ``since`` the cycle at which the run went on.
    """
    texts = [(one, _met(one, pause, execution, layer, since)) for one in active]
    return [Hit(pause.position, one.number, text) for one, text in texts if text]


def _met(one: Breakpoint, pause: Pause, execution: Execution, layer: int | None, since: int) -> str:
    """What happened, in words; empty if the breakpoint was not met."""
    condition = one.condition
    if isinstance(condition, OnTrap) and pause.why == Why.TRAP and execution.trap:
        return execution.trap.message
    if isinstance(condition, AtLayer) and pause.why == Why.LAYER and layer == condition.index:
        return f"{execution.layers[layer].name} begins"
    if pause.why != Why.STOPPED:
        return ""
    if isinstance(condition, AtCycle) and execution.cycle >= condition.cycle > since:
        return f"cycle {execution.cycle}"
    if isinstance(condition, AtAddress) and pause.core is not None:
        is_there = int(execution.machine.cores[pause.core].pc) == condition.address
        if is_there and condition.core in (None, pause.core):
            return f"core {pause.core} at {condition.address:#x}"
    return ""


def addresses_of(
    breakpoints: Sequence[Breakpoint], more: AtAddress | None = None
) -> npt.NDArray[np.int64]:
    """[n, 2] core (-1: any) and address of what an engine must stop before."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    wanted = [c for c in (*conditions, more) if isinstance(c, AtAddress)]
    pairs = [(-1 if c.core is None else c.core, c.address) for c in wanted]
    return np.array(pairs, np.int64).reshape(-1, 2)


def next_cycle(breakpoints: Sequence[Breakpoint], since: int) -> int:
    """The first cycle after ``since`` that an engine must stop at, or NEVER."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    cycles = [c.cycle for c in conditions if isinstance(c, AtCycle) and c.cycle > since]
    return min(cycles, default=NEVER)


def is_step(pause: Pause, after: int, cores: npt.NDArray[np.bool_] | None) -> bool:
    """Did the pause come after an instruction that was asked for?

    The one that ends a layer is told as the layer's end.
    """
    if pause.why == Why.LAYER and after & ANY_INSTRUCTION and len(pause.trace):
        return cores is None or bool(cores[pause.trace[-1, Row.CORE]])
    return pause.why == Why.STOPPED
