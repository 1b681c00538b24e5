"""The instruction trace of the reference engine, and the recording of work and waits."""

from __future__ import annotations

from typing import Any

from nmpsim.core.code_regions import begin_instruction, count_execution
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.commits import CommitListener, make_commit, make_trap_commit
from nmpsim.core.reference.context import TrapError
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.state import GrantKind, JobColumn, WaitTarget
from nmpsim.core.stop_conditions import TENSOR_STEPS, StopConditions, StopState
from nmpsim.core.watch import record_instruction, should_stop_after
from nmpsim.isa.codec import DecodedInstruction, decode_descriptor
from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS, RS1, RS2, Unit
from nmpsim.memory.weight_tail import find_nonzero_padding
from nmpsim.timing import Costs

NUMBERS = {i.mnemonic: number for number, i in enumerate(INSTRUCTIONS)}


class ExecutionMonitor:
    """Monitor that evaluates the stop conditions of a run and records the trace."""

    def __init__(
        self,
        stops: StopConditions,
        costs: Costs,
        commits: CommitListener | None = None,
        *,
        computes_values: bool = True,
    ) -> None:
        self.stops = stops
        self.computes_values = computes_values
        self._commits = commits
        self._decoded: DecodedInstruction | None = None
        self._word, self._source, self._pc = 0, 0, 0
        self._words: list[int] = []
        """Words of the descriptor; empty if not needed."""
        self._costs = costs

    def begin_instruction(self, core: Core, decoded: DecodedInstruction, word: int) -> None:
        """Set the current instruction of a core before its execution."""
        self._decoded, self._word, self._pc = decoded, word, core.pc
        if core.machine.code_regions.size:
            begin_instruction(core.machine, core.number, core.pc, core.clock, core.retired)
        has_words = decoded.instruction.descriptor is not None
        is_traced = len(self.stops.trace) > 0 or self._commits is not None
        if is_traced:
            self.stops.noted[StopState.PC] = core.pc
        if has_words or is_traced:
            self._source = to_unsigned(
                core.read_register(RS1.decode(word))
            )  # a load may overwrite it
        wants_words = has_words and (
            self.stops.strict or len(self.stops.words) > 0 or self._commits is not None
        )
        self._words = read_descriptor_words(core, decoded, self._source) if wants_words else []

    def find_nonzero_padding(self, core: Core) -> int:
        """Return the address of a nonzero byte in a convolution's weight padding; -1 if absent."""
        decoded = self._decoded
        if not self.stops.strict or decoded is None or decoded.instruction.mnemonic != "nmp.conv":
            return -1
        return find_nonzero_padding(self._words, core.machine.scratchpad[core.number])

    @property
    def step_count(self) -> int:
        """Number of steps for which the core's last instruction counts."""
        is_tensor = self._decoded is not None and self._decoded.instruction.unit is not None
        return TENSOR_STEPS if is_tensor else 1

    def should_stop_after(self, core: Core) -> bool:
        """Return whether the engine must stop after the core's last instruction."""
        decoded = self._decoded
        return decoded is not None and bool(
            should_stop_after(self.stops, core.number, NUMBERS[decoded.instruction.mnemonic])
        )

    def record_instruction(self, core: Core) -> None:
        """Append a core's completed instruction to the trace, and report its commit."""
        if self._decoded is None:
            return
        if self._commits is not None:
            commit = make_commit(
                core, self._decoded, self._word, self._pc, self._source, self._words
            )
            self._commits(commit)
        count_execution(core.machine, self._pc)
        record_instruction(
            core.machine,
            self._costs,
            self.stops,
            core.number,
            NUMBERS[self._decoded.instruction.mnemonic],
            self._word,
            (self._source, to_unsigned(core.read_register(RS2.decode(self._word)))),
            to_unsigned(self._source + self._decoded.operands.get("imm", 0)),
            self._words,
        )

    def record_trap(self, core: Core, trap: TrapError) -> None:
        """Report a trap that a core is about to enter."""
        if self._commits is not None:
            self._commits(make_trap_commit(core, trap))


def read_descriptor_words(core: Core, decoded: DecodedInstruction, address: int) -> list[int]:
    """Return the words of an instruction's descriptor, or [] if it has no valid descriptor."""
    name = decoded.instruction.descriptor
    found = None if name is None else locate(core, address, DESCRIPTORS[name].nbytes)
    if name is None or found is None:
        return []
    data = found.memory[found.offset :][: DESCRIPTORS[name].nbytes]
    return list(decode_descriptor(name, data.tobytes()).values())


# Recording of unit work and core waits; see :mod:`nmpsim.core.work`.


def record_work(
    core: Core,
    unit: Unit,
    layer: int,
    begin: int,
    end: int,
    done: int,
    nbytes: int = 0,
    transfer: Any = None,
    cursor: Any = None,
    kind: GrantKind = GrantKind.OWN,
) -> None:
    """Record a job or a DRAM grant of a unit in the work log, if the machine has a log.

    ``transfer`` is the DMA job of the work, whose address and descriptor the entry has; else they
    are those of the core's instruction. ``cursor`` is the state of a transfer before a DRAM grant,
    whose ``kind`` the entry has.
    """
    machine = core.machine
    if machine.work.size == 0:
        return
    entry = machine.work[int(machine.shared[0]["noted"])]
    machine.shared[0]["noted"] += 1
    pc, descriptor = core.pc, core.descriptor
    if transfer is not None:
        pc, descriptor = transfer[JobColumn.PC], transfer[JobColumn.DESCRIPTOR]
    entry["core"], entry["unit"], entry["layer"] = core.number, unit, layer
    entry["pc"], entry["descriptor"] = pc, descriptor
    entry["begin"], entry["end"], entry["done"], entry["bytes"] = begin, end, done, nbytes
    entry["is_grant"] = GrantKind.NONE if cursor is None else kind
    if cursor is not None:
        entry["cursor"] = cursor


def record_wait(core: Core, what: WaitTarget, happened: int, end: int, awaited: int) -> None:
    """Record a core's wait from its clock to ``end`` in the wait log, if there is a log."""
    machine, begin = core.machine, core.clock
    if machine.waits.size == 0 or end <= begin:
        return
    entry = (core.number, what, begin, happened, end, awaited)
    machine.waits[int(machine.shared[0]["waited"])] = entry
    machine.shared[0]["waited"] += 1
