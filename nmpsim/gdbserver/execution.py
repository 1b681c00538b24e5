"""Packets that set breakpoints, and run, step, reverse, restart and end the program."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core.console import get_exit_status, read_console
from nmpsim.debugger.position import StopResult
from nmpsim.gdbserver.packets import PacketError
from nmpsim.gdbserver.session import Session, enter_segment
from nmpsim.gdbserver.stop_replies import StopDescriber, find_signal

VCONT_ACTIONS = "cCsSt"
"""Actions that the packet ``vCont`` supports; signals are ignored, and ``t`` has no effect."""

LOCKING_TEXT = "scheduler-locking is not supported: all cores run together, in simulated time\n"


def insert_breakpoint(session: Session, kind: int, address: int, size: int) -> bytes:
    """Insert a breakpoint or watchpoint; return OK."""
    session.breakpoints.insert(kind, address, size)
    return b"OK"


def remove_breakpoint(session: Session, kind: int, address: int, size: int) -> bytes:
    """Remove a breakpoint or watchpoint; return OK."""
    session.breakpoints.remove(kind, address, size)
    return b"OK"


def report_stop(session: Session) -> bytes:
    """Return the reason of the last stop."""
    return session.stop_reply


def make_first_stop_reply(session: Session) -> bytes:
    """Enter the first device segment if necessary, and return the reply about this stop."""
    enter_segment(session.debugger)
    core = session.debugger.find_next_core()
    session.general_core = 0 if core is None else core
    debugger = session.debugger
    stopped = debugger.run() if debugger.is_over else debugger.make_stop("step")
    describer = StopDescriber(session.debugger, session.breakpoints)
    return describer.make_reply(stopped, session.general_core)


def resume(session: Session, signal: int = 0) -> bytes:
    """Run all cores to the next stop; return the reply about the stop."""
    return _run_forward(session, lambda: session.debugger.run())


def step(session: Session, signal: int = 0) -> bytes:
    """Step one core by one instruction while the others continue; return the stop's reply."""
    core = session.general_core if session.run_core is None else session.run_core
    return _step_core(session, core)


def resume_threads(session: Session, actions: bytes) -> bytes:
    """Execute the actions of the packet ``vCont``: step a core, or run all; return the reply."""
    is_locked = True  # with scheduler-locking, gdb resumes one thread
    for action in actions.decode("ascii", "replace").split(";"):
        command, _, thread = action.partition(":")
        if command[:1] not in VCONT_ACTIONS or not command:
            raise PacketError(f"there is no action {command!r}")
        if command[0] in "sS":
            core = session.general_core
            if thread not in ("", "-1", "0"):
                core = session.select_core(_parse_thread(thread))
            return _step_core(session, core)
        is_locked = is_locked and command[0] in "cC" and thread not in ("", "-1", "0")
    if is_locked and not session.has_reported_locking:
        session.write_console(LOCKING_TEXT)
        session.has_reported_locking = True
    return resume(session)


def _parse_thread(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise PacketError(f"{text!r} is not a thread") from None


def _step_core(session: Session, core: int) -> bytes:
    return _run_forward(session, lambda: session.debugger.step("instruction", core=core), core)


def step_back(session: Session) -> bytes:
    """Undo the last instruction of one core; return the reply about the stop."""
    core = session.general_core if session.run_core is None else session.run_core
    return _run(
        session,
        lambda: session.debugger.step("instruction", core=core, back=True, undo=True),
        core,
    )


def resume_back(session: Session) -> bytes:
    """Run all cores backwards to the previous stop; return the reply about the stop."""
    session.debugger.passed_core = session.stopped_core
    return _run(session, lambda: session.debugger.run(back=True))


def _run_forward(
    session: Session, move: Callable[[], StopResult], core: int | None = None
) -> bytes:
    """Execute a move, or report that the program has ended if no move is left."""
    debugger = session.debugger
    if debugger.is_over:
        trap = debugger.trap
        status = (get_exit_status(debugger.machine) or 0) & 0xFF
        reply = b"W%02x" % status if trap is None else b"X%02x" % find_signal(trap)
        restart(session, b"")
        session.stop_reply = reply
        return reply
    return _run(session, move, core)


def _run(session: Session, move: Callable[[], StopResult], core: int | None = None) -> bytes:
    """Execute a move of the debugger; return the reply about its stop, and select its core."""
    describer = StopDescriber(session.debugger, session.breakpoints)
    machine = session.debugger.machine
    count, printed = int(machine.shared[0]["logged"]), read_console(machine)
    with session.interruptible():
        stopped = move()
    enter_segment(session.debugger)
    is_longer = int(machine.shared[0]["logged"]) > count
    for one in read_console(machine) if is_longer else ():
        if one not in printed:
            session.write_console(f"core {one.core} prints: {one.text.rstrip()}\n")
    session.general_core = describer.find_core(
        stopped, session.general_core if core is None else core
    )
    session.stopped_core = session.general_core
    # gdb leaves its own breakpoints by a step, but does not know those of the debugger.
    is_own = stopped.hits and not any(map(session.breakpoints.find, stopped.hits))
    session.debugger.passed_core = session.stopped_core if is_own else None
    for line in describer.list_lines(stopped):
        session.write_console(f"{line}\n")
    session.stop_reply = describer.make_reply(stopped, session.general_core)
    return session.stop_reply


def restart(session: Session, text: bytes) -> None:
    """Go back to the start of the run without a reply."""
    session.debugger.restart()
    session.stop_reply = make_first_stop_reply(session)


def restart_program(session: Session, text: bytes) -> bytes:
    """Go back to the start of the run; return the reply about this stop."""
    restart(session, text)
    return session.stop_reply


def kill(session: Session) -> None:
    """End the program, and the server unless the client is in extended mode; send no reply."""
    session.has_ended = not session.is_extended


def kill_process(session: Session, process: int) -> bytes:
    """End the program, and the server unless the client is in extended mode; return OK."""
    kill(session)
    return b"OK"


def detach(session: Session) -> bytes:
    """End the session and the server; return OK."""
    session.has_ended = True
    return b"OK"


def enable_extended_mode(session: Session) -> bytes:
    """Let the server continue after the client has ended the program; return OK."""
    session.is_extended = True
    return b"OK"
