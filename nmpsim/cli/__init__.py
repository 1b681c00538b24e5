"""The command ``nmpsim``: arguments in, session, view, exit code out.

Nothing heavy is imported until a command needs it, so ``nmpsim --help`` answers at once; and
nothing at all before :func:`main` is there to catch a Ctrl-C.
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
    """Entry point of the installed command."""
    # Python looks for garbage after each 700 new objects, which is a tenth of a short run, and once
    # more at its end, in all that was imported: a fifth.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    # Threads of NumPy's OpenBLAS that have nothing to do keep a processor busy for a while, from
    # the import on: for 2 to the power of 26 of its cycles unless told otherwise.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    sys.unraisablehook = _without_traceback
    end: Callable[[], None] | None = None
    try:
        from nmpsim.cli.interrupt import end_interrupted, raise_no_more, watch_interrupts

        end = end_interrupted
        watch_interrupts()
        from nmpsim.cli.app import app

        try:
            app.main()
        finally:
            raise_no_more()
    except BaseException as error:  # while the guard itself was imported, or came to it
        from nmpsim.cli.causes import is_interrupt

        if not is_interrupt(error):
            raise
        if end is not None:
            end()
        _say_interrupted()
        sys.exit(130)


def _say_interrupted() -> None:
    if sys.stderr is not None:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()


def _without_traceback(error: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that comes where nothing can catch it, before anybody watches."""
    if not issubclass(error.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(error)
        return
    _say_interrupted()
    os._exit(130)
