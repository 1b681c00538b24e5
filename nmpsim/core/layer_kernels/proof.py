"""Which layers of a recorded run are one operation on tensors in DRAM, each proved so.

The proof executes the recording twice at the same time, on numbers of values instead of values:
once as it was recorded, once as planned. The plan has whole layers in the place of the tiles of
some layers, and of all other layers each instruction. A layer is whole if its form finds that
every result is computed once, from what the layer reads in DRAM; if the plan has just that there
when the whole layer begins; and if nothing that is replayed reads from a scratchpad what the tiles
of a whole layer wrote. In the end both have the same in all of DRAM. Scratchpads differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP
from nmpsim.core.layer_kernels.forms import Form, LookUp, Pair, Rescale
from nmpsim.core.layer_kernels.groups import Depthwise, Grouped, convolution, may_be_grouped
from nmpsim.core.layer_kernels.moves import Moves, only_moves
from nmpsim.core.layer_kernels.pools import AveragePool, MaxPool
from nmpsim.core.layer_kernels.products import MatrixProduct
from nmpsim.core.layer_kernels.tasks import Host, Task
from nmpsim.core.layer_kernels.tensors import Places
from nmpsim.core.layer_kernels.values import (
    INITIAL,
    NOTHING,
    Box,
    Memories,
    Numbers,
    Stores,
    UnprovedError,
    Words,
    box,
    loaded_box,
    stored_box,
)
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
"""How often the proof begins again, with more layers replayed, before it is given up."""
MAX_EXECUTED = 1 << 19
"""Instructions after which it does not begin again."""


@attrs.frozen
class Recorded:
    """An instruction of a recording."""

    number: int
    layer: int
    words: Words


Epoch = Mapping[int, Sequence[Recorded]]
"""Instructions of each core that has some."""


@attrs.frozen
class Step:
    """What the plan does before all threads meet: instructions that are replayed, by core, or the
    tasks of a whole layer."""

    epoch: int
    replayed: Epoch
    layer: int = -1
    tasks: Sequence[Task] = ()


@attrs.frozen
class Plan:
    """What a recording does, with whole layers."""

    steps: list[Step]
    whole: frozenset[int]
    host: Host
    reads_scratchpads: bool = False
    """Does it read from a scratchpad what it has not written?"""


def prove(machine: Machine, epochs: Sequence[Epoch]) -> Plan | None:
    """A plan of a recording; None if there is too little time for one.

    Args:
        machine: the memory that the plan is for; its values do not matter, the image's apart.
        epochs: the recording.
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
            again = {layer for layer in failed - grouped if may_be_grouped(known[layer].tiles)}
            grouped |= again
            replayed |= failed - again
    return None


@attrs.define(eq=False)
class _Layer:
    """What is known of a layer before the proof."""

    tiles: dict[int, list[Words]] = attrs.field(factory=dict)
    """Instruction number -> descriptors."""
    stores: Stores = attrs.field(factory=Stores)

    def add(self, core: int, one: Recorded) -> None:
        """An instruction that is no load."""
        if one.number == OP.nmp_store:
            self.stores.add(core, one.words)
            return
        self.tiles.setdefault(one.number, []).append(one.words)
        if one.number in OUTPUT_WORDS:
            self.stores.expect(core, one.words[OUTPUT_WORDS[one.number]])


def _layers(epochs: Sequence[Epoch]) -> dict[int, _Layer]:
    """Layers of which all tiles are of one form."""
    found: dict[int, _Layer] = {}
    for epoch in epochs:
        for core, part in epoch.items():
            for one in part:
                if one.number != OP.nmp_load:
                    found.setdefault(one.layer, _Layer()).add(core, one)
    return {
        number: layer
        for number, layer in found.items()
        if (len(layer.tiles) == 1 and layer.tiles.keys() <= FORMS.keys())
        or only_moves(layer.tiles, len(layer.stores.words))
    }


_FORMS = (Depthwise, MatrixProduct, MaxPool, AveragePool, Pair, Rescale, LookUp)
FORMS: dict[int, Any] = {
    OP.nmp_conv: convolution,
    **{form.number: form for form in _FORMS},
}
"""Instruction number -> the form of layers that it computes."""
OUTPUT_WORDS = {OP.nmp_maxpool: MAXPOOL.output, OP.nmp_lut: LUT.output}
"""Instructions that do not say which results they compute -> the word that says where."""


