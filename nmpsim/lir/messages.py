"""Helpers for error messages: hints for misspelt words and shortened quotations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_WORD = 100
_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """Return a text for use in a message, truncated to 60 characters."""
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def did_you_mean(
    word: str, known: Iterable[str], prefix: str = "", nearness: float = 0.6
) -> str | None:
    """Return a hint that names the known word most similar to ``word``, or None.

    ``nearness`` from 0 to 1: how much of both must be alike.
    """
    if len(word) > _LONGEST_WORD:  # comparing is quadratic in the length
        return None
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=nearness)
    return f"Did you mean {prefix}{near[0]}?" if near else None
