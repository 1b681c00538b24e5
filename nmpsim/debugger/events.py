"""Breakpoint hits and hazards, found in what happened between two pauses of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.core.counters import ValueCounters, count_host_clipping
from nmpsim.core.stop_conditions import TraceColumn
from nmpsim.debugger.breakpoints import (
    AccessCondition,
    AddressCondition,
    Breakpoint,
    BreakpointHit,
    Condition,
    CycleCondition,
    DifferenceCondition,
    HazardCondition,
    LayerCondition,
    SaturationCondition,
    StallCondition,
    TrapCondition,
)
from nmpsim.debugger.byte_runs import get_tensor_region
from nmpsim.debugger.execution import Execution, Pause, PauseReason, RunLog
from nmpsim.debugger.hazards import Hazard, HazardDetector
from nmpsim.debugger.instructions import (
    AccessKind,
    ExecutedInstruction,
    MemoryAccess,
    format_code_command,
    iterate_instructions,
)
from nmpsim.isa.table import DRAM_BASE, INSTRUCTIONS, SCRATCHPAD_BASE, Unit

COMPUTE_UNITS = 1 << Unit.MAC | 1 << Unit.VECTOR

MeasureDifference = Callable[[int], tuple[int, str] | None]
"""Function of a layer's index that returns the distance from the reference in ulp and a
description; None if it is unknown."""


class HazardLog(RunLog):
    """Log of the hazards of a run."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._check = HazardDetector(
            execution.config.cores_count,
            execution.costs.queues_depth,
            execution.bundle.rw_base,
            execution.config.scratchpad_bytes,
        )
        self.found: list[Hazard] = []

    def process(self, pause: Pause) -> None:
        """Check the instructions and host accesses before a pause."""
        for done in iterate_instructions(pause, self._execution.machine):
            self.found += self._check.process(done)
        if pause.is_segment_end:
            self._check.end_segment()
        for access in self._of_host(pause):
            self.found += self._check.process_host_access(pause.position, access)

    def _of_host(self, pause: Pause) -> Iterator[MemoryAccess]:
        """Yield the host's accesses: of a host operation, and of the outputs at the end."""
        execution = self._execution
        step = find_host_step(execution, pause)
        yield from sorted(() if step is None else list_host_accesses(step), key=lambda a: a.kind)
        is_end = execution.current_step is None and pause.reason != PauseReason.END
        for tensor in execution.bundle.metadata.outputs if is_end else ():
            yield MemoryAccess("read", tensor.name, get_tensor_region(tensor))


def find_host_step(execution: Execution, pause: Pause) -> ProgramStep | None:
    """Return the host operation executed since the previous pause, or None."""
    steps = execution.bundle.metadata.steps
    done = [s for s in steps if s.kind == "host" and set(s.layers) & set(pause.layers)]
    return done[0] if done else None


_Event = tuple[int, str, str]
"""Position at which something happened, its description, and the command that shows it."""


