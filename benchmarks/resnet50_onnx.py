"""The other side of the comparison: a ResNet-50 of random weights in onnxruntime.

It is quantized statically: unsigned activations, signed weights by channel.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

IMAGE = (1, 3, 224, 224)
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and inner channels."""


class Network:
    """Nodes and weights of a float network as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(1)

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node; the name of its output."""
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, *shape: int) -> str:
        """Add random weights; their name."""
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        scale = np.sqrt(2 / max(1, np.prod(shape[1:])))
        values = (self._rng.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, taken: int, given: int, kernel: int, stride: int) -> str:
        """Return a convolution with bias that keeps the size, but for its stride."""
        weights = [self.constant(given, taken, kernel, kernel), self.constant(given)]
        return self.node(
            "Conv",
            [x, *weights],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
        )

    def block(self, x: str, taken: int, inner: int, stride: int) -> str:
        """Return a bottleneck block with its shortcut."""
        y = self.node("Relu", [self.conv(x, taken, inner, 1, 1)])
        y = self.node("Relu", [self.conv(y, inner, inner, 3, stride)])
        y = self.conv(y, inner, 4 * inner, 1, 1)
        if taken != 4 * inner:
            x = self.conv(x, taken, 4 * inner, 1, stride)
        return self.node("Relu", [self.node("Add", [x, y])])


def float_network(path: Path) -> None:
    """Write a float ResNet-50 of random weights."""
    import onnx
    from onnx import TensorProto, helper

    net = Network()
    x = net.node("Relu", [net.conv("data", 3, 64, 7, 2)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (blocks, inner) in enumerate(STAGES):
        for block in range(blocks):
            x = net.block(x, channels, inner, 2 if block == 0 and stage > 0 else 1)
            channels = 4 * inner
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    x = net.node("Gemm", [x, net.constant(1000, channels), net.constant(1000)], transB=1)
    graph = helper.make_graph(
        net.nodes,
        "resnet50",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, 1000))],
        net.weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


class Images:
    """A few random images, for calibration."""

    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self._left = [rng.standard_normal(IMAGE).astype(np.float32) for _ in range(2)]

    def get_next(self) -> dict[str, Any] | None:
        """Return the next one, or None."""
        return {"data": self._left.pop()} if self._left else None


def quantized_network(folder: Path) -> Path:
    """Write the network in Int8; its file."""
    from onnxruntime.quantization import QuantType, quantize_static

    float_network(folder / "float.onnx")
    quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        Images(),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return folder / "int8.onnx"


def native(network: Path, threads: int) -> Callable[[], Any]:
    """One inference of the quantized network by onnxruntime."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(network, options, ["CPUExecutionProvider"])
    data = {"data": np.random.default_rng(3).standard_normal(IMAGE).astype(np.float32)}
    return lambda: session.run(None, data)
