"""What an error came of."""

from __future__ import annotations


def is_interrupt(error: BaseException | None) -> bool:
    """Is it a Ctrl-C, or what became of one? Python up to 3.11 makes another error of it where it
    comes while a class is made."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)
