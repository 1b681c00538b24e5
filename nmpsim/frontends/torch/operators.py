"""Every operation of PyTorch that can be compiled, and what draws it."""

from __future__ import annotations

from nmpsim.frontends.torch.drawing import Draw
from nmpsim.frontends.torch.movement import pad, permute, same, select, slice_, split, view
from nmpsim.frontends.torch.pointwise import (
    adaptive_average_pool,
    average_pool,
    concatenation,
    dequantize,
    max_pool,
    pair,
    pointwise,
    quantize,
    softmax,
)
from nmpsim.frontends.torch.record import POINTWISE
from nmpsim.frontends.torch.weighted import convolution, linear

OPERATORS: dict[str, Draw] = {
    "aten._adaptive_avg_pool2d": adaptive_average_pool,
    "aten._reshape_alias": view,
    "aten._softmax": softmax,
    "aten._unsafe_view": view,
    "aten.alias": same,
    "aten.avg_pool2d": average_pool,
    "aten.cat": concatenation,
    "aten.clone": same,
    "aten.constant_pad_nd": pad,
    "aten.contiguous": same,
    "aten.dequantize": dequantize,
    "aten.detach": same,
    "aten.permute": permute,
    "aten.quantize_per_tensor": quantize,
    "aten.quantized_max_pool2d": max_pool,
    "aten.select": select,
    "aten.slice": slice_,
    "aten.split": split,
    "aten.split_with_sizes": split,
    "aten.squeeze": view,
    "aten.t": permute,
    "aten.transpose": permute,
    "aten.unsqueeze": view,
    "aten.view": view,
    "quantized.add": pair("elementadd"),
    "quantized.add_relu": pair("elementadd"),
    "quantized.cat": concatenation,
    "quantized.conv2d": convolution,
    "quantized.conv2d_relu": convolution,
    "quantized.linear": linear,
    "quantized.linear_relu": linear,
    "quantized.mul": pair("elementmul"),
    "quantized.mul_relu": pair("elementmul"),
    **dict.fromkeys(POINTWISE, pointwise),
}
"""By its namespace and name."""
