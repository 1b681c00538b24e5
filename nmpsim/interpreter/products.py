"""Sums of products and a bias: convolution, fully connected layer, matrix product."""

from __future__ import annotations

import numpy as np

from nmpsim.interpreter.arithmetic import Arithmetic, RealArray
from nmpsim.interpreter.call import Call
from nmpsim.kernels.hostops.windows import Window
from nmpsim.lir.nodes import Instruction
from nmpsim.lir.opcodes import OPCODES

_ACTIVATIONS = {
    "RELU": "relu",
    "CLIP": "clip",
    "TANH": "tanh",
    "SIGMOID": "sigmoid",
    "LEAKY_RELU": "leakyrelu",
}
"""Fused activation -> the opcode that does the same, with the same numbers."""


def convolution(call: Call) -> RealArray:
    """Src [N,H,W,C], Filter [OC,KH,KW,C/Group], Bias [OC]; padding is zero, the bias is added last.

    Also channelwise: filter and bias come as the real values that their own scales give.
    """
    return fused_activation(call.instruction, _sums(call) + call["Bias"])


def fused_activation(instruction: Instruction, sums: RealArray) -> RealArray:
    """The activation that is fused into an instruction, if one is, on each element."""
    attributes = instruction.attributes
    activation = _ACTIVATIONS.get(str(attributes.get("FusedActivation")))
    formula = OPCODES[activation].formula if activation else None
    if formula is None:
        return sums
    arguments = attributes.get("FusedActivationArgs", ())
    result: RealArray = formula(sums, *(arguments if isinstance(arguments, tuple) else ()))
    return result


def _sums(call: Call) -> RealArray:
    window, groups = Window.of(call.instruction.attributes), call.site.integer("Group")
    weights, shape = call["Filter"], call.site.shape("Dest")
    padded = window.padded(call["Src"], 0)
    views = [view for _, _, view in window.views(padded, shape[1], shape[2])]
    if weights.shape[3] == 1:
        return _depthwise(views, weights, groups, shape)
    parts = [
        _dense([v[..., channels] for v in views], weights[outputs], call.arithmetic)
        for channels, outputs in _groups(padded.shape[3], shape[3], groups)
    ]
    return np.concatenate(parts, axis=1).reshape(shape)


def _groups(channels: int, outputs: int, groups: int) -> list[tuple[slice, slice]]:
    """Input and output channels of each group."""
    a, b = channels // groups, outputs // groups
    return [(slice(g * a, g * a + a), slice(g * b, g * b + b)) for g in range(groups)]


def _dense(views: list[RealArray], weights: RealArray, arithmetic: Arithmetic) -> RealArray:
    """One group: a view [N,OH,OW,C] for each tap, weights [OC,KH,KW,C] -> [N*OH*OW, OC]."""
    windows = np.concatenate(views, axis=-1) if len(views) > 1 else views[0]
    columns = windows.reshape(-1, windows.shape[-1])
    return arithmetic.product(columns, weights.reshape(len(weights), -1).T)


def _depthwise(
    views: list[RealArray], weights: RealArray, groups: int, shape: tuple[int, ...]
) -> RealArray:
    """Each output sees one channel; channel c makes the outputs c * OC / C and following."""
    taps = weights.reshape(groups, -1, len(views))
    sums = np.zeros((*shape[:3], groups, taps.shape[1]), dtype=weights.dtype)
    for tap, view in enumerate(views):
        sums += view[..., None] * taps[:, :, tap]
    return sums.reshape(shape)


def fully_connected(call: Call) -> RealArray:
    """Src [M,K], Weights [K,N], Bias [N]."""
    return call.arithmetic.product(call["Src"], call["Weights"]) + call["Bias"]


def rowwise_fully_connected(call: Call) -> RealArray:
    """Src [M,K], Weights [N,K] as the real values that the rows' scales give, Bias [N]."""
    return call.arithmetic.product(call["Src"], call["Weights"].T) + call["Bias"]


def matmul(call: Call) -> RealArray:
    """LHS [M,K], RHS [K,N]."""
    return call.arithmetic.product(call["LHS"], call["RHS"])
