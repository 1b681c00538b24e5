"""Shortened quotations for error messages."""

from __future__ import annotations

_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """Return a text for use in a message, truncated to 60 characters."""
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."
