"""Test the proofs of whole layers: accepted and refused recordings, and unchanged results."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from lir_draft import Draft, int8, tensor_type
from small_programs import SMALL, compile_draft, convolve, image, out_kind
from whole_recordings import (
    Change,
    Recording,
    assert_nothing_changes,
    assert_refused,
    assert_right_or_refused,
    change_word,
    find,
    has_scratchpads,
    list_layers,
    make_plan,
    needs_recordings,
    put,
    record,
    remove_instruction,
)

from nmpsim.bundle import Bundle
from nmpsim.bundle.metadata import Layer
from nmpsim.core.device import Device
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels import planning
from nmpsim.core.layer_kernels.byte_origins import TensorView
from nmpsim.core.layer_kernels.patterns import are_aligned
from nmpsim.core.layer_kernels.proof import Epoch, RecordedInstruction, ReplayPlan, prove_layers
from nmpsim.core.layer_kernels.tasks import HostMemory
from nmpsim.core.state import Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import AVGPOOL, CONV, ELTWISE, LOAD, RESCALE, STORE

pytestmark = needs_recordings
Inputs = dict[str, npt.NDArray[Any]]
DEEP = attrs.evolve(SMALL, scratchpad_bytes=8192)
"""Input channels of a convolution come in parts."""


def network() -> Draft:
    """Build a padded convolution, a deep one, a sum, a clip and an average."""
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
def recorded() -> Recording:
    return record(network(), DEEP)


def test_all_layers_run_as_layer_kernels(recorded: Recording) -> None:
    plan = make_plan(recorded)
    bundle, epochs = recorded.bundle, recorded.epochs
    assert plan.whole == {layer.index for layer in bundle.metadata.layers}
    parts = {one.words[CONV.part] for e in epochs for p in e.values() for one in p
             if one.number == OP.nmp_conv}  # fmt: skip
    assert len(parts) > 1
    assert not any(step.replayed for step in plan.steps)
    one_by_one = make_plan(recorded, lambda flat: None)
    assert one_by_one is not None
    assert one_by_one.whole == plan.whole


def test_layer_kernels_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, DEEP)


def repeat_tile(flat: list[RecordedInstruction]) -> None:
    """Compute a tile twice."""
    at = find(flat, OP.nmp_avgpool)
    flat.insert(at, flat[at])


def change_padding(flat: list[RecordedInstruction]) -> None:
    """Change the padding value of one tile."""
    pads = (LOAD.pad_x_before, LOAD.pad_y_before)
    (at, *_) = (
        i for i, one in enumerate(flat)
        if one.number == OP.nmp_load and any(one.words[word] for word in pads)
    )  # fmt: skip
    put(flat, at, LOAD.fill, flat[at].words[LOAD.fill] + 1)


def remove_load(flat: list[RecordedInstruction]) -> None:
    """Remove the load of a tile's input."""
    conv = find(flat, OP.nmp_conv)
    loads = [
        i for i in range(conv)
        if flat[i].number == OP.nmp_load and flat[i].words[LOAD.spm] == flat[conv].words[CONV.input]
    ]  # fmt: skip
    del flat[loads[-1]]


def load_input_before_it_is_stored(flat: list[RecordedInstruction]) -> None:
    at, reader = find(flat, OP.nmp_load, 4), find(flat, OP.nmp_rescale)
    address = SCRATCHPAD_BASE + DEEP.scratchpad_bytes - flat[at].words[LOAD.run_bytes]
    put(flat, at, LOAD.spm, address)
    put(flat, reader, RESCALE.input, address)
    flat.insert(find(flat, OP.nmp_load, 3), attrs.evolve(flat.pop(at), layer=3))


def load_other_weights(flat: list[RecordedInstruction]) -> None:
    """Load weights from a block further on before a core's second tile."""
    conv = find(flat, OP.nmp_conv, nth=1)
    loads = [
        i for i in range(conv) if flat[i].number == OP.nmp_load
        and flat[i].words[LOAD.spm] == flat[conv].words[CONV.weights]
    ]  # fmt: skip
    flat.insert(conv, flat[loads[-1]])
    put(flat, conv, LOAD.dram, flat[conv].words[LOAD.dram] + 64)


