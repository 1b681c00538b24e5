"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
Kind = tuple[str, tuple[int | str, ...]]
"""dtype and shape of an input or output."""
Node = tuple[str, Sequence[str], Sequence[str], dict[str, Any]]
"""Operator, inputs, outputs and attributes."""


def write_model(
    path: Path,
    nodes: Sequence[Node],
    inputs: Mapping[str, Kind],
    outputs: Mapping[str, Kind],
    constants: Mapping[str, Array],
    opset: int = 21,
) -> Path:
    """Write a model of nodes; operators of com.microsoft have that before their name."""
    made = []
    for kind, read, written, attributes in nodes:
        domain, _, op = kind.rpartition(".")
        made.append(helper.make_node(op, read, written, domain=domain, **attributes))
    graph = helper.make_graph(
        made,
        "graph",
        [_info(name, kind) for name, kind in inputs.items()],
        [_info(name, kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=versions).SerializeToString())
    return path


def _info(name: str, kind: Kind) -> onnx.ValueInfoProto:
    dtype, shape = kind
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, number, shape)


def make_scales(**given: tuple[float, int] | tuple[float, int, str]) -> dict[str, Array]:
    """Return the constants ``x_s`` and ``x_z`` for ``x=(0.5, 3)``, by default of uint8."""
    constants: dict[str, Array] = {}
    for name, (scale, zero, *dtype) in given.items():
        constants[f"{name}_s"] = np.float32(scale)
        constants[f"{name}_z"] = np.array(zero, dtype[0] if dtype else "uint8")
    return constants


def write_small_network(path: Path) -> Path:
    """Write a model with a convolution, a pool and a fully connected layer between conversions."""
    rng = np.random.default_rng(5)
    constants = {
        **make_scales(x=(0.05, 128), conv=(0.1, 0), y=(0.2, 100)),
        "w": rng.integers(-60, 60, (4, 2, 3, 3)).astype(np.int8),
        "w_s": rng.uniform(0.005, 0.01, 4).astype(np.float32),
        "w_z": np.zeros(4, np.int8),
        "b": rng.integers(-500, 500, 4).astype(np.int32),
        "b_z": np.zeros(4, np.int32),
        "v": rng.integers(0, 255, (16, 3)).astype(np.uint8),
        "v_s": np.float32(0.01),
        "v_z": np.uint8(120),
        "flat": np.array([1, -1], np.int64),
    }

    constants["b_s"] = np.float32(0.05) * constants["w_s"]

    def both(name: str, result: str) -> list[Node]:
        return [
            ("QuantizeLinear", [name, f"{result}_s", f"{result}_z"], [f"{name}_q"], {}),
            ("DequantizeLinear", [f"{name}_q", f"{result}_s", f"{result}_z"], [f"{name}_r"], {}),
        ]

    nodes: list[Node] = [
        ("DequantizeLinear", ["image", "x_s", "x_z"], ["real"], {}),
        ("DequantizeLinear", ["w", "w_s", "w_z"], ["filter"], {"axis": 0}),
        ("DequantizeLinear", ["b", "b_s", "b_z"], ["bias"], {"axis": 0}),
        ("Conv", ["real", "filter", "bias"], ["sum"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["sum"], ["conv"], {}),
        *both("conv", "conv"),
        ("MaxPool", ["conv_r"], ["pool"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Reshape", ["pool", "flat"], ["row"], {}),
        ("DequantizeLinear", ["v", "v_s", "v_z"], ["matrix"], {}),
        ("MatMul", ["row", "matrix"], ["y"], {}),
        ("QuantizeLinear", ["y", "y_s", "y_z"], ["classes"], {}),
    ]
    inputs: dict[str, Kind] = {"image": ("uint8", ("batch", 2, 4, 4))}
    return write_model(path, nodes, inputs, {"classes": ("uint8", (1, 3))}, constants)
