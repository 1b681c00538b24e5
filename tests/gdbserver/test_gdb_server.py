"""The server's connections, and the option of the command."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from gdb_clients import RunningServer, parse_replies, start_server
from small_sessions import HALT, make_debugger, make_shell

from nmpsim.cli.app import app
from nmpsim.diagnostics import UserError
from nmpsim.gdbserver.packets import encode_packet
from nmpsim.gdbserver.server import listen

ENDLESS = "again:\n j again\n"


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with start_server(make_shell(ENDLESS)) as server:
        yield server


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def read_reply(client: socket.socket) -> bytes:
    """Return the next reply of a server."""
    data = b""
    while not (replies := parse_replies(data)):
        block = client.recv(4096)
        assert block, "the connection is closed"
        data += block
    return replies[0]


def ask(client: socket.socket, payload: bytes) -> bytes:
    client.sendall(encode_packet(payload))
    return read_reply(client)


def execute(client: socket.socket, line: str) -> str:
    """Return the text of a command of the debugger."""
    client.sendall(encode_packet(b"qRcmd," + line.encode().hex().encode()))
    data = b""
    while (replies := parse_replies(data))[-1:] != [b"OK"]:
        data += client.recv(4096)
    return "".join(bytes.fromhex(one[1:].decode()).decode() for one in replies[:-1])


def test_an_endless_run_is_interrupted_within_a_second(server: RunningServer) -> None:
    with connect(server.port) as client:
        assert ask(client, b"QStartNoAckMode") == b"OK"
        client.sendall(encode_packet(b"vCont;c"))
        time.sleep(0.1)
        begin = time.perf_counter()
        client.sendall(b"\x03")
        assert read_reply(client).startswith(b"T02")
        assert time.perf_counter() - begin < 1


def test_a_second_client_is_refused_and_the_next_continues(server: RunningServer) -> None:
    with connect(server.port) as client:
        ask(client, b"vCont;s:1")
        ask(client, b"Z0,0,4")
        with connect(server.port) as other:
            assert ask(client, b"?").startswith(b"T05")
            assert other.recv(10) == b""
        assert "a second connection is closed" in server.messages[-1]
        position = execute(client, "where")
    with connect(server.port) as client:
        assert execute(client, "where") == position
        assert execute(client, "breakpoints").count("\n") == 2, "only the one for violations"


def test_a_browser_is_disconnected(server: RunningServer) -> None:
    with connect(server.port) as client:
        client.sendall(b"POST / HTTP/1.1\r\n\r\n" + encode_packet(b"k"))
        assert client.recv(100) == b""
    assert server.thread.is_alive()


def test_a_client_that_disappears_ends_no_server(server: RunningServer) -> None:
    with connect(server.port) as client:
        client.sendall(encode_packet(b"vCont;c"))
    with connect(server.port) as client:
        assert ask(client, b"qC") == b"QC1"


def test_an_occupied_port_is_an_error() -> None:
    with listen(0) as taken, pytest.raises(UserError, match="cannot listen on") as error:
        listen(taken.getsockname()[1])
    assert error.value.diagnostics[0].hint


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["debug", *arguments])


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "halt.bin"
    path.write_bytes(bytes(make_debugger(HALT).bundle.file))
    return str(path)


def test_the_command_waits_for_gdb(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listeners: list[socket.socket] = []

    def listen_and_notify(port: int) -> socket.socket:
        listeners.append(listen(port))
        chosen = listeners[0].getsockname()[1]
        threading.Thread(target=end_server, args=(chosen,), daemon=True).start()
        return listeners[0]

    def end_server(port: int) -> None:
        with connect(port) as client:
            assert ask(client, b"D") == b"OK"

    monkeypatch.setattr("nmpsim.gdbserver.server.listen", listen_and_notify)
    input_path = Path(program).with_name("from.npy")
    np.save(input_path, np.zeros(256, np.int8))
    done = run_command(program, "--input", str(input_path), "--gdb", "0")
    assert done.exit_code == 0, done.output
    assert "waiting for gdb: `target remote 127.0.0.1:" in done.stderr


@pytest.mark.parametrize("option", [["--command", "where"], ["--plain"], ["--host", "0.0.0.0"]])
def test_other_interfaces_are_refused(program: str, option: list[str]) -> None:
    done = run_command(program, "--gdb", "0", *option)
    assert done.exit_code == 2
    assert f"{option[0]} cannot be used with --gdb" in done.stderr
