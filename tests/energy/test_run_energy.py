"""Energy and area of a run: its report, history and Pareto front."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.energy.tables import Estimate
from nmpsim.experiments.device_sweep import SweepResult
from nmpsim.experiments.history import add_entry, list_entries
from nmpsim.report.data import RunReport

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run() -> RunReport:
    folder = ROOT / "programs" / "digits"
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    image = np.load(folder / "images" / "7.npy")
    return nmpsim.Device(engine="reference").run(compiled, {"data": image})


def test_the_energy_of_a_run_is_the_sum_of_its_layers(run):
    assert run.energy is not None
    for end in ("low", "value", "high"):
        layers = sum(getattr(one, end) for layer in run.layers for one in layer.energy.values())
        components = sum(getattr(one, end) for one in run.energy.components.values())
        assert getattr(run.energy.total, end) == pytest.approx(layers)
        assert components == pytest.approx(layers)
    joules = run.energy.total.value * 1e-12
    assert run.energy.watts.value == pytest.approx(joules / run.seconds)
    assert run.energy.delay_product.value == pytest.approx(joules * run.seconds)
    assert run.energy_delay_js == run.energy.delay_product.value
    assert run.area_um2 == pytest.approx(sum(one.value for one in run.area.values()))
    assert run.energy.total.source == "assumed"


def test_the_json_report_keeps_energy_and_area(run, tmp_path):
    nmpsim.write_report(run, tmp_path / "run.json")
    read = nmpsim.read_report(tmp_path / "run.json")
    assert read.energy == run.energy
    assert read.area == run.area
    assert [layer.actions for layer in read.layers] == [layer.actions for layer in run.layers]


def test_measured_estimates_make_a_measured_energy(run):
    measured = {
        name: attrs.evolve(estimate, source="measured")
        for name, estimate in nmpsim.default_device().all_estimates.items()
    }
    device = attrs.evolve(nmpsim.default_device(), estimates=measured)
    folder = ROOT / "programs" / "digits"
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    image = np.load(folder / "images" / "7.npy")
    again = nmpsim.Device(device, engine="reference").run(compiled, {"data": image})
    assert again.energy is not None and run.energy is not None
    assert again.energy.total == attrs.evolve(run.energy.total, source="measured")


def test_the_energy_of_a_run_is_in_the_history(run, tmp_path):
    from datetime import UTC, datetime

    nmpsim.write_report(run, tmp_path / "run.json")
    add_entry(tmp_path / "all", tmp_path / "run.json", "c0ffee", "", datetime.now(UTC))
    (entry,) = list_entries(tmp_path / "all")
    assert entry.energy_pj == pytest.approx(run.energy_pj)


def test_the_pareto_front_of_a_sweep_has_cycles_energy_and_area():
    points = {"a": (1, 9, 9), "b": (2, 9, 9), "c": (2, 9, 8), "d": (9, 1, 9), "e": (9, 1, 9)}
    rows = tuple(
        {"point": name, "error": None, "cycles": cycles, "energy_pj": energy, "area_um2": area}
        for name, (cycles, energy, area) in points.items()
    )
    failed = {"point": "f", "error": "trap", "cycles": None, "energy_pj": None, "area_um2": None}
    assert SweepResult("net", (), (*rows, failed), 0).pareto_points == ("a", "c", "d", "e")


def test_an_estimate_is_multiplied_at_both_ends():
    assert Estimate(1, 2, 4).multiply(2) == Estimate(2, 4, 8)
