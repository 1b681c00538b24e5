"""``nmpsim run --sensitivity``: each assumed number moved, by the same program where it can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from core_machines import device

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.cli.app import app
from nmpsim.config import SETTINGS
from nmpsim.experiments.sensitivity import measure_sensitivity
from nmpsim.report.analyses import SensitivityReport, SettingEffect
from nmpsim.report.json import make_report_schema

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
SEVEN = DIGITS / "images" / "7.npy"
CONFIG = device(4)


@pytest.fixture(scope="module")
def bundle_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sensitivity") / "digits.bin"
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz", device=CONFIG)
    nmpsim.save(compiled, path)
    return path


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    return {"data": np.load(SEVEN)}


@pytest.fixture(scope="module")
def sensitivity_report(bundle_file: Path, inputs: dict[str, Any]) -> SensitivityReport:
    bundle = nmpsim.load(bundle_file)
    report = nmpsim.Device(CONFIG).run(bundle, inputs)
    return measure_sensitivity(bundle, inputs, report, CONFIG)


def get_effect(sensitivity_report: SensitivityReport, setting: str) -> SettingEffect:
    (one,) = (e for e in sensitivity_report.effects if e.setting == setting)
    return one


def test_every_assumed_setting_is_varied_or_listed(sensitivity_report: SensitivityReport) -> None:
    told = {e.setting for e in sensitivity_report.effects} | {
        s.setting for s in sensitivity_report.skipped
    }
    assumed = {name for name in SETTINGS if CONFIG.sources[name] == "assumed"}
    assert told == assumed
    assert {s.setting for s in sensitivity_report.skipped} == {
        "cores_clock_mhz",
        "dram_bytes",
        "limits_cycles",
    }
    effects = [e.effect for e in sensitivity_report.effects]
    assert effects == sorted(effects, reverse=True)
    assert effects[0] > 0


def test_cycles_equal_a_run_on_the_varied_device(
    sensitivity_report: SensitivityReport, bundle_file: Path, inputs: dict[str, Any]
) -> None:
    bandwidth = get_effect(sensitivity_report, "dram_bytes_per_cycle")
    assert bandwidth.lower is not None and bandwidth.higher is not None
    assert (bandwidth.lower.value, bandwidth.value, bandwidth.higher.value) == (12, 16, 20)
    slow = attrs.evolve(CONFIG, dram_bytes_per_cycle=12)
    cycles = nmpsim.Device(slow).run(nmpsim.load(bundle_file), inputs).cycles
    assert bandwidth.lower.cycles == cycles > sensitivity_report.cycles
    assert bandwidth.program == "same"


def test_small_numbers_change_by_one_and_powers_of_two_by_two(
    sensitivity_report: SensitivityReport,
) -> None:
    branch = get_effect(sensitivity_report, "control_taken_branch_cycles")
    burst = get_effect(sensitivity_report, "dram_burst_bytes")
    for one, values in ((branch, (1, 3)), (burst, (32, 128))):
        assert one.lower is not None and one.higher is not None
        assert (one.lower.value, one.higher.value) == values


def test_another_scratchpad_compiles_again(sensitivity_report: SensitivityReport) -> None:
    one = get_effect(sensitivity_report, "scratchpad_bytes")
    assert one.program == "recompiled"
    assert one.lower is not None and one.lower.value == 104_832
    assert one.lower.cycles is not None


def test_an_assembly_program_is_not_compiled_again() -> None:
    config = device(2)
    path = ROOT / "programs" / "assembly" / "contention.s"
    text = path.read_text(encoding="utf-8")
    bundle: Bundle = parse_bundle(assemble(text, str(path), config.settings()).build_bundle())
    block = {"block": np.zeros(256, np.int8)}
    found = measure_sensitivity(bundle, block, nmpsim.Device(config).run(bundle, block), config)
    (scratchpad,) = (s for s in found.skipped if s.setting == "scratchpad_bytes")
    assert "no LIR" in scratchpad.reason
    # By hand: both stand in line for the same bursts, so 4 x 4 of the first phase's cycles and
    # as many of the second one's go with the bandwidth.
    assert get_effect(found, "dram_bytes_per_cycle").effect > 0
    assert get_effect(found, "mac_in_lanes").effect == 0


def test_a_setting_at_its_limit_changes_in_one_direction(
    bundle_file: Path, inputs: dict[str, Any]
) -> None:
    config = attrs.evolve(CONFIG, dma_startup_cycles=0, queues_depth=16)
    bundle = nmpsim.load(bundle_file)
    found = measure_sensitivity(bundle, inputs, nmpsim.Device(config).run(bundle, inputs), config)
    assert get_effect(found, "dma_startup_cycles").lower is None
    assert get_effect(found, "queues_depth").higher is None


def test_the_command_prints_the_sensitivity(bundle_file: Path) -> None:
    arguments = ["run", str(bundle_file), "--input", str(SEVEN), "--sensitivity"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "cycles when an assumed setting changes by 20%" in shown.output
    assert "dram.bytes_per_cycle" in shown.output
    assert "scratchpad.bytes*" in shown.output
    assert "recompiled" in shown.output
    given = CliRunner().invoke(app, [*arguments, "--format", "json"])
    report = json.loads(given.stdout)
    jsonschema.validate(report, make_report_schema())
    table = report["sensitivity"]
    assert table["cycles"] == report["cycles"]
    assert [e["effect"] for e in table["effects"]] == sorted(
        (e["effect"] for e in table["effects"]), reverse=True
    )
