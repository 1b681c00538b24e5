"""Modes of a run, and the transitions between them.

A run begins in the mode that does least work. Where it finds that the mode does not suit the
program or its data, it begins again in the next mode of :data:`TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from nmpsim.core.state import Int64s
from nmpsim.records import frozen


class Mode(Enum):
    """Mode of a run: how it executes device steps and checks the contract."""

    REPEAT = auto()
    """Compute the values of recorded steps, on what the last run has left, with layer kernels."""
    REPLAY = auto()
    """Replay recorded steps and simulate the others. The contract is proved, or not checked."""
    PROVE = auto()
    """Record each step and prove that it keeps to the contract for every input; then as REPLAY."""
    CHECK = auto()
    """Simulate, and check the contract in this run, because data decide what is executed."""
    LOCATE = auto()
    """Simulate up to a known violation of the contract, and report the state there."""


class Event(Enum):
    """Event that changes the mode of a run; the run begins again after any event but PROVED."""

    PROVED = auto()
    """The run has shown that every run keeps to the contract."""
    ENDED_EARLY = auto()
    """A limit or a host operation ends the run: a report needs the run from its initial state."""
    DIVERGED = auto()
    """The data invalidate what was recorded."""
    DATA_DEPENDENT = auto()
    """Data decide which instructions are executed, so that a proof is impossible."""
    ORDER_DEPENDENT = auto()
    """The run ends early after cores ran in parallel: it must be done in order."""
    VIOLATED = auto()
    """The program violates the contract."""


TRANSITIONS: Mapping[tuple[Mode, Event], Mode] = {
    (Mode.REPEAT, Event.ENDED_EARLY): Mode.REPLAY,
    (Mode.REPEAT, Event.DIVERGED): Mode.CHECK,
    (Mode.REPLAY, Event.DIVERGED): Mode.CHECK,
    (Mode.REPLAY, Event.DATA_DEPENDENT): Mode.CHECK,
    (Mode.REPLAY, Event.ORDER_DEPENDENT): Mode.REPLAY,
    (Mode.PROVE, Event.PROVED): Mode.REPLAY,
    (Mode.PROVE, Event.DIVERGED): Mode.CHECK,
    (Mode.PROVE, Event.DATA_DEPENDENT): Mode.CHECK,
    (Mode.PROVE, Event.ORDER_DEPENDENT): Mode.PROVE,
    (Mode.CHECK, Event.PROVED): Mode.REPLAY,
    (Mode.CHECK, Event.ORDER_DEPENDENT): Mode.CHECK,
    (Mode.CHECK, Event.VIOLATED): Mode.LOCATE,
    (Mode.LOCATE, Event.ORDER_DEPENDENT): Mode.LOCATE,
}
"""Mode and event -> next mode. Restarts come to an end: each leads to a mode that asks less of the
program, or to a run without parallel cores."""
LASTING = (Event.PROVED, Event.DIVERGED, Event.DATA_DEPENDENT)
"""Events after which later runs of the program begin in the new mode, too."""


@frozen(eq=False)
class Violation:
    """Position of a contract violation in a checked run."""

    run: int
    """Number of the run, if several follow one another."""
    step: int
    """Index of the bundle's step."""
    found: Int64s
    """[ViolationField]"""
    message: str
    """Note about incomplete checks; usually empty."""


class RestartError(Exception):
    """Exception for a run that must begin again in another mode."""

    def __init__(self, event: Event, violation: Violation | None = None) -> None:
        """``violation`` is the position of the violation, for VIOLATED."""
        super().__init__(event)
        self.event, self.violation = event, violation
