"""The answer to why an element is what it is."""

from __future__ import annotations

import attrs

from nmpsim.debugger.arithmetic import Made, Term


@attrs.frozen
class Event:
    """An instruction that had a part in it."""

    what: str
    core: int
    instruction: str
    pc: int
    descriptor: int
    cycle: int
    """Issued."""
    position: int
    """State just after it."""
    layer: str
    data: str = ""
    """What it moved, for transfers."""


@attrs.frozen
class NamedTerm:
    """A term and what its operands are called."""

    term: Term
    input: str
    """The tensor's element; empty for padding."""
    weight: str


@attrs.frozen
class Explanation:
    """Everything that made an element."""

    layer: str
    op: str
    placement: str
    at: tuple[int, ...]
    value: float
    address: int
    made: Made | None
    """None if the host made it, or nothing did."""
    terms: tuple[NamedTerm, ...]
    events: tuple[Event, ...]
    """Transfers that brought its operands, what computed it, the store."""
    sources: tuple[str, ...]
    """Where it is from, if not from the terms alone."""
    tile: str
    """Which part of the layer the instruction made."""
