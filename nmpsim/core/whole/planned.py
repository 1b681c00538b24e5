"""A recording with whole layers in the place of tiles, where that is proved."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nmpsim.core.compiled.recorder import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import Epochs, Recording, reached_after
from nmpsim.core.decode import WORD_COUNT
from nmpsim.core.state import Machine
from nmpsim.core.whole.proof import Epoch, Plan, Recorded, Step, prove
from nmpsim.kernels.jit import uncollected


def whole_epochs(machine: Machine, recording: Recording) -> Epochs:
    """The recording with whole layers; as it is if there are none."""
    judge(machine, recording)
    return recording.whole or recording.epochs


def judge(machine: Machine, recording: Recording) -> None:
    """Find out, once, which layers of a recording are whole."""
    if recording.is_judged:
        return
    recording.is_judged = True
    with uncollected():
        plan = prove(machine, recorded_epochs(recording.epochs))
    if plan is not None:
        recording.reads_scratchpads = plan.reads_scratchpads
        recording.whole = planned_epochs(machine, plan) if plan.whole else None


def recorded_epochs(epochs: Epochs) -> list[Epoch]:
    """Each epoch's instructions by core."""
    items, counts = epochs.items.tolist(), WORD_COUNT.tolist()

    def part(at: int, end: int) -> Iterable[Recorded]:
        while at < end:
            number = items[at + NUMBER]
            following = at + WORDS + counts[number]
            yield Recorded(number, items[at + LAYER], items[at + WORDS : following])
            at = following

    return [
        {core: list(part(at, end)) for core, (at, end) in enumerate(parts) if at < end}
        for parts in epochs.parts.tolist()
    ]


def planned_epochs(machine: Machine, plan: Plan) -> Epochs:
    """A plan, packed: each step is an epoch."""
    items: list[int] = []
    parts = np.zeros((len(plan.steps), machine.cores.size, 2), np.int64)
    lowest = np.full(len(plan.steps), machine.layers.size)
    for index, step in enumerate(plan.steps):
        for core, instructions in by_core(step, plan.host.slots).items():
            parts[index, core, 0] = len(items)
            for one in instructions:
                items += [one.number, one.layer, *one.words]
                lowest[index] = min(lowest[index], one.layer)
            parts[index, core, 1] = len(items)
    is_whole = np.array([step.layer >= 0 for step in plan.steps])
    reached = reached_after(lowest, machine)
    return Epochs(np.array(items, np.int64), parts, reached, is_whole, plan.host)


def by_core(step: Step, slots: int) -> Epoch:
    """What each core's entry of a step does; tasks of a whole layer take turns."""
    if step.layer < 0:
        return step.replayed
    found: dict[int, list[Recorded]] = {}
    for turn, task in enumerate(step.tasks):
        part = found.setdefault(turn % slots, [])
        part += [Recorded(number, step.layer, words) for number, words in task]
    return found
