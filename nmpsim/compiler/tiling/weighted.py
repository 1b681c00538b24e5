"""Convolutions and fully connected layers as plain numbers: geometry, weights, descriptor words."""

from __future__ import annotations

from typing import Any, Literal, cast

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.clip_bounds import get_clip_range
from nmpsim.compiler.numerics import Requantization, WeightedLayerScales
from nmpsim.compiler.numerics.ratios import make_scale_words
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.tiling.context import PlanningContext
from nmpsim.compiler.tiling.image import SpatialAxis, make_spatial_axes
from nmpsim.diagnostics import fail
from nmpsim.isa.words import ACTIVATION_LEAKY, SCALE_BYTES
from nmpsim.lir.opcode import OpcodeKind

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class WeightedLayer:
    """Layer with constant weights: geometry, weights and descriptor words."""

    source: BufferView
    target: BufferView
    groups: int
    axes: tuple[SpatialAxis, SpatialAxis]
    """Rows and columns."""
    weights: Array
    """[O, kernel_h, kernel_w, I], of the input's element type."""
    constant: BufferView
    """The constant that holds the weights."""
    order: Literal["OI", "IO"]
    """Order of the constant's dimensions."""
    channel_records: Array
    """int64 [O, 2]: bias in the form that the profile takes, zero term."""
    scale_records: Array | None
    """int32 [O, 7] if each channel has its own scales, else None."""
    words: dict[str, int]
    """Words of the descriptor that are the same for all tiles."""
    is_exact: bool
    """Whether no order of summation can saturate a sum."""

    @property
    def images(self) -> int:
        """Number of images in the batch, or 1 for a fully connected layer."""
        return self.source.shape[0] if len(self.source.shape) == 4 else 1

    @property
    def channels(self) -> int:
        """Number of input channels of all groups."""
        return self.source.shape[-1]

    @property
    def out_channels(self) -> int:
        """Number of output channels of all groups."""
        return int(self.weights.shape[0])

    @property
    def depth(self) -> int:
        """Number of input channels of a group."""
        return int(self.weights.shape[3])

    @property
    def element(self) -> int:
        """Value of the descriptor word ``element``: 0 for Int8, 1 for Int16."""
        return self.source.element

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return self.source.element_bytes

    @property
    def total_rows(self) -> int:
        """Rows of the result, summed over all images."""
        return self.images * self.axes[0].out

    @property
    def scale_bytes(self) -> int:
        """Size in bytes of a channel's scale record, or 0 if all channels share one scale."""
        return 0 if self.scale_records is None else SCALE_BYTES

    @property
    def macs(self) -> int:
        """Number of multiply-accumulate operations of the layer."""
        return self.total_rows * self.axes[1].out * int(self.weights.size)


def make_weighted_layer(op: Operation, context: PlanningContext) -> WeightedLayer:
    """Return the WeightedLayer of a convolution, fully connected layer or matrix product."""
    if id(op) not in context.weighted:
        context.weighted[id(op)] = _read_layer(op, context)
    layer: WeightedLayer = context.weighted[id(op)]
    return layer


def _read_layer(op: Operation, context: PlanningContext) -> WeightedLayer:
    target, source, constant = op.operands[:3]
    values = context.memory.get_values(constant)
    order: Literal["OI", "IO"] = "OI"
    if op.kind is OpcodeKind.CONVOLUTION:
        axes, weights, groups = make_spatial_axes(op), values, op.get_number("Group")
    else:
        if op.instruction.opcode != "rowwisequantizedfullyconnected":
            order, values = "IO", values.T
        row = SpatialAxis(1, 1, 1, 1, 0)
        column = SpatialAxis(source.shape[0], target.shape[0], 1, 1, 0)
        axes, weights, groups = (row, column), values[:, None, None, :], 1
    with np.errstate(all="ignore"):  # values that float32 cannot hold are errors, not warnings
        requantization, offsets = _requantization(op, context, weights.shape[0])
    terms = compute_zero_terms(weights, offsets, source.offset)
    first = _largest_start(op, context, requantization, terms)
    products = int(weights[0].size) << 2 * source.element_bytes * 8
    return WeightedLayer(
        source,
        op.output,
        groups,
        axes,
        weights.astype(source.type.dtype, copy=False),  # widens Int8 weights of Int16 layers
        constant,
        order,
        channel_records=np.stack([requantization.bias, terms], axis=1),
        scale_records=_scale_records(requantization, offsets) if has_channel_scales(op) else None,
        words={
            "element": source.element,
            "profile": requantization.profile,
            "weight_offset": int(offsets[0]),
            **make_scale_words("bias", requantization.bias_scales[0]),
            **make_scale_words("out", requantization.out_scales[0]),
            "result_scale": requantization.result_scale,
            "out_offset": target.offset,
            **_activation_words(op, target, context),
        },
        is_exact=first + products < 1 << (source.accumulator_bits - 1),
    )


