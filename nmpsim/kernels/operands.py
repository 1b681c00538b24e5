"""Operands of kernels, as words of descriptors: offsets, geometry, and scales."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from nmpsim.kernels.array_types import Int

PART_CACHED = 4
"""Part of a layer kernel's task besides those of descriptors: a whole sum, with ``partial`` as the
place where kernels cache what they derive from the weights."""

RunOffsets: TypeAlias = tuple[Int, Int, Int]
"""First bytes of left, right and result in the scratchpad."""


class OutputPosition(NamedTuple):
    """Position of a tile in a layer's output: index of its first result, and strides.

    The index of a result is ``origin + y * stride_y + x * stride_x + channel``.
    """

    origin: Int
    stride_y: Int
    stride_x: Int


class Clip(NamedTuple):
    """Clip of a result: lower and upper limit, and flags for limits that the network asks for.

    Bits 0 and 1 of ``wanted`` say that the network asks for the lower and upper limit.
    """

    low: Int
    high: Int
    wanted: Int


class IntegerScaleRecord(NamedTuple):
    """Record of an integer scale ``((x >> pre) * mul + half) >> post`` for compiled code."""

    pre: Int
    mul: Int
    post: Int


class OperandOffsets(NamedTuple):
    """Byte offsets of a MAC instruction's operands in the scratchpad.

    ``channels`` is negative if there is neither bias nor zero term, ``scales`` if all channels
    share one scale. For a sum in one part, ``partial`` is the place where kernels cache what they
    derive from the weights, negative if there is none.
    """

    input: Int
    weights: Int
    channels: Int
    scales: Int
    output: Int
    partial: Int


class Quantizer(NamedTuple):
    """Parameters that requantize sums to results: profile, scales, zero points and clip."""

    element: Int
    profile: Int
    weight_offset: Int
    bias: IntegerScaleRecord
    out: IntegerScaleRecord
    result_scale: Int
    out_offset: Int
    leaky: Int
    leaky_scale: IntegerScaleRecord
    clip: Clip


class ConvShape(NamedTuple):
    """Shape of a convolution: sizes in elements, and strides of the images in bytes."""

    groups: Int
    in_channels: Int
    out_channels: Int
    kernel_h: Int
    kernel_w: Int
    stride_h: Int
    stride_w: Int
    dilation_h: Int
    dilation_w: Int
    out_h: Int
    out_w: Int
    in_row_stride: Int
    in_pixel_stride: Int
    out_row_stride: Int
    out_pixel_stride: Int


class InputWindow(NamedTuple):
    """Input window of a pixel: ``rows`` x ``runs`` segments of ``length`` elements.

    Runs are read in steps of four bytes; inputs after a run must have weights of zero.
    """

    rows: Int
    row_stride: Int
    runs: Int
    run_stride: Int
    length: Int


class SumParts(NamedTuple):
    """Flags that say whether an instruction computes the first and the last part of its sums."""

    begins: bool
    ends: bool


class MacTile(NamedTuple):
    """Tile that a MAC-array instruction computes: operands, shape and counters."""

    spm: Any
    shape: Any
    """:class:`ConvShape` or :class:`MatmulShape`."""
    at: OperandOffsets
    parts: SumParts
    q: Quantizer
    place: OutputPosition
    counters: Any


class CopyShape(NamedTuple):
    """Shape of a strided copy: ``count_y`` rows of ``count_x`` segments of ``run`` bytes."""

    run: Int
    count_x: Int
    count_y: Int
    from_stride_x: Int
    from_stride_y: Int
    to_stride_x: Int
    to_stride_y: Int


class MatmulShape(NamedTuple):
    """Shape of a matrix product: sizes in elements, and strides in bytes."""

    rows: Int
    inner: Int
    columns: Int
    lhs_stride: Int
    rhs_stride: Int
    out_stride: Int
    lhs_offset: Int
    rhs_offset: Int


class PoolShape(NamedTuple):
    """Shape of a pool: sizes, offsets and strides in elements."""

    input: Int
    output: Int
    channels: Int
    in_h: Int
    in_w: Int
    kernel_h: Int
    kernel_w: Int
    stride_h: Int
    stride_w: Int
    pad_top: Int
    pad_left: Int
    out_h: Int
    out_w: Int
    in_row_stride: Int
    in_pixel_stride: Int
    out_row_stride: Int
    out_pixel_stride: Int


class AverageParameters(NamedTuple):
    """Parameters of an average pool: zero points, scales and the clip of the result."""

    element: Int
    profile: Int
    in_offset: Int
    by_valid_taps: Int
    scale: IntegerScaleRecord
    result_scale: Int
    out_offset: Int
    clip: Clip


class BinaryShape(NamedTuple):
    """Shape of a binary operation: rows and columns, and offsets and strides in bytes.

    ``element`` and ``rhs_size`` are log2 of the bytes of an element of lhs and result, and of rhs.
    """

    operation: Int
    element: Int
    rhs_size: Int
    lhs: Int
    rhs: Int
    output: Int
    rows: Int
    columns: Int
    lhs_stride: Int
    rhs_stride: Int
    out_stride: Int


class BinaryScales(NamedTuple):
    """Scales of a binary operation, with the zero points and the clip."""

    profile: Int
    lhs_offset: Int
    rhs_offset: Int
    lhs_scale: IntegerScaleRecord
    rhs_scale: IntegerScaleRecord
    out_scale: IntegerScaleRecord
    result_scale: Int
    out_offset: Int
    clip: Clip


class RescaleParameters(NamedTuple):
    """Parameters of a rescale of one tensor: zero points, scales and clips."""

    element: Int
    profile: Int
    in_low: Int
    in_high: Int
    in_offset: Int
    scale: IntegerScaleRecord
    leaky: Int
    leaky_scale: IntegerScaleRecord
    result_scale: Int
    out_offset: Int
    clip: Clip
