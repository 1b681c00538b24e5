"""Limits that a user sets win over what a bundle's own device allows."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.core import run as run_module
from nmpsim.core.engine import Compilation
from nmpsim.core.engine_selection import ENGINES
from nmpsim.core.limits import TimeBudget, TimeLimitError
from nmpsim.core.run_modes import Mode

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def loop() -> Bundle:
    allowed = attrs.evolve(nmpsim.default_device(), limits_cycles=1 << 62)
    return parse_bundle(assemble("_start: j _start", "loop.s", allowed.settings()).build_bundle())


@pytest.fixture(scope="module")
def digits() -> Bundle:
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").bundle


@pytest.fixture
def seven() -> dict[str, np.ndarray]:
    return {"data": np.load(DIGITS / "images" / "7.npy")}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cycle_limit_stops_a_run(loop: Bundle, engine: str) -> None:
    device = nmpsim.Device(nmpsim.get_device(loop), engine)
    report = device.run(loop, {}, limits=nmpsim.Limits(max_cycles=1000))
    assert report.trap is not None
    assert (report.trap.kind, report.trap.message) == (
        "cycle_limit",
        "the run took more than 1000 cycles",
    )
    assert report.device["limits_cycles"] == 1 << 62, "the device is what it was"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_time_limit_stops_a_run(loop: Bundle, engine: str) -> None:
    device = nmpsim.Device(nmpsim.get_device(loop), engine)
    report = device.run(loop, {}, limits=nmpsim.Limits(timeout=0.05))
    assert report.trap is not None
    assert (report.trap.kind, report.trap.message) == (
        "timeout",
        "the run took longer than 0.05 s",
    )
    assert report.host_seconds > 0.05
    assert report.cycles > 0


class _FakeClock:
    """Clock that tests advance by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize("timeout", [3.0, 5.0])
def test_a_restarted_run_has_no_additional_time(
    digits: Bundle, seven: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """The recording takes two seconds, the replay takes as many and is left."""
    clock, device = _FakeClock(), nmpsim.Device(threads=1)
    tried: list[str] = []

    def record(*_: object) -> object:
        clock.now += 2
        tried.append("record")
        return object()

    def replay(*_: object) -> bool:
        clock.now += 2
        tried.append("replay")
        return False

    monkeypatch.setattr(run_module, "time", clock)
    monkeypatch.setattr(device._engine, "compilation", Compilation())
    monkeypatch.setattr(device._engine, "record", record)
    monkeypatch.setattr(device._engine, "replay", replay)
    device._load(digits).mode = Mode.REPLAY
    report = device.run(digits, seven, limits=nmpsim.Limits(timeout=timeout))
    assert tried == ["record", "replay"]
    assert (report.trap is None) == (timeout > 4)
    if report.trap is not None:
        assert report.trap.message == "the run took longer than 3 s"
    assert report.host_seconds == 4


def test_a_budget_returns_the_remaining_limit() -> None:
    budget = TimeBudget(nmpsim.Limits(max_cycles=7, timeout=3), spent=1.0)
    assert budget.get_remaining_limits() == nmpsim.Limits(max_cycles=7, timeout=2)
    budget.check(2.0)
    budget.spend(1.5)
    with pytest.raises(nmpsim.UserError, match="took longer than 3 s"):
        budget.check(1.0)
    budget.spend(0.5)
    with pytest.raises(TimeLimitError):
        budget.get_remaining_limits()
    endless = TimeBudget(nmpsim.Limits(max_cycles=7), spent=1e9)
    endless.check(1e9)
    assert endless.get_remaining_limits() == nmpsim.Limits(max_cycles=7)


@pytest.mark.parametrize("save_layers", [False, True])
def test_a_run_after_an_exceeded_limit_is_complete(
    digits: Bundle, seven: dict[str, np.ndarray], save_layers: bool
) -> None:
    device = nmpsim.Device(threads=2)
    whole = device.run(digits, seven, save_layers=save_layers)
    for limits in (nmpsim.Limits(timeout=1e-9), nmpsim.Limits(max_cycles=100)):
        stopped = device.run(digits, seven, save_layers=save_layers, limits=limits)
        assert stopped.trap is not None
        assert stopped.trap.layer is not None
        again = device.run(digits, seven, save_layers=save_layers)
        assert again.trap is None
        assert again.outputs["prob__1"].tobytes() == whole.outputs["prob__1"].tobytes()
        for mine, theirs in zip(again.layers, whole.layers, strict=True):
            assert (mine.cycles, mine.saturation) == (theirs.cycles, theirs.saturation)


def test_a_replay_can_be_stopped(
    digits: Bundle, seven: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = nmpsim.Device()
    whole = device.run(digits, seven)
    with monkeypatch.context() as patch:
        # Time is up after the first pieces of the recording; again where that begins from rest.
        checks = iter([False, False, True] * 2)

        def check(clock: object) -> None:
            if next(checks, True):
                raise run_module.RunTimeoutError

        patch.setattr(run_module.Clock, "check", check)
        stopped = device.run(digits, seven)
        assert stopped.trap is not None
        assert stopped.trap.kind == "timeout"
        assert next(checks, None) is None
    assert device.run(digits, seven).cycles == whole.cycles


def test_large_limits_change_nothing(digits: Bundle, seven: dict[str, np.ndarray]) -> None:
    device = nmpsim.Device()
    limits = nmpsim.Limits(max_cycles=10**9, timeout=1e6)
    free, limited = device.run(digits, seven), device.run(digits, seven, limits=limits)
    assert limited.trap is None
    assert limited.cycles == free.cycles


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_cycles": 0},
        {"max_cycles": 1 << 63},
        {"max_cycles": 1.5},
        {"max_cycles": True},
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"timeout": "5"},
    ],
)
def test_an_invalid_limit_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(nmpsim.UserError, match="ARG001"):
        nmpsim.Limits(**wrong)
