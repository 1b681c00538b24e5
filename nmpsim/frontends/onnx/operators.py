"""Every operation of ONNX that can be compiled, and what makes LIR of it."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.frontends.onnx import conversions, exact, gathering, movement, pointwise, real, weighted
from nmpsim.frontends.onnx.integers import IntegerOperation
from nmpsim.frontends.onnx.lowering import Lowering, Result
from nmpsim.frontends.onnx.model import Node

INTEGER: dict[str, Callable[[Lowering, IntegerOperation], Result]] = {
    "Add": pointwise.pair("elementadd"),
    "AveragePool": pointwise.average_pool,
    "Clip": pointwise.limited,
    "Concat": pointwise.concatenation,
    "Conv": weighted.convolution,
    "Gemm": weighted.gemm,
    "GlobalAveragePool": pointwise.average_pool,
    "LeakyRelu": pointwise.look_up,
    "MatMul": weighted.product,
    "Mul": pointwise.pair("elementmul"),
    "Relu": pointwise.limited,
    "Sigmoid": pointwise.look_up,
    "Softmax": pointwise.softmax,
    "Sub": pointwise.pair("elementsub"),
}
"""Operation on integers -> what makes LIR of it."""

NODES: dict[str, Callable[[Lowering, Node], Result]] = {
    "Abs": real.unary("elementabs"),
    "Add": real.pair("elementadd"),
    "AveragePool": real.average_pool,
    "BatchNormalization": real.batch_normalization,
    "Ceil": real.unary("elementceil"),
    "Clip": real.clip,
    "Concat": movement.concatenation,
    "Cast": conversions.cast,
    "Conv": real.convolution,
    "ConvInteger": exact.conv_integer,
    "DepthToSpace": movement.depth_to_space,
    "DequantizeLinear": conversions.dequantize,
    "Div": real.pair("elementdiv"),
    "Dropout": movement.dropout,
    "DynamicQuantizeLinear": conversions.quantize_dynamically,
    "Erf": real.unary("elementerf"),
    "Exp": real.unary("elementexp"),
    "Flatten": movement.flatten,
    "Floor": real.unary("elementfloor"),
    "Gather": gathering.gather,
    "Gemm": real.gemm,
    "GlobalAveragePool": real.average_pool,
    "GlobalMaxPool": movement.max_pool,
    "HardSigmoid": real.hard_sigmoid,
    "HardSwish": real.hard_sigmoid,
    "Identity": movement.identity,
    "LeakyRelu": real.unary("leakyrelu", Alpha=0.01),
    "Log": real.unary("elementlog"),
    "MatMul": real.product,
    "MatMulInteger": exact.matmul_integer,
    "Max": real.pair("elementmax"),
    "MaxPool": movement.max_pool,
    "Min": real.pair("elementmin"),
    "Mul": real.pair("elementmul"),
    "Neg": real.unary("elementneg"),
    "PRelu": real.prelu,
    "Pad": movement.pad,
    "Pow": real.pair("elementpow"),
    "QuantizeLinear": conversions.quantize,
    "Reciprocal": real.unary("elementreciprocal"),
    "ReduceMean": real.mean,
    "Relu": real.unary("relu"),
    "Reshape": movement.reshape,
    "Resize": gathering.resize,
    "Sigmoid": real.unary("sigmoid"),
    "Slice": movement.slice_,
    "Softmax": real.softmax,
    "SpaceToDepth": movement.space_to_depth,
    "Split": movement.split,
    "Sqrt": real.unary("elementsqrt"),
    "Squeeze": movement.squeeze,
    "Sub": real.pair("elementsub"),
    "Tanh": real.unary("tanh"),
    "Tile": gathering.tile,
    "Transpose": movement.transpose,
    "Unsqueeze": movement.unsqueeze,
    "Upsample": gathering.resize,
    "com.microsoft.QGemm": exact.gemm,
}
"""Node on real numbers, or on integers as they are -> what makes LIR of it."""