def delay_store(flat: list[RecordedInstruction]) -> None:
    """Move a store behind the instructions that read its result."""
    layer = flat[find(flat, OP.nmp_conv)].layer
    flat.append(flat.pop(find(flat, OP.nmp_store, layer)))


def overwrite_result(flat: list[RecordedInstruction]) -> None:
    """Store a result where another layer's result is expected."""
    first, last = find(flat, OP.nmp_store), find(flat, OP.nmp_load, flat[-1].layer)
    target = flat[last].words[LOAD.dram]
    late = attrs.evolve(flat[first], words=list(flat[first].words))
    late.words[STORE.dram] = target  # type: ignore[index]
    flat.insert(last, late)


def continue_other_sums(flat: list[RecordedInstruction]) -> None:
    """Continue sums that another tile has begun."""
    middle = [i for i, one in enumerate(flat)
              if one.number == OP.nmp_conv and one.words[CONV.part] > 1]  # fmt: skip
    put(flat, middle[0], CONV.event_origin, flat[middle[0]].words[CONV.event_origin] + 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(repeat_tile, id="a tile twice"),
        pytest.param(remove_instruction(OP.nmp_conv), id="a tile missing"),
        pytest.param(remove_instruction(OP.nmp_store), id="a store missing"),
        pytest.param(change_word(OP.nmp_conv, CONV.clip_high, -1), id="another clip"),
        pytest.param(change_word(OP.nmp_conv, CONV.out_mul, 1), id="another factor"),
        pytest.param(change_word(OP.nmp_conv, CONV.event_origin, 1), id="another place"),
        pytest.param(change_word(OP.nmp_conv, CONV.output, 1), id="results elsewhere"),
        pytest.param(change_word(OP.nmp_conv, CONV.channels, 16), id="channel records of others"),
        pytest.param(change_word(OP.nmp_conv, CONV.in_row_stride, 8), id="rows further apart"),
        pytest.param(change_word(OP.nmp_eltwise, ELTWISE.rhs, 1), id="a sum of other elements"),
        pytest.param(
            change_word(OP.nmp_eltwise, ELTWISE.lhs_mul, 1), id="a sum with another factor"
        ),
        pytest.param(change_word(OP.nmp_rescale, RESCALE.in_low, 1), id="another activation"),
        pytest.param(change_word(OP.nmp_rescale, RESCALE.input, 1), id="a clip of other elements"),
        pytest.param(change_word(OP.nmp_avgpool, AVGPOOL.input, 1), id="an average of others"),
        pytest.param(change_word(OP.nmp_store, STORE.dram, 1), id="stored elsewhere"),
        pytest.param(change_padding, id="padded otherwise"),
        pytest.param(remove_load, id="stale input"),
        pytest.param(load_input_before_it_is_stored, id="input loaded before it is stored"),
        pytest.param(load_other_weights, id="weights of other channels"),
        pytest.param(delay_store, id="stored late"),
        pytest.param(overwrite_result, id="overwritten"),
        pytest.param(continue_other_sums, id="sums of others"),
    ],
)
def test_unsupported_layers_are_replayed(recorded: Recording, change: Change) -> None:
    assert_refused(recorded, change)


def test_a_layer_that_stores_constants_of_an_earlier_layer_is_right(recorded: Recording) -> None:
    """The scratchpads still have them where the missing tile would write its results."""
    assert assert_right_or_refused(recorded, remove_instruction(OP.nmp_avgpool))


