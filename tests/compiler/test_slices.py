"""Cores whose shares are of one length but cut otherwise get tilings of their own."""

from __future__ import annotations

import attrs
import numpy as np
from compiled_runs import check_program
from lir_draft import Draft, int8
from small_programs import SMALL, program

from nmpsim.compiler.tiling.slices import ChannelSlice, join_slices


def composition(atoms: list[ChannelSlice]) -> tuple[tuple[int, int], ...]:
    """Return what a tiling depends on: channels of each atom, and which atoms share their input."""
    return tuple((a.count, a.first_input - atoms[0].first_input) for a in atoms)


def test_shares_differ_by_at_most_one() -> None:
    """33 channels a group are 16, 16 and 1; two of them share their input, or they do not."""
    blocks = [
        ChannelSlice(33 * group + first, count, 1, 5 * group)
        for group in range(2)
        for first, count in ((0, 16), (16, 16), (32, 1))
    ]
    assert composition(blocks[:2]) == composition(blocks[3:5]) != composition(blocks[2:4])
    assert [s.count for s in join_slices(blocks[:2], 2, whole_groups=False)] == [32]
    assert [s.count for s in join_slices(blocks[2:4], 2, whole_groups=False)] == [1, 16]


def test_large_groups_are_divided() -> None:
    """Seven cores with so little room that the largest share decides."""
    rng = np.random.default_rng(0)
    draft = Draft()
    source = draft.input(int8((1, 8, 3, 3), 0.07))
    outs = 99
    scales = draft.constant(rng.uniform(0.01, 0.05, outs).astype(np.float32), "float")
    offsets = draft.constant(np.zeros(outs, np.int32), "index32")
    weights = rng.integers(-128, 128, (outs, 4, 5, 1)).astype(np.int8)
    draft.emit(
        "channelwisequantizedconvolution",
        draft.output(int8((1, 5, 5, outs), 1.0)),
        source,
        draft.constant(weights, "i8"),
        draft.constant(rng.integers(-500, 500, outs).astype(np.int32), "i32"),
        scales,
        offsets,
        scales,
        offsets,
        Kernels=(4, 5),
        Strides=(1, 1),
        Pads=(0, 3, 0, 3),
        Dilation=(1, 1),
        Group=3,
        FusedActivation="NONE",
        FusedActivationArgs=(),
    )
    for cores in (5, 6, 7, 8):
        config = attrs.evolve(SMALL, cores_count=cores, scratchpad_bytes=4096)
        check_program(program(draft), config)
