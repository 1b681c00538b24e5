"""The command ``nmpsim``: parse arguments, call the session, show the result, exit.

Heavy packages are imported when a command needs them, so that ``nmpsim --help`` is fast. Nothing
is imported before :func:`main` can handle Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in nmpsim itself
    from collections.abc import Callable
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run ``nmpsim`` with the arguments of the process, and exit."""
    # Python collects garbage after each 700 new objects, which is a tenth of a short run, and once
    # more at its end, in all that was imported: a fifth.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    # Idle threads of NumPy's OpenBLAS keep a processor busy after the import, for 2 to the power of
    # 26 of its cycles by default.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    sys.unraisablehook = _exit_on_interrupt
    end: Callable[[], None] | None = None
    try:
        from nmpsim.cli.interrupt import end_interrupted, ignore_interrupts, watch_interrupts

        end = end_interrupted
        watch_interrupts()
        from nmpsim.cli.app import app

        try:
            app.main()
        finally:
            ignore_interrupts()
    except BaseException as error:  # while the guard itself was being imported, or passed on by it
        from nmpsim.cli.exceptions import is_interrupt

        if not is_interrupt(error):
            raise
        if end is not None:
            end()
        _print_interrupted()
        sys.exit(130)


def _print_interrupted() -> None:
    if sys.stderr is not None:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()


def _exit_on_interrupt(error: sys.UnraisableHookArgs) -> None:
    """Handle a Ctrl-C that no exception handler can catch, before signals are watched."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)
        return
    _print_interrupted()
    os._exit(130)
