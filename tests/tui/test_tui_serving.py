"""The screen in a browser: who is answered, what is started, what is refused."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import textual_serve.server
from aiohttp import WSMsgType, WSServerHandshakeError
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner, Result

import nmpsim
import nmpsim.tui
from nmpsim.bundle import Bundle
from nmpsim.cli.app import app
from nmpsim.diagnostics import UserError
from nmpsim.extras import get_install_command
from nmpsim.tui import serving

SEVEN = Path(__file__).parents[2] / "programs" / "digits" / "images" / "7.npy"


class Session:
    """Replacement of a process with a screen."""

    def __init__(self, command: str, **given: Any) -> None:
        self.command, self.write = command, given["write_bytes"]

    async def start(self, width: int, height: int) -> None:
        await self.write(f"{width}x{height} {self.command}".encode())

    async def stop(self) -> None:
        """Do nothing, because no process runs."""


def test_only_the_served_page_gets_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(textual_serve.server, "AppService", Session)
    told: list[str] = []
    server = serving.DebugServer(
        ["nmpsim", "debug", "a b.bin"], "127.0.0.1", 8000, "nmpsim a b.bin", told.append
    )

    async def play() -> None:
        async with TestClient(TestServer(await server._make_app())) as client:
            address = f"{client.host}:{client.port}"
            assert (await client.get("/", params={"token": server.token})).status == 200
            page = await (await client.get("/")).text()
            assert f"ws://{address}/ws" in page and "nmpsim a b.bin" in page
            for host in ("evil.example", "evil.example:8000", ""):
                assert (await client.get("/", headers={"Host": host})).status == 403
            for origin in (None, "null", "http://evil.example", f"https://{address}"):
                with pytest.raises(WSServerHandshakeError, match="403"):
                    await client.ws_connect("/ws", origin=origin)
            async with client.ws_connect("/ws?width=90", origin=f"http://{address}") as page:
                message = await page.receive(timeout=10)
                assert message.type == WSMsgType.BINARY
                assert message.data == b"90x24 nmpsim debug 'a b.bin'"
                await server.on_shutdown(client.app)
                assert (await page.receive(timeout=10)).type == WSMsgType.CLOSE

    asyncio.run(play())
    page = f"http://127.0.0.1:8000/?token={server.token}"
    assert told == [f"the debugger is at {page} (Ctrl-C ends it)"]


PATHS = ("/", "/?token=", "/?token=wrong", "/ws", "/ws?token=TOKEN", "/static/js/textual.js",
         "/static/?token=TOKEN", "/download/1", "/nothing")  # fmt: skip
WITHOUT_TOKEN = """
import http.client, sys
for path in sys.argv[2:]:
    client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    cookie = {"Cookie": "nmpsim-8000=wrong; nmpsim-8000=", "Origin": f"http://127.0.0.1:{sys.argv[1]}"}
    for headers in ({}, cookie, {**cookie, "Upgrade": "websocket", "Connection": "Upgrade"}):
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        answer.read()
        assert answer.status == 403, (path, headers, answer.status)
print("refused")
"""


def interpreter_for(user: str) -> str:
    """Return a Python that another user may start; skip where tests may not change the user."""
    for path in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError, KeyError, ValueError, subprocess.CalledProcessError):
            subprocess.run([path, "-I", "-S", "-c", ""], check=True, cwd="/", user=user)
            return path
    pytest.skip(f"no Python can be started as {user}")


@pytest.mark.parametrize("user", [None, "nobody"])
def test_nothing_is_served_without_the_token(user: str | None) -> None:
    """Whether the same user of this machine asks or another one."""
    server = serving.DebugServer(["nmpsim"], "127.0.0.1", 8000, "nmpsim", lambda text: None)
    python = sys.executable if user is None else interpreter_for(user)

    async def play() -> None:
        async with TestClient(TestServer(await server._make_app())) as client:
            paths = [path.replace("TOKEN", server.token) for path in PATHS]
            command = [python, "-I", "-S", "-c", WITHOUT_TOKEN, str(client.port), *paths]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, cwd="/", user=user
            )
            assert done.stdout == b"refused\n", done.stderr.decode()

    asyncio.run(play())


def test_each_server_has_a_token_of_its_own() -> None:
    servers = [serving.DebugServer(["x"], "127.0.0.1", 8000, "x", print) for _ in range(2)]
    assert servers[0].token != servers[1].token
    assert all(len(one.token) >= 43 for one in servers)


def test_only_the_local_host_can_connect_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []
    monkeypatch.setattr(serving.DebugServer, "serve", lambda self: served.append(self.public_url))
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot serve on 127.0.0.1:{port}") as error:
            serving.serve_screen(["x"], "127.0.0.1", port, "x", told.append)
        assert error.value.diagnostics[0].code == "ARG001"
    serving.serve_screen(["x"], "localhost", port, "x", told.append)
    assert told == []
    serving.serve_screen(["x"], "0.0.0.0", port, "x", told.append)
    (warning,) = told
    assert warning.startswith(f"warning: 0.0.0.0:{port} can be reached from other machines")
    assert served == [f"http://localhost:{port}", f"http://0.0.0.0:{port}"]
    assert serving.is_loopback("::1") and serving.is_ip_address("::1")


@pytest.fixture
def file(digits: Bundle, tmp_path: Path) -> Path:
    path = tmp_path / "a digit.bin"
    path.write_bytes(bytes(digits.file))
    return path


def invoke(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["debug", *map(str, arguments)], input=stdin)


def test_the_command_serves_a_screen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(serving, "serve_screen", lambda *given: asked.append(given))
    words = [str(file), "--input", str(SEVEN), "--serve", "8000"]
    assert invoke(*words).exit_code == 0
    command, host, port, title, _ = asked[0]
    assert command == [sys.executable, "-m", "nmpsim", "debug", *words]
    assert (host, port, title) == ("127.0.0.1", 8000, "nmpsim a digit.bin")
    assert invoke(*words, "--host", "0.0.0.0").exit_code == 0
    assert asked[1][1] == "0.0.0.0"


def test_a_browser_session_shows_the_screen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    def run_tui(shell: object, layout_file: Path, environ: dict[str, str]) -> int:
        shown.append(environ)
        return 0

    monkeypatch.setattr(nmpsim.tui, "run_tui", run_tui)
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    monkeypatch.setenv("LC_ALL", "C")
    assert invoke(file, "--input", SEVEN, "--serve", "8000").exit_code == 0
    assert shown == [{}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "--host requires --serve"),
        (["--serve", "8000", "--plain"], "--plain cannot be used with --serve"),
        (["--serve", "8000", "-c", "step"], "--command cannot be used with --serve"),
        (["--serve", "8000", "--record", "r.txt"], "--record cannot be used with --serve"),
        (["--serve", "0"], "1<=x<=65535"),
        (["--serve", "http"], "not a valid integer"),
        (["--serve", "8000", "--input", "-"], "standard input or a pipe"),
        (["--serve", "8000", "--input", "missing.npy"], "missing.npy"),
    ],
)
def test_an_impossible_server_is_an_error(
    options: list[str], words: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "serve_screen", lambda *_: pytest.fail("it is served"))
    given = [] if "--input" in options else ["--input", str(SEVEN)]
    result = invoke(file, *options, *given, stdin="x")
    assert result.exit_code == 2 and words in result.stderr


def test_a_missing_textual_serve_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    result = invoke(file, "--input", SEVEN, "--serve", "8000")
    assert result.exit_code == 2
    assert get_install_command("serve") in result.stderr and "needs textual-serve" in result.stderr
