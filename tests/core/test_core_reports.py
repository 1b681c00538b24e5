"""Test that layer reports are created when they are read, from the data of their own run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.report.data import RunReport

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def digits() -> Bundle:
    return parse_bundle(nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").image)


def image(digit: int) -> dict[str, npt.NDArray[Any]]:
    return {"data": np.load(DIGITS / "images" / f"{digit}.npy")}


def list_channels(report: RunReport) -> list[list[tuple[int, int]]]:
    """Return the saturation of each channel in plain numbers."""
    return [list(cut.channels) for layer in report.layers for cut in layer.saturation]


def test_a_report_keeps_the_counters_of_its_run(digits: Bundle) -> None:
    device = nmpsim.Device()
    early, late = device.run(digits, image(7)), device.run(digits, image(7))
    cut = list_channels(early)
    other = device.run(digits, image(1))
    assert any(cut)
    assert late.layers == early.layers != other.layers
    assert list_channels(late) == cut != list_channels(other)


def test_counters_start_at_zero_in_each_run(digits: Bundle) -> None:
    device = nmpsim.Device()
    device.run(digits, image(7))
    assert device.run(digits, image(1)).layers == nmpsim.Device().run(digits, image(1)).layers


def test_reports_of_layers_are_a_sequence(digits: Bundle) -> None:
    layers = nmpsim.Device().run(digits, image(7)).layers
    read = tuple(layers)
    assert len(layers) == len(read) == len(digits.metadata.layers)
    assert (layers[0], layers[-1], layers[1:3]) == (read[0], read[-1], read[1:3])
    assert layers == read == pickle.loads(pickle.dumps(layers))
    assert repr(layers) == repr(read)
    with pytest.raises(IndexError):
        layers[len(read)]
