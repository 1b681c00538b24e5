"""A convolution or fully connected layer, read from its operation into plain numbers."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler import numerics
from nmpsim.compiler.numerics import INT8_HIGH, INT8_LOW, to_int8
from nmpsim.compiler.slicing.context import Context
from nmpsim.compiler.slicing.weights import zero_terms
from nmpsim.compiler.slicing.window import Axis, axes
from nmpsim.compiler.work import Operation, View
from nmpsim.diagnostics import fail
from nmpsim.kernels.scale import IntegerScale

Array = npt.NDArray[Any]
INT32 = 1 << 31


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
    """int8 [O, kernel_h, kernel_w, I]"""
    channel_records: Array
    """int64 [O, 2]: bias minus its zero point, zero term"""
    scale_records: Array | None
    """int32 [O, 7] where each channel has its own scales, else None"""
    words: dict[str, int]
    """Words of the descriptor that are the same for all tiles."""

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return int(self.weights.shape[3])

    @property
    def macs(self) -> int:
        """Multiplications of the whole layer."""
        return self.images * self.rows.out * self.columns.out * int(self.weights.size)


def read_weighted(op: Operation, context: Context) -> Weighted:
    """Read any operation with constant weights."""
    if op.instruction.opcode in ("convolution", "channelwisequantizedconvolution"):
        return _convolution(op, context)
    return _fully_connected(op, context)


def _convolution(op: Operation, context: Context) -> Weighted:
    target, source, filter_ = op.operands[:3]
    rows, columns = axes(op.instruction, source.shape, target.shape)
    weights = context.values_of(filter_)
    groups = int(str(op.instruction.attributes["Group"]))
    return _weighted(op, context, weights, rows, columns, groups)


def _fully_connected(op: Operation, context: Context) -> Weighted:
    target, source, matrix = op.operands[:3]
    values = context.values_of(matrix)
    if op.instruction.opcode != "rowwisequantizedfullyconnected":
        values = values.T
    weights = np.ascontiguousarray(values)[:, None, None, :]
    row = Axis(1, 1, 1, 1, 0)
    column = Axis(source.shape[0], target.shape[0], 1, 1, 0)
    return _weighted(op, context, weights, row, column, 1)


def _weighted(
    op: Operation, context: Context, weights: Array, rows: Axis, columns: Axis, groups: int
) -> Weighted:
    target, source = op.operands[:2]
    scales = _Scales.read(op, context, weights.shape[0])
    records = np.stack(
        [scales.bias_values, zero_terms(weights, scales.weight_offsets, source.offset)], axis=1
    )
    if records.min(initial=0) < -INT32 or records.max(initial=0) >= INT32:
        raise fail(
            "COMP001",
            f"%{op.instruction.name}: bias or zero point terms of a channel exceed 32 bits",
            place=context.place,
            found=f"{records.min()} to {records.max()}",
            expected=f"{-INT32} to {INT32 - 1}",
            hint="a smaller bias, or fewer inputs of a result, or a zero point of 0",
        )
    images = source.shape[0] if len(source.shape) == 4 else 1
    return Weighted(
        name=op.instruction.name,
        source=source,
        target=op.output,
        images=images,
        channels=source.shape[-1],
        out_channels=int(weights.shape[0]),
        groups=groups,
        rows=rows,
        columns=columns,
        weights=weights,
        channel_records=records,
        scale_records=scales.records(),
        words={
            "weight_offset": int(scales.weight_offsets[0]),
            **scale_words("bias", scales.bias[0]),
            **scale_words("out", scales.out[0]),
            "out_offset": target.offset,
            **activation_words(op, target, context),
        },
    )


@attrs.frozen(eq=False)
class _Scales:
    """Zero points and integer scales, one for all channels or one each."""

    bias_values: Array
    """int64 [O], less the bias's zero point"""
    weight_offsets: Array
    """int64 [O]"""
    bias: tuple[IntegerScale, ...]
    out: tuple[IntegerScale, ...]
    by_channel: bool

    @classmethod
    def read(cls, op: Operation, context: Context, channels: int) -> _Scales:
        target, source, filter_ = op.operands[:3]
        bias = op.operands[3] if len(op.operands) > 3 else None
        values = np.zeros(channels, np.int64)
        if bias is not None:
            values = context.values_of(bias).astype(np.int64)
        if len(op.operands) > 4:
            return cls._by_channel(op, context, values)
        product = numerics.product(source.scale, filter_.scale)
        return cls(
            values - (bias.offset if bias else 0),
            np.full(channels, filter_.offset, np.int64),
            (
                numerics.scale_of(numerics.quotient(bias.scale, product), context.place)
                if bias
                else numerics.IDENTITY,
            ),
            (numerics.scale_of(numerics.quotient(product, target.scale), context.place),),
            by_channel=False,
        )

    @classmethod
    def _by_channel(cls, op: Operation, context: Context, values: Array) -> _Scales:
        target, source, _, bias = op.operands[:4]
        tables = [context.values_of(view) for view in op.operands[4:]]
        filter_scales, filter_offsets = tables[:2]
        if len(tables) == 4:
            bias_scales, bias_offsets = tables[2:]
        else:
            bias_scales = np.full(values.size, bias.scale, np.float32)
            bias_offsets = np.full(values.size, bias.offset)
        products = [numerics.product(source.scale, float(s)) for s in filter_scales]
        return cls(
            values - bias_offsets.astype(np.int64),
            filter_offsets.astype(np.int64),
            tuple(
                numerics.scale_of(numerics.quotient(float(b), p), context.place)
                for b, p in zip(bias_scales, products, strict=True)
            ),
            tuple(
                numerics.scale_of(numerics.quotient(p, target.scale), context.place)
                for p in products
            ),
            by_channel=True,
        )

    def records(self) -> Array | None:
        """Scale records, or None if all channels share one."""
        if not self.by_channel:
            return None
        rows = [
            (int(offset), b.pre, b.mul, b.post, o.pre, o.mul, o.post)
            for offset, b, o in zip(self.weight_offsets, self.bias, self.out, strict=True)
        ]
        return np.array(rows, np.int64).astype(np.int32)


