"""Test grouped convolutions, and operands assembled by copies, as whole layers."""

from __future__ import annotations

import attrs
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
from nmpsim.isa.words import CONV, LOAD

pytestmark = needs_recordings


def network() -> Draft:
    """Build grouped convolutions, one of which reads the results of two layers."""
    draft = Draft()
    source = draft.input(int8((1, 9, 7, 10), 0.05, 3))
    first = convolve(draft, source, draft.buffer(out_kind(source, 12)), group=2)
    other = convolve(draft, source, draft.buffer(out_kind(source, 12)))
    wide = convolve(draft, first, draft.buffer(out_kind(first, 48)), group=3)
    both = draft.buffer(attrs.evolve(first.type, shape=(1, 9, 7, 60)))
    draft.emit("touch", both)
    for part, at in ((wide, 0), (other, 48)):
        draft.emit("inserttensor", both, part, Offsets=(0, 0, 0, at), Count=1, Axis=3)
    convolve(draft, both, draft.output(out_kind(both, 24, 0.2)), group=4)
    return draft


@pytest.fixture(scope="module")
def recorded() -> Recording:
    return record(network(), TIGHT)


def test_all_convolutions_run_as_layer_kernels(recorded: Recording) -> None:
    plan = make_plan(recorded, lambda flat: None)
    bundle, epochs = recorded.bundle, recorded.epochs
    assert plan.whole == {layer.index for layer in bundle.metadata.layers}
    tiles = [one for e in epochs for p in e.values() for one in p if one.number == OP.nmp_conv]
    groups = {(one.layer, one.words[CONV.groups]) for one in tiles}
    assert len(groups) > len({layer for layer, _ in groups}), "no tiles of several sizes"
    whole = {words[CONV.groups] for step in plan.steps for task in step.tasks
             for number, words in task if number == OP.nmp_conv}  # fmt: skip
    assert whole == {1, 2, 3, 4}


def test_layer_kernels_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, TIGHT)


def find_grouped_layer(flat: list[RecordedInstruction]) -> int:
    """Return the number of the layer with two groups, whose tiles come first."""
    return flat[find(flat, OP.nmp_conv)].layer


def change_padding(flat: list[RecordedInstruction]) -> None:
    """Change the padding value of one tile."""
    at = next(
        i for i, one in enumerate(flat)
        if one.number == OP.nmp_load and one.layer == find_grouped_layer(flat)
        and any(one.words[word] for word in (LOAD.pad_x_before, LOAD.pad_y_before))
    )  # fmt: skip
    put(flat, at, LOAD.fill, flat[at].words[LOAD.fill] + 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(remove_instruction(OP.nmp_conv), id="a tile missing"),
        pytest.param(change_word(OP.nmp_conv, CONV.weights, 64), id="weights of others"),
        pytest.param(change_word(OP.nmp_conv, CONV.channels, 16), id="records of others"),
        pytest.param(change_word(OP.nmp_conv, CONV.out_mul, 1), id="another factor"),
        pytest.param(change_word(OP.nmp_conv, CONV.input, 5), id="input of another group"),
        pytest.param(change_word(OP.nmp_conv, CONV.event_origin, 6), id="another group's results"),
        pytest.param(change_word(OP.nmp_conv, CONV.event_origin, 1), id="results between groups"),
        pytest.param(change_word(OP.nmp_conv, CONV.in_channels, -1), id="fewer channels"),
        pytest.param(change_word(OP.nmp_conv, CONV.part, 1), id="a part of a sum"),
        pytest.param(change_word(OP.nmp_conv, CONV.out_channels, -1), id="an uneven group"),
        pytest.param(change_padding, id="padded otherwise"),
    ],
)
def test_unsupported_layers_are_replayed(recorded: Recording, change: Change) -> None:
    assert_refused(recorded, change)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_recordings_are_not_proved(recorded: Recording, seed: int) -> None:
    assert_damage_is_found(recorded, seed, 8, [-8, -1, 1, 2, 5, 6, 48], OP.nmp_conv)
