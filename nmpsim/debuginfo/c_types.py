"""Types of variables in C, which refer to each other by keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

TypeKind = Literal[
    "signed", "unsigned", "float", "boolean", "enum", "pointer", "array", "struct", "union",
    "function", "alias", "unknown",
]  # fmt: skip
MAX_DEPTH = 32
"""Maximum number of types that are followed from one type."""


@attrs.frozen
class Member:
    """Member of a struct or a union."""

    name: str
    """Name; empty for an anonymous struct or union."""
    first_bit: int
    """Bits from the start of the struct to the member."""
    type: int
    nbits: int | None = None
    """Size of a bit field; None for other members."""


@attrs.frozen
class CType:
    """Type of a variable; an ``alias`` is a typedef or a qualifier of another type."""

    kind: TypeKind
    name: str = ""
    """Name without ``struct``, ``union`` and ``enum``; a qualifier ends with a space."""
    nbytes: int | None = None
    """Size; None if it follows from other types or is unknown."""
    target: int = -1
    """Key of the pointed, element, renamed or returned type; -1 for ``void``."""
    count: int | None = None
    """Number of elements of an array; None if it is not a constant. Elements can be arrays."""
    members: tuple[Member, ...] = ()
    values: Mapping[int, str] = attrs.field(factory=dict)
    """Name of each value of an enumeration."""


Types = Mapping[int, CType]
"""Key -> type."""


def resolve_alias(types: Types, key: int) -> CType | None:
    """Return the type that an alias stands for, or None for ``void`` and unknown keys."""
    for _ in range(MAX_DEPTH):
        found = types.get(key)
        if found is None or found.kind != "alias":
            return found
        key = found.target
    return None


def compute_size(types: Types, key: int) -> int | None:
    """Compute the bytes of a type, or return None if they are unknown."""
    count = 1
    for _ in range(MAX_DEPTH):
        found = resolve_alias(types, key)
        if found is None or found.nbytes is not None:
            return None if found is None or found.nbytes is None else count * found.nbytes
        if found.kind == "pointer":
            return 4 * count
        if found.kind != "array" or found.count is None:
            return None
        count, key = count * found.count, found.target
    return None


def format_type_name(types: Types, key: int, depth: int = 0) -> str:
    """Format a type as C writes it, such as ``struct pair [3]``."""
    found = types.get(key)
    if found is None or depth > MAX_DEPTH:
        return "void" if key == -1 else "?"
    if found.name and not found.name.endswith(" "):
        keyword = f"{found.kind} " if found.kind in ("struct", "union", "enum") else ""
        return keyword + found.name
    if found.kind in ("struct", "union", "enum", "unknown"):
        return f"{found.kind} {{...}}"
    target = format_type_name(types, found.target, depth + 1)
    if found.kind == "pointer":
        return f"{target}*" if target.endswith("*") else f"{target} *"
    if found.kind == "array":
        element, bracket, rest = target.partition(" [")
        return f"{element} [{'' if found.count is None else found.count}]{bracket[1:]}{rest}"
    return f"{target} ()" if found.kind == "function" else f"{found.name}{target}"