@pytest.mark.parametrize("is_overwritten", [False, True])
def test_constants_in_scratchpads_stay_until_they_are_overwritten(
    recorded: Recording, is_overwritten: bool
) -> None:
    """Layer 0 loads weights of layer 2, and layer 1, which is replayed, may overwrite them."""

    def change(flat: list[RecordedInstruction]) -> None:
        weights = find(flat, OP.nmp_load, 2, 1)
        load = flat.pop(weights)
        at = find(flat, OP.nmp_load, 0)
        flat.insert(at, attrs.evolve(load, layer=0))
        address = SCRATCHPAD_BASE + DEEP.scratchpad_bytes - load.words[LOAD.run_bytes]
        put(flat, at, LOAD.spm, address)
        for at, one in enumerate(flat):
            if (one.number, one.layer) == (OP.nmp_conv, 2) and one.core == load.core:  # type: ignore[attr-defined]
                put(flat, at, CONV.weights, address)
        if is_overwritten:
            first = find(flat, OP.nmp_conv, 1)
            put(flat, first, CONV.out_mul, flat[first].words[CONV.out_mul] + 1)
            other = find(flat, OP.nmp_load, 1)
            flat.insert(first + 1, flat[other])
            put(flat, first + 1, LOAD.spm, address)

    whole = {0, 1, 2, 3, 4, 5} - ({0, 1, 2} if is_overwritten else set())
    assert make_plan(recorded, change).whole == whole


def split_rows(flat: list[RecordedInstruction], layer: int) -> None:
    """Split each tile of a convolution and each of its stores into rows."""
    w, s = CONV, STORE

    def rows(one: RecordedInstruction) -> Iterator[RecordedInstruction]:
        steps = {s.dram: s.dram_stride_y, s.spm: s.spm_stride_y}
        count = s.count_y
        if one.number == OP.nmp_conv:
            steps = {w.input: w.in_row_stride, w.output: w.out_row_stride}
            steps[w.event_origin], count = w.event_stride_y, w.out_h
        for row in range(one.words[count]):
            words = list(one.words)
            words[count] = 1
            for word, step in steps.items():
                words[word] += row * words[step]
            yield attrs.evolve(one, words=words)

    tiles = OP.nmp_conv, OP.nmp_store
    flat[:] = [
        each
        for one in flat
        for each in (rows(one) if one.layer == layer and one.number in tiles else [one])
    ]


def change_all(
    flat: list[RecordedInstruction], number: int, change: Callable[[list[int]], None]
) -> None:
    """Change all descriptors of an instruction."""
    for at, one in enumerate(flat):
        if one.number == number:
            words = list(one.words)
            change(words)
            flat[at] = attrs.evolve(one, words=words)


def test_overlapping_stores_are_replayed(recorded: Recording) -> None:
    """Which of them is there in the end would depend on the threads."""
    (layer, *_) = list_layers(recorded, OP.nmp_conv)

    def change(flat: list[RecordedInstruction]) -> None:
        split_rows(flat, layer)
        stores = [i for i, o in enumerate(flat) if (o.number, o.layer) == (OP.nmp_store, layer)]
        for at in stores:
            put(flat, at, STORE.dram, flat[stores[0]].words[STORE.dram])

    assert layer in make_plan(recorded, lambda flat: split_rows(flat, layer)).whole
    assert layer not in make_plan(recorded, change).whole


def test_results_may_overwrite_the_input(recorded: Recording) -> None:
    """A clip that is claimed to be in place and is so; one that is claimed so and is not."""
    bundle, machine, epochs = recorded.bundle, recorded.machine, recorded.epochs
    (total,), (clip,) = list_layers(recorded, OP.nmp_eltwise), list_layers(recorded, OP.nmp_rescale)

    layers = list(bundle.metadata.layers)
    place, before = layers[total].output.address, layers[clip].output.address
    layers[clip] = attrs.evolve(layers[clip], output=layers[total].output)

    def moved(one: RecordedInstruction) -> RecordedInstruction:
        words = list(one.words)
        if one.number == OP.nmp_store and one.layer == clip:
            words[STORE.dram] += place - before
        return attrs.evolve(one, words=words)

    def whole(change: Callable[[RecordedInstruction], RecordedInstruction]) -> bool:
        changed = [{core: list(map(change, part)) for core, part in e.items()} for e in epochs]
        return clip in prove_layers(machine, changed, layers).whole

    assert whole(moved)
    assert not whole(lambda one: one)


