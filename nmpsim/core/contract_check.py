"""The check of the contract during a run, fed by engines and by the host's events."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import numpy as np

from nmpsim.bundle.check import Range
from nmpsim.bundle.metadata import ProgramStep, Tensor
from nmpsim.core.access_cache import invalidate
from nmpsim.core.compiled.contract_state import (
    ContractState,
    StateWord,
    copy_state,
    make_contract_state,
    restore_state,
)
from nmpsim.core.contract_events import EVENT_WORDS, ContractEvent, HostEvent, ViolationField
from nmpsim.core.engine import EventCheck
from nmpsim.core.instruction_tables import (
    ACCESS_BYTES,
    FOOTPRINT_KIND,
    IS_ACCESS,
    IS_SYNCHRONISATION,
    IS_WRITE,
    OP,
)
from nmpsim.core.memory_demand import count_tensor_bytes
from nmpsim.core.state import Int64s, Machine
from nmpsim.core.stop_conditions import StopConditions, StopState, TraceColumn
from nmpsim.timing import Costs

INCOMPLETE = (
    "not everything could be checked: the cores have more unordered accesses, posts before a pend,"
    " or instructions after a post than the check can record"
)

SEMAPHORES = (OP.nmp_post, OP.nmp_pend)
MAX_LOG_BYTES = 1 << 26
"""Compressed bytes of instructions that are kept to be checked again. A scalar access takes about
one byte, a tensor instruction some tens."""


@attrs.frozen
class _EventBatch:
    """Compressed arguments of :meth:`ContractCheck.consume`."""

    events: bytes
    words: bytes
    width: int
    """Entries of a row of ``words``."""
    first_word: int

    @staticmethod
    def compress(events: Int64s, words: Int64s, first_word: int) -> _EventBatch:
        """Compress a batch; only tensor instructions keep the words of a descriptor."""
        events = events.copy()
        number = events[:, ContractEvent.NUMBER]
        is_tensor = (number >= 0) & (FOOTPRINT_KIND[number] >= 0)
        words = words[events[is_tensor, ContractEvent.ITEM]]
        events[:, ContractEvent.ITEM] = 0
        events[is_tensor, ContractEvent.ITEM] = np.arange(len(words))
        return _EventBatch(_compress(events), _compress(words), words.shape[1], first_word)

    def arguments(self) -> tuple[Int64s, Int64s, int]:
        """Decompress the batch."""
        events = _decompress(self.events, EVENT_WORDS)
        return events, _decompress(self.words, self.width), self.first_word


def _compress(rows: Int64s) -> bytes:
    """Compress int64 [n, columns] by column, because neighbors in a column are similar."""
    return zlib.compress(rows.tobytes("F"), 1)


def _decompress(columns: bytes, width: int) -> Int64s:
    found = np.frombuffer(zlib.decompress(columns), np.int64)
    return np.array(found.reshape(width, -1).T, order="C")  # compiled code may write to it


class _EventLog:
    """Events to check again, up to :data:`MAX_LOG_BYTES`."""

    def __init__(self) -> None:
        self.batches: list[_EventBatch] = []
        self.nbytes = 0
        self.is_complete = True
        """False after an overflow, which discards all events."""

    def add(self, events: Int64s, words: Int64s, first_word: int) -> None:
        """Append a batch."""
        if not self.is_complete:
            return
        batch = _EventBatch.compress(events, words, first_word)
        self.batches.append(batch)
        self.nbytes += len(batch.events) + len(batch.words)
        if self.nbytes > MAX_LOG_BYTES:
            self.batches, self.nbytes, self.is_complete = [], 0, False


class ContractCheck:
    """Contract check of one run; its methods return False after a violation."""

    def __init__(self, machine: Machine, costs: Costs, check: EventCheck) -> None:
        shared = machine.shared[0]
        self._check = check
        self._image = int(shared.image_base), int(shared.image_base) + machine.image.size
        self.depends_on_data = False
        """Whether a traced instruction may have read what the run has written."""
        self._state = make_contract_state(
            machine.cores.size,
            int(shared.scratchpad_bytes),
            int(shared.ram_base),
            machine.ram.size,
            int(costs.queues_depth),
        )
        self._before: ContractState | None = None
        """Copy of the state before the first semaphore operation."""
        self._log = _EventLog()
        """Events since then: a later post may require that they are checked again."""
        self._has_given_up = False
        """Whether the log overflowed before its events had to be checked again."""

    @property
    def violation_fields(self) -> Int64s:
        """Fields of the first violation, indexed by ``ViolationField``; CASE is -1 without one."""
        return self._state.found

    @property
    def is_violated(self) -> bool:
        """Whether a violation was found."""
        return bool(self.violation_fields[ViolationField.CASE] >= 0)

    @property
    def message(self) -> str:
        """Message about incomplete checks, or '' if everything was checked."""
        return INCOMPLETE if self._state.numbers[StateWord.IS_INCOMPLETE] else ""

    def check_host_write(self, tensor: Tensor) -> bool:
        """Check a write of a tensor by the host; return False after a violation."""
        return self._check_host(HostEvent.WRITES, tensor.address, count_tensor_bytes(tensor))

    def initialize(self, ranges: Sequence[Range]) -> None:
        """Mark the ranges of DRAM as written that are initialized when the program is loaded."""
        for start, end in ranges:
            self._check_host(HostEvent.WRITES, start, end - start)

    def check_host_read(self, tensor: Tensor) -> bool:
        """Check a read of a tensor by the host; return False after a violation."""
        return self._check_host(HostEvent.READS, tensor.address, count_tensor_bytes(tensor))

    def check_host_step(self, step: ProgramStep) -> bool:
        """Check the accesses of a host operation; return False after a violation."""
        reads = [one.tensor for one in step.operands if one.role != "out"]
        writes = [one.tensor for one in step.operands if one.role != "in"]
        return all(map(self.check_host_read, reads)) and all(map(self.check_host_write, writes))

    def begin_segment(self) -> None:
        """Begin a new device segment, for which the host has started all cores."""
        self._check_host(HostEvent.STARTS)

    def consume(self, events: Int64s, words: Int64s, first_word: int) -> bool:
        """Consume and check events of executed instructions; return False after a violation."""
        if self._has_given_up:
            return True
        if self._before is None and np.isin(events[:, ContractEvent.NUMBER], SEMAPHORES).any():
            self._before = copy_state(self._state)
        is_cached = self.check_events(events, words, first_word)
        if self._before is None:
            return is_cached
        self._log.add(events, words, first_word)
        while self._state.numbers[StateWord.HAS_NEW_RIVAL]:
            if not self._log.is_complete:
                self._state.numbers[StateWord.IS_INCOMPLETE] = 1
                self._has_given_up = True
                return True
            is_cached = self._check_again(self._before)
        return is_cached

    def _check_again(self, before: ContractState) -> bool:
        """Check all events since the first semaphore operation, with the rivals known so far."""
        known = np.maximum(self._state.rivals, self._state.known_rivals)
        restore_state(self._state, before)
        self._state.known_rivals[...] = known
        return all(self.check_events(*batch.arguments()) for batch in self._log.batches)

    def check_events(self, events: Int64s, words: Int64s, first_word: int) -> bool:
        """Check events without logging them; return False after a violation or before a restart."""
        return self._check(self._state, events, words, first_word)

    def consume_trace(self, stops: StopConditions) -> bool:
        """Check an engine's instruction trace and clear it; return False after a violation."""
        trace = stops.trace[: int(stops.noted[StopState.ROWS])]
        stops.noted[StopState.ROWS] = 0
        begin, end = self._image
        pc = trace[:, TraceColumn.PC]
        looks = IS_ACCESS[trace[:, TraceColumn.NUMBER]] | (pc < begin) | (pc >= end)
        self.depends_on_data |= bool(looks.any())
        is_cached = self.consume(make_events(trace), stops.words, 0)
        if self._state.numbers[StateWord.IS_INCOMPLETE]:  # cached accesses may have been dropped
            for cache in stops.access_cache:
                invalidate(cache)
        return is_cached

    def _check_host(self, action: HostEvent, address: int = 0, nbytes: int = 0) -> bool:
        events = np.zeros((1, EVENT_WORDS), np.int64)
        events[0, ContractEvent.NUMBER] = action
        events[0, [ContractEvent.FIRST, ContractEvent.SECOND]] = address, nbytes
        return self.consume(events, events, 0)