class _Proof:
    """One attempt, with some layers that are replayed."""

    def __init__(
        self,
        machine: Machine,
        epochs: Sequence[Epoch],
        layers: Mapping[int, _Layer],
        replayed: set[int],
        grouped: set[int],
    ) -> None:
        self._epochs, self._replayed, self._grouped = epochs, replayed, grouped
        self._memories = Memories(machine, {n: layer.stores for n, layer in layers.items()})
        self._places = Places(self._memories)
        self._host = Host(machine)
        self._layers = layers
        self._forms: dict[int, Form] = {}
        """Of layers that have begun and not ended."""
        self._results: dict[int, range] = {}
        self._known = {one.number for epoch in epochs for part in epoch.values() for one in part}
        self._moves = {
            number
            for number, layer in layers.items()
            if number not in replayed and only_moves(layer.tiles, len(layer.stores.words))
        }
        self._left = {number: len(layer.stores.words) for number, layer in layers.items()}
        self._failed: set[int] = set()
        self._reads_scratchpads = False
        self._touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)

    def plan(self) -> Plan:
        """The plan; raises UnprovedError with the layers that are not proved."""
        steps: list[Step] = []
        for index, epoch in enumerate(self._epochs):
            ended: list[int] = []
            kept: dict[int, list[_Kept]] = {}
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
        return Plan(steps, whole, self._host, self._reads_scratchpads)

    def _steps(
        self, index: int, kept: Mapping[int, Sequence[_Kept]], ended: Sequence[int]
    ) -> list[Step]:
        """What the plan does in an epoch: the layers that end here when they are needed."""
        if not ended:
            self._replay(kept)
            return [Step(index, _parts(kept))] if kept else []
        counts = {core: self._count_possible(part) for core, part in kept.items()}
        whole = [Step(index, {}, layer, self._whole(layer)) for layer in ended]
        first = {core: part[: counts[core]] for core, part in kept.items() if counts[core]}
        last = {
            core: part[counts[core] :] for core, part in kept.items() if counts[core] < len(part)
        }
        self._replay(last)
        around = [[Step(index, _parts(part))] if part else [] for part in (first, last)]
        return [*around[0], *whole, *around[1]]

    def _count_possible(self, part: Sequence[_Kept]) -> int:
        """Do instructions of a core up to one that needs a layer that ends here; how many."""
        for count, one in enumerate(part):
            if one.is_load and not np.array_equal(one.numbers, self._planned(one)):
                return count
            self._replay({0: [one]})
        return len(part)

    def _compare(self, recorded: Numbers, planned: Numbers) -> None:
        """What is not the same is the fault of the layers that moved something, of those that
        computed it, or of all."""
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

    def _tile(self, core: int, one: Recorded) -> bool:
        """An instruction of a layer that may be whole; True after its last store."""
        try:
            if one.layer in self._moves and one.layer not in self._failed:
                self._moving(one.layer).transfer(core, one.number, one.words)
            if one.number == OP.nmp_load:
                self._memories.load(core, one.words)
            elif one.number == OP.nmp_store:
                numbers = self._memories.store(core, one.words)
                if numbers.size:
                    self._stored(one, numbers)
                self._left[one.layer] -= 1
                return self._left[one.layer] == 0
            elif one.layer in self._failed:
                self._compute(core, one)
            else:
                self._form(one.layer).tile(core, one.words)
        except UnprovedError:
            self._failed.add(one.layer)
            if one.number in (OP.nmp_load, OP.nmp_store):
                raise UnprovedError(*self._failed) from None
            self._compute(core, one)
        return False

    def _stored(self, one: Recorded, numbers: Numbers) -> None:
        """Take note of where results are. If the layer is not whole, the plan gets what it stores,
        to find others that are not."""
        d, form = one.words, self._forms.get(one.layer)
        if form is not None and one.layer not in self._failed:
            steps = d[STORE.dram_stride_y], d[STORE.dram_stride_x]
            try:
                form.results.stored(numbers, d[STORE.dram], steps)
            except UnprovedError:
                self._failed.add(one.layer)
        if form is None or one.layer in self._failed:
            self._failed.add(one.layer)
            self._memories.dram(self._memories.planned, d)[...] = numbers

    def _form(self, layer: int) -> Form:
        form = self._forms.get(layer)
        if form is None:
            if layer in self._results:  # what comes after the last store is of no layer
                raise UnprovedError(layer)
            form = self._forms[layer] = self._begun(layer)
            self._results[layer] = form.results.bytes
        return form

    def _moving(self, layer: int) -> Moves:
        """The form of a layer that only moves values."""
        form = self._form(layer)
        if not isinstance(form, Moves):
            raise UnprovedError(layer)
        return form

    def _begun(self, layer: int) -> Form:
        """The form of a layer that begins."""
        if layer in self._moves:
            return Moves(self._memories, layer, self._known)
        ((number, tiles),) = self._layers[layer].tiles.items()
        kind: Any = Grouped if layer in self._grouped else FORMS[number]
        form: Form = kind(self._memories, layer, np.array(tiles, np.int64))
        return form

    def _whole(self, layer: int) -> Sequence[Task]:
        """The tasks of a layer whose last store was recorded.

        If it is not whole, the plan may still get what it stored, to find others that are not.
        """
        form = self._forms.pop(layer, None)
        if form is not None and layer not in self._failed:
            try:
                return form.tasks(self._places, self._host)
            except UnprovedError:
                self._failed.add(layer)
                with contextlib.suppress(UnprovedError):
                    form.results.give(self._places)
        self._failed.add(layer)
        return []

    # --- what is replayed --------------------------------------------------------------------

    def _keep(self, core: int, one: Recorded) -> _Kept:
        """An instruction that is replayed: it finds in its scratchpad what was recorded. What it
        copies from or to DRAM."""
        m = self._memories
        if one.number == OP.nmp_load:
            numbers = m.load(core, one.words).copy()
            if 0 not in loaded_box(one.words)[1]:
                m.keep(core, loaded_box(one.words))
            return _Kept(one, numbers, True)
        if one.number == OP.nmp_store:
            numbers = m.store(core, one.words)
            if numbers.size:
                self._compare_read(core, stored_box(one.words))
            return _Kept(one, numbers.copy(), False)
        self._compute(core, one, is_kept=True)
        return _Kept(one, NOTHING, False)

    def _planned(self, one: _Kept) -> Any:
        return self._memories.dram(self._memories.planned, one.recorded.words)

    def _replay(self, kept: Mapping[int, Sequence[_Kept]]) -> None:
        """Instructions that are replayed: loads find there what was recorded."""
        for part in kept.values():
            for one in part:
                if one.numbers.size == 0:
                    continue
                planned = self._planned(one)
                if one.is_load:
                    self._compare(one.numbers, planned)
                else:
                    planned[...] = one.numbers

    def _compute(self, core: int, one: Recorded, *, is_kept: bool = False) -> None:
        """Some instruction: what it writes is new."""
        m, touches = self._memories, self._touches
        footprint(int(FOOTPRINT_KIND[one.number]), np.array(one.words, np.int64), touches)
        for row in range(int(touches[0, COUNT]), 0, -1):
            axes = touches[row, FIRST_AXIS : FIRST_AXIS + 2 * AXES].reshape(AXES, 2).tolist()
            start, run = int(touches[row, START]) - SCRATCHPAD_BASE, int(touches[row, RUN])
            shape = (*(count for count, _ in axes), run)
            steps = (*(step for _, step in axes), 1)
            if row <= touches[0, WRITES]:
                first = m.new(int(np.prod(shape)))
                new = np.arange(first, m.used, dtype=np.int32).reshape(shape)
                m.written(core, start, shape, steps)[...] = new
                if is_kept:
                    m.keep(core, (start, shape, steps))
            elif is_kept:
                self._compare_read(core, (start, shape, steps))

    def _compare_read(self, core: int, read: Box) -> None:
        """An instruction that is replayed finds in its scratchpad what was recorded."""
        planned = box(self._memories.planned_scratchpads[core], *read)
        self._compare(box(self._memories.scratchpads[core], *read), planned)
        self._reads_scratchpads |= bool((planned == INITIAL).any())


@attrs.frozen(eq=False)
class _Kept:
    """An instruction that is replayed, and the numbers that it copies."""

    recorded: Recorded
    numbers: Numbers
    _is_load: bool

    @property
    def is_load(self) -> bool:
        """Does it read DRAM?"""
        return self._is_load and self.numbers.size > 0


def _parts(kept: Mapping[int, Sequence[_Kept]]) -> Epoch:
    return {core: [one.recorded for one in part] for core, part in kept.items()}
