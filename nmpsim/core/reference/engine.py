"""The loop: whoever comes first in simulated time, a core or a DRAM request.

A core runs ahead until its next instruction that others could see; that one waits for the core's
turn, ties by core number.
"""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core.reference.access import ACCESS
from nmpsim.core.reference.control import CONTROL
from nmpsim.core.reference.cores import Core, all_cores
from nmpsim.core.reference.integer import INTEGER
from nmpsim.core.reference.memory import locate
from nmpsim.core.reference.step import EndOfRunError, EndOfTurnError, Step, TrapError
from nmpsim.core.reference.sync import SYNC
from nmpsim.core.reference.system import SYSTEM, enter_trap
from nmpsim.core.reference.tensor import TENSOR
from nmpsim.core.reference.units import Queue, serve
from nmpsim.core.state import NEVER, Machine, Outcome, Status, Trap
from nmpsim.core.work import steps_with_room
from nmpsim.isa.codec import decode
from nmpsim.isa.table import Cause, Unit
from nmpsim.timing import Costs

INSTRUCTIONS: dict[str, Callable[[Step], None]] = {
    **INTEGER,
    **CONTROL,
    **ACCESS,
    **SYSTEM,
    **TENSOR,
    **SYNC,
}
"""Mnemonic -> definition, for every instruction of the table."""


class ReferenceEngine:
    """Plain Python: slow and obvious."""

    name = "reference"

    def is_ready(self) -> bool:
        """True: there is nothing to compile."""
        return True

    def run(self, machine: Machine, costs: Costs, turns: int, stop_at_layers: bool) -> Outcome:
        """Run for at most ``turns`` turns; see :class:`~nmpsim.core.engine.Engine`."""
        for _ in range(turns):
            outcome = take_turn(machine, costs, stop_at_layers)
            if outcome is not None:
                return outcome
        return Outcome.PAUSED


def take_turn(machine: Machine, costs: Costs, stop_at_layers: bool) -> Outcome | None:
    """Let the DRAM or a core go on, whoever is earlier; an outcome if the engine comes back."""
    most_steps = steps_with_room(machine)
    if most_steps == 0:
        return Outcome.PAUSED
    cores = all_cores(machine)
    core = min(
        (c for c in cores if c.status == Status.RUNNING), key=lambda c: c.clock, default=None
    )
    queue = earliest_request(cores, costs)
    if queue is not None and (core is None or queue.request < core.clock):
        serve(machine, queue)
        return None
    if core is None:
        is_done = all(c.status == Status.HALTED for c in cores)
        return Outcome.DONE if is_done else Outcome.DEADLOCK
    if core.clock > costs.limits_cycles:
        note_cycle_limit(core)
        return Outcome.CYCLE_LIMIT
    machine.shared[0]["last_barrier"] = -1
    try:
        run_core(core, costs, most_steps)
    except EndOfTurnError:
        pass
    except EndOfRunError:
        return Outcome.TRAP
    is_known = 0 <= int(machine.shared[0]["last_barrier"]) < machine.barriers.size
    return Outcome.LAYER_END if stop_at_layers and is_known else None


def earliest_request(cores: list[Core], costs: Costs) -> Queue | None:
    """The DMA queue that asks for the DRAM first; ties by core, loads before stores."""
    queues = [Queue(core, unit, costs) for core in cores for unit in (Unit.LOAD, Unit.STORE)]
    asking = [queue for queue in queues if queue.request < NEVER]
    return min(asking, key=lambda queue: queue.request, default=None)


def note_cycle_limit(core: Core) -> None:
    """Leave word of where the earliest core was."""
    record = core.machine.shared[0]["trap"]
    record[Trap.CORE] = core.number
    record[Trap.PC] = core.pc
    record[Trap.CYCLE] = core.clock


def run_core(core: Core, costs: Costs, most_steps: int) -> None:
    """Run a core whose turn it is; its first instruction may be one that others see."""
    for steps in range(most_steps):
        if core.clock > costs.limits_cycles:
            return
        is_turn = steps == 0
        try:
            do_instruction(core, costs, is_turn)
        except TrapError as trap:
            enter_trap(core, trap, is_turn)


def do_instruction(core: Core, costs: Costs, is_turn: bool) -> None:
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
    step = Step(core, costs, decoded.instruction, decoded.operands, word, is_turn)
    INSTRUCTIONS[decoded.instruction.mnemonic](step)
