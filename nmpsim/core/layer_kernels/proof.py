"""Proof that layers of a recorded run are single operations on tensors in DRAM.

The proof executes the recording twice at the same time, on value numbers instead of values: once as
recorded, and once as planned. The plan has layer kernels in place of the tiles of some layers, and
every instruction of all others. A layer is proved if its pattern finds that every result is
computed once, from what the layer reads in DRAM; if the plan has the same values there when the
layer kernel begins; and if no replayed instruction reads from a scratchpad what the layer's tiles
wrote. In the end all of DRAM is equal. Scratchpads differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP
from nmpsim.core.layer_kernels.convolution import Convolution, may_have_groups
from nmpsim.core.layer_kernels.elementwise import (
    BinaryElementwise,
    TableLookup,
    UnaryElementwise,
)
from nmpsim.core.layer_kernels.moves import DataMovement, only_moves_values
from nmpsim.core.layer_kernels.patterns import LayerPattern, Pattern
from nmpsim.core.layer_kernels.pools import AveragePool, MaxPool
from nmpsim.core.layer_kernels.products import MatrixProduct
from nmpsim.core.layer_kernels.tasks import HostMemory, Task
from nmpsim.core.layer_kernels.tensors import ValueLocations
from nmpsim.core.layer_kernels.value_numbers import (
    INITIAL,
    NOTHING,
    LayerStores,
    Region,
    UnprovedError,
    ValueMemory,
    ValueNumbers,
    Words,
    get_load_region,
    get_store_region,
    require,
    view_region,
)
from nmpsim.core.layer_kernels.windows import DepthwiseConvolution
from nmpsim.core.state import Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import LUT, MAXPOOL, STORE
from nmpsim.memory.footprint import (
    AXES,
    COUNT,
    FIRST_AXIS,
    MAX_TOUCHES,
    RUN,
    START,
    TOUCH_WORDS,
    WRITES,
    footprint,
)

MAX_ROUNDS = 8
"""Number of times that the proof begins again with more layers replayed."""
MAX_EXECUTED = 1 << 19
"""Number of instructions after which the proof does not begin again."""


@attrs.frozen
class RecordedInstruction:
    """An instruction of a recording."""

    number: int
    layer: int
    words: Words


Epoch = Mapping[int, Sequence[RecordedInstruction]]
"""Instructions of each core that has some."""


@attrs.frozen
class PlanStep:
    """A step of a plan: replayed instructions, or tasks of a layer kernel."""

    epoch: int
    replayed: Epoch
    layer: int = -1
    tasks: Sequence[Task] = ()


@attrs.frozen
class ReplayPlan:
    """A recording with layer kernels in place of some tiles."""

    steps: list[PlanStep]
    whole: frozenset[int]
    host: HostMemory
    reads_scratchpads: bool = False
    """Whether it reads scratchpad bytes that it has not written."""


def prove_layers(machine: Machine, epochs: Sequence[Epoch]) -> ReplayPlan | None:
    """Find the layers of a recording that are single operations, and return a plan with them.

    Parameters
    ----------
    machine : Machine
        The memory that the plan is for; only the values of its image matter.
    epochs : sequence
        The recording.
    """
    layers = {one.layer for epoch in epochs for part in epoch.values() for one in part}
    known = _layers(epochs)
    replayed, grouped = layers - known.keys(), set[int]()
    count = sum(len(part) for epoch in epochs for part in epoch.values())
    for number in range(MAX_ROUNDS):
        if number * count > MAX_EXECUTED:
            return None
        try:
            return _Proof(machine, epochs, known, replayed, grouped).plan()
        except UnprovedError as error:
            failed = error.layers - replayed
            if not failed:
                return None
            again = {layer for layer in failed - grouped if may_have_groups(known[layer].tiles)}
            grouped |= again
            replayed |= failed - again
    return None


@attrs.define(eq=False)
class _Layer:
    """Instructions of a layer, collected before the proof."""

    tiles: dict[int, list[Words]] = attrs.field(factory=dict)
    """Instruction number -> descriptors."""
    stores: LayerStores = attrs.field(factory=LayerStores)

    def add(self, core: int, one: RecordedInstruction) -> None:
        """Add an instruction that is not a load."""
        if one.number == OP.nmp_store:
            self.stores.add(core, one.words)
            return
        self.tiles.setdefault(one.number, []).append(one.words)
        if one.number in OUTPUT_WORDS:
            self.stores.expect(core, one.words[OUTPUT_WORDS[one.number]])


def _layers(epochs: Sequence[Epoch]) -> dict[int, _Layer]:
    """Return the layers whose tiles all have one pattern."""
    found: dict[int, _Layer] = {}
    for epoch in epochs:
        for core, part in epoch.items():
            for one in part:
                if one.number != OP.nmp_load:
                    found.setdefault(one.layer, _Layer()).add(core, one)
    return {
        number: layer
        for number, layer in found.items()
        if (len(layer.tiles) == 1 and layer.tiles.keys() <= PATTERNS.keys())
        or only_moves_values(layer.tiles, len(layer.stores.words))
    }


PATTERNS: dict[int, type[LayerPattern]] = {
    form.number: form
    for form in (
        Convolution,
        DepthwiseConvolution,
        MatrixProduct,
        MaxPool,
        AveragePool,
        BinaryElementwise,
        UnaryElementwise,
        TableLookup,
    )
}
"""Instruction number -> pattern of layers that it computes."""
OUTPUT_WORDS = {OP.nmp_maxpool: MAXPOOL.output, OP.nmp_lut: LUT.output}
"""Instructions whose descriptors lack result indices -> word of the output address."""


class _Proof:
    """One attempt of a proof, in which some layers are replayed."""

    def __init__(
        self,
        machine: Machine,
        epochs: Sequence[Epoch],
        layers: Mapping[int, _Layer],
        replayed: set[int],
        grouped: set[int],
    ) -> None:
        self._epochs, self._replayed, self._grouped = epochs, replayed, grouped
        self._memories = ValueMemory(machine, {n: layer.stores for n, layer in layers.items()})
        self._locations = ValueLocations(self._memories)
        self._host = HostMemory(machine)
        self._layers = layers
        self._patterns: dict[int, Pattern] = {}
        """Patterns of layers that have begun and not ended."""
        self._results: dict[int, range] = {}
        self._known = {one.number for epoch in epochs for part in epoch.values() for one in part}
        self._moves = {
            number
            for number, layer in layers.items()
            if number not in replayed and only_moves_values(layer.tiles, len(layer.stores.words))
        }
        self._left = {number: len(layer.stores.words) for number, layer in layers.items()}
        self._failed: set[int] = set()
        self._reads_scratchpads = False
        self._touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)

    def plan(self) -> ReplayPlan:
        """Return the plan; raise UnprovedError with the layers that are not proved."""
        steps: list[PlanStep] = []
        for index, epoch in enumerate(self._epochs):
            ended: list[int] = []
            kept: dict[int, list[_ReplayedInstruction]] = {}
            for core, part in epoch.items():
                for one in part:
                    if one.layer in self._replayed:
                        kept.setdefault(core, []).append(self._keep(core, one))
                    elif self._tile(core, one):
                        ended.append(one.layer)
            steps += self._steps(index, kept, ended)
        self._compare(self._memories.recorded, self._memories.planned)
        whole = frozenset(step.layer for step in steps if step.layer >= 0)
        self._failed |= self._results.keys() - whole  # some results are stored for another layer
        if self._failed:
            raise UnprovedError(*self._failed)
        return ReplayPlan(steps, whole, self._host, self._reads_scratchpads)

    def _steps(
        self, index: int, kept: Mapping[int, Sequence[_ReplayedInstruction]], ended: Sequence[int]
    ) -> list[PlanStep]:
        """Return the steps of an epoch: the layers that end in it when they are needed."""
        if not ended:
            self._replay(kept)
            return [PlanStep(index, _parts(kept))] if kept else []
        counts = {core: self._count_possible(part) for core, part in kept.items()}
        whole = [PlanStep(index, {}, layer, self._make_tasks(layer)) for layer in ended]
        first = {core: part[: counts[core]] for core, part in kept.items() if counts[core]}
        last = {
            core: part[counts[core] :] for core, part in kept.items() if counts[core] < len(part)
        }
        self._replay(last)
        around = [[PlanStep(index, _parts(part))] if part else [] for part in (first, last)]
        return [*around[0], *whole, *around[1]]

    def _count_possible(self, part: Sequence[_ReplayedInstruction]) -> int:
        """Replay a core up to the first use of a layer that ends here; return how many."""
        for count, one in enumerate(part):
            if one.is_load and not np.array_equal(one.numbers, self._planned(one)):
                return count
            self._replay({0: [one]})
        return len(part)

    def _compare(self, recorded: ValueNumbers, planned: ValueNumbers) -> None:
        """Mark layers as unproved where recorded and planned values differ.

        The layers that moved values, else those that computed them, else all.
        """
        if np.array_equal(recorded, planned):
            return
        if self._moves:
            self._failed |= self._moves
            return
        missing = recorded[recorded != planned]
        layers = {
            layer
            for layer, made in self._results.items()
            if ((missing >= made.start) & (missing < made.stop)).any()
        }
        self._failed |= layers or self._layers.keys() - self._replayed

    # --- layers that may be whole ------------------------------------------------------------

    def _tile(self, core: int, one: RecordedInstruction) -> bool:
        """Execute an instruction of a candidate layer; return True after the layer's last store."""
        try:
            if one.layer in self._moves and one.layer not in self._failed:
                form = self._get_pattern(one.layer)
                assert isinstance(form, DataMovement)
                form.transfer(core, one.number, one.words)
            if one.number == OP.nmp_load:
                self._memories.load(core, one.words)
            elif one.number == OP.nmp_store:
                numbers = self._memories.store(core, one.words)
                if numbers.size:
                    self._record_store(one, numbers)
                self._left[one.layer] -= 1
                return self._left[one.layer] == 0
            elif one.layer in self._failed:
                self._compute(core, one)
            else:
                self._get_pattern(one.layer).add_tile(core, one.words)
        except UnprovedError:
            self._failed.add(one.layer)
            if one.number in (OP.nmp_load, OP.nmp_store):
                raise UnprovedError(*self._failed) from None
            self._compute(core, one)
        return False

    def _record_store(self, one: RecordedInstruction, numbers: ValueNumbers) -> None:
        """Record a store; the plan gets the values of unproved layers, to find further ones."""
        d, form = one.words, self._patterns.get(one.layer)
        if form is not None and one.layer not in self._failed:
            steps = d[STORE.dram_stride_y], d[STORE.dram_stride_x]
            try:
                form.results.record_store(numbers, d[STORE.dram], steps)
            except UnprovedError:
                self._failed.add(one.layer)
        if form is None or one.layer in self._failed:
            self._failed.add(one.layer)
            self._memories.view_dram(self._memories.planned, d)[...] = numbers

    def _get_pattern(self, layer: int) -> Pattern:
        form = self._patterns.get(layer)
        if form is None:
            require(layer not in self._results)  # what follows the last store belongs to no layer
            form = self._patterns[layer] = self._begin_pattern(layer)
            self._results[layer] = form.results.bytes
        return form

    def _begin_pattern(self, layer: int) -> Pattern:
        """Return the pattern of a layer that begins."""
        if layer in self._moves:
            return DataMovement(self._memories, layer, self._known)
        ((number, descriptors),) = self._layers[layer].tiles.items()
        tiles = np.array(descriptors, np.int64)
        if layer in self._grouped:
            return Convolution(self._memories, layer, tiles, has_groups=True)
        return PATTERNS[number](self._memories, layer, tiles)

    def _make_tasks(self, layer: int) -> Sequence[Task]:
        """Return the tasks of a layer after its last store.

        If the layer is unproved, the plan may still get what it stored, to find further ones.
        """
        form = self._patterns.pop(layer, None)
        if form is not None and layer not in self._failed:
            try:
                return form.make_tasks(self._locations, self._host)
            except UnprovedError:
                self._failed.add(layer)
                with contextlib.suppress(UnprovedError):
                    form.results.publish(self._locations)
        self._failed.add(layer)
        return []

    # --- what is replayed --------------------------------------------------------------------

    def _keep(self, core: int, one: RecordedInstruction) -> _ReplayedInstruction:
        """Execute a replayed instruction on the recorded scratchpads; return what it copies."""
        m = self._memories
        if one.number == OP.nmp_load:
            numbers = m.load(core, one.words).copy()
            if 0 not in get_load_region(one.words)[1]:
                m.copy_to_plan(core, get_load_region(one.words))
            return _ReplayedInstruction(one, numbers, True)
        if one.number == OP.nmp_store:
            numbers = m.store(core, one.words)
            if numbers.size:
                self._compare_read(core, get_store_region(one.words))
            return _ReplayedInstruction(one, numbers.copy(), False)
        self._compute(core, one, is_cached=True)
        return _ReplayedInstruction(one, NOTHING, False)

    def _planned(self, one: _ReplayedInstruction) -> Any:
        return self._memories.view_dram(self._memories.planned, one.recorded.words)

    def _replay(self, kept: Mapping[int, Sequence[_ReplayedInstruction]]) -> None:
        """Replay instructions in the plan, whose loads must find what was recorded."""
        for part in kept.values():
            for one in part:
                if one.numbers.size == 0:
                    continue
                planned = self._planned(one)
                if one.is_load:
                    self._compare(one.numbers, planned)
                else:
                    planned[...] = one.numbers

    def _compute(self, core: int, one: RecordedInstruction, *, is_cached: bool = False) -> None:
        """Execute an instruction that computes values: what it writes gets new numbers."""
        m, touches = self._memories, self._touches
        footprint(int(FOOTPRINT_KIND[one.number]), np.array(one.words, np.int64), touches)
        for row in range(int(touches[0, COUNT]), 0, -1):
            find_axes = touches[row, FIRST_AXIS : FIRST_AXIS + 2 * AXES].reshape(AXES, 2).tolist()
            start, run = int(touches[row, START]) - SCRATCHPAD_BASE, int(touches[row, RUN])
            shape = (*(count for count, _ in find_axes), run)
            steps = (*(step for _, step in find_axes), 1)
            if row <= touches[0, WRITES]:
                first = m.allocate(int(np.prod(shape)))
                new = np.arange(first, m.used, dtype=np.int32).reshape(shape)
                m.begin_write(core, start, shape, steps)[...] = new
                if is_cached:
                    m.copy_to_plan(core, (start, shape, steps))
            elif is_cached:
                self._compare_read(core, (start, shape, steps))

    def _compare_read(self, core: int, read: Region) -> None:
        """Mark layers as unproved if a replayed instruction reads other scratchpad values."""
        planned = view_region(self._memories.planned_scratchpads[core], *read)
        self._compare(view_region(self._memories.scratchpads[core], *read), planned)
        self._reads_scratchpads |= bool((planned == INITIAL).any())


@attrs.frozen(eq=False)
class _ReplayedInstruction:
    """A replayed instruction, and the value numbers that it copies."""

    recorded: RecordedInstruction
    numbers: ValueNumbers
    _is_load: bool

    @property
    def is_load(self) -> bool:
        """Whether it reads DRAM."""
        return self._is_load and self.numbers.size > 0


def _parts(kept: Mapping[int, Sequence[_ReplayedInstruction]]) -> Epoch:
    return {core: [one.recorded for one in part] for core, part in kept.items()}
