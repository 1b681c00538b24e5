"""Bundles, devices and reports go to other processes, as multiprocessing and Dask send them."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle
from nmpsim.report.data import RunReport
from nmpsim.report.json import to_json

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def run_there(device: nmpsim.Device, bundle: Bundle, image: Any) -> RunReport:
    return device.run(bundle, {"data": image})


@pytest.fixture
def digits_bin(tmp_path: Path) -> Path:
    path = tmp_path / "digits.bin"
    nmpsim.save(nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz"), path)
    return path


@pytest.fixture
def image() -> Any:
    return np.load(DIGITS / "images" / "7.npy")


def facts(report: RunReport) -> dict[str, Any]:
    """All that a report tells, but how long it took."""
    return {**to_json(report), "host_seconds": 0}


def test_a_bundle_survives_pickling(digits_bin: Path, image: Any) -> None:
    bundle = nmpsim.load(digits_bin)
    sent = pickle.dumps(bundle)
    digits_bin.unlink()
    copy = pickle.loads(sent)
    assert isinstance(copy, Bundle)
    assert copy.metadata == bundle.metadata
    assert (copy.digest, copy.symbols, copy.text) == (bundle.digest, bundle.symbols, bundle.text)
    assert np.array_equal(copy.image, bundle.image)
    assert copy.module().instructions == bundle.module().instructions
    first, second = (nmpsim.Device().run(one, {"data": image}) for one in (bundle, copy))
    assert facts(first) == facts(second)


def test_a_device_is_pickled_without_its_machine(digits_bin: Path, image: Any) -> None:
    device = nmpsim.Device(engine="reference", threads=1, max_memory=123_000_000)
    bundle = nmpsim.load(digits_bin)
    report = device.run(bundle, {"data": image})
    sent = pickle.dumps(device)
    assert len(sent) < 10_000
    copy = pickle.loads(sent)
    assert copy.config == device.config
    assert facts(copy.run(bundle, {"data": image})) == facts(report)
    with pytest.raises(nmpsim.UserError):
        again(nmpsim.Device(max_memory=1000)).run(bundle, {"data": image})


def test_reports_and_compiled_programs_survive_pickling(image: Any) -> None:
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    assert compiled.bundle.digest == again(compiled).bundle.digest
    report = nmpsim.Device().run(compiled, {"data": image}, save_layers=True)
    assert facts(again(report)) == facts(report)
    assert again(report).layer_outputs.keys() == report.layer_outputs.keys()


def test_another_process_runs_pickled_objects(digits_bin: Path, image: Any) -> None:
    device, bundle = nmpsim.Device(threads=1), nmpsim.load(digits_bin)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(run_there, (device, bundle, image))
    assert facts(there) == facts(device.run(bundle, {"data": image}))
