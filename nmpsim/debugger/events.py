"""Breakpoint hits between two pauses: hazards, saturation, stalls, differences, memory accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from nmpsim.bundle.metadata import ProgramStep, Tensor
from nmpsim.core.counters import host_saturation
from nmpsim.core.stop_conditions import TraceColumn
from nmpsim.debugger.breakpoints import (
    AccessCondition,
    Breakpoint,
    BreakpointHit,
    DifferenceCondition,
    HazardCondition,
    SaturationCondition,
    StallCondition,
)
from nmpsim.debugger.byte_runs import get_tensor_bytes
from nmpsim.debugger.execution import Execution, Pause
from nmpsim.debugger.hazards import Hazard, HazardDetector
from nmpsim.debugger.instructions import (
    AccessKind,
    ExecutedInstruction,
    MemoryAccess,
    iterate_instructions,
)
from nmpsim.isa.table import DRAM_BASE, INSTRUCTIONS, SCRATCHPAD_BASE, Unit
from nmpsim.kernels.saturation_stages import STAGE_NAMES

ACTIVATION_STAGE = STAGE_NAMES.index("activation")
"""Index of the stage that counts clipped values, which are not saturated."""
COMPUTE_UNITS = 1 << Unit.MAC | 1 << Unit.VECTOR

MeasureDifference = Callable[[int], tuple[int, str] | None]
"""Function of a layer's index that returns the distance from the reference in ulp and a
description; None if it is unknown."""


class HazardLog:
    """Hazards of a whole run; each instruction is checked once."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._check = HazardDetector(
            execution.config.cores_count,
            execution.costs.queues_depth,
            execution.bundle.rw_base,
            execution.config.scratchpad_bytes,
        )
        self.checked = 0
        """Position up to which everything has been checked."""
        self.found: list[Hazard] = []

    def watch(self, pause: Pause) -> None:
        """Check the new instructions of a pause, unless there is a gap before it."""
        if not pause.start <= self.checked < pause.position:
            return
        for done in iterate_instructions(pause, self._execution.machine, self.checked):
            self.found += self._check.process(done)
        if pause.is_segment_end:
            self._check.end_segment()
        for access in self._of_host(pause):
            self.found += self._check.process_host_access(pause.position, access)
        self.checked = pause.position

    def _of_host(self, pause: Pause) -> Iterator[MemoryAccess]:
        """Yield the host's accesses: of a host operation, and of the outputs at the end."""
        execution = self._execution
        step = find_host_step(execution, pause)
        accesses = [] if step is None else sorted(list_host_accesses(step), key=lambda one: one[0])
        ends = execution.bundle.metadata.outputs if execution.step is None else ()
        for kind, tensor in (*accesses, *(("read", tensor) for tensor in ends)):
            yield MemoryAccess(kind, tensor.name, get_tensor_bytes(tensor))


def find_host_step(execution: Execution, pause: Pause) -> ProgramStep | None:
    """Return the host operation that was executed in a pause, or None."""
    steps = execution.bundle.metadata.steps
    done = [s for s in steps if s.kind == "host" and set(s.layers) & set(pause.layers)]
    return done[0] if done else None


