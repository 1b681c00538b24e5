"""Breakpoints and watchpoints as data, and the engine's stop conditions for them."""

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
    """Return the hits of breakpoints on a layer, an address, a cycle or a trap.

    Parameters
    ----------
    active : sequence of Breakpoint
        Enabled breakpoints.
    pause : Pause
        Pause of the run.
    execution : Execution
        The paused run.
    layer : int or None
        Layer that comes next.
    since : int
        Cycle at which the run was resumed.
    """
    texts = [(one, _describe_hit(one, pause, execution, layer, since)) for one in active]
    return [BreakpointHit(pause.position, one.number, text) for one, text in texts if text]


def _describe_hit(
    one: Breakpoint, pause: Pause, execution: Execution, layer: int | None, since: int
) -> str:
    """Return a description of the hit; empty if the breakpoint was not hit."""
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
    """Return the addresses that an engine must stop before, [n, 2]: core (-1: any), address."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    wanted = [c for c in (*conditions, more) if isinstance(c, AddressCondition)]
    pairs = [(-1 if c.core is None else c.core, c.address) for c in wanted]
    return np.array(pairs, np.int64).reshape(-1, 2)


def find_stop_cycle(breakpoints: Sequence[Breakpoint], since: int) -> int:
    """Return the first cycle after ``since`` that an engine must stop at, or NEVER."""
    conditions = [one.condition for one in breakpoints if one.is_enabled]
    cycles = [c.cycle for c in conditions if isinstance(c, CycleCondition) and c.cycle > since]
    return min(cycles, default=NEVER)


def ends_step(pause: Pause, after: int, cores: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether a pause follows an instruction of ``cores``, and thus ends a step.

    An instruction that ends a layer is reported as the end of the layer.
    """
    if pause.reason == PauseReason.LAYER and after & ANY_INSTRUCTION and len(pause.trace):
        return cores is None or bool(cores[pause.trace[-1, TraceColumn.CORE]])
    return pause.reason == PauseReason.STOPPED


Access = Literal["read", "write", "access"]


@attrs.frozen
class LayerCondition:
    """Stop before a layer begins."""

    index: int


@attrs.frozen
class AddressCondition:
    """Stop before the instruction at an address is executed."""

    address: int
    core: int | None = None


@attrs.frozen
class CycleCondition:
    """Stop before anything begins at a cycle or later."""

    cycle: int


@attrs.frozen
class TrapCondition:
    """Count traps, deadlocks and cycle limits; a run stops there in any case."""


@attrs.frozen
class HazardCondition:
    """Stop after an instruction whose result depends on when a transfer lands."""


@attrs.frozen
class SaturationCondition:
    """Stop after the instruction with which a layer saturated more than ``limit`` values."""

    limit: int = 0
    layer: int | None = None
    """Index of the layer; any layer if None."""


@attrs.frozen
class StallCondition:
    """Stop after an instruction that a core waited at for more than ``limit`` cycles."""

    limit: int
    core: int | None = None


@attrs.frozen
class DifferenceCondition:
    """Stop after a layer whose result differs from the reference by more than ``limit`` ulp."""

    limit: int = 0
    layer: int | None = None


@attrs.frozen
class AccessCondition:
    """Stop after an instruction or host operation that accesses an address range."""

    start: int
    end: int
    """Address after the last byte."""
    access: Access = "write"
    core: int | None = None
    """Core whose scratchpad is meant; any core's if None."""


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
    """Breakpoint or watchpoint with its number, condition and hit count."""

    number: int
    condition: Condition
    text: str
    is_enabled: bool = True
    hits: int = 0
    predicate: Callable[[], bool] | None = None
    """Evaluated in the state in which the run would stop; it stops only if this is true."""

    @property
    def is_watchpoint(self) -> bool:
        """Return whether the breakpoint watches memory."""
        return isinstance(self.condition, AccessCondition)


@attrs.frozen
class BreakpointHit:
    """Record that a breakpoint was hit."""

    position: int
    """Position at which the hit is visible, mostly just after the instruction."""
    breakpoint: int
    """Number of the breakpoint."""
    text: str
    """Description of what happened."""
    next: str = ""
    """Command that shows the place."""
