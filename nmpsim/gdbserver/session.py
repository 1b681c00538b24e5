"""State of a session with one client."""

from __future__ import annotations

import errno
import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.edits import Edit
from nmpsim.escape import escape
from nmpsim.gdbserver.breakpoints import ClientBreakpoints
from nmpsim.gdbserver.connection import Connection
from nmpsim.gdbserver.packets import MAX_PAYLOAD_BYTES, PacketError

EDIT_DESCRIPTION = "written by gdb"
MAX_CONSOLE_BYTES = MAX_PAYLOAD_BYTES // 4
"""Maximum number of bytes of text in one packet."""
MAX_EDITS = 1 << 12
"""Maximum number of memory ranges and registers that clients can change in a session."""


class Session:
    """Session of one client with a debugger.

    Parameters
    ----------
    shell : Shell
        Debugger session, whose commands ``monitor`` executes.
    connection : Connection
        Connection with the client.
    secret : str
        Word that permits commands that read or write files, after ``monitor secret``.
    time_limit : float
        Seconds after which a run is interrupted.
    """

    def __init__(
        self,
        shell: Shell,
        connection: Connection,
        secret: str = "",
        time_limit: float = math.inf,
    ) -> None:
        self.shell = shell
        self.debugger: Debugger = shell.debugger
        self.debugger.uses_gdb_stops = True
        self.connection = connection
        self.breakpoints = ClientBreakpoints(self.debugger)
        self.general_core = 0
        """Core whose registers and scratchpad packets read and write."""
        self.stopped_core: int | None = None
        """Core of the last stop; None before the first run."""
        self.run_core: int | None = None
        """Core that steps; ``general_core`` if None."""
        self.client_features: frozenset[str] = frozenset()
        """Features that the client has announced."""
        self.is_extended = False
        """Whether the server continues after the client has ended the program."""
        self.has_reported_locking = False
        """Whether the message that scheduler-locking is not supported has been sent."""
        self.has_ended = False
        """Whether the client has ended the session, and the server with it."""
        self.stop_reply = b""
        """Last reply about a stop."""
        self.can_access_files = False
        """Whether ``monitor`` may execute commands that read or write files."""
        self._secret = secret
        self._time_limit = time_limit

    def select_core(self, thread: int) -> int:
        """Return the core of a thread; raise PacketError for an unknown thread."""
        if not 1 <= thread <= self.debugger.config.cores_count:
            raise PacketError(f"there is no thread {thread}", errno.ESRCH)
        return thread - 1

    def permit_file_access(self, secret: str) -> bool:
        """Permit commands that read or write files if the secret is right; return whether it is."""
        is_right = secrets.compare_digest(secret.encode(), self._secret.encode())
        self.can_access_files = self.can_access_files or (bool(self._secret) and is_right)
        return self.can_access_files

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the client interrupt the debugger during a ``with`` block."""
        end = time.perf_counter() + self._time_limit
        before = self.debugger.is_interrupted
        self.debugger.is_interrupted = lambda: (
            self.connection.poll_interrupt() or time.perf_counter() > end
        )
        try:
            yield
        finally:
            self.debugger.is_interrupted = before

    @contextmanager
    def use_own_stops(self) -> Iterator[None]:
        """Let runs stop as in the debugger without gdb during a ``with`` block."""
        self.debugger.uses_gdb_stops = False
        try:
            yield
        finally:
            self.debugger.uses_gdb_stops = True

    def write_console(self, text: str) -> None:
        """Send text that the client prints, with control characters escaped."""
        data = escape(text).encode()
        for start in range(0, len(data), MAX_CONSOLE_BYTES):
            self.connection.send(b"O%b" % data[start : start + MAX_CONSOLE_BYTES].hex().encode())

    def add_edit(self, edit: Edit) -> None:
        """Add an edit to the debugger's list and return to the current position.

        The edit is merged with the last one if both change the same memory at the same position.
        Raises UserError (DEBUG002) if the edit changes other memory or registers than it may.
        """
        debugger, here = self.debugger, self.debugger.position
        edits, last = debugger.edits, debugger.edits[-1] if debugger.edits else None
        if last is not None and (last.what, last.position, last.core) == (
            edit.what,
            edit.position,
            edit.core,
        ):
            edits = edits[:-1]
            edit = attrs.evolve(
                last,
                pieces=(*last.pieces, *edit.pieces),
                registers=(*last.registers, *edit.registers),
            )
        count = sum(len(one.pieces) + len(one.registers) for one in (*edits, edit))
        if count > MAX_EDITS:
            raise PacketError(f"the session has more than {MAX_EDITS} changes", errno.ENOSPC)
        debugger.apply_edits((*edits, edit))
        debugger.go_to(here)


def enter_segment(debugger: Debugger) -> None:
    """Advance a run that has not executed an instruction to the first device segment.

    Before this segment, no core has a program counter to show.
    """
    retired = debugger.machine.cores.retired
    while not (debugger.is_started or debugger.is_over or retired.any()):
        debugger.go_to(debugger.position + 1)
        retired = debugger.machine.cores.retired