def test_distant_results_need_no_memory(recorded: Recording) -> None:
    """Layers whose results have places of which nearly all are empty."""

    def change(words: list[int]) -> None:
        for word in (CONV.event_origin, CONV.event_stride_x, CONV.event_stride_y):
            words[word] <<= 12

    assert_peak_memory(1 << 24, recorded, lambda flat: change_all(flat, OP.nmp_conv, change))


def test_distant_windows_need_no_memory(recorded: Recording) -> None:
    """Tiles of one row, and a distance between rows that no tile needs."""

    def change(flat: list[RecordedInstruction]) -> None:
        for layer in list_layers(recorded, OP.nmp_conv):
            split_rows(flat, layer)
        change_all(flat, OP.nmp_conv, lambda words: words.__setitem__(CONV.stride_h, 1 << 12))

    assert_peak_memory(1 << 24, recorded, change)


def assert_peak_memory(nbytes: int, recorded: Recording, change: Change) -> None:
    """Assert that a proof without whole convolutions allocates less than ``nbytes``."""
    tracemalloc.start()
    try:
        plan = make_plan(recorded, change)
        assert tracemalloc.get_traced_memory()[1] < nbytes
    finally:
        tracemalloc.stop()
    assert not plan.whole & set(list_layers(recorded, OP.nmp_conv))


def test_layers_with_large_numbers_are_exact(recorded: Recording) -> None:
    """A program may have more layers than 16 bits can count."""
    machine, epochs = recorded.machine, recorded.epochs
    moved = [
        {c: [attrs.evolve(one, layer=one.layer + 40_000) for one in part] for c, part in e.items()}
        for e in epochs
    ]
    layers = recorded.bundle.metadata.layers
    none = attrs.evolve(layers[0], claim=None)
    plan, whole = prove_layers(machine, moved, [none] * 40_000 + [*layers]), make_plan(recorded)
    assert plan.whole == {layer + 40_000 for layer in whole.whole}


def test_int16_at_odd_host_addresses_is_exact(recorded: Recording) -> None:
    """An image may begin anywhere in the file of a bundle."""
    machine = recorded.machine
    room = np.zeros(machine.image.size + 1, np.uint8)
    host = HostMemory(
        machine._replace(image=room[1 - room.ctypes.data % 2 :][: machine.image.size])
    )
    tensor = TensorView(int(machine.shared[0].image_base), 1, 1, 2)
    assert are_aligned(0, host, tensor)
    assert not are_aligned(1, host, tensor)


@pytest.fixture(scope="module")
def in_parts() -> Bundle:
    """Compile two convolutions with operations of the host between them."""
    draft = Draft()
    source = image(draft, 8)
    first = convolve(draft, source, draft.buffer(out_kind(source, 16)))
    real = draft.emit("dequantize", draft.buffer(tensor_type("float", first.shape)), first)
    again = draft.emit("quantize", draft.buffer(out_kind(first, 16)), real)
    convolve(draft, again, draft.output(out_kind(again, 8)))
    return compile_draft(draft, SMALL)


