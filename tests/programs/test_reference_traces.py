"""Runs that were reviewed once and must stay as they are, on both engines."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import bundle_from_bytes
from nmpsim.report.json import to_json

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_digits(engine: str) -> None:
    folder = ROOT / "programs" / "digits"
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    image = np.load(folder / "images" / "7.npy")

    bundle = bundle_from_bytes(compiled.image)
    report = nmpsim.Device(engine=engine).run(bundle, {"data": image})
    report = attrs.evolve(report, memory=nmpsim.memory_map(bundle))

    expected = json.loads((ROOT / "traces" / "digits-7.json").read_text(encoding="utf-8"))
    given = json.loads(json.dumps(to_json(report)))
    del given["host_seconds"]
    assert given == {**expected, "engine": engine}
