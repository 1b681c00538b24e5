"""Breakpoint hits, found in what happened between two pauses of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

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
    SourceCondition,
    StallCondition,
    TrapCondition,
)
from nmpsim.debugger.execution import Pause, PauseReason
from nmpsim.debugger.instructions import (
    ExecutedInstruction,
    MemoryAccess,
    find_host_step,
    format_code_command,
    iterate_instructions,
    list_host_accesses,
)
from nmpsim.debugger.position import PositionedRun
from nmpsim.isa.table import DRAM_BASE, INSTRUCTIONS, SCRATCHPAD_BASE, Unit

COMPUTE_UNITS = 1 << Unit.MAC | 1 << Unit.VECTOR

MeasureDifference = Callable[[int], tuple[int, str] | None]
"""Function of a layer's index that returns the distance from the reference in ulp and a
description; None if it is unknown."""


_Event = tuple[int, str, str, int | None]
"""Position at which something happened, its description, the command that shows it, and the core
of the instruction."""


@attrs.define(eq=False)
class BreakpointObserver:
    """Observer of a run that finds the hits of breakpoints."""

    run: PositionedRun
    measure_difference: MeasureDifference = lambda _: None
    resume_cycle: int = 0
    """Cycle at which the run was resumed."""
    _cuts: Mapping[int, int] = attrs.field(factory=dict)
    """Layer -> number of saturated values when the last pause began."""

    def start(self) -> None:
        """Record the current cycle and saturation counts when the run resumes."""
        self._cuts, self.resume_cycle = self._count_saturated(), self.run.cycle

    def find_hits(self, breakpoints: Sequence[Breakpoint], pause: Pause) -> list[BreakpointHit]:
        """Return the hits of enabled breakpoints in a pause, the earliest first."""
        before, self._cuts = self._cuts, self._count_saturated()
        active = [one for one in breakpoints if one.is_enabled]
        is_watching = any(isinstance(one.condition, AccessCondition) for one in active)
        done = list(iterate_instructions(pause, self.run.machine)) if is_watching else []
        hits = [
            BreakpointHit(position, one.number, text, place, core)
            for one in active
            for position, text, place, core in self._find_events(one.condition, pause, before, done)
        ]
        return sorted(hits, key=lambda hit: (hit.position, hit.breakpoint))

    def _find_events(
        self,
        condition: Condition,
        pause: Pause,
        before: Mapping[int, int],
        done: Sequence[ExecutedInstruction],
    ) -> Iterator[_Event]:
        """Yield what happened in a pause, and where it has stopped."""
        run, here, reason = self.run, pause.position, pause.reason
        match condition:
            case TrapCondition() if reason == PauseReason.TRAP and run.trap:
                yield here, run.trap.message, "", run.trap.core
            case LayerCondition(index):
                if reason == PauseReason.LAYER and run.find_current_layer() == index:
                    yield here, f"{run.layers[index].name} begins", "", None
            case CycleCondition(cycle) if reason == PauseReason.STOPPED:
                if run.cycle >= cycle > self.resume_cycle:
                    yield here, f"cycle {run.cycle}", "", None
            case AddressCondition(address, core) if reason == PauseReason.STOPPED:
                at = pause.core
                if at is not None and core in (None, at) and run.machine.cores[at].pc == address:
                    yield here, f"core {at} at {address:#x}", "", at
            case SourceCondition(addresses, core) if reason == PauseReason.STOPPED:
                at = pause.core
                pc = None if at is None else int(run.machine.cores[at].pc)
                if core in (None, at) and pc in addresses:
                    yield here, f"core {at} at {run.source_map.describe(pc)}", "", at
            case HazardCondition():
                for hazard in run.hazards.found if run.hazards else ():
                    if pause.start < hazard.position <= here:
                        yield (
                            hazard.position,
                            hazard.description,
                            hazard.code_command,
                            hazard.core,
                        )
            case StallCondition(limit, core):
                yield from _find_stalls(pause, limit, core)
            case DifferenceCondition(limit, layer):
                for index in pause.layers if layer is None else {layer} & set(pause.layers):
                    found = self.measure_difference(index)
                    if found is not None and found[0] > limit:
                        yield here, found[1], "", None
            case SaturationCondition(limit, layer):
                for index, count in self._cuts.items():
                    if layer in (None, index) and count > limit >= before[index]:
                        name = run.layers[index].name
                        position, exact = self._locate_saturation(index, limit, pause, count)
                        yield position, f"{name} has saturated {exact} values", "", None
            case AccessCondition():
                yield from _find_accesses(condition, done)
                for text in self._find_host_accesses(condition, pause):
                    yield here, text, "", None

    def _count_saturated(self) -> Mapping[int, int]:
        """Return the number of saturated values of each layer, without clipped values."""
        counts = dict(enumerate(ValueCounters.from_machine(self.run.machine).saturated))
        clips = self.run.account.clips.items()
        return counts | {index: count_host_clipping(clip).saturated for index, clip in clips}

    def _locate_saturation(
        self, index: int, limit: int, pause: Pause, count: int
    ) -> tuple[int, int]:
        """Return the position at which a layer's count exceeded a limit, and the count there."""
        run, here = self.run, pause.position
        if run.layers[index].placement == "host":
            return here, count
        with run.visit_position(pause.start):
            count = 0
            while run.position < here and count <= limit:
                run.advance(here, after=COMPUTE_UNITS)
                count = self._count_saturated()[index]
            return run.position, count

    def _find_host_accesses(self, condition: AccessCondition, pause: Pause) -> Iterator[str]:
        step = find_host_step(self.run, pause)
        for access in () if step is None else list_host_accesses(step):
            if _is_watched(condition, None, access):
                layer = self.run.layers[pause.layers[0]]
                yield f"the host {access.kind}s {access.operand} ({layer.display_name})"


def _find_stalls(pause: Pause, limit: int, core: int | None) -> Iterator[_Event]:
    """Yield the instructions at which a core waited for more than ``limit`` cycles."""
    cycles = pause.trace[:, TraceColumn.END] - pause.trace[:, TraceColumn.BEGIN]
    for row, waited in zip(pause.trace[cycles > limit], cycles[cycles > limit], strict=True):
        at, pc = int(row[TraceColumn.CORE]), int(row[TraceColumn.PC])
        if core in (None, at):
            name = INSTRUCTIONS[int(row[TraceColumn.NUMBER])].mnemonic
            text = f"core {at} waited {waited} cycles at {name}, {pc:#x}"
            yield int(row[TraceColumn.TURN]) + 1, text, format_code_command(at, pc), at


def _find_accesses(
    condition: AccessCondition, done: Sequence[ExecutedInstruction]
) -> Iterator[_Event]:
    """Yield the first watched access of each instruction."""
    for one in done:
        for access in (*one.fetches, *one.accesses):
            if _is_watched(condition, one.core, access):
                text = f"{one.description} {access.kind}s {access.operand}, cycle {one.end}"
                yield one.next_position, text, one.code_command, one.core
                break


def _is_watched(condition: AccessCondition, core: int | None, access: MemoryAccess) -> bool:
    """Return whether a condition watches an access by a core, or by the host if it is None."""
    is_local = SCRATCHPAD_BASE <= condition.start < DRAM_BASE
    return (
        condition.access in (access.kind, "access")
        and (core is None or condition.core in (None, core))
        and (access.region.space == "scratchpad") == is_local
        and access.region.overlaps_range(condition.start, condition.end)
    )
