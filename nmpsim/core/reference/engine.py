"""The loop: next is what comes first in simulated time, a core or a DRAM request.

A core runs ahead until its next instruction that others could see; that one waits for the core's
turn, ties by core number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nmpsim.core.engine import Engine
from nmpsim.core.reference.access import ACCESS, locate
from nmpsim.core.reference.control import CONTROL, SYNC
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.integer import INTEGER
from nmpsim.core.reference.step import (
    EndOfRunError,
    EndOfTurnError,
    Step,
    TrapError,
    ViolationError,
)
from nmpsim.core.reference.system import SYSTEM, enter_trap
from nmpsim.core.reference.tensor import TENSOR
from nmpsim.core.reference.units import Queue, look_ahead, serve
from nmpsim.core.reference.watch import Watch
from nmpsim.core.state import (
    NEVER,
    CoreStatus,
    Int64s,
    Machine,
    Outcome,
    TrapField,
    as_plain_arrays,
)
from nmpsim.core.stop_conditions import StopConditions, default_stop_conditions
from nmpsim.core.work import steps_with_room
from nmpsim.isa.codec import decode
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import Cause, Kind, Unit, mnemonics_of_kind
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.compiled.contract_state import Contract

INSTRUCTIONS: dict[str, Callable[[Step], None]] = exhaustive_table(
    f"{__name__}.INSTRUCTIONS",
    {**INTEGER, **CONTROL, **ACCESS, **SYSTEM, **TENSOR, **SYNC},
    mnemonics_of_kind(*Kind),
)
"""Mnemonic -> definition, for every instruction of the table."""
MAX_STEPS = 1 << 11
"""Instructions of one call at most: it takes about a tenth of a second for this many."""


class ReferenceEngine(Engine):
    """Plain Python: slow and obvious."""

    name = "reference"

    def check_events(self, known: Contract, events: Int64s, words: Int64s, first_word: int) -> bool:
        """The check that the compiled engine compiles, as plain Python."""
        from nmpsim.core.compiled.contract import check

        return bool(check(known, events, words, first_word))

    def run(
        self,
        machine: Machine,
        costs: Costs,
        turns: int,
        stop_at_layers: bool,
        stops: StopConditions | None = None,
    ) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        watch = Watch(
            default_stop_conditions(machine.cores.size) if stops is None else stops, costs
        )
        machine = as_plain_arrays(machine)
        steps_before = machine.cores["retired"].sum()
        for _ in range(turns):
            outcome = take_turn(machine, costs, stop_at_layers, watch)
            if outcome is not None:
                return outcome
            if machine.cores["retired"].sum() - steps_before >= MAX_STEPS:
                break
        return Outcome.PAUSED


def take_turn(machine: Machine, costs: Costs, stop_at_layers: bool, watch: Watch) -> Outcome | None:
    """Let the DRAM or a core go on, the earlier one; an outcome if the engine comes back."""
    most_steps = min(steps_with_room(machine), watch.stops.steps_per_turn)
    if most_steps <= 0:
        return Outcome.PAUSED
    core = first_running(machine)
    queue, cycle = next_grant(machine, costs)
    if (core is not None or queue is not None) and watch.trace_is_full():
        return Outcome.STOPPED
    if queue is not None and (core is None or cycle < core.clock):
        return serve_request(machine, queue, cycle, watch)
    if core is None:
        is_done = bool((machine.cores["status"] == CoreStatus.HALTED).all())
        return Outcome.DONE if is_done else Outcome.DEADLOCK
    if core.clock > costs.limits_cycles:
        note_cycle_limit(core)
        return Outcome.CYCLE_LIMIT
    if core.clock >= watch.stops.until_cycle or watch.is_stop_address(core):
        return Outcome.STOPPED
    return take_core_turn(core, costs, stop_at_layers, watch, most_steps)


def serve_request(machine: Machine, queue: Queue, cycle: int, watch: Watch) -> Outcome | None:
    """The DRAM's turn."""
    if cycle >= watch.stops.until_cycle:
        return Outcome.STOPPED
    serve(machine, queue)
    watch.note_turn()
    return None


