"""Shape rules of operations that only the host executes.

As in :mod:`nmpsim.lir.shapes`, the parameters of a rule are explained in ``make_shape_rule``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal

from nmpsim.lir.constraints import (
    Checks,
    ExpectedShape,
    InstructionProblem,
    Rule,
    Shape,
    TypedInstruction,
    format_shape,
    make_attribute_problem,
    make_shape_problem,
    make_shape_rule,
)
from nmpsim.lir.shapes import Factors, check_divisible_channels


def require_axis(attribute: str, role: str, sign: Literal["", "negative"] = "") -> Rule:
    """Return a rule that an attribute is a dimension of an operand.

    ``negative``: negative dimensions, which count from the end, are also accepted.
    """

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        value, rank = site.values[attribute.lower()], len(site.get_shape(role))
        if not (-rank if sign else 0) <= value < rank:
            message = f"{attribute} is not a dimension of {role}"
            expected = f"{-rank} to {rank - 1}" if sign else f"below {rank}"
            yield make_attribute_problem(attribute, message, value, expected)

    return rule


@make_shape_rule
def check_axes(axes: Shape, batch: Shape, dest: Shape) -> Checks:
    """Check that Axes are distinct dimensions of Batch and that Dest is Batch without them."""
    if not axes or len(set(axes)) != len(axes) or max(axes) >= len(batch):
        expected = f"distinct values from 0 to {len(batch) - 1}"
        yield make_attribute_problem(
            "Axes", "Axes are not distinct dimensions of Batch", list(axes), expected
        )
    elif dest != tuple(1 if d in axes else n for d, n in enumerate(batch)):
        left = tuple(n for d, n in enumerate(batch) if d not in axes)
        yield ExpectedShape("Dest", left, "Batch without Axes")


@make_shape_rule
def check_top_k_shape(input_: Shape, k: int) -> Checks:
    """Check that Values and Indices have the shape of Input with a last dimension of K."""
    if not input_ or k > input_[-1]:
        expected = f"at most {input_[-1]}" if input_ else "an Input with at least 1 dimension"
        yield make_attribute_problem(
            "K", "K is larger than the last dimension of Input", k, expected
        )
        return
    for role in ("Values", "Indices"):
        yield ExpectedShape(role, (*input_[:-1], k), "Input with K as its last dimension")


@make_shape_rule
def check_arg_max_shape(src: Shape, axis: int, keep_dims: int) -> Checks:
    """Check that Dest has the shape of Src without Axis, or with 1 instead of it."""
    shape = (*src[:axis], *((1,) if keep_dims else ()), *src[axis + 1 :])
    yield ExpectedShape("Dest", shape, "from Src" if keep_dims else "Src without Axis")


@make_shape_rule
def check_gather_shape(data: Shape, indices: Shape, batch_dims: int) -> Checks:
    """Check that Dest has Data's shape, with Indices' shape instead of dimension BatchDims."""
    shape = (*data[:batch_dims], *indices, *data[batch_dims + 1 :])
    yield ExpectedShape("Dest", shape, "from Data and Indices")


@make_shape_rule
def check_gather_nd_shape(data: Shape, indices: Shape, batch_dims: int) -> Checks:
    """Check the batch and coordinates of Indices, and the shape of Dest."""
    batch = data[:batch_dims]
    within = batch_dims + (indices[-1] if indices else 0)
    if len(indices) <= batch_dims or indices[:batch_dims] != batch or within > len(data):
        shapes = f"Data {format_shape(data)}, Indices {format_shape(indices)}"
        expected = "the same batch, and indices of at most the remaining dimensions of Data"
        found = f"{shapes}, BatchDims {batch_dims}"
        yield InstructionProblem("Indices", "Indices has the wrong shape for Data", found, expected)
    else:
        yield ExpectedShape("Dest", (*indices[:-1], *data[within:]), "from Data and Indices")


@make_shape_rule
def check_gather_elements_shape(data: Shape, indices: Shape, dim: int) -> Checks:
    """Check that Indices fits Data except along Dim, and that Dest has its shape."""
    fits = len(data) == len(indices) and all(
        d == dim or n <= m for d, (n, m) in enumerate(zip(indices, data, strict=True))
    )
    if fits:
        yield ExpectedShape("Dest", indices, "as Indices")
    else:
        expected = f"no larger than Data {format_shape(data)}, except in dimension {dim}"
        yield InstructionProblem(
            "Indices", "Indices has the wrong shape for Data", format_shape(indices), expected
        )


@make_shape_rule
def check_gather_ranges_shape(ranges: Shape) -> Checks:
    """Check that Ranges has the shape [examples, ranges, 2] and Lengths [examples]."""
    if len(ranges) != 3 or ranges[2] != 2:
        yield make_shape_problem("Ranges", ranges, "<E x R x 2>")
    else:
        yield ExpectedShape("Lengths", ranges[:1], "one for each example")


@make_shape_rule
def check_scatter_shape(data: Shape, indices: Shape) -> Checks:
    """Check that Indices has the shape [slices, dimensions] and that Slices fits Data."""
    if len(indices) != 2 or indices[1] > len(data):
        expected = f"<slices x at most {len(data)}>"
        yield InstructionProblem(
            "Indices", "Indices has the wrong shape for Data", format_shape(indices), expected
        )
    else:
        yield ExpectedShape("Slices", (indices[0], *data[indices[1] :]), "from Data and Indices")


@make_shape_rule
def check_nonzero_shape(dest: Shape, cond: Shape) -> Checks:
    """Check that Dest has as many elements as Cond."""
    space, needed = math.prod(dest), math.prod(cond)
    if space < needed:
        message = "Dest is too small"
        yield InstructionProblem("Dest", message, f"{space} elements", f"at least {needed}")


@make_shape_rule
def check_boundaries(boundaries: Factors) -> Checks:
    """Check that Boundaries are in ascending order."""
    if not all(a <= b for a, b in itertools.pairwise(boundaries)):
        message, found = "Boundaries are not in ascending order", str(list(boundaries))[:60]
        yield make_attribute_problem("Boundaries", message, found, "values in ascending order")


@make_shape_rule
def check_one_hot_shape(data: Shape, values: Shape) -> Checks:
    """Check the shapes Data [B, F], Lengths [F], Values [V] and Dest [B, V]."""
    yield ExpectedShape("Lengths", data[1:], "one for each feature")
    yield ExpectedShape("Dest", (data[0], *values), "from Data and Values")


@make_shape_rule
def check_suppression_shapes(
    boxes: Shape,
    scores: Shape,
    indices: Shape,
    is_tf_version4: int,
    max_output_boxes_per_class: int,
) -> Checks:
    """Check the operand shapes of NonMaxSuppression, in the ONNX form or the TensorFlow V4 form."""
    if len(boxes) != (2 if is_tf_version4 else 3) or boxes[-1] != 4:
        expected = "<boxes x 4>" if is_tf_version4 else "<batches x boxes x 4>"
        yield make_shape_problem("Boxes", boxes, expected)
        return
    batches, count = (1, boxes[0]) if is_tf_version4 else (boxes[0], boxes[1])
    if is_tf_version4:
        yield ExpectedShape("Scores", (count,), "one for each box")
    elif len(scores) != 3 or (scores[0], scores[2]) != (batches, count):
        yield make_shape_problem("Scores", scores, f"<{batches} x classes x {count}>")
    columns = () if is_tf_version4 else (3,)
    if not indices or indices[1:] != columns:
        yield make_shape_problem("Indices", indices, "<rows>" if is_tf_version4 else "<rows x 3>")
    elif indices[0] % batches:
        message = "the number of rows of Indices is not a multiple of the number of batches"
        expected = f"a multiple of {batches} rows"
        yield InstructionProblem("Indices", message, format_shape(indices), expected)
    numbers = (batches * max_output_boxes_per_class,)
    why = "MaxOutputBoxesPerClass for each batch"
    yield ExpectedShape("NumberOfSelectedIndices", numbers, why)


@make_shape_rule
def check_block_shape(src: Shape, block_size: int) -> Checks:
    """Check that BlockSize divides height and width, and that Dest has blocks as channels."""
    images, height, width, channels = src
    if height % block_size or width % block_size:
        message = "BlockSize does not divide Src"
        found = f"BlockSize {block_size}, Src {format_shape(src)}"
        yield InstructionProblem("Src", message, found, "a divisor of height and width")
    else:
        pixels = height // block_size, width // block_size
        shape = (images, *pixels, channels * block_size * block_size)
        yield ExpectedShape("Dest", shape, "from Src and BlockSize")


@make_shape_rule
def check_resize_factors(scale: Factors) -> Checks:
    """Check that Scale is positive and changes only height and width."""
    if len(scale) != 4 or scale[0] != 1 or scale[3] != 1 or not min(scale) > 0:
        message = "Scale changes more than height and width"
        yield make_attribute_problem(
            "Scale", message, list(scale), "[1, height, width, 1] with positive factors"
        )


@make_shape_rule
def check_batch_product_shape(lhs: Shape, rhs: Shape) -> Checks:
    """Check the shapes LHS [B, M, K], RHS [B, K, N] and Dest [B, M, N]."""
    batch, rows, inner = lhs
    yield ExpectedShape("RHS", (batch, inner, rhs[2]), "to match LHS")
    yield ExpectedShape("Dest", (batch, rows, rhs[2]), "from LHS and RHS")


@make_shape_rule
def check_channel_parameters(src: Shape, channel_idx: int) -> Checks:
    """Check that ChannelIdx is 1 or the last dimension and that parameters have its size."""
    if len(src) < 2 or channel_idx not in (1, len(src) - 1):
        expected = f"1 or {len(src) - 1}" if len(src) > 1 else "two dimensions or more"
        message = "ChannelIdx is not the channel dimension"
        yield make_attribute_problem("ChannelIdx", message, channel_idx, expected)
        return
    for role in ("Scale", "Bias", "Mean", "Var"):
        yield ExpectedShape(role, (src[channel_idx],), "one for each channel")


@make_shape_rule
def check_normalized_shape(src: Shape, scale: Shape) -> Checks:
    """Check that Scale has the shape of the last dimensions of Src."""
    if not 0 < len(scale) < len(src) or src[-len(scale) :] != scale:
        expected = f"the last dimensions of Src {format_shape(src)}"
        yield InstructionProblem(
            "Scale", "Scale has the wrong shape for Src", format_shape(scale), expected
        )


@make_shape_rule
def check_adaptive_pool_shape(src: Shape, dest: Shape) -> Checks:
    """Check that Dest is no higher and no wider than Src."""
    same = (src[0], src[3]) == (dest[0], dest[3])
    if not same or dest[1] > src[1] or dest[2] > src[2]:
        expected = f"{src[0]} images of {src[3]} channels, no larger than Src"
        yield make_shape_problem("Dest", dest, expected)


@make_shape_rule
def check_transposed_groups(src: Shape, dest: Shape, group: int) -> Checks:
    """Check that Group divides the channels of Src and Dest."""
    yield from check_divisible_channels(group, Src=src[3], Dest=dest[3])


@make_shape_rule
def check_transposed_filter(src: Shape, dest: Shape, kernels: Shape, group: int) -> Checks:
    """Check that Filter has the layout OHWI for one group, and that Bias has its length."""
    expected = (dest[3] // group, *kernels, src[3])
    yield ExpectedShape("Filter", expected, "OHWI with O = channels / Group")
    yield ExpectedShape("Bias", dest[3:], "one for each output channel")


@make_shape_rule
def check_transposed_shape(
    src: Shape, dest: Shape, kernels: Shape, strides: Shape, pads: Shape, dilation: Shape
) -> Checks:
    """Check that Dest has the images of Src and space for the windows of all its pixels."""
    parts = zip(src[1:3], kernels, strides, dilation, pads[:2], pads[2:], strict=True)
    least = [(n - 1) * s + (k - 1) * d + 1 - p - q for n, k, s, d, p, q in parts]
    if min(least) < 1:
        message, found = "the pads are larger than the result", f"Pads {list(pads)}"
        yield make_attribute_problem("Pads", message, found, "pads smaller than the windows")
    elif dest[0] != src[0] or dest[1] < least[0] or dest[2] < least[1]:
        sizes = f"H >= {least[0]} and W >= {least[1]}"
        yield make_shape_problem("Dest", dest, f"<{src[0]} x H x W x channels> with {sizes}")
