"""The command ``nmpsim``: arguments in, session, view, exit code out.

Nothing heavy is imported until a command needs it, so ``nmpsim --help`` answers at once; and
nothing at all before :func:`main` is there to catch a Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Entry point of the installed command."""
    # Python looks for garbage after each 700 new objects, which is a tenth of a short run, and once
    # more at its end, in all that was imported: a fifth.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    try:
        from nmpsim.cli.interrupt import EXIT_INTERRUPTED, end_interrupted, watch_interrupts

        watch_interrupts()
        from nmpsim.cli.app import app

        try:
            app.main()
        except SystemExit as leaving:
            if leaving.code == EXIT_INTERRUPTED:
                end_interrupted()
            raise
    except KeyboardInterrupt:  # while the guard itself was imported; later it is the guard's
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)
