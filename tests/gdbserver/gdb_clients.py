"""Clients of the server: one in memory, and gdb itself."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from nmpsim.debugger.commands.shell import Shell
from nmpsim.gdbserver.connection import Connection
from nmpsim.gdbserver.execution import make_first_stop_reply
from nmpsim.gdbserver.packet_table import execute_packet
from nmpsim.gdbserver.packets import ControlByte, Packet, PacketParser, encode_packet
from nmpsim.gdbserver.server import listen, serve_gdb
from nmpsim.gdbserver.session import Session

GDB = next((found for name in ("gdb-multiarch", "riscv64-unknown-elf-gdb")
            if (found := shutil.which(name))), None)  # fmt: skip
GCC = shutil.which("riscv64-unknown-elf-gcc")
needs_gdb = pytest.mark.skipif(GDB is None, reason="gdb-multiarch is not installed")
needs_gcc = pytest.mark.skipif(GCC is None, reason="riscv64-unknown-elf-gcc is not installed")
FIRST_COMMANDS = ("set pagination off", "set confirm off", "set width 0", "set style enabled off")


class MemoryStream:
    """Stream whose input is given in advance, and whose output is collected."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks, self.sent = list(blocks), b""

    def receive(self, *, wait: bool) -> bytes | None:
        if self.blocks:
            return self.blocks.pop(0)
        return b"" if wait else None

    def send(self, data: bytes) -> None:
        self.sent += data


def parse_replies(data: bytes) -> list[bytes]:
    """Return the payloads that a server has sent, without acknowledgments."""
    found = list(PacketParser().parse(data))
    assert all(isinstance(one, ControlByte) or one.is_valid for one in found)
    return [one.payload for one in found if isinstance(one, Packet)]


@attrs.define
class MemoryClient:
    """Client whose packets are executed directly."""

    session: Session

    def ask(self, payload: str | bytes) -> bytes | None:
        """Return the reply to a packet."""
        text = payload.encode() if isinstance(payload, str) else payload
        return execute_packet(self.session, text)

    def read_console(self) -> str:
        """Return the text that the server has sent since the last call."""
        stream = self.session.connection._stream
        assert isinstance(stream, MemoryStream)
        replies, stream.sent = parse_replies(stream.sent), b""
        return "".join(bytes.fromhex(one[1:].decode()).decode() for one in replies)

    def interrupt(self) -> None:
        """Interrupt the next run."""
        stream = self.session.connection._stream
        assert isinstance(stream, MemoryStream)
        self.session.connection._queue.clear()
        stream.blocks.append(b"\x03")

    def monitor(self, line: str) -> tuple[bytes | None, str]:
        """Return the reply and the text of a command."""
        reply = self.ask(b"qRcmd," + line.encode().hex().encode())
        return reply, self.read_console()

    @property
    def pc(self) -> int:
        """pc of the selected core."""
        reply = self.ask("p20")
        assert reply is not None
        return int.from_bytes(bytes.fromhex(reply.decode()), "little")


def connect(shell: Shell, secret: str = "") -> MemoryClient:
    """Return a client of a new session."""
    session = Session(shell, Connection(MemoryStream()), secret)
    session.stop_reply = make_first_stop_reply(session)
    return MemoryClient(session)


@attrs.define
class RunningServer:
    """Server in a thread."""

    port: int
    messages: list[str]
    thread: threading.Thread


@contextmanager
def start_server(shell: Shell) -> Iterator[RunningServer]:
    """Serve a debugger in a thread; at the end, a client ends the server."""
    messages: list[str] = []
    with listen(0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(
            target=serve_gdb, args=(shell, listener, messages.append), daemon=True
        )
        thread.start()
        try:
            yield RunningServer(port, messages, thread)
        finally:
            if thread.is_alive():
                with socket.create_connection(("127.0.0.1", port), 10) as client:
                    client.sendall(encode_packet(b"k"))
                    thread.join(10)
            assert not thread.is_alive()


def run_gdb(port: int, commands: Sequence[str], program: Path, *options: str) -> str:
    """Return the output of gdb for commands after connecting to a server."""
    assert GDB is not None
    lines = (*FIRST_COMMANDS, f"target remote 127.0.0.1:{port}", *commands)
    arguments = [word for line in lines for word in ("-ex", line)]
    done = subprocess.run(
        [GDB, "-nx", "-batch", *options, str(program), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout


C_FLAGS = (
    "-march=rv32im_zicsr", "-mabi=ilp32", "-nostdlib", "-g",
    "-Wl,-n,-Ttext=0x80000000,-Tdata=0xa0000000",
)  # fmt: skip


def compile_c(source: Path, output: Path, flags: Sequence[str] = C_FLAGS) -> Path:
    """Compile a C program without libraries for the device, with debug information."""
    assert GCC is not None
    subprocess.run([GCC, *flags, str(source), "-o", str(output)], check=True, capture_output=True)
    return output