@attrs.define(eq=False)
class BreakpointObserver:
    """Observer of a run that finds the hits of breakpoints."""

    execution: Execution
    measure_difference: MeasureDifference = lambda _: None
    resume_cycle: int = 0
    """Cycle at which the run was resumed."""
    _cuts: Mapping[int, int] = attrs.field(factory=dict)
    """Layer -> number of saturated values when the last pause began."""

    def start(self) -> None:
        """Record the current cycle and saturation counts; call this when the run is resumed."""
        self._cuts, self.resume_cycle = self._count_saturated(), self.execution.cycle

    def find_hits(
        self,
        breakpoints: Sequence[Breakpoint],
        pause: Pause,
        layer: int | None,
        hazards: Sequence[Hazard],
    ) -> list[BreakpointHit]:
        """Return the hits of enabled breakpoints since the previous pause, the earliest first.

        Parameters
        ----------
        breakpoints : sequence of Breakpoint
            All breakpoints.
        pause : Pause
            Pause of the run.
        layer : int or None
            Index of the layer that comes next.
        hazards : sequence of Hazard
            All hazards known of the run.
        """
        before, self._cuts = self._cuts, self._count_saturated()
        active = [one for one in breakpoints if one.is_enabled]
        is_watching = any(isinstance(one.condition, AccessCondition) for one in active)
        machine = self.execution.machine
        done = list(iterate_instructions(pause, machine)) if is_watching else []
        hits = [
            BreakpointHit(position, one.number, text, place)
            for one in active
            for position, text, place in (
                *self._find_place(one.condition, pause, layer),
                *self._find_events(one.condition, pause, hazards, before, done),
            )
        ]
        return sorted(hits, key=lambda hit: (hit.position, hit.breakpoint))

    def _find_place(
        self, condition: Condition, pause: Pause, layer: int | None
    ) -> Iterator[_Event]:
        """Yield the event if the run is before a layer, an address or a cycle, or at a trap."""
        execution, reason, text = self.execution, pause.reason, ""
        match condition:
            case TrapCondition() if reason == PauseReason.TRAP and execution.trap:
                text = execution.trap.message
            case LayerCondition(index) if reason == PauseReason.LAYER and layer == index:
                text = f"{execution.layers[index].name} begins"
            case CycleCondition(cycle) if reason == PauseReason.STOPPED:
                if execution.cycle >= cycle > self.resume_cycle:
                    text = f"cycle {execution.cycle}"
            case AddressCondition(address, core) if reason == PauseReason.STOPPED:
                at = pause.core
                if at is not None and core in (None, at):
                    is_there = int(execution.machine.cores[at].pc) == address
                    text = f"core {at} at {address:#x}" if is_there else ""
        if text:
            yield pause.position, text, ""

    def _find_events(
        self,
        condition: Condition,
        pause: Pause,
        hazards: Sequence[Hazard],
        before: Mapping[int, int],
        done: Sequence[ExecutedInstruction],
    ) -> Iterator[_Event]:
        """Yield what happened in a pause: saturation, stalls, differences, accesses, hazards."""
        match condition:
            case HazardCondition():
                for hazard in hazards:
                    if pause.start < hazard.position <= pause.position:
                        yield hazard.position, hazard.what, hazard.place.code_command
            case StallCondition(limit, core):
                yield from _find_stalls(pause, limit, core)
            case DifferenceCondition(limit, layer):
                for index in pause.layers if layer is None else {layer} & set(pause.layers):
                    found = self.measure_difference(index)
                    if found is not None and found[0] > limit:
                        yield pause.position, found[1], ""
            case SaturationCondition(limit, layer):
                for index, count in self._cuts.items():
                    if layer in (None, index) and count > limit >= before[index]:
                        name = self.execution.layers[index].name
                        position, exact = self._locate_saturation(index, limit, pause, count)
                        yield position, f"{name} has saturated {exact} values", ""
            case AccessCondition():
                yield from _find_accesses(condition, done)
                for text in self._find_host_accesses(condition, pause):
                    yield pause.position, text, ""

    def _count_saturated(self) -> Mapping[int, int]:
        """Return the number of saturated values of each layer, without clipped values."""
        counts = dict(enumerate(ValueCounters.of(self.execution.machine).unwanted))
        clips = self.execution.account.clips.items()
        return counts | {index: count_host_clipping(clip).unwanted for index, clip in clips}

    def _locate_saturation(
        self, index: int, limit: int, pause: Pause, count: int
    ) -> tuple[int, int]:
        """Return the position at which a layer's count exceeded a limit, and the count there."""
        execution, here = self.execution, pause.position
        if execution.layers[index].placement == "host":
            return here, count
        with execution.visit(pause.start):
            count = 0
            while execution.position < here and count <= limit:
                execution.advance(here, after=COMPUTE_UNITS)
                count = self._count_saturated()[index]
            return execution.position, count

    def _find_host_accesses(self, condition: AccessCondition, pause: Pause) -> Iterator[str]:
        step = find_host_step(self.execution, pause)
        for access in () if step is None else list_host_accesses(step):
            is_kind = condition.access in (access.kind, "access")
            if is_kind and access.region.overlaps_range(condition.start, condition.end):
                layer = self.execution.layers[pause.layers[0]]
                yield f"the host {access.kind}s {access.what} ({layer.display_name})"


def _find_stalls(pause: Pause, limit: int, core: int | None) -> Iterator[_Event]:
    """Yield the instructions at which a core waited for more than ``limit`` cycles."""
    cycles = pause.trace[:, TraceColumn.END] - pause.trace[:, TraceColumn.BEGIN]
    for row, waited in zip(pause.trace[cycles > limit], cycles[cycles > limit], strict=True):
        at, pc = int(row[TraceColumn.CORE]), int(row[TraceColumn.PC])
        if core in (None, at):
            name = INSTRUCTIONS[int(row[TraceColumn.NUMBER])].mnemonic
            text = f"core {at} waited {waited} cycles at {name}, {pc:#x}"
            yield int(row[TraceColumn.TURN]) + 1, text, format_code_command(at, pc)


def _find_accesses(
    condition: AccessCondition, done: Sequence[ExecutedInstruction]
) -> Iterator[_Event]:
    """Yield the first watched access of each instruction."""
    for one in done:
        for access in (*one.fetches, *one.accesses):
            if _is_watched(condition, one.core, access):
                text = f"{one.place} {access.kind}s {access.what}, cycle {one.end}"
                yield one.position, text, one.code_command
                break


def list_host_accesses(step: ProgramStep) -> tuple[MemoryAccess, ...]:
    """Return the memory accesses of a host operation, in the order of its operands."""
    kinds: Sequence[AccessKind] = ("read", "write")
    return tuple(
        MemoryAccess(kind, operand.tensor.name, get_tensor_region(operand.tensor))
        for operand in step.operands
        for kind, role in zip(kinds, ("in", "out"), strict=True)
        if operand.role in (role, "inout")
    )


def _is_watched(condition: AccessCondition, core: int, access: MemoryAccess) -> bool:
    if condition.access not in (access.kind, "access"):
        return False
    if condition.core not in (None, core):
        return False
    is_local = SCRATCHPAD_BASE <= condition.start < DRAM_BASE
    if (access.region.space == "scratchpad") != is_local:
        return False
    return access.region.overlaps_range(condition.start, condition.end)
