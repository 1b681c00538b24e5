"""Stop conditions and the instruction trace of the reference engine."""

from __future__ import annotations

from nmpsim.core.access_cache import add_access, invalidate, is_cached
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.units import UnitQueue
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.stop_conditions import (
    ANY_INSTRUCTION,
    TENSOR_STEPS,
    StopConditions,
    StopState,
    TraceColumn,
)
from nmpsim.isa.codec import Decoded, decode_descriptor
from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS, RS1, RS2, Scope
from nmpsim.memory.weight_tail import weight_tail
from nmpsim.timing import Costs

NUMBERS = {i.mnemonic: number for number, i in enumerate(INSTRUCTIONS)}


class ExecutionMonitor:
    """Monitor of a run: evaluates stop conditions and records the trace."""

    def __init__(self, stops: StopConditions, costs: Costs) -> None:
        self.stops = stops
        self._decoded: Decoded | None = None
        self._word, self._source, self._pc = 0, 0, 0
        self._is_traced = False
        self._words: list[int] = []
        """Words of the descriptor; empty if not needed."""
        self._costs = costs

    def begin_instruction(self, core: Core, decoded: Decoded, word: int) -> None:
        """Note the instruction that a core begins."""
        self._decoded, self._word, self._pc = decoded, word, core.pc
        has_words = decoded.instruction.descriptor is not None
        self._is_traced = len(self.stops.trace) > 0 and (
            _is_traced(decoded) or self._is_fetch_traced(core)
        )
        if has_words or self._is_traced:
            self._source = to_unsigned(core.register(RS1.decode(word)))  # a load may overwrite it
        wants_words = has_words and (self.stops.strict or len(self.stops.words))
        self._words = descriptor_words(core, decoded, self._source) if wants_words else []

    def weight_tail(self, core: Core) -> int:
        """Return the address of a nonzero weight beyond the tensor after a convolution, or -1."""
        decoded = self._decoded
        if not self.stops.strict or decoded is None or decoded.instruction.mnemonic != "nmp.conv":
            return -1
        return weight_tail(self._words, core.machine.scratchpad[core.number])

    @property
    def steps(self) -> int:
        """Number of steps that the core's last instruction counts as."""
        is_tensor = self._decoded is not None and self._decoded.instruction.unit is not None
        return TENSOR_STEPS if is_tensor else 1

    def count_turn(self) -> None:
        """Count one turn."""
        self.stops.noted[StopState.TURNS] += 1

    def trace_is_full(self) -> bool:
        """Return whether the trace may not hold another turn."""
        capacity = len(self.stops.trace)
        return 0 < capacity <= int(self.stops.noted[StopState.ROWS])

    def is_stop_address(self, core: Core) -> bool:
        """Return whether the core is about to execute an instruction at a stop address."""
        wanted = any(
            address == core.pc and number in (-1, core.number)
            for number, address in self.stops.addresses
        )
        if not wanted or int(self.stops.passed[core.number]) == core.retired:
            return False
        self.stops.noted[StopState.CORE] = core.number
        return True

    def should_stop_after(self, core: Core) -> bool:
        """Return whether the core's last instruction was one to stop after."""
        after = self.stops.after
        if self._decoded is None or not after or not self.stops.cores[core.number]:
            return False
        unit = self._decoded.instruction.unit
        if not after & ANY_INSTRUCTION and (unit is None or not after >> unit & 1):
            return False
        self.stops.noted[StopState.CORE] = core.number
        return True

    def record_instruction(self, core: Core) -> None:
        """Append a core's completed instruction to the trace."""
        begin = int(self.stops.clocks[core.number])
        self.stops.clocks[core.number] = core.clock
        decoded = self._decoded
        if decoded is None or not self._is_traced:
            return
        if not self._is_new(core, decoded) and not self._is_fetch_traced(core):
            return
        instruction = decoded.instruction
        job, finished = -1, core.clock
        if instruction.unit is not None:
            queue = UnitQueue(core, instruction.unit, self._costs)
            job = queue.issued - 1
            finished = queue.finished(job)
        word = self._word
        self._add_row(
            {
                TraceColumn.NUMBER: NUMBERS[instruction.mnemonic],
                TraceColumn.CORE: core.number,
                TraceColumn.PC: self._pc,
                TraceColumn.WORD: word,
                TraceColumn.RS1: self._source,
                TraceColumn.RS2: to_unsigned(core.register(RS2.decode(word))),
                TraceColumn.BEGIN: begin,
                TraceColumn.END: core.clock,
                TraceColumn.JOB: job,
                TraceColumn.FINISHED: finished,
            }
        )

    def _is_new(self, core: Core, decoded: Decoded) -> bool:
        if not len(self.stops.access_cache[core.number]) or not _is_traced(decoded):
            return _is_traced(decoded)
        seen = self.stops.access_cache[core.number]
        if decoded.instruction.scope is not Scope.MEMORY:
            invalidate(seen)
            return True
        number = NUMBERS[decoded.instruction.mnemonic]
        address = to_unsigned(self._source + decoded.operands["imm"])
        if is_cached(seen, number, address):
            return False
        add_access(seen, number, address)
        return True

    def _is_fetch_traced(self, core: Core) -> bool:
        image, offset = core.machine.image, self._pc - int(core.machine.shared[0]["image_base"])
        return len(self.stops.words) > 0 and not 0 <= offset < image.size

    def _add_row(self, values: dict[TraceColumn, int]) -> None:
        if len(self.stops.words):
            self.stops.words[self.stops.noted[StopState.ROWS], : len(self._words)] = self._words
        row = self.stops.trace[self.stops.noted[StopState.ROWS]]
        row[:] = 0
        row[TraceColumn.TURN] = self.stops.noted[StopState.TURNS]
        for column, value in values.items():
            row[column] = value
        self.stops.noted[StopState.ROWS] += 1


def descriptor_words(core: Core, decoded: Decoded, address: int) -> list[int]:
    """Return the current words of an instruction's descriptor; empty if it has none."""
    name = decoded.instruction.descriptor
    found = None if name is None else locate(core, address, DESCRIPTORS[name].nbytes)
    if name is None or found is None:
        return []
    data = found.memory[found.offset :][: DESCRIPTORS[name].nbytes]
    return list(decode_descriptor(name, data.tobytes()).values())


def _is_traced(decoded: Decoded) -> bool:
    return decoded.instruction.scope is not Scope.CORE
