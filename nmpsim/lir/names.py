"""How the names of a model come back in LIR."""

from __future__ import annotations

import re

_CONSTANT = "const/"
_SUFFIX = re.compile(r"(__\d+)+$")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def legal_name(name: str) -> str:
    """A model's name as Glow writes it: a letter first, then letters, digits and underscores."""
    text = _ILLEGAL.sub("_", name.removeprefix(_CONSTANT))
    return text if text[:1].isalpha() or text[:1] == "_" else f"A{text}"


def without_suffix(name: str) -> str:
    """The name before Glow appended ``__N``, once or more: a name was taken, a constant changed."""
    return _SUFFIX.sub("", name)
