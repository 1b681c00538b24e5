"""The debugger's screen in a browser: textual-serve runs a session for each page."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

from nmpsim.diagnostics import fail

LOOPBACK = "127.0.0.1"


class DebugServer(Server):
    """Server that shows the debugger's screen in browsers that send its secret token.

    A session reads and writes files as the user who started it. Without a token any user of this
    machine could open one, and so could any page that the user's browser has open.

    Attributes
    ----------
    token : str
        In the printed address; the browser then sends it as a cookie.
    """

    def __init__(
        self, command: Sequence[str], host: str, port: int, title: str, tell: Callable[[str], None]
    ) -> None:
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        super().__init__(shlex.join(command), host=host, port=port, title=title, public_url=url)
        self.token = secrets.token_urlsafe(32)
        self._cookie = f"nmpsim-{port}"
        self._tell = tell
        self._sessions: set[asyncio.Task[Any]] = set()

    def initialize_logging(self) -> None:
        """Disable textual-serve's log; warnings and errors are still written."""

    async def on_startup(self, app: web.Application) -> None:
        """Report the address of the page, including the secret token."""
        self._tell(f"the debugger is at {self.public_url}/?token={self.token} (Ctrl-C ends it)")

    async def on_shutdown(self, app: web.Application) -> None:
        """Cancel the sessions; otherwise the server would wait for open pages."""
        for session in self._sessions:
            session.cancel()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._authorize)
        return app

    @web.middleware
    async def _authorize(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Reject requests without the token; turn the token in the address into a cookie."""
        name = urlsplit(f"//{request.host}").hostname or ""
        known = {"localhost", self.host, socket.gethostname(), socket.getfqdn()}
        if name not in known and not is_ip_address(name):
            raise web.HTTPForbidden(text=f"{name} is not a name of this machine")
        if request.path == "/" and self._is_token(request.query.get("token", "")):
            found = web.HTTPFound("/")
            found.set_cookie(self._cookie, self.token, httponly=True, samesite="Strict")
            raise found
        if not self._is_token(request.cookies.get(self._cookie, "")):
            raise web.HTTPForbidden(text="Open the address that `nmpsim debug --serve` printed.")
        return await handler(request)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())

    async def handle_index(self, request: web.Request) -> Any:
        """Return the page with links to the address that the browser requested."""
        self.public_url = f"{request.scheme}://{request.host}"
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Start a session; raise HTTPForbidden if the request is from another server's page."""
        if request.headers.get("Origin") != f"{request.scheme}://{request.host}":
            raise web.HTTPForbidden(text="The request comes from a page of another server.")
        session = asyncio.current_task()
        if session is not None:
            self._sessions.add(session)
            session.add_done_callback(self._sessions.discard)
        return await super().handle_websocket(request)


def is_ip_address(name: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can be reached from this machine only."""
    return host == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


def serve_screen(
    command: Sequence[str], host: str, port: int, title: str, report: Callable[[str], None]
) -> None:
    """Serve the screen of a command to browsers until the user stops the server.

    Raises
    ------
    UserError
        ARG001 if the address cannot be used.
    """
    _check_free(host, port)
    if not is_loopback(host):
        report(
            f"warning: {host}:{port} can be reached from other machines, and its token is not"
            " encrypted on the way: whoever has it can read and write files as you"
        )
    DebugServer(command, host, port, title, report).serve()


def _check_free(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family):
            return
    except OSError as error:
        raise fail(
            "ARG001",
            f"cannot serve on {host}:{port}: {error.strerror or error}",
            expected="a free port of this machine",
            hint="Use another port with --serve, or an address of this machine with --host.",
        ) from error
