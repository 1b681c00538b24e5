"""The event loop of the reference engine.

The next event in simulated time is executed, of a core or of the DRAM. A core runs ahead up to its
next instruction that other cores can observe, which waits for the core's turn; ties are broken by
core number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nmpsim.core.engine import Engine
from nmpsim.core.reference.access import ACCESS, locate
from nmpsim.core.reference.context import (
    DataDependentError,
    EndOfRunError,
    EndOfTurnError,
    InstructionContext,
    TrapError,
    ViolationError,
)
from nmpsim.core.reference.control import CONTROL, SYNC
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.integer import INTEGER
from nmpsim.core.reference.system import SYSTEM, enter_trap
from nmpsim.core.reference.tensor import TENSOR
from nmpsim.core.reference.units import UnitQueue, choose_queue_with_lookahead, serve_queue
from nmpsim.core.reference.watch import ExecutionMonitor
from nmpsim.core.state import (
    NEVER,
    CoreStatus,
    Int64s,
    Machine,
    Outcome,
    TrapField,
    as_plain_arrays,
)
from nmpsim.core.stop_conditions import StopConditions, make_default_stop_conditions
from nmpsim.core.watch import add_turns, is_stop_address, is_trace_full
from nmpsim.core.work import count_loggable_steps
from nmpsim.isa.codec import decode
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import InstructionKind, TrapCause, Unit, list_mnemonics
from nmpsim.memory.address_map import Region
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import ContractState

INSTRUCTIONS: dict[str, Callable[[InstructionContext], None]] = make_exhaustive_table(
    f"{__name__}.INSTRUCTIONS",
    {**INTEGER, **CONTROL, **ACCESS, **SYSTEM, **TENSOR, **SYNC},
    list_mnemonics(*InstructionKind),
)
"""Mnemonic -> definition, for every instruction of the instruction table."""
MAX_STEPS = 1 << 11
"""Maximum number of instructions of one call, which takes about a tenth of a second."""


class ReferenceEngine(Engine):
    """Reference engine in plain Python, one small function for each instruction."""

    name = "reference"

    def check_events(
        self, known: ContractState, events: Int64s, words: Int64s, first_word: int
    ) -> bool:
        """Check events in plain Python; return whether all are valid. See ``Engine``."""
        from nmpsim.core.compiled.contract import check_events

        return bool(check_events(known, events, words, first_word))

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run a machine for at most ``turns`` turns of cores and the DRAM; see ``Engine.run``."""
        watch = ExecutionMonitor(
            make_default_stop_conditions(machine.cores.size) if stops is None else stops,
            costs,
            self.commits,
        )
        machine = as_plain_arrays(machine)
        steps_before = machine.cores["retired"].sum()
        for _ in range(turns):
            outcome = execute_next_event(machine, costs, stop_at_layers, watch)
            if outcome is not None:
                return outcome
            if machine.cores["retired"].sum() - steps_before >= MAX_STEPS:
                break
        return Outcome.PAUSED

    def run_timing(self, machine: Machine, costs: Costs) -> bool:
        """Run a machine to its end without computing values. See ``Engine``."""
        stops = make_default_stop_conditions(machine.cores.size, strict=False)
        watch = ExecutionMonitor(stops, costs, computes_values=False)
        machine, outcome = as_plain_arrays(machine), None
        try:
            while outcome is None:
                outcome = execute_next_event(machine, costs, False, watch)
        except DataDependentError:
            return False
        return outcome == Outcome.DONE


def execute_next_event(
    machine: Machine, costs: Costs, stop_at_layers: bool, watch: ExecutionMonitor
) -> Outcome | None:
    """Execute the next event of a core or the DRAM; return an outcome, or None to continue."""
    most_steps = min(count_loggable_steps(machine), watch.stops.steps_per_turn)
    if most_steps <= 0:
        return Outcome.PAUSED
    core = find_first_running(machine)
    queue, cycle = find_next_grant(machine, costs)
    if (core is not None or queue is not None) and is_trace_full(watch.stops):
        return Outcome.STOPPED
    if queue is not None and (core is None or cycle < core.clock):
        return serve_request(machine, queue, cycle, watch)
    if core is None:
        is_done = bool((machine.cores["status"] == CoreStatus.HALTED).all())
        return Outcome.DONE if is_done else Outcome.DEADLOCK
    if core.clock > costs.limits_cycles:
        record_cycle_limit(core)
        return Outcome.CYCLE_LIMIT
    if core.clock >= watch.stops.until_cycle or is_stop_address(
        watch.stops, core.number, core.pc, core.retired
    ):
        return Outcome.STOPPED
    return execute_core_turn(core, costs, stop_at_layers, watch, most_steps)


def serve_request(
    machine: Machine, queue: UnitQueue, cycle: int, watch: ExecutionMonitor
) -> Outcome | None:
    """Serve one DRAM request; return an outcome if the engine must stop, else None."""
    if cycle >= watch.stops.until_cycle:
        return Outcome.STOPPED
    serve_queue(machine, queue)
    add_turns(watch.stops, 1)
    return None


