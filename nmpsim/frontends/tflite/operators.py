"""Every TFLite operator that can be compiled, and what draws it."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.frontends.tflite.drawing import Drawing
from nmpsim.frontends.tflite.movement import (
    blocks,
    concatenation,
    gather,
    mirror_pad,
    pack,
    pad,
    reshape,
    slice_,
    split,
    split_v,
    strided_slice,
    transpose,
    unpack,
)
from nmpsim.frontends.tflite.pointwise import (
    activation,
    batch_matmul,
    dequantize,
    leaky_relu,
    look_up,
    pair,
    pool,
    prelu,
    quantize,
    resize,
    softmax,
)
from nmpsim.frontends.tflite.reductions import extreme, mean, reduce_max, sum_
from nmpsim.frontends.tflite.weighted import (
    conv_2d,
    depthwise_conv_2d,
    fully_connected,
    transpose_conv,
)

OPERATORS: dict[str, Callable[[Drawing], None]] = {
    "ADD": pair("elementadd"),
    "ARG_MAX": extreme("argmax"),
    "ARG_MIN": extreme("argmin"),
    "AVERAGE_POOL_2D": pool("avgpool"),
    "BATCH_MATMUL": batch_matmul,
    "CONCATENATION": concatenation,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "DEQUANTIZE": dequantize,
    "DEPTH_TO_SPACE": blocks(into_channels=False),
    "EXPAND_DIMS": reshape,
    "FULLY_CONNECTED": fully_connected,
    "GATHER": gather,
    "HARD_SWISH": look_up,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": look_up,
    "MAXIMUM": pair("elementmax"),
    "MAX_POOL_2D": pool("maxpool"),
    "MEAN": mean,
    "MINIMUM": pair("elementmin"),
    "MIRROR_PAD": mirror_pad,
    "MUL": pair("elementmul"),
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "PRELU": prelu,
    "QUANTIZE": quantize,
    "REDUCE_MAX": reduce_max,
    "RELU": activation(0.0, None),
    "RELU6": activation(0.0, 6.0),
    "RELU_N1_TO_1": activation(-1.0, 1.0),
    "RESHAPE": reshape,
    "RESIZE_BILINEAR": resize("resizebilinear"),
    "RESIZE_NEAREST_NEIGHBOR": resize("resizenearest"),
    "SLICE": slice_,
    "SOFTMAX": softmax,
    "SPACE_TO_DEPTH": blocks(into_channels=True),
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice,
    "SUB": pair("elementsub"),
    "SUM": sum_,
    "TANH": look_up,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
    "UNPACK": unpack,
}
"""By its name in the schema."""
