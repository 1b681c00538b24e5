"""Replies about stops: the reason as a signal or an event, and text for the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from nmpsim.debugger.breakpoints import HazardCondition
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.position import StopResult
from nmpsim.gdbserver.breakpoints import ClientBreakpoints
from nmpsim.gdbserver.registers import PC_NUMBER, encode_register
from nmpsim.isa.table import TrapCause
from nmpsim.report.termination import TrapReport


class GdbSignal(IntEnum):
    """Signals by gdb's numbers, which do not depend on the operating system."""

    SIGINT = 2
    SIGILL = 4
    SIGTRAP = 5
    SIGABRT = 6
    SIGEMT = 7
    SIGBUS = 10
    SIGSEGV = 11
    SIGSYS = 12
    SIGXCPU = 24


SIGNAL_OF_CAUSE: Mapping[int, GdbSignal] = {
    TrapCause.FETCH_MISALIGNED: GdbSignal.SIGBUS,
    TrapCause.FETCH_FAULT: GdbSignal.SIGSEGV,
    TrapCause.ILLEGAL_INSTRUCTION: GdbSignal.SIGILL,
    TrapCause.BREAKPOINT: GdbSignal.SIGTRAP,
    TrapCause.LOAD_MISALIGNED: GdbSignal.SIGBUS,
    TrapCause.LOAD_FAULT: GdbSignal.SIGSEGV,
    TrapCause.STORE_MISALIGNED: GdbSignal.SIGBUS,
    TrapCause.STORE_FAULT: GdbSignal.SIGSEGV,
    TrapCause.ENVIRONMENT_CALL: GdbSignal.SIGSYS,
    TrapCause.DESCRIPTOR_FAULT: GdbSignal.SIGSEGV,
    TrapCause.OPERAND_FAULT: GdbSignal.SIGILL,
}
"""Cause of a trap -> signal."""
SIGNAL_OF_KIND: Mapping[str, GdbSignal] = {
    "deadlock": GdbSignal.SIGABRT,
    "cycle_limit": GdbSignal.SIGXCPU,
}
"""Kind of another end of a run -> signal."""
HAZARD_SIGNAL = GdbSignal.SIGEMT
"""Signal of a violation of the contract."""


def find_signal(trap: TrapReport) -> GdbSignal:
    """Return the signal of a trap, a deadlock or an exceeded limit."""
    if trap.cause is not None:
        return SIGNAL_OF_CAUSE.get(trap.cause, GdbSignal.SIGILL)
    return SIGNAL_OF_KIND.get(trap.kind, GdbSignal.SIGABRT)


class StopDescriber:
    """Describer of the stops of a debugger for a client."""

    def __init__(self, debugger: Debugger, breakpoints: ClientBreakpoints) -> None:
        self._debugger = debugger
        self._breakpoints = breakpoints

    def find_core(self, stopped: StopResult, default: int) -> int:
        """Return the core that stopped, or ``default`` if no single core caused the stop."""
        trap = self._debugger.trap
        candidates = (
            *(hit.core for hit in stopped.hits),
            trap.core if trap is not None and stopped.reason == "trap" else None,
            stopped.core,
            stopped.location.core if stopped.reason in ("breakpoint", "interrupted") else None,
        )
        return next((core for core in candidates if core is not None), default)

    def make_reply(self, stopped: StopResult, core: int) -> bytes:
        """Return the reply about a stop of a core."""
        signal, event = self._find_event(stopped)
        pc = int(self._debugger.machine.cores[core].pc)
        return b"T%02x%b%02x:%b;thread:%x;core:%x;" % (
            signal, event.encode(), PC_NUMBER, encode_register(pc), core + 1, core,
        )  # fmt: skip

    def _find_event(self, stopped: StopResult) -> tuple[GdbSignal, str]:
        """Return the signal of a stop, and the event as text in a reply, or "" without an event."""
        debugger = self._debugger
        if stopped.reason == "interrupted":
            return GdbSignal.SIGINT, ""
        if stopped.reason == "trap" and debugger.trap is not None:
            return find_signal(debugger.trap), ""
        if stopped.reason in ("begin", "end"):
            return GdbSignal.SIGTRAP, f"replaylog:{stopped.reason};"
        # gdb steps a core over the access of a watchpoint, but not over one of the host.
        by_core = [hit for hit in stopped.hits if hit.core is not None]
        found = [one for one in map(self._breakpoints.find, by_core) if one is not None]
        for kind, address in sorted(found, key=lambda one: one[0].access is None):
            return GdbSignal.SIGTRAP, f"{kind.name}:{f'{address:x}' if kind.access else ''};"
        numbers = [hit.breakpoint for hit in stopped.hits]
        known = [one for one in debugger.breakpoints if one.number in numbers]
        if any(isinstance(one.condition, HazardCondition) for one in known):
            return HAZARD_SIGNAL, ""
        return GdbSignal.SIGTRAP, ""

    def list_lines(self, stopped: StopResult) -> Iterator[str]:
        """Yield lines of text about a stop that the client cannot show itself."""
        for hit in stopped.hits:
            known = self._breakpoints.find(hit)
            if known is None:
                yield f"breakpoint {hit.breakpoint} of nmpsim: {hit.text}"
            elif known[0].access is not None:
                yield hit.text
        if stopped.message:
            yield f"{stopped.reason}: {stopped.message}"
        if stopped.reason == "end":
            yield f"the end: cycle {stopped.location.cycle}, {stopped.location.layers} layers done"
        if stopped.reason == "begin":
            yield "the start of the run"
