"""Test the automatic selection of an engine, and a run that changes to the other engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.bundle.read import parse_bundle
from nmpsim.core import engine_selection
from nmpsim.core.engine_selection import AutoEngine, estimate_reference_seconds, make_engine
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.report.data import RunReport
from nmpsim.report.json import to_json

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
CORE = attrs.evolve(nmpsim.default_device(), cores_count=1)
LOOP = """
_start:
  li t0, 20000
again:
  addi t0, t0, -1
  bnez t0, again
  nmp.halt
"""


@pytest.fixture(scope="module")
def digits() -> Bundle:
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz", tiling="layer").bundle


@pytest.fixture
def loop() -> Bundle:
    return parse_bundle(assemble(LOOP, "loop.s", CORE.settings()).build_bundle())


def choose_engine(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, ready: bool, limits: Limits = NO_LIMITS
) -> str:
    """Return the engine chosen for a program by its estimated time on the reference engine."""
    monkeypatch.setattr(engine_selection, "estimate_reference_seconds", lambda _: seconds)
    engine = make_engine("auto")
    assert isinstance(engine, AutoEngine)
    monkeypatch.setattr(type(engine._get_compiled()), "is_ready", lambda _: ready)
    engine.choose_engine(None, limits)  # type: ignore[arg-type]
    return engine.name


def test_small_work_runs_on_the_reference_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for ready in (True, False):
        assert choose_engine(monkeypatch, 0.09, ready=ready) == "reference"


@pytest.mark.parametrize("seconds", [0.11, 5])
def test_more_work_runs_on_cached_kernels(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    assert choose_engine(monkeypatch, seconds, ready=True) == "compiled"
    assert choose_engine(monkeypatch, seconds, ready=False) == "reference"


def test_large_work_compiles_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_engine(monkeypatch, 60, ready=False) == "compiled"


def test_a_short_timeout_prevents_the_reference_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_engine(monkeypatch, 5, ready=False, limits=Limits(timeout=10)) == "compiled"
    assert choose_engine(monkeypatch, 5, ready=False, limits=Limits(timeout=100)) == "reference"


def test_small_work_reads_no_kernel_cache() -> None:
    engine = AutoEngine()
    engine._should_compile(0.09)
    assert engine._compiled is None


def test_the_reference_engine_is_created_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = AutoEngine()
    monkeypatch.setattr(engine_selection, "estimate_reference_seconds", lambda _: 60.0)
    engine.choose_engine(None, NO_LIMITS)  # type: ignore[arg-type]
    assert engine.name == "compiled"
    assert "_reference" not in vars(engine)


def test_the_estimate_grows_with_the_program(digits: Bundle) -> None:
    assert engine_selection.READING_SECONDS < estimate_reference_seconds(digits) < 0.3


def without_engine(report: RunReport) -> dict[str, Any]:
    return {**to_json(report), "engine": "", "host_seconds": 0.0}


def test_a_change_of_engine_keeps_the_report(loop: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_selection, "READING_SECONDS", 0.01)
    monkeypatch.setattr(engine_selection, "COMPILING_SECONDS", 0.01)
    said = []
    reports = [
        nmpsim.Device(CORE, engine).run(loop, {}, progress=said.append)
        for engine in ("auto", "compiled")
    ]
    assert [report.engine for report in reports] == ["compiled"] * 2
    assert without_engine(reports[0]) == without_engine(reports[1])
    assert reports[0].host_seconds < 5, "compiling does not count"


def test_a_network_changes_engines_between_segments_and_runs(
    digits: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    device = nmpsim.Device(engine="auto")
    monkeypatch.setattr(engine_selection, "READING_SECONDS", 60.0)
    small = device.run(digits, inputs, save_layers=True)
    assert small.engine == "reference"
    monkeypatch.setattr(engine_selection, "READING_SECONDS", 0.0)
    monkeypatch.setattr(engine_selection, "COMPILING_SECONDS", device._engine._spent + 0.02)  # type: ignore[union-attr]
    monkeypatch.setattr(engine_selection, "estimate_reference_seconds", lambda _: 0.0)
    monkeypatch.setattr("nmpsim.core.compiled.engine.CompiledEngine.is_ready", lambda _: False)
    later = device.run(digits, inputs, save_layers=True)
    assert later.engine == "compiled"
    direct = nmpsim.Device(engine="compiled").run(digits, inputs, save_layers=True)
    for one in (small, later):
        assert without_engine(one) == without_engine(direct)
        assert all(map(np.array_equal, one.layer_outputs.values(), direct.layer_outputs.values()))


def test_a_limit_of_time_holds_on_both_engines(
    loop: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert math.isinf(Limits().timeout or math.inf)
    report = nmpsim.Device(CORE, "auto").run(loop, {}, limits=Limits(timeout=0.001))
    assert report.trap is not None
    assert report.trap.kind == "timeout"
