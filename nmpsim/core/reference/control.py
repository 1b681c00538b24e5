"""Branches, jumps and synchronization."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmpsim.core.reference.context import EndOfTurnError, InstructionContext, TrapError
from nmpsim.core.reference.cores import Core, find_waiting_cores
from nmpsim.core.reference.units import UnitQueue, await_job
from nmpsim.core.reference.watch import record_wait
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.state import CoreStatus, CountColumn, CycleCause, WaitTarget
from nmpsim.isa.table import SEMAPHORES, TrapCause, Unit
from nmpsim.timing.compute import convert_to_cycles
from nmpsim.timing.dram import FREE


def jump(s: InstructionContext, target: int) -> None:
    """Execute a taken branch or jump: spend its cycles, retire it and set pc to ``target``."""
    s.spend_cycles(s.costs.control_taken_branch_cycles)
    s.retire_to(target)


def resolve_target(target: int) -> int:
    """Return a jump target as an unsigned address; raise TrapError if misaligned."""
    address = to_unsigned(target)
    if address % 4:
        raise TrapError(TrapCause.FETCH_MISALIGNED, address)
    return address


BRANCHES: dict[str, Callable[[InstructionContext], bool]] = {
    "beq": lambda s: s.rs1 == s.rs2,
    "bne": lambda s: s.rs1 != s.rs2,
    "blt": lambda s: s.rs1 < s.rs2,
    "bge": lambda s: s.rs1 >= s.rs2,
    "bltu": lambda s: s.unsigned_rs1 < s.unsigned_rs2,
    "bgeu": lambda s: s.unsigned_rs1 >= s.unsigned_rs2,
}
"""Mnemonic of a branch -> its condition."""


def branch(s: InstructionContext) -> None:
    """Execute a branch: jump to the target if the condition holds, else continue."""
    if BRANCHES[s.instruction.mnemonic](s):
        jump(s, resolve_target(s.core.pc + s.operands["offset"]))
    else:
        s.spend_cycles()
        s.retire()


def jal(s: InstructionContext) -> None:
    """Execute ``jal``: store the return address in rd and jump to pc plus an offset."""
    pc = s.core.pc
    target = resolve_target(pc + s.operands["offset"])
    s.set_rd(pc + 4)
    jump(s, target)


def jalr(s: InstructionContext) -> None:
    """Execute ``jalr``: store the return address in rd and jump to rs1 + imm, bit 0 cleared."""
    base, imm = s.rs1, s.immediate
    target = resolve_target((base + imm) & ~1)
    s.set_rd(s.core.pc + 4)
    jump(s, target)


def no_operation(s: InstructionContext) -> None:
    """Execute a fence or ``wfi`` as an instruction that only takes one cycle."""
    s.spend_cycles()
    s.retire()


CONTROL = {
    **dict.fromkeys(BRANCHES, branch),
    "jal": jal,
    "jalr": jalr,
    **dict.fromkeys(("fence", "fence.i", "wfi"), no_operation),
}
"""Mnemonic -> definition."""


def wait(s: InstructionContext) -> None:
    """Execute ``nmp.wait``: wait until at most ``outstanding`` jobs of a unit are unfinished."""
    unit, outstanding = s.operands["unit"], s.operands["outstanding"]
    if unit not in tuple(Unit):
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, s.word)
    queue = UnitQueue(s.core, Unit(unit), s.costs)
    await_job(queue, queue.issued - outstanding - 1)
    s.spend_cycles()
    s.retire()


def barrier(s: InstructionContext) -> None:
    """Execute ``nmp.barrier``: wait at barrier rs1 until rs2 cores have arrived."""
    s.require_turn()
    number, count = s.unsigned_rs1, s.unsigned_rs2
    s.spend_cycles()
    s.retire()
    s.core.wait_for(CoreStatus.AT_BARRIER, number, count)
    arrived = find_waiting_cores(s.machine, CoreStatus.AT_BARRIER, number)
    if len(arrived) >= count:
        latest = max(c.clock for c in arrived)
        if not s.costs.is_imbalance_timed:
            latest = compute_even_arrival(s, arrived)
            for core in arrived:
                core.return_to_cycle(latest)
        release = latest + s.costs.sync_barrier_cycles
        last = next((c.number for c in arrived if c.clock == latest), arrived[0].number)
        for core in arrived:
            record_wait(core, WaitTarget.BARRIER, latest, release, last)
            core.spend_cycles(CountColumn.BARRIER, CycleCause.IMBALANCE, latest - core.clock)
            core.spend_cycles(CountColumn.BARRIER, CycleCause.BARRIER, release - latest)
            core.status = CoreStatus.RUNNING
        record_layer_end(s, number, release)
        s.machine.shared[0]["last_barrier"] = number
        has_work = any(core.layer >= 0 for core in arrived)
        for core in arrived:
            if number < s.machine.barriers.size:
                if has_work and core.layer < 0:
                    core.mark_unused()
                core.leave_layer(int(s.machine.barriers[number]["layer"]))
    raise EndOfTurnError


def compute_even_arrival(s: InstructionContext, arrived: Sequence[Core]) -> int:
    """Compute the cycle at which all cores would arrive if they had divided their work evenly.

    This is the mean cycle of their arrivals, or the cycle at which the DRAM has served all requests
    if that is later; at most the last arrival.
    """
    channels = s.machine.shared["dram"][0, : s.costs.dram_channels, FREE]
    mean = sum(core.clock for core in arrived) // len(arrived)
    even = max(mean, convert_to_cycles(int(channels.max()), s.costs))
    return min(even, max(core.clock for core in arrived))


def record_layer_end(s: InstructionContext, number: int, release: int) -> None:
    """Record the cycle at which a barrier that ends a layer releases the cores."""
    if number < s.machine.barriers.size:
        s.machine.barriers[number]["cycle"] = release


def post(s: InstructionContext) -> None:
    """Execute ``nmp.post``: add rs2 to semaphore rs1; release cores, lower numbers first."""
    s.require_turn()
    number, count = get_semaphore(s), s.unsigned_rs2
    s.spend_cycles()
    s.retire()
    semaphores = s.machine.shared[0]["semaphores"]
    semaphores[number] += count
    release = s.core.clock + s.costs.sync_semaphore_cycles
    for core in find_waiting_cores(s.machine, CoreStatus.PENDING, number):
        if int(semaphores[number]) >= core.wait_count:
            semaphores[number] -= core.wait_count
            record_wait(core, WaitTarget.SEMAPHORE, s.core.clock, release, s.core.number)
            core.spend_cycles(
                CountColumn.SEMAPHORE, CycleCause.SEMAPHORE, max(release - core.clock, 0)
            )
            core.status = CoreStatus.RUNNING


def pend(s: InstructionContext) -> None:
    """Execute ``nmp.pend``: wait until semaphore rs1 is at least rs2, then subtract rs2."""
    s.require_turn()
    number, count = get_semaphore(s), s.unsigned_rs2
    s.spend_cycles()
    s.retire()
    semaphores = s.machine.shared[0]["semaphores"]
    if int(semaphores[number]) < count:
        s.core.wait_for(CoreStatus.PENDING, number, count)
        raise EndOfTurnError
    semaphores[number] -= count


def get_semaphore(s: InstructionContext) -> int:
    """Return the semaphore number in rs1; raise TrapError if there is no such semaphore."""
    number = s.unsigned_rs1
    if number >= SEMAPHORES:
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, s.word)
    return number


def halt(s: InstructionContext) -> None:
    """Execute ``nmp.halt``: stop the core until the host starts it again."""
    s.require_turn()
    s.spend_cycles()
    s.retire()
    s.core.status = CoreStatus.HALTED
    s.core.leave_layer(s.core.previous_layer)
    raise EndOfTurnError


SYNC = {
    "nmp.wait": wait,
    "nmp.barrier": barrier,
    "nmp.post": post,
    "nmp.pend": pend,
    "nmp.halt": halt,
}
"""Mnemonic -> definition."""
