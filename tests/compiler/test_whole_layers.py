"""Whole layers: what is proved of recorded tiles, what is refused, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from lir_draft import Draft, int8
from small_programs import SMALL, bundle_of, convolve, image, out_kind, program

from nmpsim.bundle import Bundle
from nmpsim.core.compiled.issue import IS_PLAIN
from nmpsim.core.decode import OP
from nmpsim.core.device import Device
from nmpsim.core.state import Machine
from nmpsim.core.whole.planned import recorded_epochs
from nmpsim.core.whole.proof import Epoch, Plan, Recorded, prove
from nmpsim.isa.words import AVGPOOL, CONV, ELTWISE, LOAD, RESCALE, STORE

pytestmark = pytest.mark.skipif(IS_PLAIN, reason="nothing is compiled, so nothing is recorded")
Inputs = dict[str, npt.NDArray[Any]]
DEEP = attrs.evolve(SMALL, scratchpad_bytes=8192)
"""Input channels of a convolution come in parts."""


def network() -> Draft:
    """A convolution with padding, a deep one, a sum, a clip and an average."""
    draft = Draft()
    source = image(draft, 8)
    wide = convolve(draft, source, draft.buffer(out_kind(source, 96)))
    narrow = convolve(draft, wide, draft.buffer(out_kind(wide, 16)))
    other = convolve(draft, source, draft.buffer(out_kind(source, 16, 0.07, 5)))
    total = draft.emit("elementadd", draft.buffer(out_kind(source, 16, 0.2)), narrow, other)
    clipped = draft.emit("relu", draft.buffer(out_kind(source, 16, 0.1, -128)), total)
    draft.emit(
        "avgpool",
        draft.output(int8((1, 1, 1, 16), 0.1, -128)),
        clipped,
        Kernels=(6, 5),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        Layout=0,
        CountIncludePads=1,
    )
    return draft


@pytest.fixture(scope="module")
def recorded() -> tuple[Bundle, Device, Inputs, Machine, list[Epoch]]:
    draft = network()
    bundle, device = bundle_of(draft, DEEP, fuse=False), Device(DEEP)
    inputs = program(draft).inputs
    device.run(bundle, inputs)
    (recording,) = device._engine._recordings._known  # type: ignore[attr-defined]
    machine = device.machine_after(bundle)
    return bundle, device, inputs, machine, recorded_epochs(recording.epochs)


def plan_of(recorded: Any, change: Callable[[list[Recorded]], None] | None = None) -> Plan | None:
    """The plan of a recording, in the order of execution, in which something was changed."""
    _, _, _, machine, epochs = recorded
    flat = [one for epoch in epochs for part in epoch.values() for one in part]
    if change is None:
        return prove(machine, epochs)
    change(flat)
    return prove(machine, [{0: [one]} for one in flat])


def find(flat: list[Recorded], number: int, layer: int = -1, nth: int = 0) -> int:
    """Position of an instruction."""
    found = [i for i, one in enumerate(flat) if one.number == number and layer in (-1, one.layer)]
    return found[nth]


def put(flat: list[Recorded], at: int, word: int, value: int) -> None:
    """Change a word of a descriptor."""
    words = list(flat[at].words)
    words[word] = value
    flat[at] = attrs.evolve(flat[at], words=words)


def layers_of(recorded: Any, number: int) -> list[int]:
    epochs = recorded[-1]
    return sorted(
        {one.layer for epoch in epochs for p in epoch.values() for one in p if one.number == number}
    )


def test_all_layers_are_whole(recorded: Any) -> None:
    plan = plan_of(recorded)
    assert plan is not None
    bundle, _, _, _, epochs = recorded
    assert plan.whole == {layer.index for layer in bundle.metadata.layers}
    parts = {one.words[CONV.part] for e in epochs for p in e.values() for one in p
             if one.number == OP.nmp_conv}  # fmt: skip
    assert len(parts) > 1
    assert not any(step.replayed for step in plan.steps)


def test_nothing_that_can_be_seen_changes(recorded: Any) -> None:
    bundle, _, inputs, _, _ = recorded
    rng = np.random.default_rng(5)
    devices = {
        name: Device(DEEP, threads=threads, whole_layers=whole)
        for name, threads, whole in (("off", 1, False), ("on", 1, True), ("two", 2, True))
    }
    for turn in range(4):
        given = {n: rng.permutation(v.reshape(-1)).reshape(v.shape) for n, v in inputs.items()}
        seen = {}
        for name, device in devices.items():
            device._engine._workers.patience_seconds = 0.0  # type: ignore[attr-defined]
            report = device.run(bundle, given)
            assert device._engine.has_scratchpads == (name == "off" or turn == 0)
            machine = device._loaded.machine  # type: ignore[union-attr]
            seen[name] = [report.layers, report.cycles, *map(np.array, report.outputs.values())]
            seen[name] += [part.tobytes() for part in machine if part is not machine.scratchpad
                           and part.base is not machine.scratchpad]  # fmt: skip
            after = device.machine_after(bundle)
            assert device._engine.has_scratchpads
            seen[name] += [part.tobytes() for part in after]
        for name in ("on", "two"):
            for ours, theirs in zip(seen[name], seen["off"], strict=True):
                np.testing.assert_equal(ours, theirs)


def twice(flat: list[Recorded]) -> None:
    """A tile is computed twice."""
    at = find(flat, OP.nmp_avgpool)
    flat.insert(at, flat[at])


def missing(number: int) -> Callable[[list[Recorded]], None]:
    def change(flat: list[Recorded]) -> None:
        del flat[find(flat, number, -1 if number != OP.nmp_store else flat[-1].layer)]

    return change


def changed(number: int, word: int, by: int, nth: int = 0) -> Callable[[list[Recorded]], None]:
    """One word of one descriptor."""

    def change(flat: list[Recorded]) -> None:
        at = find(flat, number, nth=nth)
        put(flat, at, word, flat[at].words[word] + by)

    return change


def padded_otherwise(flat: list[Recorded]) -> None:
    """One tile's padding holds another value."""
    pads = (LOAD.pad_x_before, LOAD.pad_y_before)
    (at, *_) = (
        i for i, one in enumerate(flat)
        if one.number == OP.nmp_load and any(one.words[word] for word in pads)
    )  # fmt: skip
    put(flat, at, LOAD.fill, flat[at].words[LOAD.fill] + 1)


