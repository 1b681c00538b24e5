"""Table of all packets: their forms, functions and summaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs

from nmpsim.diagnostics import UserError
from nmpsim.gdbserver import execution, memory, queries, registers
from nmpsim.gdbserver.packets import INVALID_PACKET, PacketError
from nmpsim.gdbserver.session import Session

_HEX = rb"[0-9a-fA-F]{1,8}"
_PATTERNS: Mapping[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "data": (rb"(?:[0-9a-fA-F]{2})*", lambda text: bytes.fromhex(text.decode())),
    "command": (rb"(?:[0-9a-fA-F]{2})*", lambda text: bytes.fromhex(text.decode())),
    "thread": (rb"-1|" + _HEX, lambda text: int(text, 16)),
    "document": (rb"[a-z-]+", bytes),
    "annex": (rb"[^:]*", bytes),
    "actions": (rb".+", bytes),
    "features": (rb".*", bytes),
    "text": (rb".*", bytes),
}
"""Name of a field -> its pattern and conversion; other fields are hexadecimal numbers."""


@attrs.frozen(slots=False)
class PacketDefinition:
    """Definition of a packet: its form, the function that executes it, and a summary."""

    form: str
    """Text of the packet; ``<name>`` is a parameter of the function."""
    function: Callable[..., bytes | None]
    """Function of a session and the fields; returns the reply, or None for no reply."""
    summary: str

    @cached_property
    def prefix(self) -> bytes:
        """Text before the first field."""
        return self.form.partition("<")[0].encode()

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        return tuple(re.findall(r"<(\w+)>", self.form))

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        parts = re.split(r"<(\w+)>", self.form)
        pattern = b"".join(
            b"(%b)" % _PATTERNS.get(part, (_HEX,))[0] if index % 2 else re.escape(part.encode())
            for index, part in enumerate(parts)
        )
        return re.compile(pattern, re.DOTALL)

    def is_prefix_of(self, payload: bytes) -> bool:
        """Return whether a payload is meant to be this packet, even if its fields are invalid."""
        if not payload.startswith(self.prefix):
            return False
        following = payload[len(self.prefix) :][:1]
        is_name = len(self.prefix) > 1 and self.prefix[-1:].isalpha() and not self._fields
        return not is_name or not following.isalnum()

    def execute(self, session: Session, payload: bytes) -> bytes | None:
        """Parse the fields of a payload, call the function of the packet and return the reply.

        Returns None if the packet has no reply. Raises PacketError if a field is invalid.
        """
        match = self._pattern.fullmatch(payload)
        if match is None:
            raise PacketError(f"the packet does not have the form {self.form}")
        values = {
            name: _PATTERNS.get(name, (b"", lambda text: int(text, 16)))[1](text)
            for name, text in zip(self._fields, match.groups(), strict=True)
        }
        return self.function(session, **values)


PACKETS = tuple(
    PacketDefinition(*row)
    for row in (
        ("?", execution.report_stop, "reason of the last stop"),
        ("!", execution.enable_extended_mode, "keep the server after `kill`"),
        ("g", registers.read_general_registers, "read `x0` to `x31` and `pc`"),
        ("G<data>", registers.write_general_registers, "write `x1` to `x31` and `pc`"),
        ("p<number>", registers.read_register, "read a register or CSR"),
        ("P<number>=<data>", registers.write_register, "write a register or CSR"),
        ("m<address>,<size>", memory.read_memory, "read memory"),
        ("M<address>,<size>:<data>", memory.write_hex_memory, "write memory"),
        ("X<address>,<size>:<text>", memory.write_binary_memory, "write memory, binary data"),
        ("Z<kind>,<address>,<size>", execution.insert_breakpoint,
         "insert a breakpoint (0, 1) or watchpoint (2 to 4)"),
        ("z<kind>,<address>,<size>", execution.remove_breakpoint, "remove it"),
        ("c", execution.resume, "run"),
        ("C<signal>", execution.resume, "run; the signal is ignored"),
        ("s", execution.step, "step an instruction"),
        ("S<signal>", execution.step, "step; the signal is ignored"),
        ("vCont?", queries.list_vcont_actions, "actions of `vCont`"),
        ("vCont;<actions>", execution.resume_threads, "step a core, or run"),
        ("bs", execution.step_back, "step an instruction backwards"),
        ("bc", execution.resume_back, "run backwards"),
        ("R<text>", execution.restart, "restart the run"),
        ("vRun;<text>", execution.restart_program, "restart the run"),
        ("k", execution.kill, "end the session"),
        ("vKill;<process>", execution.kill_process, "end the session"),
        ("D", execution.detach, "end the session"),
        ("Hg<thread>", queries.select_thread, "select the core of registers and memory"),
        ("Hc<thread>", queries.select_run_thread, "select the core that steps"),
        ("T<thread>", queries.check_thread, "whether a thread exists"),
        ("qC", queries.get_current_thread, "selected thread"),
        ("qfThreadInfo", queries.list_threads, "threads"),
        ("qsThreadInfo", queries.end_thread_list, "more threads: none"),
        ("qThreadExtraInfo,<thread>", queries.describe_thread, "state of a core"),
        ("qSupported<features>", queries.exchange_features, "features"),
        ("QStartNoAckMode", queries.disable_acknowledgments, "no more acknowledgments"),
        ("qXfer:<document>:read:<annex>:<offset>,<size>", queries.read_document,
         "registers, threads, memory map"),
        ("qAttached<text>", queries.report_attachment, "1: the program existed before"),
        ("qSymbol:<text>", queries.skip_symbols, "no symbol is needed"),
        ("qRcmd,<command>", queries.execute_command, "`monitor`: a command of nmpsim"),
    )
)  # fmt: skip
"""All packets; the reply to others is empty, as the protocol demands."""


def execute_packet(session: Session, payload: bytes) -> bytes | None:
    """Execute a packet and return the reply, or None if the packet has none.

    The reply is empty for unknown packets, and an error for invalid ones.
    """
    found = [one for one in PACKETS if one.is_prefix_of(payload)]
    if not found:
        return b""
    try:
        return max(found, key=lambda one: len(one.prefix)).execute(session, payload)
    except PacketError as error:
        return _make_error_reply(session, str(error), b"E%02x" % error.number)
    except UserError as error:
        return _make_error_reply(session, error.diagnostics[0].message, INVALID_PACKET)


def _make_error_reply(session: Session, text: str, short: bytes) -> bytes:
    """Return an error reply: a message if the client understands it, otherwise a number."""
    if "error-message" not in session.client_features:
        return short
    return b"E." + "".join(c if c.isprintable() and c not in "#$}*" else "?" for c in text).encode(
        "ascii", "replace"
    )


def make_packet_table() -> str:
    """Return the Markdown table of all packets."""
    rows = (f"| `{one.form}` | {one.summary} |" for one in PACKETS)
    return "\n".join(("| packet | effect |", "| --- | --- |", *rows, ""))
