"""Faults of recorded data that identify names without knowing the rule of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.analysis.hypotheses.recorded_faults import try_fault
from tests.identify_campaign.known_devices import KNOWN

SHIFT_ONLY = [device for device in KNOWN if device.name == "NNIE, shift"]


@pytest.mark.parametrize(
    "name",
    [
        "result channels swapped",
        pytest.param("input NHWC", marks=pytest.mark.slow),
        pytest.param("zero point of the result", marks=pytest.mark.slow),
    ],
)
def test_faults_of_a_device_that_only_shifts_are_named(name: str, tmp_path: Path) -> None:
    found = try_fault(name, np.random.default_rng(7), tmp_path, devices=SHIFT_ONLY)
    assert found is not None
    is_named, text = found
    assert is_named, text