def scale_words(prefix: str, scale: IntegerScale) -> dict[str, int]:
    """The three words of an integer scale."""
    return {f"{prefix}_pre": scale.pre, f"{prefix}_mul": scale.mul, f"{prefix}_post": scale.post}


def activation_words(op: Operation, target: View, context: Context) -> dict[str, int]:
    """Activation and clip of an operation, its own and those that were fused into it."""
    words = {"activation": 0, **scale_words("leaky", numerics.IDENTITY)}
    low, high = INT8_LOW, INT8_HIGH
    kind = op.instruction.attributes.get("FusedActivation", "NONE")
    arguments = op.instruction.attributes.get("FusedActivationArgs", ())
    values = [float(v) for v in arguments] if isinstance(arguments, tuple) else []
    if kind == "RELU":
        low = to_int8(target.offset)
    elif kind == "CLIP":
        low, high = (
            to_int8(numerics.quantize_value(v, target.scale, target.offset)) for v in values
        )
        low = min(low, high)
    elif kind == "LEAKY_RELU":
        alpha = numerics.scale_of(float(np.float32(values[0])), context.place)
        words = {"activation": 1, **scale_words("leaky", alpha)}
    return {**words, **clip_words(op, target, low, high)}


def clip_words(
    op: Operation, target: View, low: int = INT8_LOW, high: int = INT8_HIGH
) -> dict[str, int]:
    """The result's range, and which sides the network asks for.

    A type whose range starts at real zero hides a ReLU: its lower clip is wanted.
    """
    if op.clip_low is not None and op.clip_high is not None:
        low, high = (max(op.clip_low, min(v, op.clip_high)) for v in (low, high))
    wanted_low = low > INT8_LOW or target.offset == INT8_LOW
    return {
        "clip_low": low,
        "clip_high": high,
        "clip_wanted": (1 if wanted_low else 0) | (2 if high < INT8_HIGH else 0),
    }
