"""PyTorch layers with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Array, QuantizedTensor
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder
from nmpsim.frontends.torch.recording import ENGINE_PROFILES, QuantizedWeights


def translate_convolution(builder: TorchGraphBuilder) -> None:
    """Translate ``quantized::conv2d`` and its fused ReLU."""
    weights, source = _weights(builder), builder.tensor("qx")
    require(weights.weights.ndim == len(source.shape) == 4, f"an input {list(source.shape)}")
    words: dict[str, Any] = {
        "Kernels": weights.weights.shape[2:],
        "Strides": tuple(weights.stride),
        "Pads": tuple(weights.padding) * 2,
        "Group": weights.groups,
        "Dilation": tuple(weights.dilation),
    }
    if builder.call.operation.endswith("_relu"):
        words["FusedActivation"] = "RELU"
    constants = _parameters(builder, weights, weights.weights)
    opcode = "convolution"
    if weights.is_per_channel:
        opcode, ones = "channelwisequantizedconvolution", np.ones(len(weights.scales), np.float32)
        constants += _vectors(builder, "weight", weights.scales, weights.zero_points)
        constants += _vectors(builder, "bias", ones, np.zeros(ones.size))  # it is float
    numerics = _numerics(builder, weights)
    operands = [builder.name(source), *constants]
    builder.add_instruction(opcode, operands, image=True, numerics=numerics, **words)


def translate_linear(builder: TorchGraphBuilder) -> None:
    """Translate ``quantized::linear`` and its fused ReLU."""
    weights, source = _weights(builder), builder.tensor("X")
    outs, ins = weights.weights.shape
    require(
        source.shape and source.shape[-1] == ins,
        f"weights {[outs, ins]} for an input {list(source.shape)}",
    )
    rows = math.prod(source.shape[:-1])
    opcode, matrix = "fullyconnected", weights.weights.T
    if weights.is_per_channel:
        opcode, matrix = "rowwisequantizedfullyconnected", weights.weights
    operands = [builder.name(source), *_parameters(builder, weights, matrix)]
    if weights.is_per_channel:
        operands += _vectors(builder, "weight", weights.scales, weights.zero_points)
    views, numerics = ((rows, outs), (rows, ins)), _numerics(builder, weights)
    add_with_relu(builder, opcode, operands, views=views, numerics=numerics)


def add_with_relu(
    builder: TorchGraphBuilder, opcode: str, operands: list[str], **given: Any
) -> None:
    """Add an instruction and, if the operation has one, the ReLU after it."""
    if not builder.call.operation.endswith("_relu"):
        builder.add_instruction(opcode, operands, **given)
        return
    kind = builder.quantization(builder.first_output())
    total = builder.add_temporary("sum", kind, builder.result.shape)
    builder.add_instruction("relu", [builder.add_instruction(opcode, operands, total, **given)])


def _weights(builder: TorchGraphBuilder) -> QuantizedWeights:
    given = builder.arguments
    weights = given.get("packed_weight", given.get("W_prepack"))
    if not isinstance(weights, QuantizedWeights):
        raise UnsupportedError("weights of a kind that nmpsim does not know")
    return weights


def _numerics(builder: TorchGraphBuilder, weights: QuantizedWeights) -> str | None:
    """Return the arithmetic profile of a layer if it differs from the model's."""
    own = ENGINE_PROFILES[weights.engine]
    return None if own == ENGINE_PROFILES[builder.recording.engine] else own


def _parameters(builder: TorchGraphBuilder, weights: QuantizedWeights, values: Array) -> list[str]:
    """Add the weights and the bias, which stays float."""
    scales, zeros = weights.scales[:1], weights.zero_points[:1]
    if weights.is_per_channel:
        scales, zeros = np.ones(1, np.float32), np.zeros(1, np.int64)
    kind, name = QuantizedTensor("", "int8", scales, zeros), builder.call.name
    bias = np.zeros(len(weights.weights), np.float32) if weights.bias is None else weights.bias
    return [
        builder.add_constant(f"{name}.weight", values, kind),
        builder.add_constant(f"{name}.bias", bias, "float32"),
    ]


def _vectors(builder: TorchGraphBuilder, suffix: str, scales: Array, zeros: Array) -> list[str]:
    name = f"{builder.call.name}.{suffix}"
    return [
        builder.add_constant(f"{name}_scales", scales, "float32"),
        builder.add_constant(f"{name}_zero_points", zeros.astype(np.int32), "int32"),
    ]
