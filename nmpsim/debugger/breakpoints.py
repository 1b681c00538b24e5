"""Breakpoints and watchpoints as data: what to stop for, and where steps end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, TraceColumn
from nmpsim.debugger.execution import Execution, Pause, PauseReason


def find_place_hits(
    active: Sequence[Breakpoint], pause: Pause, execution: Execution, layer: int | None, since: int
) -> list[BreakpointHit]:
    """The breakpoints on places that a pause met.

    ``layer`` is the one that comes next, ``since`` the cycle at which the run went on.
    """
    texts = [(one, _met(one, pause, execution, layer, since)) for one in active]
    return [BreakpointHit(pause.position, one.number, text) for one, text in texts if text]


def _met(one: Breakpoint, pause: Pause, execution: Execution, layer: int | None, since: int) -> str:
    """What happened, in words; empty if the breakpoint was not met."""
    condition = one.condition
    if isinstance(condition, TrapCondition) and pause.reason == PauseReason.TRAP and execution.trap:
        return execution.trap.message
    if (
        isinstance(condition, LayerCondition)
        and pause.reason == PauseReason.LAYER
        and layer == condition.index
    ):
        return f"{execution.layers[layer].name} begins"
    if pause.reason != PauseReason.STOPPED:
        return ""
    if isinstance(condition, CycleCondition) and execution.cycle >= condition.cycle > since:
        return f"cycle {execution.cycle}"
    if isinstance(condition, AddressCondition) and pause.core is not None:
        is_there = int(execution.machine.cores[pause.core].pc) == condition.address
        if is_there and condition.core in (None, pause.core):
            return f"core {pause.core} at {condition.address:#x}"
    return ""


def list_stop_addresses(
    breakpoints: Sequence[Breakpoint], more: AddressCondition | None = None
) -> npt.NDArray[np.int64]:
    """[n, 2] core (-1: any) and address of what an engine must stop before."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    wanted = [c for c in (*conditions, more) if isinstance(c, AddressCondition)]
    pairs = [(-1 if c.core is None else c.core, c.address) for c in wanted]
    return np.array(pairs, np.int64).reshape(-1, 2)


def find_stop_cycle(breakpoints: Sequence[Breakpoint], since: int) -> int:
    """The first cycle after ``since`` that an engine must stop at, or NEVER."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    cycles = [c.cycle for c in conditions if isinstance(c, CycleCondition) and c.cycle > since]
    return min(cycles, default=NEVER)


def ends_step(pause: Pause, after: int, cores: npt.NDArray[np.bool_] | None) -> bool:
    """Did the pause come after an instruction that was asked for?

    The one that ends a layer is told as the layer's end.
    """
    if pause.reason == PauseReason.LAYER and after & ANY_INSTRUCTION and len(pause.trace):
        return cores is None or bool(cores[pause.trace[-1, TraceColumn.CORE]])
    return pause.reason == PauseReason.STOPPED


Access = Literal["read", "write", "access"]


@attrs.frozen
class LayerCondition:
    """Before a layer begins."""

    index: int


@attrs.frozen
class AddressCondition:
    """Before an instruction at an address begins."""

    address: int
    core: int | None = None


@attrs.frozen
class CycleCondition:
    """Before anything begins at this cycle or later."""

    cycle: int


@attrs.frozen
class TrapCondition:
    """At a trap, a deadlock or the cycle limit; a run stops there anyway, this counts them."""


@attrs.frozen
class HazardCondition:
    """After an instruction whose answer depends on when a transfer lands."""


@attrs.frozen
class SaturationCondition:
    """After the instruction with which a layer has saturated more than ``limit`` values."""

    limit: int = 0
    layer: int | None = None
    """Any layer if None."""


@attrs.frozen
class StallCondition:
    """After an instruction that a core stood at for more than ``limit`` cycles."""

    limit: int
    core: int | None = None


@attrs.frozen
class DifferenceCondition:
    """After a layer whose result differs from the reference by more than ``limit``."""

    limit: int = 0
    layer: int | None = None


@attrs.frozen
class AccessCondition:
    """After an instruction or host operation that accesses bytes of DRAM or of a scratchpad."""

    start: int
    end: int
    """Address after the last byte."""
    access: Access = "write"
    core: int | None = None
    """Whose scratchpad; any core's if None."""


Condition = (
    LayerCondition
    | AddressCondition
    | CycleCondition
    | TrapCondition
    | HazardCondition
    | SaturationCondition
    | StallCondition
    | DifferenceCondition
    | AccessCondition
)


@attrs.define
class Breakpoint:
    """A condition with its number, its text as the user gave it, and how often it was met."""

    number: int
    condition: Condition
    text: str
    is_enabled: bool = True
    hits: int = 0
    predicate: Callable[[], bool] | None = None
    """Asked in the state in which it would stop; it stops only if that says yes."""

    @property
    def is_watchpoint(self) -> bool:
        """Does it watch memory?"""
        return isinstance(self.condition, AccessCondition)


@attrs.frozen
class BreakpointHit:
    """A breakpoint was met."""

    position: int
    """State in which that shows: for most, just after what it was met by."""
    breakpoint: int
    """Its number."""
    text: str
    """What happened, in words."""
    next: str = ""
    """A command that shows the place."""
