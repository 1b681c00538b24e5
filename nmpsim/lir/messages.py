"""Shortened quotations for error messages."""

from __future__ import annotations

_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """Return the quotation of a text in a message: at most 60 characters, then ``...``."""
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."
