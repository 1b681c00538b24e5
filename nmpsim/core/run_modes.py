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


class ModeEvent(Enum):
    """Event that changes a run's mode; the run restarts after any event except PROVED."""

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


TRANSITIONS: Mapping[tuple[Mode, ModeEvent], Mode] = {
    (Mode.REPEAT, ModeEvent.ENDED_EARLY): Mode.REPLAY,
    (Mode.REPEAT, ModeEvent.DIVERGED): Mode.CHECK,
    (Mode.REPLAY, ModeEvent.DIVERGED): Mode.CHECK,
    (Mode.REPLAY, ModeEvent.DATA_DEPENDENT): Mode.CHECK,
    (Mode.REPLAY, ModeEvent.ORDER_DEPENDENT): Mode.REPLAY,
    (Mode.PROVE, ModeEvent.PROVED): Mode.REPLAY,
    (Mode.PROVE, ModeEvent.DIVERGED): Mode.CHECK,
    (Mode.PROVE, ModeEvent.DATA_DEPENDENT): Mode.CHECK,
    (Mode.PROVE, ModeEvent.ORDER_DEPENDENT): Mode.PROVE,
    (Mode.CHECK, ModeEvent.PROVED): Mode.REPLAY,
    (Mode.CHECK, ModeEvent.ORDER_DEPENDENT): Mode.CHECK,
    (Mode.CHECK, ModeEvent.VIOLATED): Mode.LOCATE,
    (Mode.LOCATE, ModeEvent.ORDER_DEPENDENT): Mode.LOCATE,
}
"""Mode and event -> next mode. Restarts come to an end: each leads to a mode that asks less of the
program, or to a run without parallel cores."""
LASTING = (ModeEvent.PROVED, ModeEvent.DIVERGED, ModeEvent.DATA_DEPENDENT)
"""Events after which later runs of the program begin in the new mode, too."""


@frozen(eq=False)
class Violation:
    """Contract violation in a checked run: its position, its fields, and a note."""

    run: int
    """Number of the run, if several follow one another."""
    step: int
    """Index of the bundle's step."""
    found: Int64s
    """[ViolationField]"""
    message: str
    """Note about incomplete checks; usually empty."""


class RestartError(Exception):
    """Exception raised if a run must begin again in a different mode."""

    def __init__(self, event: ModeEvent, violation: Violation | None = None) -> None:
        """``violation`` is the position of the violation, for VIOLATED."""
        super().__init__(event)
        self.event, self.violation = event, violation
