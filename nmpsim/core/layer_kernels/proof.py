"""Proof that layers of a recorded run are the operations that the bundle's metadata claims.

A layer's claim names its input tensors. The proof executes the layer's tiles on the origins of
bytes (:mod:`nmpsim.core.layer_kernels.byte_origins`) and compares each tile with the box of the
claimed operation that it stores. It trusts no claim: a layer without a claim, or with a false one,
is replayed tile by tile. The layers of a chain are proved together. Layer kernels do not write
scratchpads, so a replayed instruction must not read there what the tiles of another layer have
written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import reduce
from itertools import groupby
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP
from nmpsim.core.layer_kernels.activation_patterns import (
    AveragePoolPattern,
    BinaryElementwisePattern,
    MatrixProductPattern,
    MaxPoolPattern,
    TableLookupPattern,
    UnaryElementwisePattern,
)
from nmpsim.core.layer_kernels.byte_origins import (
    DramOrigins,
    TensorView,
    TileScratchpad,
    UnprovedError,
    Words,
    require,
    view_region,
)
from nmpsim.core.layer_kernels.convolution import ConvolutionPattern, DepthwiseConvolutionPattern
from nmpsim.core.layer_kernels.moves import MOVES, DataMovementPattern
from nmpsim.core.layer_kernels.patterns import LayerPattern
from nmpsim.core.layer_kernels.tasks import NO_MARGINS, HostMemory, Margins, Task
from nmpsim.core.state import Int64s, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import STORE
from nmpsim.memory.footprint import (
    AXES,
    COUNT,
    FIRST_AXIS,
    MAX_TOUCHES,
    RUN,
    START,
    TOUCH_WORDS,
    WRITES,
    compute_footprint,
)

PATTERNS: dict[int, type[LayerPattern]] = {
    form.number: form
    for form in (
        ConvolutionPattern,
        DepthwiseConvolutionPattern,
        MatrixProductPattern,
        MaxPoolPattern,
        AveragePoolPattern,
        BinaryElementwisePattern,
        UnaryElementwisePattern,
        TableLookupPattern,
    )
}
"""Instruction number -> pattern of layers that it computes."""


@attrs.frozen
class RecordedInstruction:
    """Tensor instruction of a recording: its number, its layer and the words of its descriptor."""

    number: int
    layer: int
    words: Words
    is_owned: bool = attrs.field(default=True, kw_only=True)
    """Whether it owns its results, so that the layer's counters include them."""


Epoch = Mapping[int, Sequence[RecordedInstruction]]
"""Instructions of each core that has some."""


@attrs.frozen
class PlanStep:
    """Step of a replay plan: replayed instructions, or the tasks of a layer kernel."""

    replayed: Epoch
    layer: int = -1
    tasks: Sequence[Task] = ()


@attrs.frozen
class ReplayPlan:
    """Plan of a replay in which layer kernels replace the tiles of proved layers."""

    steps: Sequence[PlanStep]
    whole: Set[int]
    host: HostMemory
    reads_scratchpads: bool = False
    """Whether it reads scratchpad bytes that it has not written."""


def prove_layers(machine: Machine, epochs: Sequence[Epoch], layers: Sequence[Layer]) -> ReplayPlan:
    """Prove that layers compute single operations; return a plan with kernels for proved layers.

    Parameters
    ----------
    machine : Machine
        The memory that the plan is for; only the values of its image matter.
    epochs : sequence
        The recording.
    layers : sequence of Layer
        The bundle's layers with their claims.
    """
    host, dram, tasks = (HostMemory(machine), DramOrigins(machine), dict[int, Sequence[Task]]())
    known = {one.number for epoch in epochs for part in epoch.values() for one in part}
    unordered, parts = find_unordered_layers(epochs), _group_by_layer(epochs)
    groups = []
    scratchpads: dict[int, TileScratchpad] = {}
    for group in _list_groups(parts, layers):
        inner = {pair for pair in unordered if group[0] <= pair[0] and pair[1] <= group[-1]}
        try:
            require(not any(a <= number <= b for number in group for a, b in unordered - inner))
            own = _select_parts(epochs, group) if len(group) > 1 else [parts[group[0]]]
            claimed = {number: layers[number] for number in group}
            tasks |= _prove_group(dram, claimed, own, known, host, scratchpads)
            groups.append(group)
        except UnprovedError:
            scratchpads.clear()
    last = find_last_reader(machine, _make_steps(epochs, tasks))
    whole = {number: tasks[number] for group in groups if group[0] > last for number in group}
    steps = _make_steps(epochs, whole)
    is_stale = last >= 0 and find_last_reader(machine, steps) >= 0
    return ReplayPlan(steps, whole.keys(), host, is_stale)


