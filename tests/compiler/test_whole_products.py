"""Products of two matrices of activations as whole layers."""

from __future__ import annotations

import attrs
import pytest
from lir_draft import Draft, tensor_type
from small_programs import SMALL
from whole_recordings import (
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
from nmpsim.isa.words import GEMM, LOAD, PART_FIRST, PART_LAST, PART_ONLY

pytestmark = needs_recordings
TIGHT = attrs.evolve(SMALL, scratchpad_bytes=2048)


def network(elem: str) -> Draft:
    """Build a product with a tiled inner dimension, and two products that read its result."""
    draft = Draft()
    left = draft.input(tensor_type(elem, (3, 600), 0.05, 3))
    right = draft.input(tensor_type(elem, (600, 10), 0.03, -5))
    other = draft.input(tensor_type(elem, (10, 90), 0.04, 7))
    first = draft.emit("matmul", draft.buffer(tensor_type(elem, (3, 10), 0.2, -9)), left, right)
    draft.emit("matmul", draft.output(tensor_type(elem, (3, 90), 0.1, 1)), first, other)
    turned = draft.view(first, tensor_type(elem, (10, 3), 0.2, -9))
    draft.emit("matmul", draft.output(tensor_type(elem, (10, 10), 0.1, 1)), turned, first)
    return draft


@pytest.fixture(scope="module", params=["i8", "i16"])
def recorded(request: pytest.FixtureRequest) -> Recording:
    return record(network(request.param), TIGHT)


def test_all_products_run_as_layer_kernels(recorded: Recording) -> None:
    bundle, epochs = recorded.bundle, recorded.epochs
    for plan in (make_plan(recorded), make_plan(recorded, lambda flat: None)):
        assert plan.whole == {layer.index for layer in bundle.metadata.layers}
        assert not any(step.replayed for step in plan.steps)
        assert all(len(step.tasks) > 1 for step in plan.steps)
    tiles = [one for e in epochs for p in e.values() for one in p if one.number == OP.nmp_gemm]
    assert {PART_ONLY, PART_FIRST, PART_LAST} <= {one.words[GEMM.part] for one in tiles}


def test_layer_kernels_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, TIGHT)


def remove_load(flat: list[RecordedInstruction]) -> None:
    """Remove the load of a tile's right side."""
    at = find(flat, OP.nmp_gemm, nth=3)
    loads = [
        i for i in range(at)
        if flat[i].number == OP.nmp_load and flat[i].words[LOAD.spm] == flat[at].words[GEMM.rhs]
    ]  # fmt: skip
    del flat[loads[-1]]


def repeat_tile(flat: list[RecordedInstruction]) -> None:
    at = find(flat, OP.nmp_gemm)
    flat.insert(at, flat[at])


def continue_other_sums(flat: list[RecordedInstruction]) -> None:
    """Continue sums that another tile has begun."""
    (at, *_) = (
        i for i, one in enumerate(flat)
        if one.number == OP.nmp_gemm and one.words[GEMM.part] == PART_LAST
    )  # fmt: skip
    put(flat, at, GEMM.event_origin, flat[at].words[GEMM.event_origin] + 1)


CHANGES = [
    pytest.param(repeat_tile, id="a tile twice"),
    pytest.param(remove_instruction(OP.nmp_gemm), id="a tile missing"),
    pytest.param(remove_instruction(OP.nmp_store), id="a store missing"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.clip_high, -1), id="another clip"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.lhs_offset, 1), id="another zero point"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.event_origin, 1), id="another place"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.event_stride_y, 1), id="rows of another length"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.lhs, 2), id="a left side of others"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.rhs, 2), id="a right side of others"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.rhs_stride, 2), id="rows further apart"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.output, 2, nth=-1), id="results elsewhere"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.inner, -1), id="a row less"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.partial, 8), id="sums elsewhere"),
    pytest.param(change_word(OP.nmp_gemm, GEMM.part, 1), id="another part"),
    pytest.param(remove_load, id="stale input"),
    pytest.param(continue_other_sums, id="sums of others"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_unsupported_layers_are_replayed(recorded: Recording, change: Change) -> None:
    assert_refused(recorded, change)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_recordings_are_not_proved(recorded: Recording, seed: int) -> None:
    assert_damage_is_found(recorded, seed, 8, [-4, -2, -1, 1, 2, 4], OP.nmp_gemm)
