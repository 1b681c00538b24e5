"""Small things that the messages of this package share: hints and a cap on quoted text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_WORD = 100
_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """A text for a message, shortened when it is very long."""
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def did_you_mean(
    word: str, known: Iterable[str], prefix: str = "", nearness: float = 0.6
) -> str | None:
    """A hint naming the known word nearest to the one given, if one is near.

    ``nearness`` from 0 to 1: how much of both must be alike.
    """
    if len(word) > _LONGEST_WORD:  # comparing is quadratic in the length
        return None
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=nearness)
    return f"did you mean {prefix}{near[0]}?" if near else None
