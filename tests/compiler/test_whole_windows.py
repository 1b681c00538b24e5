"""Depthwise convolutions, pools and look-ups as whole layers."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, int8
from small_programs import convolve, out_kind
from whole_recordings import (
    TIGHT,
    Change,
    Recording,
    assert_damage_is_found,
    assert_nothing_changes,
    assert_refused,
    change_word,
    find,
    make_plan,
    needs_recordings,
    put,
    record,
    remove_instruction,
)

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.proof import RecordedInstruction
from nmpsim.isa.words import AVGPOOL, DWCONV, LOAD, LUT, MAXPOOL, STORE

pytestmark = needs_recordings
WINDOW: dict[str, Any] = {"Kernels": (3, 2), "Strides": (2, 1), "Layout": 0}


def network() -> Draft:
    """Build a depthwise convolution with an odd number of channels, three padded pools, a table."""
    draft = Draft()
    source = draft.input(int8((1, 15, 13, 37), 0.05, 3))
    each = convolve(draft, source, draft.buffer(out_kind(source, 37)), group=37)
    most = draft.emit(
        "maxpool", draft.buffer(attrs.evolve(each.type, shape=(1, 7, 14, 37))), each,
        Pads=(0, 1, 0, 1), **WINDOW,
    )  # fmt: skip
    mean = draft.emit(
        "avgpool", draft.buffer(int8((1, 4, 13, 37), 0.05, 0)), most,
        Pads=(1, 0, 1, 0), CountIncludePads=0, **WINDOW,
    )  # fmt: skip
    last = draft.emit(
        "avgpool", draft.buffer(int8((1, 2, 14, 37), 0.05, 0)), mean,
        Pads=(1, 1, 0, 1), CountIncludePads=1, **WINDOW,
    )  # fmt: skip
    table = draft.constant(np.random.default_rng(1).permutation(256).astype(np.int8), "i8")
    draft.emit("intlookuptable", draft.output(last.type), last, table)
    return draft


@pytest.fixture(scope="module")
def recorded() -> Recording:
    return record(network(), TIGHT)


def test_all_windows_run_as_layer_kernels(recorded: Recording) -> None:
    plan = make_plan(recorded, lambda flat: None)
    bundle, epochs = recorded.bundle, recorded.epochs
    assert plan.whole == {layer.index for layer in bundle.metadata.layers}
    for number in (OP.nmp_dwconv, OP.nmp_maxpool, OP.nmp_avgpool, OP.nmp_lut):
        tiles = [one for e in epochs for part in e.values() for one in part if one.number == number]
        assert len({one.layer for one in tiles}) < len(tiles)


def test_layer_kernels_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, TIGHT)


def change_padding(flat: list[RecordedInstruction]) -> None:
    """Change the padding value of one input tile of a depthwise convolution."""
    at = find(flat, OP.nmp_load, flat[find(flat, OP.nmp_dwconv)].layer, nth=-1)
    put(flat, at, LOAD.fill, flat[at].words[LOAD.fill] + 1)


def swap_stores(flat: list[RecordedInstruction]) -> None:
    """Swap the addresses of two stores of maxima."""
    layer = flat[find(flat, OP.nmp_maxpool)].layer
    first, last = find(flat, OP.nmp_store, layer), find(flat, OP.nmp_store, layer, nth=1)
    places = [flat[at].words[STORE.dram] for at in (first, last)]
    put(flat, first, STORE.dram, places[1])
    put(flat, last, STORE.dram, places[0])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(remove_instruction(OP.nmp_dwconv), id="a tile missing"),
        pytest.param(remove_instruction(OP.nmp_maxpool), id="a maximum missing"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.weights, 1), id="weights of others"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.channels, 16), id="records of others"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.out_mul, 1), id="another factor"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.dilation_h, 1), id="taps further apart"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.input, 1), id="other channels"),
        pytest.param(change_word(OP.nmp_dwconv, DWCONV.event_origin, 1), id="another place"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.pad_top, 1, nth=1), id="rows missing"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.in_h, -1, nth=1), id="rows missing below"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.in_w, -1, nth=1), id="columns missing"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.stride_w, 1), id="other windows"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.empty_value, 1), id="another empty value"),
        pytest.param(change_word(OP.nmp_maxpool, MAXPOOL.output, 1), id="maxima elsewhere"),
        pytest.param(change_word(OP.nmp_avgpool, AVGPOOL.pad_left, 1), id="a column missing"),
        pytest.param(change_word(OP.nmp_avgpool, AVGPOOL.divide, 1), id="another divisor"),
        pytest.param(change_word(OP.nmp_avgpool, AVGPOOL.input, 1), id="an average of others"),
        pytest.param(change_word(OP.nmp_lut, LUT.table, 1), id="another table"),
        pytest.param(change_word(OP.nmp_lut, LUT.input, 1), id="a look-up of others"),
        pytest.param(change_word(OP.nmp_lut, LUT.count, -1), id="fewer results"),
        pytest.param(change_padding, id="padded otherwise"),
        pytest.param(swap_stores, id="maxima change places"),
    ],
)  # fmt: skip
def test_unsupported_layers_are_replayed(recorded: Recording, change: Change) -> None:
    assert_refused(recorded, change)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_recordings_are_not_proved(recorded: Recording, seed: int) -> None:
    assert_damage_is_found(recorded, seed, 12, [-8, -2, -1, 1, 2, 8, 37])
