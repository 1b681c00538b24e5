"""Runs that were reviewed once and must stay as they are, on both engines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.trace import DramTrace, Selection, TimelineTrace
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.report.json import to_json
from nmpsim.timing import get_costs

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_the_trace_of_the_digits_is_unchanged(engine: str) -> None:
    folder = ROOT / "programs" / "digits"
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    image = np.load(folder / "images" / "7.npy")

    bundle = parse_bundle(compiled.image)
    report = nmpsim.Device(engine=engine).run(bundle, {"data": image})
    report = attrs.evolve(
        report, memory=nmpsim.memory_map(bundle), edges=nmpsim.layer_edges(bundle)
    )

    expected = json.loads((ROOT / "traces" / "digits-7.json").read_text(encoding="utf-8"))
    given = json.loads(json.dumps(to_json(report)))
    del given["host_seconds"]
    assert given == {**expected, "engine": engine}


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_the_trace_of_two_cores_is_unchanged(engine: str) -> None:
    """The cycles that the comment of contention.s works out, and the addresses behind them."""
    config = attrs.evolve(nmpsim.default_device(), cores_count=2)
    text = (ROOT / "programs" / "assembly" / "contention.s").read_text(encoding="utf-8")
    assembled = assemble(text, "contention.s", config.settings())
    bundle = parse_bundle(assembled.build_bundle())
    file, addresses = io.BytesIO(), io.BytesIO()
    timeline = TimelineTrace(file, bundle, 2, Selection())
    dram = DramTrace(addresses, get_costs(config), Selection())

    def listen(work: Any) -> None:
        timeline(work)
        dram(work)

    inputs = {"block": np.zeros(256, np.int8)}
    timeline.finish(nmpsim.Device(config, engine).run(bundle, inputs, work=listen))

    traces = ROOT / "traces"
    assert file.getvalue().decode() == (traces / "contention.json").read_text(encoding="utf-8")
    assert addresses.getvalue().decode() == (traces / "contention.trc").read_text(encoding="utf-8")
