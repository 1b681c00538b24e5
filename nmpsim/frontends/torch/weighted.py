"""Layers with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Array, QuantizedTensor
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, weights_of
from nmpsim.frontends.torch.recording import PROFILES, Packed


def convolution(builder: TorchGraphBuilder) -> None:
    """``quantized::conv2d``, with the ReLU that is fused with it."""
    packed, source = weights_of(builder.call), builder.tensor("qx")
    if packed.weights.ndim != 4 or len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    (top, left), (down, across) = packed.padding, packed.stride
    window: dict[str, Any] = {
        "Kernels": packed.weights.shape[2:],
        "Strides": (down, across),
        "Pads": (top, left, top, left),
        "Group": packed.groups,
        "Dilation": tuple(packed.dilation),
    }
    if builder.call.operation.endswith("_relu"):
        window["FusedActivation"] = "RELU"
    constants = [_weights(builder, packed, packed.weights), _bias(builder, packed)]
    opcode = "convolution"
    if packed.by_channel:
        opcode, ones = "channelwisequantizedconvolution", np.ones(len(packed.scales), np.float32)
        constants += _vectors(builder, "weight", packed.scales, packed.zero_points)
        constants += _vectors(builder, "bias", ones, np.zeros(ones.size))  # it is real
    numerics = _profile(builder, packed)
    operands = [builder.name(source), *constants]
    builder.add_instruction(opcode, operands, image=True, numerics=numerics, **window)


def linear(builder: TorchGraphBuilder) -> None:
    """``quantized::linear``, with the ReLU that is fused with it."""
    packed, source = weights_of(builder.call), builder.tensor("X")
    outs, ins = packed.weights.shape
    if not source.shape or source.shape[-1] != ins:
        raise UnsupportedError(f"weights {[outs, ins]} for an input {list(source.shape)}")
    rows = math.prod(source.shape[:-1])
    opcode = "rowwisequantizedfullyconnected" if packed.by_channel else "fullyconnected"
    weights = packed.weights if packed.by_channel else packed.weights.T
    operands = [builder.name(source), _weights(builder, packed, weights), _bias(builder, packed)]
    if packed.by_channel:
        operands += _vectors(builder, "weight", packed.scales, packed.zero_points)
    views, numerics = ((rows, outs), (rows, ins)), _profile(builder, packed)
    with_relu(builder, opcode, operands, views=views, numerics=numerics)


def with_relu(builder: TorchGraphBuilder, opcode: str, operands: list[str], **given: Any) -> None:
    """An instruction, and the ReLU that the operation has after it."""
    if not builder.call.operation.endswith("_relu"):
        builder.add_instruction(opcode, operands, **given)
        return
    made = builder.quantization(builder.first_output())
    total = builder.temporary("sum", made, builder.call.results[0].shape)
    builder.add_instruction("relu", [builder.add_instruction(opcode, operands, total, **given)])


def _profile(builder: TorchGraphBuilder, packed: Packed) -> str | None:
    """The arithmetic of a layer that does not follow the engine's."""
    own = PROFILES[packed.engine]
    return None if own == PROFILES[builder.recorded.engine] else own


def _weights(builder: TorchGraphBuilder, packed: Packed, values: Array) -> str:
    scales, zeros = packed.scales[:1], packed.zero_points[:1]
    if packed.by_channel:
        scales, zeros = np.ones(1, np.float32), np.zeros(1, np.int64)
    kind = QuantizedTensor("", "int8", scales, zeros)
    return builder.add_constant(f"{builder.call.name}.weight", values, kind)


def _bias(builder: TorchGraphBuilder, packed: Packed) -> str:
    """PyTorch's stays real; what becomes of it is the engine's affair."""
    values = np.zeros(len(packed.weights), np.float32) if packed.bias is None else packed.bias
    return builder.add_constant(f"{builder.call.name}.bias", values, "float32")


def _vectors(builder: TorchGraphBuilder, what: str, scales: Array, zeros: Array) -> list[str]:
    base = f"{builder.call.name}.{what}"
    return [
        builder.add_constant(f"{base}_scales", scales, "float32"),
        builder.add_constant(f"{base}_zero_points", zeros.astype(np.int32), "int32"),
    ]
