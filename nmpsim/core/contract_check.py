"""The check of the contract during a run: what the host does, and what engines show."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.bundle.metadata import ProgramStep, Tensor
from nmpsim.core.access_cache import begin_stretch
from nmpsim.core.compiled.contract_state import Contract, Limit, copied, make_contract, restore
from nmpsim.core.contract_events import EVENT_WORDS, ContractEvent, HostEvent
from nmpsim.core.engine import CheckEvents
from nmpsim.core.instruction_tables import (
    ACCESS_BYTES,
    FOOTPRINT_KIND,
    IS_ACCESS,
    IS_SYNCHRONISATION,
    IS_WRITE,
    OP,
)
from nmpsim.core.memory_demand import tensor_bytes
from nmpsim.core.state import Int64s, Machine
from nmpsim.core.stop_conditions import StopConditions, StopState, TraceColumn
from nmpsim.timing import Costs

UNSURE = (
    "not everything could be checked: the cores have more open accesses, older posts or more"
    " instructions after a post than the check keeps"
)

SEMAPHORES = (OP.nmp_post, OP.nmp_pend)
MAX_LOG_BYTES = 1 << 26
"""Compressed bytes of instructions that are kept to be checked again. A scalar access takes about
one, a tensor instruction some tens."""


@attrs.frozen
class _Batch:
    """Instructions that were checked, as :meth:`ContractCheck.show` gets them, compressed."""

    events: bytes
    words: bytes
    width: int
    """Entries of a row of ``words``."""
    first_word: int

    @staticmethod
    def of(events: Int64s, words: Int64s, first_word: int) -> _Batch:
        """Compress a batch; only tensor instructions keep the words of a descriptor."""
        events = events.copy()
        number = events[:, ContractEvent.NUMBER]
        is_tensor = (number >= 0) & (FOOTPRINT_KIND[number] >= 0)
        words = words[events[is_tensor, ContractEvent.ITEM]]
        events[:, ContractEvent.ITEM] = 0
        events[is_tensor, ContractEvent.ITEM] = np.arange(len(words))
        return _Batch(_compressed(events), _compressed(words), words.shape[1], first_word)

    def arguments(self) -> tuple[Int64s, Int64s, int]:
        """The batch as it was shown."""
        events = _decompressed(self.events, EVENT_WORDS)
        return events, _decompressed(self.words, self.width), self.first_word


def _compressed(rows: Int64s) -> bytes:
    """Compress int64 [n, columns] column by column, because neighbors in a column are similar."""
    return zlib.compress(rows.tobytes("F"), 1)


def _decompressed(columns: bytes, width: int) -> Int64s:
    found = np.frombuffer(zlib.decompress(columns), np.int64)
    return np.array(found.reshape(width, -1).T, order="C")  # compiled code may write to it


class _Log:
    """Instructions to check again, up to :data:`MAX_LOG_BYTES`."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []
        self.nbytes = 0
        self.is_complete = True
        """False once there were more: then none are kept."""

    def add(self, events: Int64s, words: Int64s, first_word: int) -> None:
        """Keep a batch."""
        if not self.is_complete:
            return
        batch = _Batch.of(events, words, first_word)
        self._batches.append(batch)
        self.nbytes += len(batch.events) + len(batch.words)
        if self.nbytes > MAX_LOG_BYTES:
            self._batches, self.nbytes, self.is_complete = [], 0, False

    def __iter__(self) -> Iterator[tuple[Int64s, Int64s, int]]:
        return (batch.arguments() for batch in self._batches)


