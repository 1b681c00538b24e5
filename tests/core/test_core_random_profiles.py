"""Random instructions of every element and profile: the same machine on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from core_jobs import JOBS
from core_machines import device, from_descriptors, run_both
from core_strategies import SEED
from core_tensors import Layout
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

ONE, TWO = device(), device(2)
GAPS = st.sampled_from([0, 8, 52])


@pytest.mark.parametrize("instruction", JOBS)
@given(st.data())
@examples(200)
def test_random_instructions_agree_on_both_engines(instruction: str, data: st.DataObject) -> None:
    run_jobs(data.draw, [instruction], cores=1)


@given(st.data(), st.lists(st.sampled_from(list(JOBS)), min_size=2, max_size=5))
@examples(150)
def test_sequences_of_instructions_agree_on_both_engines(
    data: st.DataObject, instructions: list[str]
) -> None:
    """On two cores, whose units and queues are busy at the same time."""
    run_jobs(data.draw, instructions, cores=2)


def run_jobs(draw: st.DrawFn, instructions: list[str], cores: int) -> None:
    layout = Layout(draw(GAPS))
    jobs = [job for name in instructions for job in draw(JOBS[name](layout))]
    ram = np.random.default_rng(draw(SEED)).integers(0, 256, 6000).astype(np.uint8)
    program = from_descriptors(
        *jobs,
        scratchpad=layout.contents(),
        config=ONE if cores == 1 else TWO,
        layer_channels=(7, 16, 1),
        ram=ram.tobytes(),
    )
    # Kernels that are not compiled warn of infinite floats, which a large factor makes.
    with np.errstate(over="ignore", invalid="ignore"):
        run_both(program)
