"""2-D convolution, NHWC with an OHWI filter: groups, dilation, pads, fused activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nmpsim.kernels.hostops.accumulators import (
    Rescale,
    add_product,
    bias_minus_offset,
    scale_array,
)
from nmpsim.kernels.hostops.activations import clip_result
from nmpsim.kernels.hostops.functions import clip, leaky_relu, relu, sigmoid, tanh
from nmpsim.kernels.hostops.rounding import float32_of, quantize_value, rescaled, round_half_away
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    IntArray,
    UnsupportedHostOp,
    clipped,
    whole,
)
from nmpsim.kernels.hostops.windows import Window
from nmpsim.records import frozen

_FORMULAS: Mapping[str, Callable[..., AnyArray]] = {
    "NONE": lambda y: y,
    "RELU": relu,
    "CLIP": clip,
    "LEAKY_RELU": leaky_relu,
    "SIGMOID": sigmoid,
    "TANH": tanh,
}


@frozen
class _Activation:
    """What FusedActivation and FusedActivationArgs say."""

    kind: str
    arguments: tuple[float, ...]

    @classmethod
    def of(cls, attributes: Attributes) -> _Activation:
        arguments = attributes.get("FusedActivationArgs", ())
        return cls(
            kind=str(attributes.get("FusedActivation", "NONE")),
            arguments=tuple(float(a) for a in arguments),
        )

    def on_reals(self, y: AnyArray) -> AnyArray:
        formula = _FORMULAS.get(self.kind)
        if formula is None:
            raise UnsupportedHostOp("convolution", f"fused activation {self.kind} is not known")
        result: AnyArray = formula(y, *self.arguments)
        return result

    def on_integers(self, y: IntArray, dest: HostTensor) -> IntArray:
        """On the output's grid, before the final clip; in float assumed (only libjit fuses)."""
        if self.kind == "NONE":
            return y
        if self.kind == "RELU":
            return clip_result(y, dest.offset, None, dest)
        if self.kind == "CLIP":
            low, high = (quantize_value(a, dest, np.int32) for a in self.arguments)
            return clip_result(y, low, high, dest)
        if self.kind == "LEAKY_RELU":
            return self._leaky(y, dest)
        raise UnsupportedHostOp(
            "convolution", f"fused activation {self.kind} has no quantized form on the host"
        )

    def _leaky(self, y: IntArray, dest: HostTensor) -> IntArray:
        alpha = np.float32(self.arguments[0])
        below = y - np.int64(dest.offset)
        if dest.by_integers:
            lower = rescaled(np.minimum(below, 0), alpha, dest.offset)
        else:
            lower = round_half_away(float32_of(below) * alpha) + np.int64(dest.offset)
        return np.where(below < 0, lower, y)


def apply_fused_activation(y: AnyArray, attributes: Attributes) -> AnyArray:
    """Apply the activation fused into an instruction, if any, to floating-point values.

    Raises
    ------
    UnsupportedHostOp
        If the activation is unknown.
    """
    return _Activation.of(attributes).on_reals(y)


def convolution(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [N,OH,OW,OC], Src [N,H,W,C], Filter [OC,KH,KW,C/Group], Bias [OC].

    Float32 sums in the order ky, kx, channel. Int8 is libjit's arithmetic unless the Interpreter's
    is asked for, Int16 the Interpreter's; padding is real zero.
    """
    _require_nhwc(attributes)
    dest, src, weights, bias = operands
    if src.is_float:
        sums = _sums(src.values, weights.values, dest, attributes, np.float32)
        return whole(apply_fused_activation(sums + bias.values, attributes), dest)
    rescale = Rescale(
        product=np.asarray(src.scale32 * weights.scale32),
        bias=scale_array(bias),
        dest=dest,
    )
    return _quantized(
        dest, src, weights.centered(), bias_minus_offset(bias, bias.offset), rescale, attributes
    )


def channelwise_convolution(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """As :func:`convolution`, with scale and offset of filter and bias for each output channel.

    Operands: Dest, Src, Filter, Bias, FilterScales, FilterOffsets, BiasScales, BiasOffsets, the
    last four float32 / int32 [OC].
    """
    _require_nhwc(attributes)
    dest, src, weights, bias, scales, offsets, bias_scales, bias_offsets = operands
    centered = (
        weights.values.astype(np.int64) - offsets.values.astype(np.int64)[:, None, None, None]
    )
    rescale = Rescale(
        product=src.scale32 * scales.values.astype(np.float32),
        bias=bias_scales.values.astype(np.float32),
        dest=dest,
    )
    bias_values = bias_minus_offset(bias, bias_offsets.values)
    return _quantized(dest, src, centered, bias_values, rescale, attributes)


def _require_nhwc(attributes: Attributes) -> None:
    layout = attributes.get("Layout", "NHWC")
    if layout not in (0, "NHWC"):
        raise UnsupportedHostOp("convolution", f"layout {layout} is not NHWC")


def _quantized(
    dest: HostTensor,
    src: HostTensor,
    weights: IntArray,
    bias: IntArray,
    rescale: Rescale,
    attributes: Attributes,
) -> HostResult:
    sums = _sums(src.centered(), weights, dest, attributes, np.float64).astype(np.int64)
    if dest.by_integers:
        exact = rescale.by_integers(sums, bias)
    else:
        exact = rescale.by_floats(sums, bias, offset_after_rounding=False)
    return clipped(_Activation.of(attributes).on_integers(exact, dest), dest)


def _sums(
    x: AnyArray,
    weights: AnyArray,
    dest: HostTensor,
    attributes: Attributes,
    dtype: type[np.float32] | type[np.float64],
) -> AnyArray:
    """Sum over taps and the group's input channels: [N, OH, OW, OC], in ``dtype``.

    For each tap, one batched product ``[Group, pixels, C/Group] @ [Group, C/Group, OC/Group]``.
    """
    window, groups = Window.of(attributes), int(attributes["Group"])
    batch, rows, columns, out_channels = dest.shape
    padded = window.padded(x.astype(dtype), 0)
    taps = weights.astype(dtype).reshape(groups, out_channels // groups, *weights.shape[1:])
    pixels = batch * rows * columns
    sums = np.zeros((groups, pixels, out_channels // groups), dtype=dtype)
    for ky, kx, view in window.views(padded, rows, columns):
        grouped = view.reshape(pixels, groups, -1).transpose(1, 0, 2)
        tap = taps[:, :, ky, kx].transpose(0, 2, 1)
        if dtype is np.float32:
            add_product(sums, grouped, tap)
        else:
            sums += np.matmul(grouped, tap)
    return sums.transpose(1, 0, 2).reshape(dest.shape)