class ContractCheck:
    """Follows one run; each method says whether the contract holds so far."""

    def __init__(self, machine: Machine, costs: Costs, check: CheckEvents) -> None:
        shared = machine.shared[0]
        self._check = check
        self._image = int(shared.image_base), int(shared.image_base) + machine.image.size
        self.depends_on_data = False
        """True if an instruction that was traced may have read what the run has written."""
        self._state = make_contract(
            machine.cores.size,
            int(shared.scratchpad_bytes),
            int(shared.ram_base),
            machine.ram.size,
            int(costs.queues_depth),
        )
        self._before: Contract | None = None
        """As it was before the first post or pend."""
        self._log = _Log()
        """What came since then: a later post may show that it must be checked again."""
        self._has_given_up = False
        """True if something must be checked again that was not kept."""

    @property
    def found(self) -> Int64s:
        """The violation, int64 [Found]."""
        return self._state.found

    @property
    def message(self) -> str:
        """What could not be checked; empty if everything could."""
        return UNSURE if self._state.numbers[Limit.IS_UNSURE] else ""

    def host_writes(self, tensor: Tensor) -> bool:
        """The host writes a tensor into DRAM."""
        return self._host(HostEvent.WRITES, tensor.address, tensor_bytes(tensor))

    def host_reads(self, tensor: Tensor) -> bool:
        """The host reads a tensor from DRAM."""
        return self._host(HostEvent.READS, tensor.address, tensor_bytes(tensor))

    def host_step(self, step: ProgramStep) -> bool:
        """The host does an operation."""
        reads = [one.tensor for one in step.operands if one.role != "out"]
        writes = [one.tensor for one in step.operands if one.role != "in"]
        return all(map(self.host_reads, reads)) and all(map(self.host_writes, writes))

    def begin_segment(self) -> None:
        """The host starts the cores."""
        self._host(HostEvent.STARTS)

    def show(self, events: Int64s, words: Int64s, first_word: int) -> bool:
        """Instructions as :data:`~nmpsim.core.engine.ShowInstructions` has them."""
        if self._has_given_up:
            return True
        if self._before is None and np.isin(events[:, ContractEvent.NUMBER], SEMAPHORES).any():
            self._before = copied(self._state)
        is_kept = self._check(self._state, events, words, first_word)
        if self._before is None:
            return is_kept
        self._log.add(events, words, first_word)
        while self._state.numbers[Limit.IS_TOO_STRICT]:
            if not self._log.is_complete:
                self._state.numbers[Limit.IS_UNSURE] = 1
                self._has_given_up = True
                return True
            is_kept = self._again(self._before)
        return is_kept

    def _again(self, before: Contract) -> bool:
        """All since the first post or pend, with the rivals known that have come so far."""
        known = np.maximum(self._state.rivals, self._state.known_rivals)
        restore(self._state, before)
        self._state.known_rivals[...] = known
        return all(self._check(self._state, *batch) for batch in self._log)

    def take_trace(self, stops: StopConditions) -> bool:
        """The instructions that an engine has traced with their descriptors; makes room."""
        trace = stops.trace[: int(stops.noted[StopState.ROWS])]
        stops.noted[StopState.ROWS] = 0
        begin, end = self._image
        pc = trace[:, TraceColumn.PC]
        looks = IS_ACCESS[trace[:, TraceColumn.NUMBER]] | (pc < begin) | (pc >= end)
        self.depends_on_data |= bool(looks.any())
        is_kept = self.show(events_of(trace), stops.words, 0)
        if self._state.numbers[Limit.IS_UNSURE]:  # it may have forgotten what it has seen
            for seen in stops.seen:
                begin_stretch(seen)
        return is_kept

    def _host(self, what: HostEvent, address: int = 0, nbytes: int = 0) -> bool:
        events = np.zeros((1, EVENT_WORDS), np.int64)
        events[0, ContractEvent.NUMBER] = what
        events[0, [ContractEvent.FIRST, ContractEvent.SECOND]] = address, nbytes
        return self.show(events, events, 0)


def events_of(trace: Int64s) -> Int64s:
    """Rows of a trace, int64 [n, Row], as the check takes them, int64 [n, Event]."""
    events = np.zeros((len(trace), EVENT_WORDS), np.int64)
    number, word, rs1 = (
        trace[:, TraceColumn.NUMBER],
        trace[:, TraceColumn.WORD],
        trace[:, TraceColumn.RS1],
    )
    is_wait = number == OP.nmp_wait
    low = np.where(IS_WRITE[number], word >> 7 & 31, word >> 20 & 31)
    immediate = (word >> 25) << 5 | low
    address = rs1 + immediate - ((immediate & 0x800) << 1) & 0xFFFF_FFFF
    first = np.where(ACCESS_BYTES[number] > 0, address, rs1)
    events[:, ContractEvent.NUMBER] = number
    events[:, ContractEvent.CORE] = trace[:, TraceColumn.CORE]
    events[:, ContractEvent.PC] = trace[:, TraceColumn.PC]
    events[:, ContractEvent.CYCLE] = trace[:, TraceColumn.END] - ~IS_SYNCHRONISATION[number]
    events[:, ContractEvent.FIRST] = np.where(is_wait, word >> 15 & 31, first)
    events[:, ContractEvent.SECOND] = np.where(is_wait, word >> 20 & 31, trace[:, TraceColumn.RS2])
    events[:, ContractEvent.DESCRIPTOR] = rs1
    events[:, ContractEvent.ITEM] = np.arange(len(trace))
    return events
