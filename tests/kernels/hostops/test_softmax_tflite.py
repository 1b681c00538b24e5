"""Test TFLite's softmax of one row and of many against Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from nmpsim.kernels.hostops.softmax import softmax_int8
from nmpsim.kernels.hostops.tensors import HostTensor


@pytest.mark.parametrize("scale", [0.004, 0.1, 0.7])
def test_a_single_row_equals_tflite(scale: float) -> None:
    rows = np.random.default_rng(5).integers(-128, 128, (30, 10))
    rows[0], rows[1] = 7, np.linspace(-128, 127, 10)
    src = HostTensor(rows.astype(np.int8), scale=scale)
    dest = HostTensor(rows.astype(np.int8), scale=1 / 256, offset=-128)
    many = softmax_int8(rows, src, dest, 1.0)
    for row, expected in zip(rows, many, strict=True):
        np.testing.assert_array_equal(softmax_int8(row[None], src, dest, 1.0), [expected])
