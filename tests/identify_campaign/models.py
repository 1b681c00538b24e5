"""Random ONNX models of quantized convolutions, and the sums of their layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@attrs.frozen
class Convolution:
    """Parameters of a QLinearConv."""

    weights: Any
    """[O, I, K, K] int8"""
    bias: Any
    scales: tuple[Any, Any, Any]
    """Of input, weights [O] and result."""
    zeros: tuple[int, int]
    """Zero points of input and result."""
    group: int = 1

    def compute_sums(self, x: Any) -> Any:
        """Return sums [N, H, W, O] of an input [N, I, H, W], with padding that keeps its size."""
        pad = self.weights.shape[-1] // 2
        padded = np.pad(
            x.astype(np.int64) - self.zeros[0], ((0, 0), (0, 0), (pad, pad), (pad, pad))
        )
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.weights.shape[2:], (2, 3))
        weights = self.weights.astype(np.int64)
        if self.group == 1:
            return np.einsum("nchwij,ocij->nhwo", windows, weights)
        return np.einsum("nchwij,cij->nhwc", windows, weights[:, 0])


def draw_layers(rng: np.random.Generator, count: int, channels: int) -> list[Convolution]:
    """Return random layers, each of which reads the result of the one before it."""
    layers, scale, zero = [], np.float32(rng.uniform(0.01, 0.1)), int(rng.integers(-30, 30))
    for _ in range(count):
        depthwise = rng.random() < 0.3
        kernel = int(rng.choice([1, 3]))
        shape = (channels, 1 if depthwise else channels, kernel, kernel)
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        weight_scales = rng.uniform(0.002, 0.02, channels).astype(np.float32)
        spread = 60 * 70 * np.sqrt(np.prod(shape[1:])) * float(scale) * weight_scales.mean()
        out_scale = np.float32(spread / rng.uniform(35, 70))
        largest = int(40 * float(out_scale) / (float(scale) * float(weight_scales.max())))
        bias = rng.integers(-largest, largest + 1, channels).astype(np.int32)
        out_zero = int(rng.integers(-30, 30))
        layers.append(
            Convolution(
                weights, bias, (scale, weight_scales, out_scale), (zero, out_zero),
                channels if depthwise else 1,
            )
        )  # fmt: skip
        scale, zero = out_scale, out_zero
    return layers


def write_model(path: Path, layers: list[Convolution], size: int) -> None:
    """Write an ONNX model with tensors ``t0`` (input) to ``tN``."""
    nodes, constants = [], []
    channels = len(layers[0].bias)
    for index, one in enumerate(layers):
        values = {
            f"sx{index}": np.asarray(one.scales[0]),
            f"zx{index}": np.asarray(one.zeros[0], np.int8),
            f"w{index}": one.weights,
            f"sw{index}": one.scales[1],
            f"zw{index}": np.zeros(channels, np.int8),
            f"sy{index}": np.asarray(one.scales[2]),
            f"zy{index}": np.asarray(one.zeros[1], np.int8),
            f"b{index}": one.bias,
        }
        constants += [numpy_helper.from_array(value, name) for name, value in values.items()]
        pad = one.weights.shape[-1] // 2
        nodes.append(
            helper.make_node(
                "QLinearConv", [f"t{index}", *values], [f"t{index + 1}"], pads=[pad] * 4,
                group=one.group,
            )
        )  # fmt: skip
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT8, [1, channels, size, size])
        for name in ("t0", f"t{len(layers)}")
    ]
    graph = helper.make_graph(nodes, "random", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