def _list_groups(found: Iterable[int], layers: Sequence[Layer]) -> list[list[int]]:
    """Return the numbers of layers that are proved together: chains, and single layers."""
    numbers = {number for number in found if 0 <= number < len(layers)}
    by_barrier = groupby(range(len(layers)), lambda number: layers[number].barrier)
    ranges = [list(group) for _, group in by_barrier]
    chained = [group for group in ranges if len(group) > 1 and numbers.issuperset(group)]
    single = numbers.difference(*chained)
    return sorted([*chained, *([number] for number in single)])


def _select_parts(epochs: Sequence[Epoch], group: Sequence[int]) -> list[Parts]:
    """Return the instructions of the consecutive layers ``group`` by core, for each epoch."""
    found: list[Parts] = []
    for epoch in epochs:
        own = {
            core: [one for one in part if group[0] <= one.layer <= group[-1]]
            for core, part in epoch.items()
        }
        if any(own.values()):
            found.append(own)
    return found


def find_unordered_layers(epochs: Sequence[Epoch]) -> set[tuple[int, int]]:
    """Return (first, last) of each range of layers whose instructions are not in layer order.

    An instruction of the first one follows an instruction of the last one on the same core or in
    an earlier epoch. Instructions of different cores in one epoch have no order.
    """
    found: set[tuple[int, int]] = set()
    latest = -1
    for epoch in epochs:
        ends = [latest]
        for part in epoch.values():
            highest = latest
            for one in part:
                if one.layer < highest:
                    found.add((one.layer, highest))
                highest = max(highest, one.layer)
            ends.append(highest)
        latest = max(ends)
    return found


Parts = Mapping[int, Sequence[RecordedInstruction]]
"""Instructions of a layer by core."""


def _group_by_layer(epochs: Sequence[Epoch]) -> Mapping[int, Parts]:
    found: dict[int, dict[int, list[RecordedInstruction]]] = {}
    for epoch in epochs:
        for core, part in epoch.items():
            for one in part:
                found.setdefault(one.layer, {}).setdefault(core, []).append(one)
    return found


def _prove_group(
    dram: DramOrigins,
    layers: Mapping[int, Layer],
    epochs: Sequence[Parts],
    known: Set[int],
    host: HostMemory,
    scratchpads: dict[int, TileScratchpad],
) -> Mapping[int, Sequence[Task]]:
    """Return the tasks of one layer, or of a chain of layers that keep results in scratchpads.

    Raises UnprovedError if tiles differ from the claims of their layers. The tiles of a chain must
    read the results of earlier layers that the same core has computed, or has loaded after a core
    stored them. All tiles may read constants that are in ``scratchpads`` since an earlier layer.
    """
    tiles: dict[int, dict[int, list[Words]]] = {number: {} for number in layers}
    for parts in epochs:
        for part in parts.values():
            for one in part:
                tiles[one.layer].setdefault(one.number, []).append(one.words)
    dram.begin_group()
    host.begin_group()
    patterns: dict[int, LayerPattern | DataMovementPattern] = {}
    chained: list[LayerPattern] = []
    for number, layer in layers.items():
        produced = [one.target for one in chained]
        pattern = _make_pattern(dram, layer, tiles[number], known, produced)
        patterns[number] = pattern
        if isinstance(pattern, LayerPattern):
            chained.append(pattern)
    require(len(chained) == len(layers) or len(layers) == 1)
    for spm in scratchpads.values():
        spm.keep_constants()
    _execute_tiles(dram, epochs, patterns, scratchpads)
    if len(layers) > 1:
        _place_outputs(chained, host)
    return {number: pattern.make_tasks(host) for number, pattern in patterns.items()}


def _make_pattern(
    dram: DramOrigins,
    layer: Layer,
    tiles: Mapping[int, Sequence[Words]],
    known: Set[int],
    produced: Sequence[TensorView],
) -> LayerPattern | DataMovementPattern:
    """Return the pattern of a layer with tiles by instruction number."""
    require(layer.claim is not None)
    numbers = tiles.keys() - {OP.nmp_load, OP.nmp_store}
    if numbers <= MOVES:
        return DataMovementPattern(dram, layer, known)
    require(len(numbers) == 1 and numbers <= PATTERNS.keys())
    (number,) = numbers
    return PATTERNS[number](dram, layer, np.array(tiles[number], np.int64), produced)