@attrs.define(eq=False)
class EventObserver:
    """Observer that finds breakpoint hits of events and memory accesses."""

    execution: Execution
    differs: MeasureDifference | None = None
    _cuts: dict[int, int] = attrs.field(factory=dict)
    """Layer -> number of saturated values when the last pause began."""

    def start(self) -> None:
        """Note the current state; called when a run is resumed."""
        self._cuts = self._saturated_now()

    def find_hits(
        self, breakpoints: Sequence[Breakpoint], pause: Pause, hazards: Sequence[Hazard]
    ) -> Sequence[BreakpointHit]:
        """Return the breakpoint hits in a pause; ``hazards`` are all hazards known of the run."""
        before, self._cuts = self._cuts, self._saturated_now()
        found: list[BreakpointHit] = []
        conditions = [one.condition for one in breakpoints]
        if any(isinstance(c, AccessCondition) for c in conditions):
            done = list(iterate_instructions(pause, self.execution.machine))
            found += self._accesses(breakpoints, pause, done)
        for one in breakpoints:
            condition = one.condition
            if isinstance(condition, StallCondition):
                found += self._stalls(one, condition, pause)
            elif isinstance(condition, HazardCondition):
                found += _hazard_hits(one, pause, hazards)
            elif isinstance(condition, DifferenceCondition):
                found += self._differences(one, condition, pause)
            elif isinstance(condition, SaturationCondition):
                found += self._saturation(one, condition, pause, before)
        return found

    def _stalls(
        self, one: Breakpoint, condition: StallCondition, pause: Pause
    ) -> Iterator[BreakpointHit]:
        rows = pause.trace
        long = rows[rows[:, TraceColumn.END] - rows[:, TraceColumn.BEGIN] > condition.limit]
        for row in long:
            core = int(row[TraceColumn.CORE])
            if condition.core in (None, core):
                name = INSTRUCTIONS[int(row[TraceColumn.NUMBER])].mnemonic
                cycles = int(row[TraceColumn.END] - row[TraceColumn.BEGIN])
                pc = int(row[TraceColumn.PC])
                text = f"core {core} stood {cycles} cycles at {name}, {pc:#x}"
                yield BreakpointHit(
                    int(row[TraceColumn.TURN]) + 1, one.number, text, format_code_command(core, pc)
                )

    def _differences(
        self, one: Breakpoint, condition: DifferenceCondition, pause: Pause
    ) -> Iterator[BreakpointHit]:
        for index in pause.layers:
            if self.differs is None or condition.layer not in (None, index):
                continue
            apart = self.differs(index)
            if apart is not None and apart[0] > condition.limit:
                yield BreakpointHit(pause.position, one.number, apart[1])

    # --- saturation -------------------------------------------------------------------------

    def _saturated_now(self) -> dict[int, int]:
        """Return the number of saturated values of each layer, without clipped values."""
        stages = self.execution.machine.layers.saturated.sum(axis=2)
        counts = stages.sum(axis=1) - stages[:, ACTIVATION_STAGE]
        found = {index: int(counts[index]) for index in range(len(self.execution.layers))}
        for index, host in self.execution.account.clips.items():
            found[index] = sum(one.count for one in host_saturation(host) if not one.wanted)
        return found

    def _saturation(
        self, one: Breakpoint, condition: SaturationCondition, pause: Pause, before: dict[int, int]
    ) -> Iterator[BreakpointHit]:
        for index, count in self._cuts.items():
            if condition.layer in (None, index) and count > condition.limit >= before[index]:
                name = self.execution.layers[index].name
                position, exact = self._where(index, condition.limit, pause, count)
                yield BreakpointHit(position, one.number, f"{name} has saturated {exact} values")

    def _where(self, index: int, limit: int, pause: Pause, count: int) -> tuple[int, int]:
        """Return the position at which a layer's count exceeded a limit, and the count there."""
        execution, here = self.execution, pause.position
        if self.execution.layers[index].placement == "host":
            return here, count
        with execution.visit():
            execution.go_to(pause.start)
            now = 0
            while execution.position < here:
                execution.advance(here, after=COMPUTE_UNITS)
                now = self._saturated_now()[index]
                if now > limit:
                    break
            return execution.position, now

    # --- watchpoints ------------------------------------------------------------------------

    def _accesses(
        self, breakpoints: Sequence[Breakpoint], pause: Pause, done: Sequence[ExecutedInstruction]
    ) -> Iterator[BreakpointHit]:
        for one in breakpoints:
            condition = one.condition
            if not isinstance(condition, AccessCondition):
                continue
            for instruction in done:
                for access in (*instruction.fetches, *instruction.accesses):
                    if _is_watched(condition, instruction.core, access):
                        text = format_access(instruction, access)
                        place = format_code_command(instruction.core, instruction.pc)
                        yield BreakpointHit(instruction.position, one.number, text, place)
                        break
            for text in self._host_accesses(condition, pause):
                yield BreakpointHit(pause.position, one.number, text)

    def _host_accesses(self, condition: AccessCondition, pause: Pause) -> Iterator[str]:
        step = find_host_step(self.execution, pause)
        if step is None:
            return
        layer = self.execution.layers[pause.layers[0]]
        for kind, tensor in list_host_accesses(step):
            is_kind = condition.access in (kind, "access")
            if is_kind and get_tensor_bytes(tensor).overlaps_range(condition.start, condition.end):
                yield f"the host {kind}s {tensor.name} ({layer.display_name})"


def _hazard_hits(
    one: Breakpoint, pause: Pause, hazards: Sequence[Hazard]
) -> Iterator[BreakpointHit]:
    for hazard in hazards:
        if pause.start < hazard.position <= pause.position:
            place = format_code_command(hazard.place.core, hazard.place.pc)
            yield BreakpointHit(hazard.position, one.number, hazard.what, place)


def list_host_accesses(step: ProgramStep) -> Iterable[tuple[AccessKind, Tensor]]:
    """Yield the tensors that a host operation reads and writes."""
    for operand in step.operands:
        if operand.role in ("in", "inout"):
            yield "read", operand.tensor
        if operand.role in ("out", "inout"):
            yield "write", operand.tensor


def _is_watched(condition: AccessCondition, core: int, access: MemoryAccess) -> bool:
    if condition.access not in (access.kind, "access"):
        return False
    if condition.core not in (None, core):
        return False
    is_local = SCRATCHPAD_BASE <= condition.start < DRAM_BASE
    if (access.region.space == "scratchpad") != is_local:
        return False
    return access.region.overlaps_range(condition.start, condition.end)


def format_code_command(core: int, pc: int) -> str:
    """Return the command that shows an instruction."""
    return f"code {pc:#x} core {core}"


def format_access(done: ExecutedInstruction, access: MemoryAccess) -> str:
    """Return a description of a memory access."""
    return (
        f"core {done.core} {done.instruction.mnemonic} at {done.pc:#x} {access.kind}s"
        f" {access.what}, cycle {done.end}"
    )
