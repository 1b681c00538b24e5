"""Fixtures with programs on a screen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus import compiled
from screen import Start, session

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="session")
def digits() -> Bundle:
    return compiled(DIGITS / "digits.lir.txt")


@pytest.fixture
def start(digits: Bundle) -> Start:
    """Return a function that starts a session on the digits program with an image of a 7."""
    return lambda: session(digits, np.load(DIGITS / "images" / "7.npy"))


@pytest.fixture(scope="session")
def lenet(shared: Path) -> Start:
    folder = shared / "lir/lenet"
    program = folder / "i8_asym_b32/cpu.lir.txt"
    bundle = parse_bundle(nmpsim.compile(program, folder / "i8_asym_b32/cpu.npz").image)
    with np.load(folder / "calibration_inputs.npz") as archive:
        image = archive[archive.files[0]][:1]
    return lambda: session(bundle, image)


@pytest.fixture
def resnet50(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle of the largest network."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "conformance")
    from recorded_programs import RESNET50, Recorded, Recording, with_recipe

    recording = Recording(Recorded(RESNET50[0]))
    np.savez(tmp_path / "weights.npz", **with_recipe(recording))
    compiled = nmpsim.compile(recording.program.text, tmp_path / "weights.npz")
    nmpsim.save(compiled, tmp_path / "net.bin")
    return tmp_path / "net.bin"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large_network: takes seconds; runs behind all others")
