"""TFLite's operations that the device has no unit for, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import page
from tally import Tally
from vectors import Array, Case, TfliteModel


def cases(
    shared: Path, tmp_path: Path, operation: str, dtype: str
) -> Iterator[tuple[str, Any, list[Case], Case, Array]]:
    """Yield name, options, inputs with data, output and TFLite's result of each case."""
    with np.load(shared / "golden" / "frontends" / "tflite_ops.npz") as archive:
        for key in archive.files:
            name, slash, what = key.rpartition("/")
            if what != "model" or not name.startswith(f"{operation}_{dtype}{slash}"):
                continue
            path = tmp_path / "model.tflite"
            path.write_bytes(archive[key].tobytes())
            model = TfliteModel(path)
            ((_, options, inputs, output),) = model.operators()
            tensors = [model.tensor(number) for number in inputs]
            tensors[0]["data"] = archive[f"{name}/in0"]
            yield name, options, tensors, model.tensor(output), archive[f"{name}/out0"]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_softmax_equals_tflite(shared: Path, tmp_path: Path, dtype: str) -> None:
    tally = Tally()
    for name, options, (x,), _, expected in cases(shared, tmp_path, "SOFTMAX", dtype):
        rows = x["data"].astype(np.int64).reshape(-1, x["data"].shape[-1])
        formula = page.q31_softmax_i16 if dtype == "int16" else page.q31_softmax_i8
        result = formula(rows, x["scale"], options.Beta())
        kind = "i16" if dtype == "int16" else "i8"
        moved = 128 if dtype == "uint8" else 0
        clipped = page.clip(result, kind) + moved
        tally.assert_equal(
            f"TFLite softmax, {dtype}", clipped.reshape(expected.shape), expected, name
        )
    tally.assert_matches_page()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_mean_equals_tflite(shared: Path, tmp_path: Path, dtype: str) -> None:
    tally = Tally()
    for name, _, (x, axes), y, expected in cases(shared, tmp_path, "MEAN", dtype):
        over = tuple(np.atleast_1d(axes["data"]).tolist())
        data = x["data"].astype(np.int64) - x["zero"]
        count = int(np.prod([data.shape[axis] for axis in over]))
        sums = data.sum(axis=over)
        result = page.q31_mean(sums, count, x["scale"], y["scale"], y["zero"])
        limits = np.iinfo(dtype)
        clipped = np.clip(result, limits.min, limits.max).reshape(expected.shape)
        tally.assert_equal(f"TFLite mean, {dtype}", clipped, expected, name)
    tally.assert_matches_page()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_bilinear_resize_equals_tflite(shared: Path, tmp_path: Path, dtype: str) -> None:
    tally = Tally()
    for name, options, (x, _), _, expected in cases(shared, tmp_path, "RESIZE_BILINEAR", dtype):
        formula = page.q31_bilinear_u8 if dtype == "uint8" else page.q31_bilinear
        flags = options.AlignCorners(), options.HalfPixelCenters()
        result = formula(x["data"], *expected.shape[1:3], *flags)
        tally.assert_equal(f"TFLite bilinear, {dtype}", result, expected, name)
    tally.assert_matches_page()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_nearest_resize_equals_tflite(shared: Path, tmp_path: Path, dtype: str) -> None:
    tally = Tally()
    operation = "RESIZE_NEAREST_NEIGHBOR"
    for name, options, (x, _), _, expected in cases(shared, tmp_path, operation, dtype):
        flags = options.AlignCorners(), options.HalfPixelCenters()
        rows, columns = (
            page.nearest_places(x["data"].shape[d], expected.shape[d], *flags) for d in (1, 2)
        )
        result = x["data"][:, rows][:, :, columns]
        tally.assert_equal(f"TFLite nearest, {dtype}", result, expected, name)
    tally.assert_matches_page()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16-int8"])
def test_fully_connected_ties_equal_tflite(shared: Path, tmp_path: Path, dtype: str) -> None:
    tally = Tally()
    operation = "ties_FULLY_CONNECTED"
    for name, _, (x, w, b), y, expected in cases(shared, tmp_path, operation, dtype):
        rows = x["data"].astype(np.int64).reshape(-1, w["shape"][1]) - x["zero"]
        weights = w["data"].astype(np.int64) - np.reshape(w["zero"], (-1, 1))
        acc = rows @ weights.T + b["data"]
        factor = page.q31_factor(x["scale"], w["scale"], y["scale"])
        limits = np.iinfo(y["dtype"])
        result = np.clip(page.q31_connected(acc, factor) + y["zero"], limits.min, limits.max)
        tally.assert_equal(
            f"TFLite ties, connected, {dtype}", result.reshape(expected.shape), expected, name
        )
    tally.assert_matches_page()
