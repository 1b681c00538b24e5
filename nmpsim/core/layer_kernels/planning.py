"""Recordings with layer kernels in place of tiles, where that is proved.

Consecutive layer kernels form a pass if threads need not meet in between. They meet after a layer
because any of its tasks may have made what a task of the next one reads. If the tasks of both fall
into groups that share no memory (rows of a sum, of its rescale, and of a 1x1 convolution), each
group is one part of one epoch, and its rows stay in the host's cache. The footprints of the
instructions show this for any kind of layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

import attrs
import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.core.compiled.epochs import PART_WORDS, Epochs, find_lowest_layers
from nmpsim.core.compiled.kernel_arguments import ACCOUNT, LAYER, NUMBER, WORDS
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP, WORD_COUNT
from nmpsim.core.layer_kernels.proof import (
    Epoch,
    PlanStep,
    RecordedInstruction,
    ReplayPlan,
    prove_layers,
)
from nmpsim.core.state import Machine
from nmpsim.kernels.entries import pause_garbage_collection
from nmpsim.memory.footprint import (
    COUNT,
    END,
    MAX_TOUCHES,
    START,
    TOUCH_WORDS,
    WRITES,
    compute_footprint,
)
from nmpsim.memory.owned_results import NOT_OWNED

MIN_PARTS = 4
"""Minimum number of parts of a pass, for as many threads."""

Spans = list[tuple[int, int]]
"""Sorted, disjoint memory ranges: first byte and the one after the last."""


@attrs.frozen(eq=False)
class ThreadTask:
    """Task of one thread: instructions, and the memory ranges that they read and write."""

    instructions: list[RecordedInstruction]
    reads: Spans
    writes: Spans
    first_write: int = 0
    """Start of the memory that the last instruction writes."""
    uses_dram: bool = False
    """Whether it has a load or store, which accesses a device address."""

    def conflicts_with(self, other: ThreadTask) -> bool:
        """Return whether one of two tasks writes memory that the other task accesses."""
        pairs = (
            (self.writes, other.writes),
            (self.writes, other.reads),
            (self.reads, other.writes),
        )
        return any(_have_overlap(one, two) for one, two in pairs)


def _have_overlap(one: Spans, two: Spans) -> bool:
    """Return whether ranges have a byte in common."""
    i = j = 0
    while i < len(one) and j < len(two):
        if one[i][1] <= two[j][0]:
            i += 1
        elif two[j][1] <= one[i][0]:
            j += 1
        else:
            return True
    return False


def make_thread_task(instructions: Sequence[RecordedInstruction]) -> ThreadTask:
    """Return a thread task of instructions, with memory ranges computed from their footprints."""
    reads: Spans = []
    writes: Spans = []
    first_write, touches = 0, np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    for one in instructions:
        compute_footprint(int(FOOTPRINT_KIND[one.number]), np.array(one.words, np.int64), touches)
        written = int(touches[0, WRITES])
        spans = touches[1 : touches[0, COUNT] + 1, (START, END)].tolist()
        writes += map(tuple, spans[:written])
        reads += map(tuple, spans[written:])
        first_write = spans[0][0] if written else first_write
    uses_dram = any(one.number in (OP.nmp_load, OP.nmp_store) for one in instructions)
    return ThreadTask(list(instructions), _unite(reads), _unite(writes), first_write, uses_dram)


def _unite(spans: Spans) -> Spans:
    """Return the same memory in disjoint ranges."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def make_passes(layers: Iterable[Sequence[ThreadTask]]) -> Iterator[list[ThreadTask]]:
    """Yield passes: tasks of consecutive layers that need no synchronization in between."""
    before: list[ThreadTask] = []
    for layer in layers:
        joined = _join_passes(before, layer) if before else None
        if joined is None and before:
            yield before
        before = list(layer) if joined is None else joined
    if before:
        yield before


