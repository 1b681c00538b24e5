"""Breakpoints and watchpoints as data: what to stop for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

Access = Literal["read", "write", "access"]


@attrs.frozen
class AtLayer:
    """Before a layer begins."""

    index: int


@attrs.frozen
class AtAddress:
    """Before an instruction at an address begins."""

    address: int
    core: int | None = None


@attrs.frozen
class AtCycle:
    """Before anything begins at this cycle or later."""

    cycle: int


@attrs.frozen
class OnTrap:
    """At a trap, a deadlock or the cycle limit; a run stops there anyway, this counts them."""


@attrs.frozen
class OnHazard:
    """After an instruction whose answer depends on when a transfer lands."""


@attrs.frozen
class OnSaturation:
    """After the instruction with which a layer has saturated more than ``limit`` values."""

    limit: int = 0
    layer: int | None = None
    """Any layer if None."""


@attrs.frozen
class OnStall:
    """After an instruction that a core stood at for more than ``limit`` cycles."""

    limit: int
    core: int | None = None


@attrs.frozen
class OnDifference:
    """After a layer whose result differs from the reference by more than ``limit``."""

    limit: int = 0
    layer: int | None = None


@attrs.frozen
class OnAccess:
    """After an instruction or host operation that touches bytes of DRAM or of a scratchpad."""

    start: int
    end: int
    """Address after the last byte."""
    access: Access = "write"
    core: int | None = None
    """Whose scratchpad; any core's if None."""


Condition = (
    AtLayer
    | AtAddress
    | AtCycle
    | OnTrap
    | OnHazard
    | OnSaturation
    | OnStall
    | OnDifference
    | OnAccess
)


@attrs.define
class Breakpoint:
    """A condition with its number, its text as the user gave it, and how often it was met."""

    number: int
    condition: Condition
    text: str
    is_enabled: bool = True
    hits: int = 0
    only_if: Callable[[], bool] | None = None
    """Asked in the state in which it would stop; it stops only if that says yes."""

    @property
    def is_watchpoint(self) -> bool:
        """Does it watch memory?"""
        return isinstance(self.condition, OnAccess)


@attrs.frozen
class Hit:
    """A breakpoint was met."""

    position: int
    """State in which that shows: for most, just after what it was met by."""
    breakpoint: int
    """Its number."""
    text: str
    """What happened, in words."""
    next: str = ""
    """A command that shows the place."""
