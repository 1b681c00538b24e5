"""Hazards: accesses whose order or value depends on when transfers land.

The simulator applies each instruction when it is issued, so a program with a missing wait may give
the right result here and a wrong one on the chip. The check of the contract finds such accesses. A
run ends at the first one; the debugger continues as if the missing wait were present.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nmpsim.core.compiled.contract_order import record_completions
from nmpsim.core.compiled.contract_state import SCALAR, StateWord, add_written_range
from nmpsim.core.contract_check import ContractCheck, make_events
from nmpsim.core.contract_events import ContractEvent, ViolationField
from nmpsim.core.state import Int64s
from nmpsim.core.stop_conditions import TraceColumn
from nmpsim.core.termination import describe_violation, find_tensor_name
from nmpsim.debugger.execution import Pause, PauseReason, ReversibleExecution, RunLog
from nmpsim.debugger.instructions import find_host_step, format_code_command
from nmpsim.isa.contract import CASES
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit


@attrs.frozen
class Hazard:
    """Hazard: a memory access whose order or value is undefined."""

    position: int
    """Position just after the access, or after the post that reveals the hazard."""
    access_position: int
    """Position just after the access."""
    core: int
    """Core of the access; of the earlier access if the host accesses the bytes."""
    pc: int
    """Address of the instruction of that core."""
    layer: int | None
    """Index of the layer of the access, or else of the earlier access; None if unknown."""
    description: str

    @property
    def code_command(self) -> str:
        """Debugger command that shows the instruction in its context."""
        return format_code_command(self.core, self.pc)


class HazardLog(RunLog, ContractCheck):
    """Log of a run's hazards; the contract check continues after each violation."""

    def __init__(self, execution: ReversibleExecution) -> None:
        super().__init__(execution.machine, execution.costs, execution.engine.check_events)
        self.found: list[Hazard] = []
        """Hazards in the order in which they become known."""
        self._execution = execution
        self._reported = set[bytes]()
        """Fields of the violations in ``found``, which a repeated check finds again."""
        self._revealed_at = 0
        """Position just after the last post that required a repeated check."""
        self._state.ram[:] = 1  # unwritten bytes are hazards in scratchpads only
        add_written_range(self._state.written_ranges[-1], 0, self._state.ram.size)
        self.begin_segment()

    def process(self, pause: Pause) -> None:
        """Check the instructions and host accesses since the previous pause."""
        events = make_events(pause.trace)
        events[:, ContractEvent.CYCLE] = pause.trace[:, TraceColumn.TURN]
        self.consume(events, pause.words, 0)
        if pause.is_segment_end:
            self.begin_segment()
        execution = self._execution
        step = find_host_step(execution, pause)
        if step is not None:
            self.check_host_step(step)
        is_end = execution.current_step is None and pause.reason != PauseReason.END
        for tensor in execution.bundle.metadata.outputs if is_end else ():
            self.check_host_read(tensor)

    def check_events(self, events: Int64s, words: Int64s, first_word: int) -> bool:
        """Check events and report hazards; return False if the events must be checked again.

        The cycle of an event is replaced by its turn, which is unique.
        """
        while not super().check_events(events, words, first_word):
            turn = int(self.violation_fields[ViolationField.CYCLE])
            if self.is_violated:
                self._report(self.position if turn < 0 else turn + 1)
            if self._state.numbers[StateWord.HAS_NEW_RIVAL]:
                self._revealed_at = turn + 1
                return False
            events = events[events[:, ContractEvent.CYCLE].searchsorted(max(turn, 0), "right") :]
        return True

    def _report(self, position: int) -> None:
        """Report the violation once; continue as if the order or the value were defined."""
        fields, state, execution = self.violation_fields, self._state, self._execution
        found = {field: int(fields[field]) for field in ViolationField}
        case = CASES[found[ViolationField.CASE]].key
        start, core, pc = (found[ViolationField[name]] for name in ("START", "CORE", "PC"))
        other, unit = found[ViolationField.OTHER_CORE], found[ViolationField.OTHER_UNIT]
        if core < 0:
            core, pc = other, found[ViolationField.OTHER_PC]
        if fields.tobytes() not in self._reported:
            self._reported.add(fields.tobytes())
            known = range(len(execution.layers))
            layers = found[ViolationField.LAYER], found[ViolationField.OTHER_LAYER]
            layer = next((index for index in layers if index in known), None)
            place = None if layer is None else execution.layers[layer]
            tensor = find_tensor_name(execution.bundle, start, place)
            description = describe_violation(found, tensor, _describe_missing_order(found))
            known_at = max(position, self._revealed_at)
            self.found.append(Hazard(known_at, position, core, pc, layer, description))
        if 0 <= unit < SCALAR and core == other:
            record_completions(state, core, core, unit, found[ViolationField.OTHER_JOB] + 1)
        if case == "scratchpad_unwritten":
            end = found[ViolationField.END] - SCRATCHPAD_BASE
            state.scratchpad[core, start - SCRATCHPAD_BASE : end] = 1
        fields[:] = -1


def _describe_missing_order(found: Mapping[ViolationField, int]) -> str:
    """Describe what is missing between the two accesses of a violation."""
    core, other, unit = (
        found[ViolationField[name]] for name in ("CORE", "OTHER_CORE", "OTHER_UNIT")
    )
    if unit == SCALAR:
        return "; no barrier, or post and pend, between them"
    if core not in (other, -1):
        return "; no wait and barrier, or post and pend, between them"
    return f"; no nmp.wait {Unit(unit).name.lower()} " + (
        "before nmp.halt" if core < 0 else "between them"
    )