def stale(flat: list[Recorded]) -> None:
    """A tile's input is not loaded."""
    conv = find(flat, OP.nmp_conv)
    loads = [
        i for i in range(conv)
        if flat[i].number == OP.nmp_load and flat[i].words[LOAD.spm] == flat[conv].words[CONV.input]
    ]  # fmt: skip
    del flat[loads[-1]]


def weights_of_others(flat: list[Recorded]) -> None:
    """Weights are loaded from where those of other channels are."""
    conv = find(flat, OP.nmp_conv, nth=1)
    loads = [
        i for i in range(conv) if flat[i].number == OP.nmp_load
        and flat[i].words[LOAD.spm] == flat[conv].words[CONV.weights]
    ]  # fmt: skip
    put(flat, loads[-1], LOAD.dram, flat[loads[-1]].words[LOAD.dram] + 64)


def stored_late(flat: list[Recorded]) -> None:
    """A store comes after what reads it."""
    layer = flat[find(flat, OP.nmp_conv)].layer
    flat.append(flat.pop(find(flat, OP.nmp_store, layer)))


def stored_again(flat: list[Recorded]) -> None:
    """A result is stored where another layer's is expected."""
    first, last = find(flat, OP.nmp_store), find(flat, OP.nmp_load, flat[-1].layer)
    target = flat[last].words[LOAD.dram]
    late = attrs.evolve(flat[first], words=list(flat[first].words))
    late.words[STORE.dram] = target  # type: ignore[index]
    flat.insert(last, late)


def parts_of_others(flat: list[Recorded]) -> None:
    """Sums go on that another tile has begun."""
    middle = [i for i, one in enumerate(flat)
              if one.number == OP.nmp_conv and one.words[CONV.part] > 1]  # fmt: skip
    put(flat, middle[0], CONV.event_origin, flat[middle[0]].words[CONV.event_origin] + 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(twice, id="a tile twice"),
        pytest.param(missing(OP.nmp_avgpool), id="a tile missing"),
        pytest.param(missing(OP.nmp_store), id="a store missing"),
        pytest.param(changed(OP.nmp_conv, CONV.clip_high, -1), id="another clip"),
        pytest.param(changed(OP.nmp_conv, CONV.out_mul, 1), id="another factor"),
        pytest.param(changed(OP.nmp_conv, CONV.event_origin, 1), id="another place"),
        pytest.param(changed(OP.nmp_conv, CONV.output, 1), id="results elsewhere"),
        pytest.param(changed(OP.nmp_conv, CONV.channels, 16), id="channel records of others"),
        pytest.param(changed(OP.nmp_conv, CONV.in_row_stride, 8), id="rows further apart"),
        pytest.param(changed(OP.nmp_eltwise, ELTWISE.rhs, 1), id="a sum of other elements"),
        pytest.param(changed(OP.nmp_eltwise, ELTWISE.lhs_mul, 1), id="a sum with another factor"),
        pytest.param(changed(OP.nmp_rescale, RESCALE.in_low, 1), id="another activation"),
        pytest.param(changed(OP.nmp_rescale, RESCALE.input, 1), id="a clip of other elements"),
        pytest.param(changed(OP.nmp_avgpool, AVGPOOL.input, 1), id="an average of others"),
        pytest.param(changed(OP.nmp_avgpool, AVGPOOL.pad_top, 1), id="an average with padding"),
        pytest.param(changed(OP.nmp_store, STORE.dram, 1), id="stored elsewhere"),
        pytest.param(padded_otherwise, id="padded otherwise"),
        pytest.param(stale, id="stale input"),
        pytest.param(weights_of_others, id="weights of other channels"),
        pytest.param(stored_late, id="stored late"),
        pytest.param(stored_again, id="overwritten"),
        pytest.param(parts_of_others, id="sums of others"),
    ],
)
def test_what_is_refused(recorded: Any, change: Callable[[list[Recorded]], None]) -> None:
    """The layer that was changed, or the one that reads it, is replayed; or there is no plan."""
    whole = plan_of(recorded)
    assert whole is not None
    plan = plan_of(recorded, change)
    assert plan is None or plan.whole < whole.whole


def test_a_layer_that_is_replayed_between_others(recorded: Any) -> None:
    """It reads what whole layers have stored, and they read what it has."""
    *_, machine, epochs = recorded
    (layer,) = layers_of(recorded, OP.nmp_eltwise)
    ids = iter(range(100))

    def other_words(one: Recorded) -> Recorded:
        flat = [one]
        if one.number == OP.nmp_eltwise:
            put(flat, 0, ELTWISE.lhs_mul, next(ids))
        return flat[0]

    mixed = [{core: list(map(other_words, part)) for core, part in e.items()} for e in epochs]
    plan, whole = prove(machine, mixed), plan_of(recorded)
    assert plan is not None
    assert whole is not None
    assert plan.whole == whole.whole - {layer}
    order = [step.layer for step in plan.steps]
    assert order[0] >= 0
    assert order[-1] >= 0
    assert -1 in order
