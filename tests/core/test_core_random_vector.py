"""Random moves of bytes, whatever they are: the same bytes and cycles on both engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from core_jobs import look_ups, transpositions
from core_machines import RAM_BASE, device, from_descriptors, run_both
from core_profiles import offsets
from core_strategies import SEED
from core_tensors import Job, Layout
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

DEVICE = device()
EXAMPLES = examples(120)
Moves = Callable[[Layout], st.SearchStrategy[list[Job]]]
GAPS = st.sampled_from([0, 4, 51])


def compare(layout: Layout, *jobs: Job, ram: bytes = b"") -> None:
    run_both(
        from_descriptors(
            *jobs,
            scratchpad=layout.contents(),
            config=DEVICE,
            layer_channels=(7, 16, 1),
            ram=ram,
        )
    )


@pytest.mark.parametrize("moves", [look_ups, transpositions])
@given(st.data())
@EXAMPLES
def test_random_moves_agree_on_both_engines(moves: Moves, data: st.DataObject) -> None:
    layout = Layout(data.draw(GAPS))
    compare(layout, *data.draw(moves(layout)))


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, int]:
    run, count_x, count_y = (draw(st.integers(0, most)) for most in (70, 4, 4))
    return {
        "run_bytes": run,
        "count_x": count_x,
        "count_y": count_y,
        "dram_stride_x": draw(st.just(run) | st.integers(0, 300)),
        "dram_stride_y": draw(st.just(run * count_x) | st.integers(0, 3000)),
        "spm_stride_x": draw(st.just(run) | st.integers(0, 100)),
        "spm_stride_y": draw(st.just(run * count_x) | st.integers(0, 500)),
        "dram": RAM_BASE + draw(st.integers(0, 5000)),
        "layer": draw(st.integers(0, 3)),
    }


@given(st.data())
@EXAMPLES
def test_random_transfers_agree_on_both_engines(data: st.DataObject) -> None:
    draw = data.draw
    layout = Layout()
    target = layout.reserve(6000)
    jobs: list[Job] = []
    for _ in range(draw(st.integers(1, 7))):
        box = {**draw(boxes()), "spm": target + draw(st.integers(0, 100))}
        if draw(st.booleans()):
            jobs.append(("nmp.store", box))
            continue
        pads = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")
        padding = {name: draw(st.integers(0, 2)) for name in pads}
        jobs.append(("nmp.load", {**box, **padding, "fill": draw(offsets("int8"))}))
    ram = np.random.default_rng(draw(SEED)).integers(0, 256, 30_000).astype(np.uint8)
    compare(layout, *jobs, ram=ram.tobytes())
