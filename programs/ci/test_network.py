"""What the network must do, as tests; `python -m pytest --nmp-update` writes the snapshots."""

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def digits(nmp_session):
    return nmp_session.compile(FOLDER / "digits.lir.txt", FOLDER / "digits.npz")


@pytest.mark.parametrize("digit", range(10))
def test_names_the_digit(nmp, digits, digit):
    run = nmp.run(digits, {"data": np.load(FOLDER / "images" / f"{digit}.npy")})
    assert run.outputs["prob__1"].argmax() == digit


def test_is_as_it_was(nmp, nmp_snapshot, digits):
    run = nmp.run(digits, {"data": np.load(FOLDER / "images" / "7.npy")})
    nmp_snapshot.check(run, cycles_percent=1)


@pytest.mark.nmp_device(dram_bytes_per_cycle=8)
def test_half_the_bandwidth_is_enough(nmp, digits):
    run = nmp.run(digits, {"data": np.load(FOLDER / "images" / "7.npy")})
    assert run.cycles < 7000
