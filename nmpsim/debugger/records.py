"""What the debugger answers with: plain records that views and JSON are made of."""

from __future__ import annotations

from typing import Literal

import attrs

from nmpsim.debugger.breakpoints import Hit

Reason = Literal["start", "step", "breakpoint", "trap", "end", "begin", "interrupted"]


@attrs.frozen
class CoreState:
    """One core at a glance."""

    core: int
    status: str
    pc: int
    clock: int
    retired: int
    instruction: str
    """The next one, disassembled; empty if there is none."""
    layer: str
    """Layer that it works on; empty if none."""


@attrs.frozen
class Location:
    """Where a run is."""

    position: int
    cycle: int
    layer: int | None
    """Index of the layer that is being computed; None at the end."""
    layer_name: str
    layer_display_name: str
    line: int
    """Its line in the LIR, 0 if there is none."""
    placement: str
    layers_done: int
    layers: int
    core: int | None
    """Core that goes on next; None between segments."""
    pc: int | None
    instruction: str


@attrs.frozen
class Stopped:
    """A step or a run came back."""

    reason: Reason
    location: Location
    hits: tuple[Hit, ...] = ()
    message: str = ""
    """More about it: a trap's message, or what could not be done."""
    core: int | None = None
    """Core whose instruction was done last, when stepping by instructions."""


@attrs.frozen
class LayerState:
    """One layer at a glance."""

    index: int
    name: str
    display_name: str
    op: str
    operation: str
    line: int
    placement: str
    state: Literal["done", "running", "pending"]
    cycles: int
    saturated: int
    """Values that saturated so far, without clips that the network asks for."""
    elements: int
    """Results written so far."""
    limited_by: str = ""
    """What has most of its critical path, and how much; empty if the path is not known yet."""