def _execute_tiles(
    dram: DramOrigins,
    epochs: Sequence[Parts],
    patterns: Mapping[int, LayerPattern | DataMovementPattern],
    scratchpads: dict[int, TileScratchpad],
) -> None:
    """Execute loads, stores and tiles on origins, in the order of the recording."""
    for parts in epochs:
        for core, part in parts.items():
            spm = scratchpads.setdefault(core, TileScratchpad(dram))
            for one, target in zip(part, _find_targets(part), strict=True):
                if one.number == OP.nmp_load:
                    spm.load(one.words)
                elif one.number == OP.nmp_store:
                    patterns[one.layer].add_store(spm, one.words)
                else:
                    patterns[one.layer].add_tile(spm, one.words, target, is_owned=one.is_owned)


def _place_outputs(patterns: Sequence[LayerPattern], host: HostMemory) -> None:
    """Place the outputs of a chain that DRAM never has completely in host memory.

    Raises UnprovedError if an output shares memory with another tensor of the chain.
    """
    for position, pattern in enumerate(patterns):
        target = pattern.target
        others = [view for one in patterns for view in one.operands]
        others += [one.target for one in patterns if one is not pattern]
        require(all(view.covers(target) or not view.overlaps(target) for view in others))
        earlier = patterns[:position]
        require(not any(view.covers(target) for one in earlier for view in one.operands))
        require(not any(one.target.covers(target) for one in earlier))
        if not pattern.is_stored:
            margins = [one.find_margins(target) for one in patterns[position + 1 :]]
            pattern.place_output(host, reduce(Margins.unite, margins, NO_MARGINS))


def _find_targets(part: Sequence[RecordedInstruction]) -> list[int | None]:
    """Return the DRAM address to which each tile's results are stored; None if there is none."""
    stores: dict[int, int] = {}
    targets: list[int | None] = []
    for one in reversed(part):
        target = None
        if one.number == OP.nmp_store:
            stores[one.words[STORE.spm]] = one.words[STORE.dram]
        elif one.number in PATTERNS:
            target = stores.get(one.words[PATTERNS[one.number].words.output])
        targets.append(target)
    return targets[::-1]


def _make_steps(epochs: Sequence[Epoch], tasks: Mapping[int, Sequence[Task]]) -> list[PlanStep]:
    """Return the steps of a plan: layer kernels, and in between what is replayed by epoch."""
    whole = sorted(tasks)
    replayed: dict[tuple[int, int], dict[int, list[RecordedInstruction]]] = {}
    for index, epoch in enumerate(epochs):
        for core, part in epoch.items():
            for one in part:
                if one.layer not in tasks:
                    place = bisect_left(whole, one.layer), index
                    replayed.setdefault(place, {}).setdefault(core, []).append(one)
    found = {
        (number, len(epochs)): PlanStep({}, layer, tasks[layer])
        for number, layer in enumerate(whole)
    }
    found |= {place: PlanStep(parts) for place, parts in replayed.items()}
    return [found[place] for place in sorted(found)]


def find_last_reader(machine: Machine, steps: Sequence[PlanStep]) -> int:
    """Return the last layer that reads bytes unwritten since a layer kernel; -1 if no layer does.

    Returns -1 if no replayed instruction does.
    """
    last, written = -1, dict[int, npt.NDArray[np.bool_]]()
    touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    for step in steps:
        if step.layer >= 0:
            written.clear()
        for core, part in step.replayed.items():
            own = written.setdefault(core, np.zeros(machine.scratchpad.shape[1], np.bool_))
            for one in part:
                compute_footprint(
                    int(FOOTPRINT_KIND[one.number]), np.array(one.words, np.int64), touches
                )
                views = [_view_touch(own, touch) for touch in touches[1 : touches[0, COUNT] + 1]]
                writes = int(touches[0, WRITES])
                if not all(view.all() for view in views[writes:]):
                    last = max(last, one.layer)
                for view in views[:writes]:
                    view[...] = True
    return last


def _view_touch(written: npt.NDArray[np.bool_], touch: Int64s) -> Any:
    """Return the part of a scratchpad that a row of a footprint accesses; empty for DRAM."""
    start = int(touch[START]) - SCRATCHPAD_BASE
    if not 0 <= start < written.size:
        return written[:0]
    axes = touch[FIRST_AXIS : FIRST_AXIS + 2 * AXES].reshape(AXES, 2)
    return view_region(
        written, start, (*axes[:, 0].tolist(), int(touch[RUN])), (*axes[:, 1].tolist(), 1)
    )
