"""Classification of exceptions; imports nothing, so that it works during any import."""

from __future__ import annotations


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an exception is a KeyboardInterrupt, or was caused by one.

    Python up to 3.11 raises another error for a Ctrl-C during the creation of a class.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)
