"""A small convolution, and dumps of invented devices that computed it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ZERO_X, ZERO_Y = -5, 7
CHANNELS, SIZE = 6, 12
RNG = np.random.default_rng(7)
X = RNG.integers(-128, 128, (2, CHANNELS, SIZE, SIZE + 1)).astype(np.int8)
WEIGHTS = RNG.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
BIAS = RNG.integers(-4000, 4000, CHANNELS).astype(np.int32)
SCALE_X, SCALE_Y = np.float32(0.0371), np.float32(0.2513)
SCALES_W = RNG.uniform(0.002, 0.013, CHANNELS).astype(np.float32)
FACTORS = SCALE_X.astype(float) * SCALES_W.astype(float) / SCALE_Y.astype(float)


def compute_sums(x: Any = X, weights: Any = WEIGHTS) -> Any:
    """Return the sums [N, O, H, W] without bias."""
    padded = np.pad(x.astype(np.int64) - ZERO_X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.int64))


def multipliers(bits: int, factors: Any = FACTORS) -> tuple[Any, Any]:
    """Return multipliers of ``bits`` bits, and the shifts to the right, [O, 1, 1]."""
    fractions, exponents = np.frexp(factors)
    whole = np.floor(np.ldexp(fractions, bits) + 0.5).astype(np.int64)
    return whole[:, None, None], (bits - exponents.astype(np.int64))[:, None, None]


def record(path: Path, requantize: Callable[[Any, Any], Any], x: Any = X, **changed: Any) -> Path:
    """Write dumps of a device whose result, less the zero point, is ``requantize(sums, bias)``."""
    exact = requantize(compute_sums(x), BIAS.astype(np.int64)[:, None, None]) + ZERO_Y
    y = np.clip(exact, -128, 127).astype(np.int8)
    np.savez(path, **({"x": x, "y": y} | changed))
    return path


def write_model(path: Path) -> Path:
    """Write the convolution as an ONNX model with the tensors x and y."""
    import onnx

    values = {
        "sx": np.asarray(SCALE_X), "zx": np.asarray(ZERO_X, np.int8), "w": WEIGHTS,
        "sw": SCALES_W, "zw": np.zeros(CHANNELS, np.int8), "sy": np.asarray(SCALE_Y),
        "zy": np.asarray(ZERO_Y, np.int8), "b": BIAS,
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *values], ["y"], pads=[1, 1, 1, 1])
    shape = [1, *X.shape[1:]]
    ends = [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name in "xy"]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "convolution", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path
