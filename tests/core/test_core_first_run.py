"""Test that a device's first run does no work twice on a cleared machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.core import device as module
from nmpsim.core.run import Run
from nmpsim.report.data import RunReport

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
INPUTS = {"data": np.load(DIGITS / "images" / "7.npy")}


@pytest.fixture(scope="module")
def digits() -> Bundle:
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").bundle


def test_the_reference_engine_runs_a_program_once(
    digits: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It proves nothing of a program, so nobody asks it to and begins again."""
    calls = []
    report_of = Run.execute

    def report(run: Run) -> RunReport:
        calls.append("run")
        return report_of(run)

    monkeypatch.setattr(Run, "execute", report)
    monkeypatch.setattr(module, "reset_machine", lambda *_: calls.append("reset"))
    device = nmpsim.Device(engine="reference")
    first = device.run(digits, INPUTS)
    assert calls == ["run"]
    assert first.contract.status == "proved"
    device.run(digits, INPUTS)
    assert calls == ["run", "reset", "run"]


def test_a_changed_machine_is_cleared_before_a_run(digits: Bundle) -> None:
    device = nmpsim.Device(engine="reference")
    machine = device.machine_after(digits)
    assert not machine.scratchpad.any()
    assert not machine.ram.any()
    machine.scratchpad[...] = machine.ram[...] = 255
    report, again = device.run(digits, INPUTS), nmpsim.Device(engine="reference")

    def told(report: RunReport) -> dict[str, Any]:
        return {"cycles": report.cycles, **{name: x.tolist() for name, x in report.outputs.items()}}

    assert told(report) == told(again.run(digits, INPUTS))
    clean = again.machine_after(digits)
    np.testing.assert_array_equal(machine.ram, clean.ram)
    np.testing.assert_array_equal(machine.scratchpad, clean.scratchpad)
