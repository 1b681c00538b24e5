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


def pickle_and_load(thing: Any) -> Any:
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


def get_comparable_fields(report: RunReport) -> dict[str, Any]:
    """Return the fields of a report with ``host_seconds`` set to 0."""
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
    assert get_comparable_fields(first) == get_comparable_fields(second)


def test_a_device_is_pickled_without_its_machine(digits_bin: Path, image: Any) -> None:
    device = nmpsim.Device(engine="reference", threads=1, max_memory=123_000_000)
    bundle = nmpsim.load(digits_bin)
    report = device.run(bundle, {"data": image})
    sent = pickle.dumps(device)
    assert len(sent) < 10_000
    copy = pickle.loads(sent)
    assert copy.config == device.config
    assert get_comparable_fields(copy.run(bundle, {"data": image})) == get_comparable_fields(report)
    with pytest.raises(nmpsim.UserError):
        pickle_and_load(nmpsim.Device(max_memory=1000)).run(bundle, {"data": image})


def test_reports_and_compiled_programs_survive_pickling(image: Any) -> None:
    compiled = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz")
    assert compiled.bundle.digest == pickle_and_load(compiled).bundle.digest
    report = nmpsim.Device().run(compiled, {"data": image}, save_layers=True)
    assert get_comparable_fields(pickle_and_load(report)) == get_comparable_fields(report)
    assert pickle_and_load(report).layer_outputs.keys() == report.layer_outputs.keys()


def test_another_process_runs_pickled_objects(digits_bin: Path, image: Any) -> None:
    device, bundle = nmpsim.Device(threads=1), nmpsim.load(digits_bin)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(run_there, (device, bundle, image))
    assert get_comparable_fields(there) == get_comparable_fields(
        device.run(bundle, {"data": image})
    )
