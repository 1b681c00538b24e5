"""Conversion of a float TFLite model to a graph of ONNX operators.

The lowering and quantization of float ONNX networks then also applies to TFLite networks. TFLite
has channels last, so Transpose nodes surround operators on images; the lowering turns them into
views.
"""

from __future__ import annotations

from nmpsim.frontends.graph.nodes import OPSET, Graph
from nmpsim.frontends.tflite.float_builder import FloatGraphBuilder
from nmpsim.frontends.tflite.float_operators import CONVERTERS
from nmpsim.frontends.tflite.graph import build_graph
from nmpsim.frontends.tflite.model_data import TFLiteModel


def is_float_model(model: TFLiteModel) -> bool:
    """Return whether a model computes floats: no operator reads or computes quantized values.

    Constants may be quantized or of 16 bits, if DEQUANTIZE converts them.
    """
    return not any(
        tensor.is_quantized and tensor.values is None
        for operator in model.operators
        for tensor in (*filter(None, operator.inputs), *operator.outputs)
    )


def build_float_graph(model: TFLiteModel) -> tuple[Graph, dict[int, str]]:
    """Convert a float TFLite model to ONNX operators; return the graph and tensor names by index.

    An operator without a conversion keeps its name, which the lowering then refuses.
    """
    plain, names = build_graph(model)
    builder = FloatGraphBuilder(names, dict(plain.constants), CONVERTERS)
    for operator in model.operators:
        builder.add_operator(operator)
    graph = Graph(
        tuple(builder.nodes),
        builder.constants,
        plain.inputs,
        plain.outputs,
        OPSET,
        layers=builder.layers,
    )
    return graph, names
