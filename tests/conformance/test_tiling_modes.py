"""Test that every tiling mode gives the recorded activations on 1, 8 and 32 cores."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from corpus import run_program
from recorded_programs import Recorded, Recording, are_same
from tiers import pairwise

from nmpsim.compiler.tiling.search import LAYER_TILINGS

NETWORKS = tuple(f"lir/{name}/i8_asym_b32/cpu.lir.txt" for name in ("lenet", "minires", "minimob"))


@pytest.mark.parametrize(
    ("name", "cores", "tiling"), pairwise(product(NETWORKS, (1, 8, 32), LAYER_TILINGS))
)
def test_activations_do_not_depend_on_tiling(
    name: str, cores: int, tiling: str, shared: Path
) -> None:
    recording = Recording(Recorded(name))
    report = run_program(recording.program.text, cores, fuse=False, tiling=tiling)
    wrong = [
        key
        for key, recorded in recording.comparable().items()
        if not are_same(report.layer_outputs[key], recording.arrays[recorded])
    ]
    assert wrong == []