@pytest.mark.parametrize("reads", [False, True])
def test_parts_of_a_program_are_proved(
    in_parts: Bundle, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """A part before the last one leaves scratchpads out unless a later one reads them."""

    def prove_some(machine: Machine, epochs: list[Epoch], layers: Sequence[Layer]) -> ReplayPlan:
        return attrs.evolve(prove_layers(machine, epochs, layers), reads_scratchpads=reads)

    monkeypatch.setattr(planning, "prove_layers", prove_some)
    devices = [Device(SMALL, threads=1, whole_layers=whole) for whole in (False, True)]
    rng = np.random.default_rng(2)
    for turn in range(3):
        given = [rng.integers(-128, 128, in_parts.metadata.inputs[0].shape, np.int8)]
        tiles, whole = (device.run(in_parts, given) for device in devices)
        assert whole.layers == tiles.layers
        assert has_scratchpads(devices[1]) == (turn == 0)
        for name, values in tiles.outputs.items():
            np.testing.assert_array_equal(whole.outputs[name], values)
    first, last = devices[1]._engine._recordings._known  # type: ignore[attr-defined]
    assert last.whole is not None
    assert (first.whole is None) == reads
    ours, theirs = (device.machine_after(in_parts) for device in devices)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.tobytes() == other.tobytes()


def test_readers_of_scratchpads_are_known(recorded: Recording) -> None:
    """A layer that is replayed reads what is not loaded."""

    def replayed(flat: list[RecordedInstruction]) -> None:
        at = find(flat, OP.nmp_rescale)
        put(flat, at, RESCALE.out_mul, flat[at].words[RESCALE.out_mul] + 1)

    def stale_too(flat: list[RecordedInstruction]) -> None:
        replayed(flat)
        end = SCRATCHPAD_BASE + DEEP.scratchpad_bytes
        put(flat, find(flat, OP.nmp_rescale), RESCALE.input, end - 128)

    plans = [make_plan(recorded, change) for change in (None, replayed, stale_too)]
    assert [plan.reads_scratchpads for plan in plans] == [False, False, True]


def test_counts_by_channel_do_not_depend_on_tiles(recorded: Recording) -> None:
    """What saturates before the first product is counted for all pixels of a tile at once: in one
    channel, whatever the layer's output says that its channels are."""
    bundle, machine, epochs = recorded.bundle, recorded.machine, recorded.epochs

    def halve(layer: Layer) -> Layer:
        images, rows, columns, channels = layer.output.shape
        shape = images, rows, 2 * columns, channels // 2
        return attrs.evolve(layer, output=attrs.evolve(layer.output, shape=shape))

    plan = prove_layers(machine, epochs, list(map(halve, bundle.metadata.layers)))
    assert not plan.whole & set(list_layers(recorded, OP.nmp_conv))


def test_a_load_for_a_later_layer_is_kept(recorded: Recording) -> None:
    """What is replayed reads what was loaded for a layer that has not begun."""

    def change(flat: list[RecordedInstruction]) -> None:
        at = find(flat, OP.nmp_rescale)
        put(flat, at, RESCALE.out_mul, flat[at].words[RESCALE.out_mul] + 1)
        load = find(flat, OP.nmp_load, flat[-1].layer)
        flat.insert(at, attrs.evolve(flat[load], core=flat[at].core))  # type: ignore[call-arg]
        put(flat, at, LOAD.spm, flat[at + 1].words[RESCALE.input])

    plan = make_plan(recorded, change)
    assert not plan.whole & {4, 5}


def test_a_program_without_tensor_instructions_has_no_layer_kernels(recorded: Recording) -> None:
    machine = recorded.machine
    for epochs in ([], [{}]):
        plan = prove_layers(machine, epochs, ())
        assert (plan.steps, plan.whole, plan.reads_scratchpads) == ([], set(), False)


def test_a_replayed_layer_between_kernels_is_exact(recorded: Recording) -> None:
    """It reads what whole layers have stored, and they read what it has."""
    bundle, machine, epochs = recorded.bundle, recorded.machine, recorded.epochs
    (layer,) = list_layers(recorded, OP.nmp_eltwise)
    ids = iter(range(100))

    def other_words(one: RecordedInstruction) -> RecordedInstruction:
        flat = [one]
        if one.number == OP.nmp_eltwise:
            put(flat, 0, ELTWISE.lhs_mul, next(ids))
        return flat[0]

    mixed = [{core: list(map(other_words, part)) for core, part in e.items()} for e in epochs]
    plan, whole = prove_layers(machine, mixed, bundle.metadata.layers), make_plan(recorded)
    assert plan.whole == whole.whole - {layer}
    order = [step.layer for step in plan.steps]
    assert order[0] >= 0
    assert order[-1] >= 0
    assert -1 in order
