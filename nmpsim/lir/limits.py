"""How large a tensor may be: a bound against absurd text, far above what the chip can hold."""

from __future__ import annotations

from collections.abc import Sequence

MAX_RANK = 6
"""Glow's own limit on the number of dimensions."""

MAX_ELEMENTS = 2**31 - 1
"""Elements of one tensor; the device addresses 32 bits."""

MAX_INTEGER = 2**31 - 1
"""Of an attribute that is a whole number: sizes, steps and places within a tensor."""


def size_problem(shape: Sequence[int]) -> tuple[str, str] | None:
    """What is too large about a shape, as (found, expected); None if nothing is."""
    if len(shape) > MAX_RANK:
        return f"{len(shape)} dimensions", f"at most {MAX_RANK}"
    elements = 1
    for dim in shape:
        elements *= max(abs(dim), 1)
    if elements > MAX_ELEMENTS:
        return f"{elements} elements", f"at most {MAX_ELEMENTS}"
    return None
