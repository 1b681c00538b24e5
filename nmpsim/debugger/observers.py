"""Who looks on while a run goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nmpsim.debugger.breakpoints import Breakpoint, Hit
from nmpsim.debugger.execution import Pause


class Observer(Protocol):
    """Sees all that is done, in order; the same again when the run is turned back."""

    def watch(self, pause: Pause) -> None:
        """Note what happened."""
        ...

    def hits(self, breakpoints: Sequence[Breakpoint], pause: Pause) -> Sequence[Hit]:
        """Which of the breakpoints that are enabled did it meet, and where?"""
        ...
