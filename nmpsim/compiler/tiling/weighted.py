"""A convolution or fully connected layer, read from its operation into plain numbers."""

from __future__ import annotations

from typing import Any, Literal, cast

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.clip_bounds import limits_on
from nmpsim.compiler.numerics import Bias, Requantization, Sums
from nmpsim.compiler.numerics.ratios import scale_words
from nmpsim.compiler.operations import Operation, View
from nmpsim.compiler.tiling.context import Context
from nmpsim.compiler.tiling.window import Axis, axes
from nmpsim.diagnostics import fail
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.lir.opcode import Kind

Array = npt.NDArray[Any]


@attrs.frozen(eq=False)
class Weighted:
    """What a planner needs to know of a layer with weights. O outputs, I inputs of a group."""

    name: str
    source: View
    target: View
    images: int
    channels: int
    """Of the input, all groups."""
    out_channels: int
    groups: int
    rows: Axis
    columns: Axis
    weights: Array
    """[O, kernel_h, kernel_w, I], of the input's element"""
    constant: View
    """Where they come from."""
    order: Literal["OI", "IO"]
    """Of the constant's dimensions."""
    channel_records: Array
    """int64 [O, 2]: bias as the profile has it, zero term"""
    scale_records: Array | None
    """int32 [O, 7] where each channel has its own scales, else None"""
    words: dict[str, int]
    """Words of the descriptor that are the same for all tiles."""
    is_exact: bool
    """No order of summing can saturate a sum."""

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return int(self.weights.shape[3])

    @property
    def element(self) -> int:
        """The descriptor's word: 0 for Int8, 1 for Int16."""
        return self.source.element

    @property
    def element_bytes(self) -> int:
        """Bytes of an input, a weight or a result."""
        return self.source.element_bytes

    @property
    def macs(self) -> int:
        """Multiplications of the whole layer."""
        return self.images * self.rows.out * self.columns.out * int(self.weights.size)


def read_weighted(op: Operation, context: Context) -> Weighted:
    """Read any operation with constant weights."""
    if op.kind is Kind.CONVOLUTION:
        return _convolution(op, context)
    return _fully_connected(op, context)


def _convolution(op: Operation, context: Context) -> Weighted:
    target, source, filter_ = op.operands[:3]
    rows, columns = axes(op.instruction, source.shape, target.shape)
    weights = context.values_of(filter_)
    groups = int(str(op.instruction.attributes["Group"]))
    return _weighted(op, context, weights, rows, columns, groups, "OI")


def _fully_connected(op: Operation, context: Context) -> Weighted:
    target, source, matrix = op.operands[:3]
    values = context.values_of(matrix)
    order: Literal["OI", "IO"] = "OI"
    if op.instruction.opcode != "rowwisequantizedfullyconnected":
        order, values = "IO", values.T
    weights = values[:, None, None, :]
    row = Axis(1, 1, 1, 1, 0)
    column = Axis(source.shape[0], target.shape[0], 1, 1, 0)
    return _weighted(op, context, weights, row, column, 1, order)


def _weighted(
    op: Operation,
    context: Context,
    weights: Array,
    rows: Axis,
    columns: Axis,
    groups: int,
    order: Literal["OI", "IO"],
) -> Weighted:
    target, source = op.operands[:2]
    with np.errstate(all="ignore"):  # what no float32 can hold is refused, not warned of
        requantization, offsets = _requantization(op, context, weights.shape[0])
    terms = zero_terms(weights, offsets, source.offset)
    first = _first_sums(op, context, requantization, terms)
    products = int(weights[0].size) << 2 * source.element_bytes * 8
    return Weighted(
        name=op.instruction.name,
        source=source,
        target=op.output,
        images=source.shape[0] if len(source.shape) == 4 else 1,
        channels=source.shape[-1],
        out_channels=int(weights.shape[0]),
        groups=groups,
        rows=rows,
        columns=columns,
        weights=weights.astype(source.type.dtype, copy=False),  # Int16 with weights of Int8
        constant=op.operands[2],
        order=order,
        channel_records=np.stack([requantization.bias, terms], axis=1),
        scale_records=_records(requantization, offsets) if has_tables(op) else None,
        words={
            "element": source.element,
            "profile": requantization.profile,
            "weight_offset": int(offsets[0]),
            **scale_words("bias", requantization.bias_scales[0]),
            **scale_words("out", requantization.out_scales[0]),
            "result_scale": requantization.result_scale,
            "out_offset": target.offset,
            **activation_words(op, target, context),
        },
        is_exact=first + products < 1 << (source.accumulator_bits - 1),
    )


def has_tables(op: Operation) -> bool:
    """Whether scales and zero points of the weights differ from channel to channel."""
    return len(op.operands) > 4