def has_channel_scales(op: Operation) -> bool:
    """Return whether each output channel has its own scale and offset."""
    return len(op.operands) > 4


def _requantization(
    op: Operation, context: PlanningContext, channels: int
) -> tuple[Requantization, Array]:
    """Return how sums become results, and the zero point of each channel's weights."""
    weights = op.operands[2]
    if op.kind is OpcodeKind.PRODUCT:
        words = context.profile.get_factor_words(op, context.place)
        offsets = np.full(channels, weights.offset, np.int64)
        return Requantization.from_words(words, channels), offsets
    bias = op.operands[3]
    if bias.scale == 0 and not has_channel_scales(op):
        raise fail(
            "COMP001",
            f"the scale of bias %{bias.name} is zero",
            place=context.place,
            found="scale 0.0",
            expected="a positive scale",
            hint="Pass the exact scales with --tensors FILE.",
        )
    layer = WeightedLayerScales.from_operation(op, context.memory.values, context.place)
    return context.profile.make_requantization(layer), layer.weight_offsets


def _largest_start(
    op: Operation, context: PlanningContext, requantization: Requantization, terms: Array
) -> int:
    """Return the largest absolute value with which a sum starts, before any product.

    Raises UserError (COMP001) if a bias or zero term alone exceeds the accumulator.
    """
    limit = 1 << (op.operands[1].accumulator_bits - 1)
    parts = np.stack([terms, requantization.bias]) if requantization.bias_in_sum else terms
    if parts.min(initial=0) < -limit or parts.max(initial=0) >= limit:
        is_bias = terms.min(initial=0) >= -limit and terms.max(initial=0) < limit
        raise fail(
            "COMP001",
            f"{'the bias' if is_bias else 'a zero point term'} of %{op.instruction.name} does not"
            f" fit the accumulator of {op.operands[1].accumulator_bits} bits",
            place=context.place,
            found=f"values from {parts.min()} to {parts.max()}",
            expected=f"values from {-limit} to {limit - 1}",
            hint="Use a smaller bias, fewer inputs per result, or a zero point of 0.",
        )
    return int(np.abs(parts).reshape(-1, terms.size).sum(axis=0).max(initial=0))


def _scale_records(requantization: Requantization, offsets: Array) -> Array:
    rows = [
        (int(offset), b.pre, b.mul, b.post, o.pre, o.mul, o.post)
        for offset, b, o in zip(
            offsets, requantization.bias_scales, requantization.out_scales, strict=True
        )
    ]
    return np.array(rows, np.int64).astype(np.int32)


def _activation_words(
    op: Operation, target: BufferView, context: PlanningContext
) -> dict[str, int]:
    """Return the words of an operation's own and fused activations."""
    words: dict[str, int] = {}
    low, high = target.limits
    kind = op.instruction.attributes.get("FusedActivation", "NONE")
    if kind in ("RELU", "CLIP"):
        low, high = get_clip_range(op, target)
    elif kind == "LEAKY_RELU":
        words = {"activation": ACTIVATION_LEAKY}
        slope = cast("tuple[float]", op.instruction.attributes["FusedActivationArgs"])[0]
        words |= context.profile.get_leaky_words(float(slope), target, context.place)
    return {**words, **make_clip_words(op, target, low, high)}


def make_clip_words(
    op: Operation, target: BufferView, low: int | None = None, high: int | None = None
) -> dict[str, int]:
    """Return the descriptor words for a result's limits and the sides that the network clips."""
    lowest, highest = target.limits
    low, high = lowest if low is None else low, highest if high is None else high
    if op.clip_low is not None and op.clip_high is not None:
        low, high = (max(op.clip_low, min(v, op.clip_high)) for v in (low, high))
    return {"clip_low": low, "clip_high": high, "clip_wanted": op.clipped_sides}


def compute_zero_terms(
    weights: Array, offsets: npt.NDArray[Any], in_offset: int
) -> npt.NDArray[np.int64]:
    """Compute each output channel's sum of zero-point terms, ``K*Ow*Ox - Ox*sum(w)``, int64 [O]."""
    flat = weights.reshape(weights.shape[0], -1)
    sums = flat.sum(axis=1, dtype=np.int64)
    terms: npt.NDArray[np.int64] = in_offset * (flat.shape[1] * offsets.astype(np.int64) - sums)
    return terms
