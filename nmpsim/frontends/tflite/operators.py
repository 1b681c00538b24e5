"""Every TFLite operator that can be compiled, and what makes LIR of it."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.frontends.tflite.lowering import Lowering, Result
from nmpsim.frontends.tflite.model import Operator
from nmpsim.frontends.tflite.movement import (
    concatenation,
    pack,
    pad,
    reshape,
    slice_,
    split,
    strided_slice,
    transpose,
)
from nmpsim.frontends.tflite.pointwise import (
    activation,
    batch_matmul,
    dequantize,
    leaky_relu,
    look_up,
    mean,
    pair,
    pool,
    prelu,
    quantize,
    resize,
    softmax,
)
from nmpsim.frontends.tflite.weighted import (
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    transpose_conv,
)

OPERATORS: dict[str, Callable[[Lowering, Operator], Result]] = {
    "ADD": pair("elementadd"),
    "AVERAGE_POOL_2D": pool("avgpool"),
    "BATCH_MATMUL": batch_matmul,
    "CONCATENATION": concatenation,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "DEQUANTIZE": dequantize,
    "EXPAND_DIMS": reshape,
    "FULLY_CONNECTED": fully_connected,
    "HARD_SWISH": look_up,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": look_up,
    "MAXIMUM": pair("elementmax"),
    "MAX_POOL_2D": pool("maxpool"),
    "MEAN": mean,
    "MINIMUM": pair("elementmin"),
    "MUL": pair("elementmul"),
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "PRELU": prelu,
    "QUANTIZE": quantize,
    "RELU": activation("relu"),
    "RELU6": activation("relu6"),
    "RELU_N1_TO_1": activation("relu_n1_to_1"),
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize("resizebilinear"),
    "RESIZE_NEAREST_NEIGHBOR": resize("resizenearest"),
    "SLICE": slice_,
    "SOFTMAX": softmax,
    "SPLIT": split,
    "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice,
    "SUB": pair("elementsub"),
    "TANH": look_up,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
}
"""By its name in the schema."""