def _requantization(op: Operation, context: Context, channels: int) -> tuple[Requantization, Array]:
    """What makes results of sums, and the zero point of each channel's weights."""
    target, source, weights = op.operands[:3]
    if op.kind is Kind.PRODUCT:
        words = context.profile.matmul(source, weights, target, context.place)
        offsets = np.full(channels, weights.offset, np.int64)
        return Requantization.of_product(words, channels), offsets
    tables = [context.values_of(view) for view in op.operands[4:]]
    scales = np.full(channels, weights.scale, np.float32)
    offsets = np.full(channels, weights.offset, np.int64)
    if tables:
        scales, offsets = tables[0].astype(np.float32), tables[1].astype(np.int64)
    sums = Sums(
        source=source,
        target=target,
        weight_scales=scales,
        by_channel=has_tables(op),
        bias=_bias(op, context, tables, channels),
        opcode=op.instruction.opcode,
        place=context.place,
    )
    return context.profile.sums(sums), offsets


def _bias(op: Operation, context: Context, tables: list[Array], channels: int) -> Bias:
    view = op.operands[3]
    values = context.values_of(view)
    if len(tables) == 4 and values.dtype.kind != "f":
        return Bias(values, tables[2].astype(np.float32), tables[3].astype(np.int64))
    if view.scale == 0 and not tables:
        raise fail(
            "COMP001",
            f"the scale of bias %{view.name} is zero",
            place=context.place,
            found="0.0",
            expected="a positive scale",
            hint="the exact scales of a text that prints too few decimals: --tensors",
        )
    if view.scale == 0:  # of rows of weights that have a scale each: that of each sum
        scales = np.float32(op.operands[1].scale) * tables[0].astype(np.float32)
        return Bias(values, scales, np.zeros(channels, np.int64))
    scales = np.full(channels, view.scale, np.float32)
    return Bias(values, scales, np.full(channels, view.offset, np.int64))


def _first_sums(
    op: Operation, context: Context, requantization: Requantization, terms: Array
) -> int:
    """The largest amount that a sum has before its products.

    A bias or zero term beyond the accumulator would saturate every sum.
    """
    limit = 1 << (op.operands[1].accumulator_bits - 1)
    parts = np.stack([terms, requantization.bias]) if requantization.bias_in_sum else terms
    if parts.min(initial=0) < -limit or parts.max(initial=0) >= limit:
        raise fail(
            "COMP001",
            f"%{op.instruction.name}: bias or zero point terms of a channel exceed"
            f" {op.operands[1].accumulator_bits} bits",
            place=context.place,
            found=f"{parts.min()} to {parts.max()}",
            expected=f"{-limit} to {limit - 1}",
            hint="a smaller bias, or fewer inputs of a result, or a zero point of 0",
        )
    return int(np.abs(parts).reshape(-1, terms.size).sum(axis=0).max(initial=0))


def _records(requantization: Requantization, offsets: Array) -> Array:
    rows = [
        (int(offset), b.pre, b.mul, b.post, o.pre, o.mul, o.post)
        for offset, b, o in zip(
            offsets, requantization.bias_scales, requantization.out_scales, strict=True
        )
    ]
    return np.array(rows, np.int64).astype(np.int32)


def activation_words(op: Operation, target: View, context: Context) -> dict[str, int]:
    """Activation and clip of an operation, its own and those that were fused into it."""
    words: dict[str, int] = {}
    low, high = target.limits
    kind = op.instruction.attributes.get("FusedActivation", "NONE")
    if kind in ("RELU", "CLIP"):
        low, high = limits_on(op, target)
    elif kind == "LEAKY_RELU":
        words = {"activation": ACTIVATION_LEAKY}
        slope = cast("tuple[float]", op.instruction.attributes["FusedActivationArgs"])[0]
        words |= context.profile.leaky(float(slope), target, context.place)
    return {**words, **clip_words(op, target, low, high)}


def clip_words(
    op: Operation, target: View, low: int | None = None, high: int | None = None
) -> dict[str, int]:
    """Return the range of the result and the sides on which the network clips it."""
    lowest, highest = target.limits
    low, high = lowest if low is None else low, highest if high is None else high
    if op.clip_low is not None and op.clip_high is not None:
        low, high = (max(op.clip_low, min(v, op.clip_high)) for v in (low, high))
    return {"clip_low": low, "clip_high": high, "clip_wanted": op.clipped_sides}


def zero_terms(weights: Array, offsets: npt.NDArray[Any], in_offset: int) -> npt.NDArray[np.int64]:
    """``K*Ow*Ox - Ox*sum(w)`` of each output channel; ``weights`` is [out][...]."""
    flat = weights.reshape(weights.shape[0], -1)
    sums = flat.sum(axis=1, dtype=np.int64)
    terms: npt.NDArray[np.int64] = in_offset * (flat.shape[1] * offsets.astype(np.int64) - sums)
    return terms
