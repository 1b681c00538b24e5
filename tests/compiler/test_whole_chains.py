"""Test that layers of a chain run as layer kernels, and only if their tiles compute the claims."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest
import whole_campaign
from lir_draft import Draft, int8
from small_programs import SMALL, convolve, image
from whole_recordings import (
    Recording,
    assert_nothing_changes,
    assert_right_or_refused,
    make_plan,
    needs_recordings,
    record,
)

from nmpsim.analysis.program import compile_without_chains
from nmpsim.compiler.tiling.chain_rows import ChainTiling
from nmpsim.compiler.tiling.chain_search import ChainSearch, ChosenChain, find_chains
from nmpsim.core.device import Device
from nmpsim.core.instruction_tables import OP
from nmpsim.isa.words import LOAD

pytestmark = needs_recordings
LARGE = attrs.evolve(SMALL, scratchpad_bytes=65536)
TIGHT = attrs.evolve(SMALL, scratchpad_bytes=8192)
"""Constants of a chain take turns in a part of the scratchpad."""


def rows_network() -> Draft:
    """Build padded convolutions with a pool in between, and a sum with an earlier result."""
    draft = Draft()
    first = convolve(draft, image(draft, 8), draft.buffer(int8((1, 6, 5, 32), 0.2, -9)))
    pooled = draft.emit(
        "maxpool",
        draft.buffer(int8((1, 6, 5, 32), 0.2, -9)),
        first,
        Kernels=(3, 3),
        Strides=(1, 1),
        Pads=(1, 1, 1, 1),
        Layout=0,
    )
    second = convolve(draft, pooled, draft.buffer(int8((1, 6, 5, 32), 0.3, 4)))
    third = convolve(draft, second, draft.buffer(int8((1, 6, 5, 32), 0.2, 7)))
    draft.emit("elementadd", draft.output(int8((1, 6, 5, 32), 0.2, 1)), third, second)
    return draft


def channels_network() -> Draft:
    """Build a convolution and a sum with its input, which all cores load completely."""
    draft = Draft()
    source = image(draft, 48)
    result = convolve(draft, source, draft.buffer(int8((1, 6, 5, 48), 0.2, 7)))
    draft.emit("elementadd", draft.output(int8((1, 6, 5, 48), 0.2, 1)), result, source)
    return draft


CASES = {
    "repeated rows": (rows_network, SMALL, ChainTiling(3)),
    "exchanged rows": (rows_network, SMALL, ChainTiling(2, exchanged=(0, 1, 2))),
    "some exchanged rows": (rows_network, SMALL, ChainTiling(3, exchanged=(1,))),
    "several strips": (rows_network, LARGE, ChainTiling(1, strips=3)),
    "constants in turn": (rows_network, TIGHT, ChainTiling(3, group_bytes=2048)),
    "ranges of channels": (channels_network, SMALL, ChainTiling(1, 3)),
    "rows and ranges of channels": (channels_network, SMALL, ChainTiling(2, 2)),
    "single layers with loads ahead": (rows_network, LARGE, None),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def recorded(request: pytest.FixtureRequest) -> Recording:
    network, config, tiling = CASES[request.param]

    def choose(search: ChainSearch, operations: Any, read: Any, _: Any, always: Any) -> Any:
        if tiling is None:
            return []
        chains = find_chains(operations, read, always, search.config)
        return [ChosenChain(max(chains, key=lambda chain: len(chain.layers)), tiling, ())]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChainSearch, "choose_chains", choose)
        return record(network(), config, tiling="chain")


def test_all_layers_of_chains_run_as_layer_kernels(recorded: Recording) -> None:
    plan = make_plan(recorded)
    assert plan.whole == {layer.index for layer in recorded.bundle.metadata.layers}
    assert not any(step.replayed for step in plan.steps)


def test_layer_kernels_of_chains_change_no_result(recorded: Recording) -> None:
    assert_nothing_changes(recorded, recorded.device.config)


def test_counters_of_chains_are_those_of_the_network(recorded: Recording) -> None:
    config, inputs = recorded.device.config, recorded.inputs
    separate = compile_without_chains(recorded.bundle)
    expected = Device(config).run(separate, inputs).layers
    assert any(layer.saturated for layer in expected)
    for layer in expected:
        assert layer.elements in (0, math.prod(layer.shape)), layer.name
    tiles, kernels = (Device(config, threads=2, whole_layers=whole) for whole in (False, True))
    for device in (tiles, kernels):
        device._engine._workers.min_seconds = 0.0  # type: ignore[attr-defined]
        device.run(recorded.bundle, inputs)
    for device, options in (
        (tiles, {}),
        (kernels, {}),
        (Device(config, "compiled"), {"work": lambda _: None, "strict": False}),
        (Device(config, "reference"), {}),
    ):
        found = device.run(recorded.bundle, inputs, **options).layers
        for ours, theirs in zip(found, expected, strict=True):
            counts = ours.elements, ours.saturation, ours.macs
            assert counts == (theirs.elements, theirs.saturation, theirs.macs), ours.name


def test_damaged_chains_are_replayed_or_right(recorded: Recording) -> None:
    for seed in range(8):
        whole_campaign.damage(recorded, seed)


def test_chains_in_another_order_are_replayed_or_right(recorded: Recording) -> None:
    rng = np.random.default_rng(3)

    def move(flat: list[Any]) -> None:
        at, to = (int(number) for number in rng.integers(len(flat), size=2))
        flat.insert(to, flat.pop(at))

    for turn in range(5):
        assert_right_or_refused(recorded, move, seed=turn)


def test_a_chain_with_a_load_of_other_constants_is_replayed_or_right(recorded: Recording) -> None:
    def change(flat: list[Any]) -> None:
        image_base, ram_base = (
            int(recorded.machine.shared[0][name]) for name in ("image_base", "ram_base")
        )
        loads = [at for at, one in enumerate(flat) if one.number == OP.nmp_load]
        at = next(at for at in loads if image_base <= flat[at].words[LOAD.dram] < ram_base)
        words = list(flat[at].words)
        words[LOAD.dram] += 16
        flat[at] = attrs.evolve(flat[at], words=words)

    assert_right_or_refused(recorded, change)
