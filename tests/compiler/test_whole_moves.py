"""Transpositions, copies and fills as whole layers."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from lir_draft import Draft, tensor_type
from whole_recordings import (
    TIGHT,
    Change,
    Recording,
    assert_damage_is_found,
    assert_nothing_changes,
    assert_refused,
    change_word,
    make_plan,
    needs_recordings,
    record,
    remove_instruction,
)

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import UnprovedError
from nmpsim.core.layer_kernels.moves import find_axes
from nmpsim.isa.words import FILL, LOAD, STORE, TRANSPOSE

pytestmark = needs_recordings


def network(elem: str) -> Draft:
    """Build transposes, an extraction, insertions, a splat and an element-wise maximum."""
    draft = Draft()
    kind = tensor_type(elem, (1, 10, 12, 14), 0.05, 0)
    source = draft.input(kind)
    pixels = attrs.evolve(kind, shape=(1, 12, 14, 10))
    turned = draft.emit("transpose", draft.buffer(pixels), source, Shuffle=(0, 2, 3, 1))
    part = draft.buffer(attrs.evolve(kind, shape=(1, 9, 11, 7)))
    draft.emit("extracttensor", part, turned, Offsets=(0, 2, 1, 3))
    parts = draft.buffer(attrs.evolve(kind, shape=(1, 9, 11, 14)))
    draft.emit("touch", parts)
    for at in (0, 7):
        draft.emit("inserttensor", parts, part, Offsets=(0, 0, 0, at), Count=1, Axis=3)
    filled = draft.emit("splat", draft.buffer(parts.type), Value=-0.35)
    most = draft.emit("elementmax", draft.buffer(parts.type), parts, filled)
    back = attrs.evolve(kind, shape=(1, 14, 9, 11))
    draft.emit("transpose", draft.output(back), most, Shuffle=(0, 3, 1, 2))
    return draft


@pytest.fixture(scope="module", params=["i8", "i16"])
def recorded(request: pytest.FixtureRequest) -> Recording:
    return record(network(request.param), TIGHT)


def test_all_moves_run_as_layer_kernels(recorded: Recording) -> None:
    plan = make_plan(recorded, lambda flat: None)
    bundle = recorded.bundle
    assert plan.whole == {layer.index for layer in bundle.metadata.layers}
    assert not any(step.replayed for step in plan.steps)


def test_layer_kernels_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, TIGHT)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(remove_instruction(OP.nmp_transpose), id="a tile missing"),
        pytest.param(remove_instruction(OP.nmp_fill), id="a fill missing"),
        pytest.param(change_word(OP.nmp_transpose, TRANSPOSE.input, 1), id="another place"),
        pytest.param(change_word(OP.nmp_transpose, TRANSPOSE.out_stride_2, 2), id="with gaps"),
        pytest.param(change_word(OP.nmp_fill, FILL.count, -1), id="a place less"),
        pytest.param(change_word(OP.nmp_fill, FILL.value, 1), id="another value"),
        pytest.param(change_word(OP.nmp_load, LOAD.dram, 2), id="another source"),
        pytest.param(change_word(OP.nmp_store, STORE.dram, 2), id="another target"),
    ],
)
def test_unsupported_layers_are_replayed(recorded: Recording, change: Change) -> None:
    assert_refused(recorded, change)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_recordings_are_not_proved(recorded: Recording, seed: int) -> None:
    assert_damage_is_found(recorded, seed, 8, [-8, -2, -1, 1, 2, 14])


def join_two_memories(constant_first: bool) -> Draft:
    """Build a copy of rows that join a constant and an input.

    Half of what the copy reads is in the image and half in RAM, the same number of bytes apart.
    """
    draft = Draft()
    kind = tensor_type("i8", (60, 5), 0.05, 0)
    parts = [
        draft.constant(np.arange(300, dtype=np.int8).reshape(60, 5), "i8", 0.05, 0),
        draft.input(kind),
    ]
    both = draft.buffer(attrs.evolve(kind, shape=(60, 10)))
    draft.emit("touch", both)
    for part, at in zip(parts if constant_first else parts[::-1], (0, 5), strict=True):
        draft.emit("inserttensor", both, part, Offsets=(0, at), Count=1, Axis=1)
    draft.emit("extracttensor", draft.output(attrs.evolve(kind, shape=(20, 10))), both,
               Offsets=(3, 0))  # fmt: skip
    return draft


@pytest.mark.parametrize("constant_first", [True, False])
def test_one_copy_reads_one_memory(constant_first: bool) -> None:
    assert_nothing_changes(record(join_two_memories(constant_first), TIGHT), TIGHT)


def add_copy(draft: Draft) -> None:
    source = draft.input(tensor_type("i8", (1,), 0.05, 0))
    draft.emit("copy", draft.output(source.type), source)


def add_splat(draft: Draft) -> None:
    draft.emit("splat", draft.output(tensor_type("i16", (3, 5), 0.05, 0)), Value=0.2)


def insert_into_corner(draft: Draft) -> None:
    source = draft.input(tensor_type("i8", (3, 3, 3, 5), 0.05, 0))
    target = draft.output(attrs.evolve(source.type, shape=(4, 4, 4, 7)))
    draft.emit("splat", target, Value=1.0)
    draft.emit("inserttensor", target, source, Offsets=(1, 0, 1, 2), Count=1, Axis=0)


@pytest.mark.parametrize(
    ("write", "count"), [(add_copy, 1), (add_splat, 1), (insert_into_corner, 1)]
)
def test_only_instructions_of_the_recording_are_used(write: Any, count: int) -> None:
    """Others may have no kernel: a copy along four axes would need a transposition."""
    draft = Draft()
    write(draft)
    recorded = record(draft, TIGHT)
    plan = make_plan(recorded)
    assert len(plan.whole) == count
    used = {number for step in plan.steps for task in step.tasks for number, *_ in task}
    assert used <= {one.number for e in recorded.epochs for part in e.values() for one in part}
    assert_nothing_changes(recorded, TIGHT)


def test_loops_of_addresses_are_found() -> None:
    """Nested loops are found where there are some; single places, and runs, are loops, too."""
    places = np.arange(24).reshape(2, 3, 4)
    target = np.arange(24) * 2
    turned = places.transpose(2, 0, 1).reshape(-1)
    assert find_axes(turned, target) == [(4, 1, 12), (6, 4, 2)]
    assert find_axes(places.transpose(0, 2, 1).reshape(-1), target) == [
        (2, 12, 24),
        (4, 1, 6),
        (3, 4, 2),
    ]
    assert find_axes(places.reshape(-1), target) == [(24, 1, 2)]
    assert find_axes(places[0, 0, :1], target[:1]) == [(1, 1, 1)]
    for order in (
        [1, 0],
        [3, 4, 0, 1],
        [0, 1, 2, 4, 5],
        [0, 1, 2, 4, 5, 7],
        [0, 1, 3, 4, 5, 6],
        [0, 1, 4, 6],
    ):
        with pytest.raises(UnprovedError):
            find_axes(np.array(order), np.arange(len(order)))
