"""TFLite's Int16 results, each computed by an instruction on both engines (profile q31)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_layers import Weights, Window, convolution, pair, unary
from core_tensors import Array, scale_records
from core_words import F32, fixed_columns, fixed_words, q31_sum
from vectors import TfliteModel, csv_numbers

SUM_SHIFT = 15
"""Bits by which both sides of an addition are shifted up."""
VALID = 1
"""Number of TFLite's padding that is none."""


def models(shared: Path, operation: str) -> Iterator[tuple[str, TfliteModel, Path]]:
    """Yield the name, the model and the path prefix of its data for each recorded model."""
    for path in sorted((shared / "golden" / "tflite_int16" / operation).glob("*.tflite")):
        yield path.stem, TfliteModel(path), path.with_suffix("")


def read_tensor(stem: Path, what: str, tensor: Any) -> Array:
    return csv_numbers(Path(f"{stem}_{what}_int16.csv")).astype(np.int16).reshape(tensor["shape"])


def test_convolutions_equal_recorded_results(shared: Path) -> None:
    """Int8 weights become Int16: the integers are the same."""
    ran = 0
    for name, model, stem in models(shared, "conv"):
        ((_, options, inputs, output),) = model.operators()
        x, w, b = (model.tensor(n) for n in inputs)
        y = model.tensor(output)
        assert options.Padding() == VALID
        factors = float(x["scale"]) * w["scale"].astype(np.float64) / float(y["scale"])
        zeros = np.zeros(b["data"].size, np.int64)
        weights = Weights(
            values=w["data"].astype(np.int16),
            bias=b["data"],
            scales=scale_records(zeros, (zeros,) * 3, fixed_columns(factors)),
        )
        window = Window(
            kernels=w["shape"][1:3],
            strides=(options.StrideH(), options.StrideW()),
            dilation=(options.DilationHFactor(), options.DilationWFactor()),
        )
        source = read_tensor(stem, "input0", x)
        result = convolution(source, weights, window, {"profile": "q31"})
        np.testing.assert_array_equal(result, read_tensor(stem, "golden", y), err_msg=name)
        ran += 1
    assert ran == 15


@pytest.mark.parametrize(("operation", "count"), [("add", 12), ("sub", 4)])
def test_sums_equal_recorded_results(shared: Path, operation: str, count: int) -> None:
    """The second operand of sub is one value a channel, which repeats."""
    ran = 0
    for name, model, stem in models(shared, operation):
        ((_, _, inputs, output),) = model.operators()
        lhs, rhs, y = (model.tensor(n) for n in (*inputs, output))
        words = {
            "profile": "q31",
            "operation": operation,
            **q31_sum(lhs["scale"], rhs["scale"], y["scale"], SUM_SHIFT),
        }
        sides = read_tensor(stem, "input0", lhs), read_tensor(stem, "input1", rhs)
        result = pair(*sides, words)
        np.testing.assert_array_equal(result, read_tensor(stem, "golden", y), err_msg=name)
        ran += 1
    assert ran == count


def test_leaky_relu_equals_recorded_results(shared: Path) -> None:
    """Its factors are quotients of float32."""
    ran = 0
    for name, model, stem in models(shared, "leaky_relu"):
        ((_, options, inputs, output),) = model.operators()
        x, y = model.tensor(inputs[0]), model.tensor(output)
        words = {
            "profile": "q31",
            "activation": "leaky",
            "in_offset": int(x["zero"]),
            "out_offset": int(y["zero"]),
            **fixed_words("out", float(x["scale"] / y["scale"])),
            **fixed_words("leaky", float(x["scale"] * F32(options.Alpha()) / y["scale"])),
        }
        result = unary(read_tensor(stem, "input0", x), words)
        np.testing.assert_array_equal(result, read_tensor(stem, "golden", y), err_msg=name)
        ran += 1
    assert ran == 16
