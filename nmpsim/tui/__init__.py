"""The debugger's screen, built on Textual; :mod:`nmpsim.debugger` does the debugging."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nmpsim.diagnostics import EXIT_BUG, EXIT_OK, fail
from nmpsim.extras import require_extra

if TYPE_CHECKING:
    from nmpsim.debugger.commands.shell import Shell


def check_screen(terminal: str) -> None:
    """Raise UserError if the terminal cannot show the screen or Textual is missing.

    Parameters
    ----------
    terminal : str
        Kind of terminal, the value of ``TERM``; empty if it is not set.

    Raises
    ------
    UserError
        ARG001 without a terminal that can place its cursor, PKG001 without Textual.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    is_terminal = all(stream is not None and stream.isatty() for stream in streams)
    is_plain = os.name != "nt" and terminal in ("", "dumb")
    if not is_terminal or is_plain:
        raise fail(
            "ARG001",
            "the debugger's screen requires a terminal",
            found="a plain terminal (TERM=dumb)"
            if is_terminal
            else "an input or output that is redirected",
            expected="a terminal with cursor control",
            hint="Use --command or --script, or --plain for a prompt.",
        )
    with require_extra("tui", "the debugger's screen needs Textual", instead="use --plain"):
        import textual  # noqa: F401 - whether it is there


def require_textual_serve() -> None:
    """Raise UserError (PKG001) if textual-serve is missing."""
    needed, instead = "the debugger in a browser needs textual-serve", "omit --serve"
    with require_extra("serve", needed, instead=instead):
        import textual_serve.server  # noqa: F401 - whether it is there


def run_tui(shell: Shell, layout_file: Path, environ: Mapping[str, str]) -> int:
    """Show a debugging session until the user quits, and return the exit code.

    Parameters
    ----------
    shell : Shell
        Debugger session to show.
    layout_file : Path
        File of saved layouts; it need not exist.
    environ : mapping of str to str
        Environment variables, which say what the terminal can show.
    """
    from nmpsim.tui.app import DebugApp
    from nmpsim.tui.theme import ASCII, choose_glyphs, is_ascii_terminal

    glyphs = ASCII if is_ascii_terminal(environ) else choose_glyphs(sys.stdout.encoding)
    app = DebugApp(shell, glyphs, layout_file)
    app.run()
    if app.failure is not None:
        raise app.failure
    return EXIT_BUG if app.return_code else EXIT_OK
