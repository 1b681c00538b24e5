"""Branches, jumps, and cores that wait and meet.

Each function: operands, effect, cost, pc.
"""

from __future__ import annotations

from nmpsim.core.reference.cores import waiting_cores
from nmpsim.core.reference.record import note_wait
from nmpsim.core.reference.step import EndOfTurnError, Step, TrapError
from nmpsim.core.reference.units import Queue, await_job
from nmpsim.core.reference.words import unsigned
from nmpsim.core.state import CoreStatus, Count, CycleCause, WaitTarget
from nmpsim.isa.table import SEMAPHORES, Cause, Unit


def jump(s: Step, target: int) -> None:
    """Cost and pc of a jump or a branch that is taken."""
    s.spend(s.costs.control_taken_branch_cycles)
    s.go_to(target)


def checked(target: int) -> int:
    """A target on which an instruction can begin."""
    address = unsigned(target)
    if address % 4:
        raise TrapError(Cause.FETCH_MISALIGNED, address)
    return address


def branch(s: Step, condition: bool) -> None:
    """Go to the target if the condition holds."""
    if condition:
        jump(s, checked(s.core.pc + s.operands["offset"]))
    else:
        s.spend()
        s.go_on()


def beq(s: Step) -> None:
    """Branch if equal."""
    branch(s, s.rs1 == s.rs2)


def bne(s: Step) -> None:
    """Branch if not equal."""
    branch(s, s.rs1 != s.rs2)


def blt(s: Step) -> None:
    """Branch if less, signed."""
    branch(s, s.rs1 < s.rs2)


def bge(s: Step) -> None:
    """Branch if not less, signed."""
    branch(s, s.rs1 >= s.rs2)


def bltu(s: Step) -> None:
    """Branch if less, unsigned."""
    branch(s, s.unsigned_rs1 < s.unsigned_rs2)


def bgeu(s: Step) -> None:
    """Branch if not less, unsigned."""
    branch(s, s.unsigned_rs1 >= s.unsigned_rs2)


def jal(s: Step) -> None:
    """Jump and link."""
    pc = s.core.pc
    target = checked(pc + s.operands["offset"])
    s.set_rd(pc + 4)
    jump(s, target)


def jalr(s: Step) -> None:
    """Jump to rs1 + imm with bit 0 cleared, and link."""
    base, imm = s.rs1, s.immediate
    target = checked((base + imm) & ~1)
    s.set_rd(s.core.pc + 4)
    jump(s, target)


def nothing(s: Step) -> None:
    """``fence``, ``fence.i`` and ``wfi``: memory is in order, and there are no interrupts."""
    s.spend()
    s.go_on()


CONTROL = {
    "beq": beq,
    "bne": bne,
    "blt": blt,
    "bge": bge,
    "bltu": bltu,
    "bgeu": bgeu,
    "jal": jal,
    "jalr": jalr,
    "fence": nothing,
    "fence.i": nothing,
    "wfi": nothing,
}
"""Mnemonic -> definition."""


def wait(s: Step) -> None:
    """Until at most ``outstanding`` jobs of a unit are unfinished."""
    unit, outstanding = s.operands["unit"], s.operands["outstanding"]
    if unit not in tuple(Unit):
        raise TrapError(Cause.ILLEGAL_INSTRUCTION, s.word)
    queue = Queue(s.core, Unit(unit), s.costs)
    await_job(queue, queue.issued - outstanding - 1)
    s.spend()
    s.go_on()


def barrier(s: Step) -> None:
    """Until rs2 cores are at barrier rs1; the last to arrive releases all."""
    s.may_be_seen()
    number, count = s.unsigned_rs1, s.unsigned_rs2
    s.spend()
    s.go_on()
    s.core.wait_for(CoreStatus.AT_BARRIER, number, count)
    arrived = waiting_cores(s.machine, CoreStatus.AT_BARRIER, number)
    if len(arrived) >= count:
        latest = max(c.clock for c in arrived)
        release = latest + s.costs.sync_barrier_cycles
        last = next(c.number for c in arrived if c.clock == latest)
        for core in arrived:
            note_wait(core, WaitTarget.BARRIER, latest, release, last)
            core.spend(Count.BARRIER, CycleCause.IMBALANCE, latest - core.clock)
            core.spend(Count.BARRIER, CycleCause.BARRIER, release - latest)
            core.status = CoreStatus.RUNNING
        end_layer(s, number, release)
        s.machine.shared[0]["last_barrier"] = number
        has_work = any(core.layer >= 0 for core in arrived)
        for core in arrived:
            if number < s.machine.barriers.size:
                if has_work and core.layer < 0:
                    core.call_unused()
                core.leave_layer(int(s.machine.barriers[number]["layer"]))
    raise EndOfTurnError


def end_layer(s: Step, number: int, release: int) -> None:
    """Note the release of a barrier that the bundle knows."""
    if number < s.machine.barriers.size:
        s.machine.barriers[number]["cycle"] = release


def post(s: Step) -> None:
    """Add rs2 to semaphore rs1 and release who can go on, lower core numbers first."""
    s.may_be_seen()
    number, count = semaphore(s), s.unsigned_rs2
    s.spend()
    s.go_on()
    semaphores = s.machine.shared[0]["semaphores"]
    semaphores[number] += count
    release = s.core.clock + s.costs.sync_semaphore_cycles
    for core in waiting_cores(s.machine, CoreStatus.PENDING, number):
        if int(semaphores[number]) >= core.wait_count:
            semaphores[number] -= core.wait_count
            note_wait(core, WaitTarget.SEMAPHORE, s.core.clock, release, s.core.number)
            core.spend(Count.SEMAPHORE, CycleCause.SEMAPHORE, max(release - core.clock, 0))
            core.status = CoreStatus.RUNNING


def pend(s: Step) -> None:
    """Until semaphore rs1 is at least rs2, then take rs2 from it."""
    s.may_be_seen()
    number, count = semaphore(s), s.unsigned_rs2
    s.spend()
    s.go_on()
    semaphores = s.machine.shared[0]["semaphores"]
    if int(semaphores[number]) < count:
        s.core.wait_for(CoreStatus.PENDING, number, count)
        raise EndOfTurnError
    semaphores[number] -= count


def semaphore(s: Step) -> int:
    """Number of the semaphore in rs1."""
    number = s.unsigned_rs1
    if number >= SEMAPHORES:
        raise TrapError(Cause.ILLEGAL_INSTRUCTION, s.word)
    return number


def halt(s: Step) -> None:
    """The core is done until the host starts it again."""
    s.may_be_seen()
    s.spend()
    s.go_on()
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
