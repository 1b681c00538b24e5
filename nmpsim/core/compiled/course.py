"""Courses: what a program does to data, worked out once and followed for every input.

Where no scalar instruction reads what the run has written, neither cycles nor the order of tensor
instructions depend on data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.core.compiled.follow import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.plan import (
    CORE,
    FIRST_WORD,
    NOW,
    SEEN,
    SEGMENT,
    USED,
    Plan,
    make_plan,
)
from nmpsim.core.decode import WORD_COUNT
from nmpsim.core.engine import ContractBrokenError, ShowInstructions
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.timing import Costs

ROOM = 4096
"""Instructions that are planned before they are packed."""
MOST_ITEMS = 1 << 18
"""Instructions of a course: programs with more of them are not planned."""
TURNS = 1 << 14
STEPS_PER_TURN = 1 << 10
"""Turns, and steps in each, before the loop comes back while it plans."""
MOST_STEPS = 1 << 24
MOST_TURNS = 1 << 22
"""Instructions of cores, and turns, until planning is given up: it may be for nothing."""

PlanLoop = Callable[[Machine, Plan, int], Outcome | None]
"""Goes on with a plan for some turns; None where data decides."""


class Timing(NamedTuple):
    """All of a machine that does not depend on data."""

    cores: Any
    shared: Any
    barriers: Any
    counts: Any
    spent: Any


@attrs.define(eq=False)
class Course:
    """Tensor instructions in the order of their values, and what the run comes to."""

    items: Int64s
    """NUMBER, LAYER and the descriptor of each, one behind the other."""
    lists: Int64s
    """[segments, cores, (begin, end)] where each core's are in ``items``."""
    reached: Int64s
    """[segments] the layer below which all are done after each segment."""
    before: Timing
    after: Timing
    is_tried: bool = False
    """It was followed to its end."""


def timing_of(machine: Machine) -> Timing:
    """A copy of a machine's timing."""
    layers = machine.layers
    parts = (machine.cores, machine.shared, machine.barriers, layers.counts, layers.spent)
    return Timing(*(part.copy() for part in parts))


def put_timing(machine: Machine, timing: Timing) -> None:
    """Give a machine this timing."""
    machine.cores[:] = timing.cores
    machine.shared[:] = timing.shared
    machine.barriers[:] = timing.barriers
    machine.layers.counts[:] = timing.counts
    machine.layers.spent[:] = timing.spent


def has_timing(machine: Machine, timing: Timing) -> bool:
    """True if a machine has just this timing."""
    pairs = zip(timing_of(machine), timing, strict=True)
    return all(mine.tobytes() == known.tobytes() for mine, known in pairs)


def plan_course(
    machine: Machine, loop: PlanLoop, show: ShowInstructions | None = None
) -> Course | None:
    """The course from where a machine is to the end; None if data decides, or it is too long.

    The machine itself stays as it is.

    Raises:
        ContractBrokenError: ``show`` has ended it.
    """
    parts = {name: getattr(machine, name).copy() for name in ("cores", "layers", "barriers")}
    ahead = machine._replace(**parts, shared=machine.shared.copy())
    plan = make_plan(machine.cores.size, ROOM)
    pieces: list[Int64s] = []
    begun = machine.cores.retired.sum()
    for _ in range(0, MOST_TURNS, TURNS):
        outcome = loop(ahead, plan, TURNS)
        if show and not show(plan.events[: plan.noted[SEEN]], plan.items, FIRST_WORD + WORDS):
            raise ContractBrokenError
        pieces.append(plan.items[: plan.noted[USED]].copy())
        plan.noted[USED] = plan.noted[SEEN] = 0
        if outcome == Outcome.DONE:
            return _course(np.concatenate(pieces), int(plan.noted[NOW]) + 1, machine, ahead)
        steps = ahead.cores.retired.sum() - begun
        if outcome != Outcome.PAUSED or sum(map(len, pieces)) > MOST_ITEMS or steps > MOST_STEPS:
            return None
    return None


def _course(planned: Int64s, segments: int, machine: Machine, ahead: Machine) -> Course:
    """Each segment's instructions by core, packed."""
    cores = ahead.cores.size
    place = planned[:, SEGMENT] * cores + planned[:, CORE]
    order = np.argsort(place, kind="stable")
    rows = planned[order, FIRST_WORD:]
    lengths = WORDS + WORD_COUNT[rows[:, NUMBER]]
    items = rows[np.arange(rows.shape[1]) < lengths[:, None]]
    ends = np.cumsum(np.bincount(place[order], lengths, segments * cores)).astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    lists = np.stack([begins, ends], axis=1).reshape(segments, cores, 2)
    lists = np.ascontiguousarray(lists, np.int64)
    lowest = np.full(segments + 1, machine.layers.size)
    np.minimum.at(lowest, planned[:, SEGMENT], planned[:, FIRST_WORD + LAYER])
    reached = np.minimum.accumulate(lowest[::-1])[::-1][1:]
    return Course(items, lists, reached, timing_of(machine), timing_of(ahead))


class Courses:
    """The courses of one machine's program, as far as it came by them."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._costs: Costs | None = None
        self._known: list[Course] = []
        self._has_some = True

    def may_have(self, machine: Machine, costs: Costs) -> bool:
        """False if the program is known to have a part that has none."""
        if machine.ram is not self._memory or costs != self._costs:
            self._memory, self._costs = machine.ram, costs  # bundles may share an image
            self._known, self._has_some = [], True
        return self._has_some

    def find(self, machine: Machine) -> Course | None:
        """The course from where the machine is, if it is known."""
        return next((c for c in self._known if has_timing(machine, c.before)), None)

    def keep(self, course: Course | None) -> None:
        """Know a course, or that there is none."""
        if course is None:
            self._known, self._has_some = [], False
        else:
            self._known.append(course)
