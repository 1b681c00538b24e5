"""Fully connected layers of TFLite multiply by all bits of a float64 factor."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tflite_files import connected_layer

import nmpsim

RECORDED = Path(__file__).parent / "tflite_connected" / "connected.npz"
"""Results of LiteRT (tflite_connected/record_connected.py)."""


def results(
    x: npt.NDArray[Any], w: npt.NDArray[Any], bias: npt.NDArray[Any], scales: Any, folder: Path
) -> list[list[int]]:
    """Return the results of a layer on both engines."""
    path = folder / "layer.tflite"
    path.write_bytes(connected_layer(w, bias, scales))
    bundle = nmpsim.compile(path).bundle
    runs = [nmpsim.Device(engine=name).run(bundle, [x[None]]) for name in ("reference", "compiled")]
    return [run.outputs["y"].reshape(-1).tolist() for run in runs]


def round_half_away(total: int, factor: Fraction) -> int:
    """Round the float64 product to the nearest integer, halves away from zero."""
    size = int(abs(Fraction(float(total) * float(factor))) + Fraction(1, 2))
    return size if total > 0 else -size


def test_sums_round_once_in_float64(tmp_path: Path) -> None:
    archive = np.load(RECORDED)
    differ = 0
    cases = (archive[key] for key in ("x", "w", "bias", "scales", "y"))
    for x, w, bias, scales, y in zip(*cases, strict=True):
        found = results(x, w[None], bias, scales, tmp_path)
        assert found == [y.tolist()] * 2
        total = int(x.astype(np.int64) @ w.astype(np.int64) + bias[0])
        fraction, exponent = math.frexp(float(scales[0]) * float(scales[1]) / float(scales[2]))
        short = Fraction(math.floor(fraction * 2**31 + 0.5)) * Fraction(2) ** (exponent - 31)
        differ += round_half_away(total, short) != y[0]
    assert differ == len(archive["y"]) == 24


@pytest.mark.parametrize("exponent", [-45, -38, -33, -32, -31, -20, -1, 0])
def test_factors_of_every_size_equal_litert(exponent: int, tmp_path: Path) -> None:
    """A bias makes sums that end next to a half, on both sides of zero, and far away."""
    scales = np.float32([0.75, 2.0 ** min(exponent, -8), 2.0 ** (min(exponent, -8) - exponent)])
    factor = Fraction(float(scales[0])) * Fraction(float(scales[1])) / Fraction(float(scales[2]))
    halves = [int(Fraction(2 * n + 1, 2) / factor) for n in (0, 1, 5)]
    near = [half + step for half in halves for step in (-1, 0, 1)]
    bias = np.array([0, *near, *(-one for one in near)], np.int64)
    bias = bias[abs(bias) < 1 << 47]
    x, w = np.zeros(4, np.int16), np.ones((len(bias), 4), np.int8)
    expected = [max(-32768, min(32767, round_half_away(int(one), factor))) for one in bias]
    assert results(x, w, bias, scales, tmp_path) == [expected, expected]
