"""Layers with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Array, Quantized
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.drawing import Drawing, weights_of
from nmpsim.frontends.torch.record import PROFILES, Packed


def convolution(drawing: Drawing) -> None:
    """``quantized::conv2d``, with the ReLU that is fused with it."""
    packed, source = weights_of(drawing.call), drawing.tensor("qx")
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
    if drawing.call.operation.endswith("_relu"):
        window["FusedActivation"] = "RELU"
    constants = [_weights(drawing, packed, packed.weights), _bias(drawing, packed)]
    opcode = "convolution"
    if packed.by_channel:
        opcode, ones = "channelwisequantizedconvolution", np.ones(len(packed.scales), np.float32)
        constants += _vectors(drawing, "weight", packed.scales, packed.zero_points)
        constants += _vectors(drawing, "bias", ones, np.zeros(ones.size))  # it is real
    numerics = _profile(drawing, packed)
    operands = [drawing.name(source), *constants]
    drawing.instruction(opcode, operands, image=True, numerics=numerics, **window)


def linear(drawing: Drawing) -> None:
    """``quantized::linear``, with the ReLU that is fused with it."""
    packed, source = weights_of(drawing.call), drawing.tensor("X")
    outs, ins = packed.weights.shape
    if not source.shape or source.shape[-1] != ins:
        raise UnsupportedError(f"weights {[outs, ins]} for an input {list(source.shape)}")
    rows = math.prod(source.shape[:-1])
    opcode = "rowwisequantizedfullyconnected" if packed.by_channel else "fullyconnected"
    weights = packed.weights if packed.by_channel else packed.weights.T
    operands = [drawing.name(source), _weights(drawing, packed, weights), _bias(drawing, packed)]
    if packed.by_channel:
        operands += _vectors(drawing, "weight", packed.scales, packed.zero_points)
    views, numerics = ((rows, outs), (rows, ins)), _profile(drawing, packed)
    with_relu(drawing, opcode, operands, views=views, numerics=numerics)


def with_relu(drawing: Drawing, opcode: str, operands: list[str], **given: Any) -> None:
    """An instruction, and the ReLU that the operation has after it."""
    if not drawing.call.operation.endswith("_relu"):
        drawing.instruction(opcode, operands, **given)
        return
    made = drawing.quantized_kind(drawing.first_output())
    total = drawing.temporary("sum", made, drawing.call.results[0].shape)
    drawing.instruction("relu", [drawing.instruction(opcode, operands, total, **given)])


def _profile(drawing: Drawing, packed: Packed) -> str | None:
    """The arithmetic of a layer that does not follow the engine's."""
    own = PROFILES[packed.engine]
    return None if own == PROFILES[drawing.recorded.engine] else own


def _weights(drawing: Drawing, packed: Packed, values: Array) -> str:
    scales, zeros = packed.scales[:1], packed.zero_points[:1]
    if packed.by_channel:
        scales, zeros = np.ones(1, np.float32), np.zeros(1, np.int64)
    kind = Quantized("", "int8", scales, zeros)
    return drawing.constant(f"{drawing.call.name}.weight", values, kind)


def _bias(drawing: Drawing, packed: Packed) -> str:
    """PyTorch's stays real; what becomes of it is the engine's affair."""
    values = np.zeros(len(packed.weights), np.float32) if packed.bias is None else packed.bias
    return drawing.constant(f"{drawing.call.name}.bias", values, "float32")


def _vectors(drawing: Drawing, what: str, scales: Array, zeros: Array) -> list[str]:
    base = f"{drawing.call.name}.{what}"
    return [
        drawing.constant(f"{base}_scales", scales, "float32"),
        drawing.constant(f"{base}_zero_points", zeros.astype(np.int32), "int32"),
    ]
