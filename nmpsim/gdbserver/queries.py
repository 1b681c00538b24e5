"""Packets that query the server, the threads and the documents, and select threads."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from xml.etree import ElementTree

from nmpsim.debugger.commands.command import split_line
from nmpsim.debugger.commands.shell import find_command
from nmpsim.debugger.inspect import CoreState, list_core_states
from nmpsim.diagnostics import UserError, fail
from nmpsim.gdbserver.execution import VCONT_ACTIONS
from nmpsim.gdbserver.memory import describe_memory
from nmpsim.gdbserver.packets import MAX_PAYLOAD_BYTES, PacketError, escape_data
from nmpsim.gdbserver.registers import describe_target
from nmpsim.gdbserver.session import Session, enter_segment

FEATURES = (
    f"PacketSize={MAX_PAYLOAD_BYTES:x}", "QStartNoAckMode+", "swbreak+", "hwbreak+",
    "vContSupported+", "ReverseStep+", "ReverseContinue+", "qXfer:features:read+",
    "qXfer:threads:read+", "qXfer:memory-map:read+", "error-message+",
)  # fmt: skip
"""Features of the server, which ``qSupported`` returns."""


def exchange_features(session: Session, features: bytes) -> bytes:
    """Note the features that the client announces; return those of the server."""
    names = features.decode("ascii", "replace").lstrip(":").split(";")
    session.client_features = frozenset(name[:-1] for name in names if name.endswith("+"))
    return ";".join(FEATURES).encode()


def disable_acknowledgments(session: Session) -> bytes:
    """Stop to acknowledge packets after this one; return OK."""
    session.connection.is_acknowledging = False
    return b"OK"


def list_vcont_actions(session: Session) -> bytes:
    """Return the actions that the packet ``vCont`` supports."""
    return b"vCont;" + ";".join(VCONT_ACTIONS).encode()


def describe_threads(session: Session) -> bytes:
    """Return the list of threads with their states, an XML document."""
    root = ElementTree.Element("threads")
    for state in list_core_states(session.debugger):
        fields = {
            "id": f"{state.core + 1:x}",
            "core": str(state.core),
            "name": f"core {state.core}",
        }
        ElementTree.SubElement(root, "thread", fields).text = _describe_core(state)
    return b'<?xml version="1.0"?>' + ElementTree.tostring(root)


def _describe_core(state: CoreState) -> str:
    layer = f", layer {state.layer}" if state.layer else ""
    return f"{state.status}, cycle {state.clock}{layer}"


_DOCUMENTS: Mapping[bytes, Callable[[Session], bytes]] = {
    b"features": lambda _: describe_target(),
    b"threads": describe_threads,
    b"memory-map": describe_memory,
}
"""Object of a ``qXfer`` packet -> function that returns the document."""


def read_document(session: Session, document: bytes, annex: bytes, offset: int, size: int) -> bytes:
    """Return a part of a document, after ``m`` if more follows and ``l`` if not."""
    if document not in _DOCUMENTS:
        return b""
    if annex != (b"target.xml" if document == b"features" else b""):
        raise PacketError(f"there is no document {annex!r}", errno.ENOENT)
    text = _DOCUMENTS[document](session)
    data = text[offset : offset + min(size, MAX_PAYLOAD_BYTES // 2)]
    return (b"m" if offset + len(data) < len(text) else b"l") + escape_data(data)


def list_threads(session: Session) -> bytes:
    """Return the numbers of all threads."""
    count = session.debugger.config.cores_count
    return b"m" + ",".join(f"{core + 1:x}" for core in range(count)).encode()


def end_thread_list(session: Session) -> bytes:
    """Return the end of the list of threads."""
    return b"l"


def describe_thread(session: Session, thread: int) -> bytes:
    """Return the state of a core as hexadecimal text."""
    core = session.select_core(thread)
    return _describe_core(list_core_states(session.debugger)[core]).encode().hex().encode()


def check_thread(session: Session, thread: int) -> bytes:
    """Return OK if a thread exists."""
    session.select_core(thread)
    return b"OK"


def get_current_thread(session: Session) -> bytes:
    """Return the number of the selected thread."""
    return b"QC%x" % (session.general_core + 1)


def select_thread(session: Session, thread: int) -> bytes:
    """Select the thread whose registers and scratchpad are read and written; return OK."""
    if thread > 0:
        session.general_core = session.select_core(thread)
    return b"OK"


def select_run_thread(session: Session, thread: int) -> bytes:
    """Select the thread that steps; 0 or -1 selects the thread of the registers. Return OK."""
    session.run_core = session.select_core(thread) if thread > 0 else None
    return b"OK"


def report_attachment(session: Session, text: bytes) -> bytes:
    """Return 1, because the program existed before the client connected."""
    return b"1"


def skip_symbols(session: Session, text: bytes) -> bytes:
    """Return OK, because the server needs no symbols."""
    return b"OK"


def execute_command(session: Session, command: bytes) -> bytes:
    """Execute a command of the debugger and send its text; return OK.

    Raises UserError if the command fails, after its message was sent.
    """
    line, debugger = command.decode("utf-8", "replace"), session.debugger
    here, edits = debugger.position, debugger.edits
    try:
        with session.interruptible(), session.use_own_stops():
            text = _execute_line(session, line)
    except UserError as error:
        session.write_console(f"{error}\n")
        raise
    enter_segment(session.debugger)
    if (here, edits) != (debugger.position, debugger.edits):
        text += "the run has moved: use `maintenance flush register-cache` and `frame`\n"
    session.write_console(text)
    return b"OK"


def _execute_line(session: Session, line: str) -> str:
    """Execute a line and return its text; raise UserError without permission to access files."""
    name, *words = split_line(line) or [""]
    if name == "secret":
        if not session.permit_file_access(" ".join(words)):
            raise fail("ARG001", "the secret is wrong", hint="Pass the word that nmpsim printed.")
        return "commands may read and write files\n"
    if name and "<file>" in find_command(name).completions and not session.can_access_files:
        raise fail(
            "ARG001",
            f"the command {name!r} reads or writes files, which needs permission",
            hint="Pass the word that nmpsim printed to `monitor secret` first.",
        )
    result = session.shell.execute(line)
    session.has_ended = session.has_ended or result.ends
    return result.text