def take_core_turn(
    core: Core, costs: Costs, stop_at_layers: bool, watch: Watch, most_steps: int
) -> Outcome | None:
    """A core's turn."""
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
    watch.note_turn()
    is_known = 0 <= int(machine.shared[0]["last_barrier"]) < machine.barriers.size
    if stop_at_layers and is_known:
        return Outcome.LAYER_END
    return Outcome.STOPPED if has_retired and watch.wants_to_stop(core) else None


def first_running(machine: Machine) -> Core | None:
    """The running core whose clock is behind all others; of equals the lower one."""
    cores = machine.cores
    clocks = np.where(cores["status"] == CoreStatus.RUNNING, cores["clock"], NEVER)
    number = int(clocks.argmin())
    return Core(machine, number) if clocks[number] < NEVER else None


def next_grant(machine: Machine, costs: Costs) -> tuple[Queue | None, int]:
    """The DMA queue that the DRAM serves next, and the cycle in which it does or chooses so.

    Without look-ahead that asks for the DRAM first; ties by core, loads before stores.
    """
    if machine.cores["request"].min() == NEVER:
        return None, NEVER
    requests = np.argwhere(machine.cores["request"] < NEVER)
    asking = [Queue(Core(machine, core), Unit(unit), costs) for core, unit in requests.tolist()]
    if costs.dram_lookahead_cycles:
        return look_ahead(machine, asking, costs)
    first = min(asking, key=lambda queue: queue.request)
    return first, first.request


def note_cycle_limit(core: Core) -> None:
    """Leave word of where the earliest core was."""
    record = core.machine.shared[0]["trap"]
    record[TrapField.CORE] = core.number
    record[TrapField.PC] = core.pc
    record[TrapField.CYCLE] = core.clock


def run_core(core: Core, costs: Costs, watch: Watch, most_steps: int) -> None:
    """Run a core whose turn it is; its first instruction may be one that others see."""
    steps = 0
    while steps < most_steps and core.clock <= costs.limits_cycles and not watch.trace_is_full():
        steps += take_step(core, costs, watch, is_turn=steps == 0)


def take_step(core: Core, costs: Costs, watch: Watch, *, is_turn: bool) -> int:
    """One instruction; how many steps it counts as."""
    retired = core.retired
    try:
        do_instruction(core, costs, is_turn, watch)
        check_weights(core, watch)
    except TrapError as trap:
        enter_trap(core, trap, is_turn)
    except EndOfTurnError:
        if core.retired > retired:
            watch.note_core(core)
        raise
    if core.retired == retired:  # a trap
        return 1
    watch.note_core(core)
    return watch.steps


def check_weights(core: Core, watch: Watch) -> None:
    """Weights of the convolution that a core has just done must keep to the contract."""
    address = watch.weight_tail(core)
    if address >= 0:
        record = core.machine.shared[0]["trap"]
        record[TrapField.CORE], record[TrapField.VALUE] = core.number, address
        record[TrapField.PC], record[TrapField.CYCLE] = core.pc - 4, core.clock
        raise ViolationError


def do_instruction(core: Core, costs: Costs, is_turn: bool, watch: Watch) -> None:
    """Fetch, decode and do one instruction."""
    found = locate(core, core.pc, 4)
    if found is None:
        raise TrapError(Cause.FETCH_FAULT, core.pc)
    if found.region.is_shared and not is_turn:
        raise EndOfTurnError
    word = found.read(4)
    decoded = decode(word)
    if decoded is None:
        raise TrapError(Cause.ILLEGAL_INSTRUCTION, word)
    watch.begins(core, decoded, word)
    step = Step(core, costs, decoded.instruction, decoded.operands, word, is_turn)
    INSTRUCTIONS[decoded.instruction.mnemonic](step)
