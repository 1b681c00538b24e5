"""What descriptors tell kernels: where operands are, their geometry, how values are scaled."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from nmpsim.kernels.array_types import Int

PART_KEPT = 4
"""Part of a whole layer's task beside those that descriptors have: all of a sum, and ``partial`` is
where kernels keep what they make of the weights."""

Sides: TypeAlias = tuple[Int, Int, Int]
"""First bytes of left, right and result in the scratchpad."""


class Place(NamedTuple):
    """A tile in its layer's output: index of a result = origin + y*stride_y + x*stride_x + c."""

    origin: Int
    stride_y: Int
    stride_x: Int


class Clip(NamedTuple):
    """The result's range; a bit of ``wanted`` says that the network asks for that side's clip."""

    low: Int
    high: Int
    wanted: Int


class IntegerScale(NamedTuple):
    """``((x >> pre) * mul + round) >> post``."""

    pre: Int
    mul: Int
    post: Int


class Operands(NamedTuple):
    """Byte offsets in the scratchpad.

    ``channels`` is negative if there is neither bias nor zero term, ``scales`` if all channels
    share one scale. Of a sum in one part, ``partial`` is where kernels keep what they make of the
    weights, negative if nowhere.
    """

    input: Int
    weights: Int
    channels: Int
    scales: Int
    output: Int
    partial: Int


class Quantizer(NamedTuple):
    """How a sum becomes a result: words of a descriptor."""

    element: Int
    profile: Int
    weight_offset: Int
    bias: IntegerScale
    out: IntegerScale
    result_scale: Int
    out_offset: Int
    leaky: Int
    leaky_scale: IntegerScale
    clip: Clip


class ConvShape(NamedTuple):
    """Geometry of a convolution; strides of the images in bytes."""

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
    """A pixel's inputs: ``rows`` times ``runs`` runs of ``length`` bytes.

    What a run lacks to a multiple of four bytes is read, too: its weights are 0.
    """

    rows: Int
    row_stride: Int
    runs: Int
    run_stride: Int
    length: Int


class Parts(NamedTuple):
    """What a sum over several instructions does in this one."""

    begins: bool
    ends: bool


class CopyShape(NamedTuple):
    """``count_y`` rows of ``count_x`` runs of ``run`` bytes, with both sides' strides in bytes."""

    run: Int
    count_x: Int
    count_y: Int
    from_stride_x: Int
    from_stride_y: Int
    to_stride_x: Int
    to_stride_y: Int


class Product(NamedTuple):
    """Geometry of a matrix product; strides in bytes."""

    rows: Int
    inner: Int
    columns: Int
    lhs_stride: Int
    rhs_stride: Int
    out_stride: Int
    lhs_offset: Int
    rhs_offset: Int


class PoolShape(NamedTuple):
    """Geometry of a pool; offsets and strides in elements."""

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


class Average(NamedTuple):
    """How a sum becomes an average; ``result_scale`` holds float32 bits."""

    element: Int
    profile: Int
    in_offset: Int
    by_valid_taps: Int
    scale: IntegerScale
    result_scale: Int
    out_offset: Int
    clip: Clip


class Pair(NamedTuple):
    """Geometry of two tensors and their result; offsets and strides in bytes.

    ``element`` and ``rhs_size`` are log2 of the bytes of what lhs and result are, and rhs.
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


class PairScales(NamedTuple):
    """Zero points and scales of a binary operation; ``result_scale`` holds float32 bits."""

    profile: Int
    lhs_offset: Int
    rhs_offset: Int
    lhs_scale: IntegerScale
    rhs_scale: IntegerScale
    out_scale: IntegerScale
    result_scale: Int
    out_offset: Int
    clip: Clip


class Unary(NamedTuple):
    """How one value becomes another; ``result_scale`` holds float32 bits."""

    element: Int
    profile: Int
    in_low: Int
    in_high: Int
    in_offset: Int
    scale: IntegerScale
    leaky: Int
    leaky_scale: IntegerScale
    result_scale: Int
    out_offset: Int
    clip: Clip
