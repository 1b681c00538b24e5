"""Sizes of errors and their parts, on numbers that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from nmpsim.analysis.shadow.compare import measure_error, split_error
from nmpsim.analysis.shadow.evaluate import Evaluations, add_early_saturation, clip_to_range
from nmpsim.interpreter import compute_sqnr_db
from nmpsim.lir.nodes import Quantization, TensorType

INT8 = TensorType("i8", (2, 3), Quantization(0.5, 10, -69.0, 58.5))
FLOAT = TensorType("float", (2, 3))
REALS = st_numpy.arrays(
    np.float64, (2, 3), elements=st.floats(-100, 100, allow_nan=False, width=32)
)


def test_sqnr_of_known_powers() -> None:
    assert compute_sqnr_db(np.array([10.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(20.0)
    assert compute_sqnr_db(np.array([3.0]), np.array([0.0])) == math.inf
    assert compute_sqnr_db(np.array([0.0]), np.array([1.0])) == -math.inf
    assert compute_sqnr_db(np.zeros(0), np.zeros(0)) == math.inf


def test_errors_are_in_units_of_the_last_place() -> None:
    size = measure_error(np.array([1.0, 1.0]), np.array([0.25, -0.75]), 0.25)
    assert (size.mean_error_ulp, size.max_error_ulp) == (2.0, 3.0)
    size = measure_error(np.array([1.0, 1.0]), np.array([0.25, -0.75]), None)
    assert size.mean_error_ulp is size.max_error_ulp is None


def test_ranges_of_types_are_exact() -> None:
    real = np.array([-1000.0, -69.0, 0.3, 58.5, 58.6])
    assert clip_to_range(real, INT8).tolist() == [-69.0, -69.0, 0.3, 58.5, 58.5]
    assert clip_to_range(real, FLOAT) is real


def test_intermediate_saturation_counts_as_saturation() -> None:
    in_range = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    device = np.array([[9.0, 9.0, 1.5], [1.5, 0.9, 9.0]])
    found = add_early_saturation(in_range, device, {1, 2}, INT8)
    # Channel 0 was not cut; half a unit and less is rounding.
    assert found.tolist() == [[1.0, 9.0, 1.0], [1.0, 1.0, 9.0]]
    assert add_early_saturation(in_range, device, (), INT8) is in_range
    assert add_early_saturation(in_range, device, {0}, FLOAT) is in_range


@given(REALS, REALS, REALS, REALS, REALS)
def test_parts_add_up_to_the_error(
    device: np.ndarray,
    real: np.ndarray,
    bias: np.ndarray,
    isolated: np.ndarray,
    network: np.ndarray,
) -> None:
    """One element at a time, so that a mean error is the error."""
    for i in range(device.size):
        y, r, b, own, net = (
            a.reshape(-1)[i : i + 1] for a in (device, real, bias, isolated, network)
        )
        c = clip_to_range(r, INT8)
        parts = split_error(Evaluations(y, r, c, b, own, net), 0.5)
        for part, error in (
            (parts.inherited, own - net),
            (parts.bias, b - own),
            (parts.weights, r - b),
            (parts.saturation, c - r),
            (parts.rescale, y - c),
        ):
            assert part is not None
            assert part.mean_error_ulp == part.max_error_ulp == abs(error[0]) / 0.5
            assert part.sqnr_db == compute_sqnr_db(net, error)
        signed = (own - net) + (b - own) + (r - b) + (c - r) + (y - c)
        assert signed == pytest.approx(y - net, abs=1e-9)


def test_without_float_weights_two_parts_are_known() -> None:
    real = np.array([100.0, 1.0])
    device = np.array([58.5, 1.5])
    parts = split_error(Evaluations(device, real, clip_to_range(real, INT8)), 0.5)
    assert parts.inherited is parts.bias is parts.weights is None
    assert parts.saturation.max_error_ulp == 83.0
    assert parts.rescale.max_error_ulp == 1.0
    assert parts.rescale.sqnr_db == pytest.approx(compute_sqnr_db(real, np.array([0.0, 0.5])))
