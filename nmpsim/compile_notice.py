"""The notice that kernels are being compiled."""

from __future__ import annotations

import functools
import sys

COMPILE_NOTICE = "compiling kernels for the first time: this takes up to a minute, once"
_WARNING = 30
"""``logging.WARNING``, which few commands import."""


@functools.cache
def print_compile_notice(level: int = _WARNING) -> None:
    """Print or log a notice, once per process, that kernels are being compiled.

    The notice goes to stderr if that is a terminal, else to the logger ``nmpsim``. A warning of a
    logger without a handler appears on stderr, as in a notebook.

    Parameters
    ----------
    level
        Level of the log message.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"{COMPILE_NOTICE}\n")
    else:
        import logging

        logging.getLogger("nmpsim").log(level, COMPILE_NOTICE)
