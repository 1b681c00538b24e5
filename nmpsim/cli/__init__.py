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

__all__ = ["main"]


def main() -> None:
    """Run ``nmpsim`` with the arguments of the process, and exit."""
    # Python collects garbage after each 700 new objects, which is a tenth of a short run, and once
    # more at its end, in all that was imported: a fifth.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    # Idle threads of NumPy's OpenBLAS keep a processor busy after the import, for 2 to the power of
    # 26 of its cycles by default.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    sys.unraisablehook = _exit_on_interrupt
    try:
        from nmpsim.cli.interrupt import ignore_interrupts, watch_interrupts

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
        _end_interrupted()


def _end_interrupted() -> None:
    """End the process at once; a normal exit could fail on what was interrupted."""
    interrupt = sys.modules.get("nmpsim.cli.interrupt")
    end: Callable[[], None] | None = getattr(interrupt, "end_interrupted", None)
    if end is not None:
        end()  # returns if signals are not watched yet
    if sys.stderr is not None:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
    os._exit(130)


def _exit_on_interrupt(error: sys.UnraisableHookArgs) -> None:
    """Handle a Ctrl-C that no exception handler can catch, before signals are watched."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        _end_interrupted()
    sys.__unraisablehook__(error)
