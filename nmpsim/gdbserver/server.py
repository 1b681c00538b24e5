"""TCP server for gdb, which accepts one client at a time from this machine."""

from __future__ import annotations

import math
import secrets
import select
import socket
from collections.abc import Callable

from nmpsim.debugger.breakpoints import HazardCondition
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import fail
from nmpsim.gdbserver.connection import Connection
from nmpsim.gdbserver.execution import make_first_stop_reply
from nmpsim.gdbserver.packet_table import execute_packet
from nmpsim.gdbserver.session import Session, enter_segment

LOOPBACK = "127.0.0.1"
BLOCK_BYTES = 1 << 16
SEND_SECONDS = 30.0
"""Time after which a client that does not read its replies is disconnected."""


class SocketStream:
    """Stream of bytes over the socket of a client; it refuses further clients meanwhile."""

    def __init__(
        self, client: socket.socket, listener: socket.socket, report: Callable[[str], None]
    ) -> None:
        self._client, self._listener, self._report = client, listener, report
        client.settimeout(SEND_SECONDS)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self, *, wait: bool) -> bytes | None:
        """Return received bytes, b"" at the end of the stream, or None if there are none yet."""
        while True:
            ready, _, _ = select.select([self._client, self._listener], [], [], None if wait else 0)
            if self._client in ready:  # it may have left, so that the next one is welcome
                return self._client.recv(BLOCK_BYTES)
            if self._listener in ready:
                self._refuse()
            if not wait:
                return None

    def send(self, data: bytes) -> None:
        """Send all bytes; raise OSError if the stream is closed."""
        self._client.sendall(data)

    def _refuse(self) -> None:
        """Close the connection of another client, and report it."""
        other, _ = self._listener.accept()
        self._report("a second connection is closed: the server accepts one client at a time")
        other.close()


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a port of the loopback address; 0 selects a free port.

    Raises UserError (ARG001) if the port cannot be used.
    """
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise fail(
            "ARG001",
            f"cannot listen on {LOOPBACK}:{port}: {error.strerror or error}",
            expected="a free port of this machine",
            hint="Pass another port to --gdb, or 0 for any free port.",
        ) from error


def serve_gdb(
    shell: Shell,
    listener: socket.socket,
    report: Callable[[str], None],
    time_limit: float = math.inf,
) -> None:
    """Serve one client after the other until a client ends the program or detaches.

    Parameters
    ----------
    shell : Shell
        Debugger session that the clients control. Its position and edits persist when a client
        disconnects; the breakpoints of the client do not.
    listener : socket
        Listening socket, as :func:`listen` returns it.
    report : callable
        Called with each message for the user.
    time_limit : float
        Seconds after which a run is interrupted.
    """
    enter_segment(shell.debugger)  # compiles or loads functions, but gdb waits for two seconds only
    hazard = shell.debugger.add_breakpoint(HazardCondition(), "hazard")
    secret = secrets.token_urlsafe(16)
    port = listener.getsockname()[1]
    report(f"waiting for gdb: `target remote {LOOPBACK}:{port}`")
    report(
        f"violations of the contract stop the run; `monitor disable {hazard.number}` ignores them"
    )
    report(f"`monitor secret {secret}` permits commands that read or write files")
    has_ended = False
    while not has_ended:
        client, _ = listener.accept()
        with client:
            connection = Connection(SocketStream(client, listener, report))
            session = Session(shell, connection, secret, time_limit)
            try:
                has_ended = serve_session(session)
            finally:
                session.breakpoints.remove_all()


def serve_session(session: Session) -> bool:
    """Execute the packets of a client until it leaves; return whether it has ended the program."""
    session.stop_reply = make_first_stop_reply(session)
    connection = session.connection
    while not session.has_ended and (payload := connection.read_packet()) is not None:
        reply = execute_packet(session, payload)
        if reply is not None:
            connection.send(reply)
    return session.has_ended