def _join_passes(
    before: Sequence[ThreadTask], after: Sequence[ThreadTask]
) -> list[ThreadTask] | None:
    """Join parts of two passes in groups that share no memory; None if they are few or uneven."""
    if any(part.uses_dram for part in (*before, *after)):
        return None
    groups: list[tuple[list[ThreadTask], list[ThreadTask]]] = [([part], []) for part in before]
    for part in after:
        met = [group for group in groups if any(part.conflicts_with(other) for other in group[0])]
        groups = [group for group in groups if group not in met]
        first = [one for group in met for one in group[0]]
        groups.append((first, [*(one for group in met for one in group[1]), part]))
    if len(groups) < MIN_PARTS or len({(len(a), len(b)) for a, b in groups}) > 1:
        return None
    return [make_thread_task([one for p in (*a, *b) for one in p.instructions]) for a, b in groups]


def plan_layer_kernels(machine: Machine, epochs: Epochs, layers: Sequence[Layer]) -> ReplayPlan:
    """Plan layer kernels; scratchpad bytes that the recording has written do not count as read."""
    with pause_garbage_collection():
        return prove_layers(machine, unpack_epochs(epochs), layers)


def unpack_epochs(epochs: Epochs) -> list[Epoch]:
    """Unpack epochs: return the recorded instructions of each epoch by core number."""
    items, counts = epochs.items.tolist(), WORD_COUNT.tolist()

    def part(at: int, end: int) -> Iterable[RecordedInstruction]:
        while at < end:
            number = items[at + NUMBER]
            following = at + WORDS + counts[number]
            words, is_owned = items[at + WORDS : following], items[at + ACCOUNT] != NOT_OWNED
            yield RecordedInstruction(number, items[at + LAYER], words, is_owned=is_owned)
            at = following

    parts, firsts = epochs.parts.tolist(), epochs.firsts.tolist()
    return [
        {core: list(part(at, end)) for at, end, core in parts[first:last]}
        for first, last in pairwise(firsts)
    ]


def pack_plan(machine: Machine, plan: ReplayPlan, joins_layers: bool = True) -> Epochs:
    """Pack a replay plan into epochs; ``joins_layers`` lets consecutive layers share one."""
    items: list[int] = []
    parts: list[tuple[int, int, int]] = []
    firsts, lowest, is_whole = [0], [], []
    for whole, epoch in _epochs_of(plan, joins_layers):
        for core, instructions in epoch.items():
            begin = len(items)
            for one in instructions:
                account = one.layer if one.is_owned else NOT_OWNED
                items += [one.number, one.layer, account, *one.words]
            parts.append((begin, len(items), core))
        firsts.append(len(parts))
        lowest.append(min(one.layer for part in epoch.values() for one in part))
        is_whole.append(whole)
    parts_table = np.array(parts, np.int64).reshape(-1, PART_WORDS)
    arrays = np.array(items, np.int64), parts_table, np.array(firsts, np.int64)
    reached = find_lowest_layers(np.array(lowest, np.int64), machine)
    return Epochs(*arrays, reached, np.array(is_whole, np.bool_), plan.host)


def _epochs_of(plan: ReplayPlan, joins_layers: bool) -> Iterator[tuple[bool, Epoch]]:
    """Return what runs at the same time, and whether it consists of layer kernels."""
    for is_whole, steps in groupby(plan.steps, lambda step: step.layer >= 0):
        if is_whole:
            layers = (_parts_of(step, plan.host.slots) for step in steps)
            for parts in make_passes(layers) if joins_layers else layers:
                yield True, dict(enumerate(part.instructions for part in parts))
        else:
            yield from ((False, step.replayed) for step in steps)


def _parts_of(step: PlanStep, slots: int) -> list[ThreadTask]:
    """Return the parts of a layer: its tasks take turns in slots."""
    found: list[list[RecordedInstruction]] = [[] for _ in range(min(slots, len(step.tasks)))]
    for turn, task in enumerate(step.tasks):
        part = found[turn % slots]
        part += [RecordedInstruction(one.number, step.layer, one.words) for one in task]
    return sorted(map(make_thread_task, found), key=attrgetter("first_write"))
