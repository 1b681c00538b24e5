"""Recorded runs for tests of whole layers: made, changed, executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from lir_draft import Draft
from small_programs import SMALL, compile_draft, program

from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.config import DeviceConfig
from nmpsim.core.compiled.epochs import Epochs
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.device import Device
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP
from nmpsim.core.layer_kernels.byte_origins import DramOrigins, UnprovedError
from nmpsim.core.layer_kernels.planning import pack_plan, unpack_epochs
from nmpsim.core.layer_kernels.proof import (
    Epoch,
    PlanStep,
    RecordedInstruction,
    ReplayPlan,
    prove_layers,
)
from nmpsim.core.layer_kernels.tasks import HostMemory
from nmpsim.core.state import Machine, reset
from nmpsim.isa.words import LOAD
from nmpsim.memory.checks import OK, find_invalid_word
from nmpsim.memory.footprint import MAX_TOUCHES, TOUCH_WORDS

Inputs = dict[str, npt.NDArray[Any]]
Change = Callable[[list[RecordedInstruction]], None]
needs_recordings = pytest.mark.skipif(
    IS_JIT_DISABLED, reason="nothing is compiled, so nothing is recorded"
)
TIGHT = attrs.evolve(SMALL, scratchpad_bytes=4096)
"""Layers come in several tiles."""


@attrs.frozen
class CoreInstruction(RecordedInstruction):
    """Recorded instruction with the number of its core."""

    core: int


@attrs.frozen(eq=False)
class Recording:
    """Recorded run of a program: the machine after the run, and the instructions of each epoch."""

    bundle: Bundle
    device: Device
    inputs: Inputs
    machine: Machine
    epochs: list[Epoch]

    @cached_property
    def in_order(self) -> tuple[CoreInstruction, ...]:
        """Return the instructions in execution order, sorted by layer within an epoch."""
        return tuple(
            one
            for epoch in self.epochs
            for one in sorted(
                (
                    CoreInstruction(o.number, o.layer, o.words, core, is_owned=o.is_owned)
                    for core, p in epoch.items()
                    for o in p
                ),
                key=attrgetter("layer"),
            )
        )


def record(draft: Draft, config: DeviceConfig, tiling: str = "layer") -> Recording:
    """Run a program without fusion and return its recording."""
    bundle = compile_draft(draft, config, fuse=False, tiling=tiling)
    device = Device(config, threads=1)
    inputs = program(draft).inputs
    device.run(bundle, inputs)
    (recording,) = device._engine._recordings._known  # type: ignore[attr-defined]
    machine = device.machine_after(bundle)
    return Recording(bundle, device, inputs, machine, unpack_epochs(recording.epochs))


def make_plan(recorded: Recording, change: Change | None = None) -> ReplayPlan:
    """Return the plan of a recording, or of its changed instructions in execution order."""
    layers = recorded.bundle.metadata.layers
    if change is None:
        return prove_layers(recorded.machine, recorded.epochs, layers)
    flat: list[Any] = list(recorded.in_order)
    change(flat)
    return prove_layers(recorded.machine, [{one.core: [one]} for one in flat], layers)


def find(flat: list[RecordedInstruction], number: int, layer: int = -1, nth: int = 0) -> int:
    """Return the position of an instruction."""
    found = [i for i, one in enumerate(flat) if one.number == number and layer in (-1, one.layer)]
    return found[nth]


def put(flat: list[RecordedInstruction], at: int, word: int, value: int) -> None:
    """Change a word of a descriptor."""
    words = list(flat[at].words)
    words[word] = value
    flat[at] = attrs.evolve(flat[at], words=words)


def list_layers(recorded: Recording, number: int) -> list[int]:
    epochs = recorded.epochs
    return sorted(
        {one.layer for epoch in epochs for p in epoch.values() for one in p if one.number == number}
    )


def remove_instruction(number: int) -> Change:
    def change(flat: list[RecordedInstruction]) -> None:
        del flat[find(flat, number, -1 if number != OP.nmp_store else flat[-1].layer)]

    return change


def change_word(number: int, word: int, by: int, nth: int = 0) -> Change:
    """Return a change of one word of one descriptor."""

    def change(flat: list[RecordedInstruction]) -> None:
        at = find(flat, number, nth=nth)
        put(flat, at, word, flat[at].words[word] + by)

    return change


def change_all_words(number: int, word: int, by: int) -> Change:
    """Return a change of one word of all descriptors of an instruction."""

    def change(flat: list[RecordedInstruction]) -> None:
        for at, one in enumerate(flat):
            if one.number == number:
                put(flat, at, word, one.words[word] + by)

    return change


def assert_refused(recorded: Recording, change: Change) -> None:
    """Assert that a change leaves fewer layers whole, and no others."""
    assert make_plan(recorded, change).whole < make_plan(recorded).whole


def assert_damage_is_found(
    recorded: Recording, seed: int, turns: int, steps: Sequence[int], number: int = -1
) -> None:
    """Assert that what is still proved of changed recordings gives the same as its tiles.

    Words of one descriptor, or of all of an instruction, change by some of ``steps``, more often
    those of the instruction ``number``. In every third turn a claim changes instead.
    """
    rng, flat = np.random.default_rng(seed), recorded.in_order
    tiles = [one for one in flat if one.number == number] or flat
    proved = 0
    for turn in range(turns):
        among = tiles if rng.integers(2) else flat
        one = among[int(rng.integers(len(among)))]
        word, by = int(rng.integers(1, len(one.words))), int(rng.choice(steps))
        once = change_word(one.number, word, by, int(rng.integers(2)))
        everywhere = change_all_words(one.number, word, by)
        layers = recorded.bundle.metadata.layers
        if turn % 3 == 2:
            layers, by = damage_claims(layers, rng), 0
        change = everywhere if rng.integers(2) else once
        proved += assert_right_or_refused(recorded, change, layers, turn)
    assert proved


def damage_claims(layers: Sequence[Layer], rng: np.random.Generator) -> Sequence[Layer]:
    """Return the layers with one claim changed: its tensors or its padding."""
    changed = list(layers)
    at = int(rng.integers(len(changed)))
    layer = changed[at]
    claim, by = layer.claim, int(rng.choice([-64, -16, -2, -1, 1, 2, 16, 64]))
    assert claim is not None
    which = int(rng.integers(6))
    if which == 0:
        layer = attrs.evolve(layer, output=damage_tensor(layer.output, rng, by))
    elif which == 1:
        claim = attrs.evolve(claim, pad_top=claim.pad_top + by)
    elif which == 2:
        claim = attrs.evolve(claim, pad_left=claim.pad_left + by)
    elif which == 3:
        claim = attrs.evolve(claim, inputs=claim.inputs[::-1][: int(rng.integers(3))])
    else:
        inputs = [damage_tensor(one, rng, by) for one in claim.inputs]
        claim = attrs.evolve(claim, inputs=tuple(inputs))
    changed[at] = attrs.evolve(layer, claim=claim)
    return changed


def damage_tensor(tensor: Tensor, rng: np.random.Generator, by: int) -> Tensor:
    """Return a tensor with another address, shape or zero point."""
    shape = list(tensor.shape)
    axis, other = (int(n) for n in rng.integers(len(shape), size=2))
    which = int(rng.integers(4))
    if which == 0:
        return attrs.evolve(tensor, address=tensor.address + by)
    if which == 1:
        return attrs.evolve(tensor, offset=(tensor.offset or 0) + by)
    if which == 2:
        shape[axis] += by
    elif shape[axis] % 2 == 0:
        shape[axis] //= 2
        shape[other] *= 2
    return attrs.evolve(tensor, shape=tuple(shape))


def assert_nothing_changes(recorded: Recording, config: DeviceConfig) -> None:
    """Assert that whole layers change no report, memory, counter or scratchpad."""
    bundle, inputs = recorded.bundle, recorded.inputs
    rng = np.random.default_rng(5)
    devices = {
        name: Device(config, threads=threads, whole_layers=whole)
        for name, threads, whole in (("off", 1, False), ("on", 1, True), ("two", 2, True))
    }
    for turn in range(4):
        given = {n: rng.permutation(v.reshape(-1)).reshape(v.shape) for n, v in inputs.items()}
        seen = {}
        for name, device in devices.items():
            device._engine._workers.min_seconds = 0.0  # type: ignore[attr-defined]
            report = device.run(bundle, given)
            assert has_scratchpads(device) == (name == "off" or turn == 0)
            machine = device._loaded.machine  # type: ignore[union-attr]
            seen[name] = [
                report.layers,
                report.cycles,
                *map(np.array, report.outputs.values()),
            ]
            seen[name] += [
                part.tobytes()
                for part in machine
                if part is not machine.scratchpad and part.base is not machine.scratchpad
            ]
            after = device.machine_after(bundle)
            assert has_scratchpads(device)
            seen[name] += [part.tobytes() for part in after]
        for name in ("on", "two"):
            for ours, theirs in zip(seen[name], seen["off"], strict=True):
                np.testing.assert_equal(ours, theirs)


def has_scratchpads(device: Device) -> bool:
    """Return whether scratchpads are as the program leaves them."""
    assert device._loaded is not None
    return device._loaded.inputs is None


def execute_epochs(recorded: Recording, epochs: Epochs, seed: int) -> list[bytes] | None:
    """Return DRAM and counters after epochs on random DRAM, or None if a table is impossible."""
    device, machine = recorded.device, recorded.machine
    reset(machine)
    machine.ram[:] = np.random.default_rng(seed).integers(0, 256, machine.ram.size)
    workers = device._engine._workers  # type: ignore[attr-defined]
    if not workers.replay(machine, epochs, lambda layer: None, False):
        return None
    return [part.tobytes() for part in (machine.ram, machine.layers, machine.channel_saturated)]


def assert_right_or_refused(
    recorded: Recording, change: Change, layers: Sequence[Layer] | None = None, seed: int = 0
) -> bool:
    """Assert that a changed recording and its plan agree; return whether a layer is whole."""
    machine = recorded.machine
    flat: list[Any] = list(recorded.in_order)
    change(flat)
    executed = set(map(id, recorded.in_order))
    if not all(id(one) in executed or is_valid(machine, one) for one in flat):
        return False
    epochs: list[Epoch] = [{one.core: [one]} for one in flat]
    plan = prove_layers(machine, epochs, layers or recorded.bundle.metadata.layers)
    if not plan.whole:
        return False
    steps = [PlanStep(epoch) for epoch in epochs]
    whole = execute_epochs(recorded, pack_plan(machine, plan), seed)
    tiles = execute_epochs(
        recorded, pack_plan(machine, ReplayPlan(steps, frozenset(), HostMemory(machine))), seed
    )
    assert whole == tiles
    return True


def is_valid(machine: Machine, one: RecordedInstruction) -> bool:
    """Return whether an instruction does not trap."""
    words = np.array(one.words, np.int64)
    touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    spm_bytes = int(machine.shared[0].scratchpad_bytes)
    if find_invalid_word(int(FOOTPRINT_KIND[one.number]), words, spm_bytes, touches) != OK:
        return False
    if one.number not in (OP.nmp_load, OP.nmp_store):
        return one.layer == one.words[0]
    try:
        DramOrigins(machine).get_transfer_origins(one.words)
    except UnprovedError:
        return False
    shared, first = machine.shared[0], one.words[LOAD.dram]
    return one.number == OP.nmp_load or first >= shared.ram_base