def make_events(trace: Int64s) -> Int64s:
    """Make contract events from an instruction trace, one event for each row."""
    t = {column: trace[:, column] for column in TraceColumn}
    number, word, rs1 = t[TraceColumn.NUMBER], t[TraceColumn.WORD], t[TraceColumn.RS1]
    is_wait = number == OP.nmp_wait
    low = np.where(IS_WRITE[number], word >> 7 & 31, word >> 20 & 31)
    immediate = (word >> 25) << 5 | low
    address = rs1 + immediate - ((immediate & 0x800) << 1) & 0xFFFF_FFFF
    first = np.where(ACCESS_BYTES[number] > 0, address, rs1)
    columns = {
        ContractEvent.NUMBER: number,
        ContractEvent.CORE: t[TraceColumn.CORE],
        ContractEvent.PC: t[TraceColumn.PC],
        ContractEvent.CYCLE: t[TraceColumn.END] - ~IS_SYNCHRONISATION[number],
        ContractEvent.FIRST: np.where(is_wait, word >> 15 & 31, first),
        ContractEvent.SECOND: np.where(is_wait, word >> 20 & 31, t[TraceColumn.RS2]),
        ContractEvent.DESCRIPTOR: rs1,
        ContractEvent.ITEM: np.arange(len(trace)),
    }
    return np.stack([columns[column] for column in ContractEvent], axis=1)
