"""Weights of a model are in memory once: as the file has them."""

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tflite_files import FileOperator, FileTensor, tflite_file
from traced_memory import at_most

from nmpsim.frontends import import_model

WIDE, LAYERS = 1536, 4
WEIGHTS = WIDE * WIDE * LAYERS
"""9 MB."""


def tflite_model(dtype: str, by_channel: bool) -> bytes:
    """Write a TFLite model of consecutive fully connected layers."""
    zero, scales = (128 if dtype == "UINT8" else 0), (0.001,) * (WIDE if by_channel else 1)
    values = np.arange(WIDE * WIDE).astype(dtype.lower()).reshape(WIDE, WIDE)
    tensors = [FileTensor("0", (1, WIDE), dtype, (0.5,), (zero,))]
    for number in range(LAYERS):
        zeros = (zero,) * len(scales)
        tensors.append(FileTensor(f"w{number}", values.shape, dtype, scales, zeros, values))
        tensors.append(FileTensor(f"{number + 1}", (1, WIDE), dtype, (0.5,), (zero,)))
    layers = [
        FileOperator("FULLY_CONNECTED", (n, n + 1), (n + 2,)) for n in range(0, 2 * LAYERS, 2)
    ]
    return tflite_file(tensors, layers, [0], [2 * LAYERS])


def onnx_model() -> onnx.ModelProto:
    """Write an ONNX model of consecutive MatMul nodes with weights [in, out]."""
    scales = {"s": np.float32(0.5), "r": np.float32(0.001), "z": np.int8(0)}
    weights = {f"w{n}": np.ones((WIDE, WIDE), np.int8) for n in range(LAYERS)}
    held = [onnx.numpy_helper.from_array(v, k) for k, v in (scales | weights).items()]
    nodes = [
        helper.make_node(
            "QLinearMatMul", [f"x{n}", "s", "z", f"w{n}", "r", "z", "s", "z"], [f"x{n + 1}"]
        )
        for n in range(LAYERS)
    ]
    ends = [
        helper.make_tensor_value_info(f"x{n}", onnx.TensorProto.INT8, (1, WIDE))
        for n in (0, LAYERS)
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("dtype", "by_channel", "times"),
    [("INT8", False, 1), ("INT8", True, 1), ("UINT8", False, 2)],
)
def test_a_tflite_import_has_bounded_memory(
    tmp_path: Path, dtype: str, by_channel: bool, times: int
) -> None:
    """What was uint8 is there twice: in the file, and as Int8."""
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_model(dtype, by_channel))
    import_module("nmpsim.frontends.tflite")  # its modules are not what is measured
    with at_most((times + 0.25) * WEIGHTS):
        imported = import_model(path)
    assert imported
    held = imported.module.constants["w0"]
    moved = 128 if dtype == "UINT8" else 0
    values = (np.arange(WIDE * WIDE) - moved).astype(np.int8).reshape(WIDE, WIDE)
    assert np.array_equal(held if by_channel else held.T, values)


def test_an_onnx_import_with_external_data_has_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model(), path, save_as_external_data=True, location="net.data")
    with at_most(1.25 * WEIGHTS):
        imported = import_model(path)
    assert imported
    assert sum(one.nbytes for one in imported.module.constants.values()) > WEIGHTS
