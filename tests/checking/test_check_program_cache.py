"""Test that cases of one program share a device and have the results of separate runs."""

import attrs
import numpy as np
import pytest

import nmpsim
from nmpsim.checking import (
    Budget,
    CaseWork,
    Expectations,
    InputFile,
    SuiteCase,
    check_case,
    check_cases,
    run,
)
from nmpsim.cli import suite_files
from nmpsim.core.device import Device


def run_isolated(work):
    """Return the result of a case on its own device."""
    return attrs.evolve(check_case(work), seconds=0)


@pytest.fixture
def devices(monkeypatch):
    """Return a list that grows by one entry per created device."""
    made = []

    def counted(*given, **options):
        made.append(given)
        return Device(*given, **options)

    monkeypatch.setattr(run, "Device", counted)
    return made


def test_cases_on_one_device_equal_separate_runs(project, devices):
    folder = project.folder
    path, board = folder / "digits.bin", folder / "other.toml"
    board.write_text('name = "other"\n')

    def case(name, digit, **more):
        image = InputFile(folder / "images" / f"{digit}.npy")
        return SuiteCase(path, (image,), name, **more)

    cases = [
        case("three", 3, expect=Expectations(top1=3), budget=Budget(cycles=1)),
        case("seven", 7, expect=Expectations(top1=3)),
        case("long", 7, max_cycles=1000),
        case("longer", 8, max_cycles=1000),
        case("other", 3, device=board, budget=Budget(hazards="none")),
        case("again", 3),
    ]
    works = list(suite_files.load_cases(cases, update=False))
    assert all(isinstance(work, CaseWork) for work in works)
    assert len({id(work.bundle) for work in works}) <= 3, "it is read once for each device"
    expected = [run_isolated(work) for work in works]
    devices.clear()
    found = check_cases(works, tuple(case.name for case in cases), jobs=1)
    assert [attrs.evolve(one, seconds=0) for one in found] == expected
    assert len(devices) == 4
    assert [one.contract for one in found] == ["proved", "proved", "checked", "checked"] + [
        "proved"
    ] * 2


def test_a_bundle_that_has_changed_is_read_again(project):
    path = project.folder / "digits.bin"
    case = SuiteCase(path, (InputFile(project.folder / "images" / "7.npy"),), "seven")
    works = suite_files.load_cases([case, case, case], update=False)
    first, second = next(works), next(works)
    assert first.bundle is second.bundle
    text, weights = (project.folder / f"digits.{kind}" for kind in ("lir.txt", "npz"))
    config = attrs.evolve(nmpsim.get_device(first.bundle), cores_count=2)
    nmpsim.save(nmpsim.compile(text, weights=weights, device=config), path)
    third = next(works)
    assert third.bundle.digest != first.bundle.digest
    assert np.array_equal(third.inputs["data"], first.inputs["data"])