def execute_core_turn(
    core: Core, costs: Costs, stop_at_layers: bool, watch: ExecutionMonitor, most_steps: int
) -> Outcome | None:
    """Execute a core's turn; return an outcome if the engine must stop, else None."""
    machine, retired = core.machine, core.retired
    machine.shared[0]["last_barrier"] = -1
    try:
        run_core(core, costs, watch, most_steps)
    except EndOfTurnError:
        pass
    except EndOfRunError:
        return Outcome.TRAP
    except ViolationError:
        return Outcome.VIOLATION
    has_retired = core.retired > retired
    add_turns(watch.stops, 1)
    is_known = 0 <= int(machine.shared[0]["last_barrier"]) < machine.barriers.size
    if stop_at_layers and is_known:
        return Outcome.LAYER_END
    return Outcome.STOPPED if has_retired and watch.should_stop_after(core) else None


def find_first_running(machine: Machine) -> Core | None:
    """Return the first running core with the lowest clock, or None if no core runs."""
    cores = machine.cores
    clocks = np.where(cores["status"] == CoreStatus.RUNNING, cores["clock"], NEVER)
    number = int(clocks.argmin())
    return Core(machine, number) if clocks[number] < NEVER else None


def find_next_grant(machine: Machine, costs: Costs) -> tuple[UnitQueue | None, int]:
    """Return the queue that the DRAM serves next, or None, and the cycle of this decision.

    Without look-ahead it is the earliest request; ties by core, loads before stores.
    """
    if machine.cores["request"].min() == NEVER:
        return None, NEVER
    requests = np.argwhere(machine.cores["request"] < NEVER)
    asking = [UnitQueue(Core(machine, core), Unit(unit), costs) for core, unit in requests.tolist()]
    if costs.dram_lookahead_cycles:
        return choose_queue_with_lookahead(machine, asking, costs)
    first = min(asking, key=lambda queue: queue.request)
    return first, first.request


def record_cycle_limit(core: Core) -> None:
    """Record the position of a core that exceeds the cycle limit."""
    record = core.machine.shared[0]["trap"]
    record[TrapField.CORE] = core.number
    record[TrapField.PC] = core.pc
    record[TrapField.CYCLE] = core.clock


def run_core(core: Core, costs: Costs, watch: ExecutionMonitor, most_steps: int) -> None:
    """Run a core for ``most_steps`` steps, or until it must wait or needs its turn again."""
    steps = 0
    while (
        steps < most_steps and core.clock <= costs.limits_cycles and not is_trace_full(watch.stops)
    ):
        steps += execute_step(core, costs, watch, has_turn=steps == 0)


def execute_step(core: Core, costs: Costs, watch: ExecutionMonitor, *, has_turn: bool) -> int:
    """Execute one instruction; return the number of steps for which it counts."""
    retired = core.retired
    try:
        execute_instruction(core, costs, has_turn, watch)
        check_weights(core, watch)
    except TrapError as trap:
        enter_trap(core, trap, has_turn, watch.record_trap)
    except EndOfTurnError:
        if core.retired > retired:
            watch.record_instruction(core)
        raise
    if core.retired == retired:  # a trap
        return 1
    watch.record_instruction(core)
    return watch.step_count


def check_weights(core: Core, watch: ExecutionMonitor) -> None:
    """Raise ViolationError if the weights of the last convolution break the contract."""
    address = watch.find_nonzero_padding(core)
    if address >= 0:
        record = core.machine.shared[0]["trap"]
        record[TrapField.CORE], record[TrapField.VALUE] = core.number, address
        record[TrapField.PC], record[TrapField.CYCLE] = core.pc - 4, core.clock
        raise ViolationError


def execute_instruction(core: Core, costs: Costs, has_turn: bool, watch: ExecutionMonitor) -> None:
    """Fetch, decode and execute one instruction."""
    found = locate(core, core.pc, 4)
    if found is None:
        raise TrapError(TrapCause.FETCH_FAULT, core.pc)
    if found.region.is_shared and not has_turn:
        raise EndOfTurnError
    word = found.read(4)
    decoded = decode(word)
    if decoded is None:
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, word)
    watch.begin_instruction(core, decoded, word)
    if not watch.computes_values:
        check_data_independence(decoded.instruction.mnemonic, found.region)
    step = InstructionContext(
        core,
        costs,
        decoded.instruction,
        decoded.operands,
        word,
        has_turn,
        watch.computes_values,
    )
    INSTRUCTIONS[decoded.instruction.mnemonic](step)


def check_data_independence(mnemonic: str, region: Region) -> None:
    """Raise DataDependentError if an instruction accesses memory or is in writable memory."""
    if mnemonic in ACCESS or region is not Region.IMAGE:
        raise DataDependentError
