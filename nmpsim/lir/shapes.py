"""Shape rules of windows, matrices and movement; ``make_shape_rule`` explains the parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from nmpsim.lir.constraints import (
    Checks,
    ExpectedShape,
    InstructionProblem,
    Rule,
    Shape,
    TypedInstruction,
    check_shape,
    format_shape,
    make_attribute_problem,
    make_shape_rule,
    require_rank,
)
from nmpsim.lir.opcode import ACTIVATION_ARGUMENTS

Factors = tuple[float, ...]


# Windows: convolution and pools


def count_window_positions(
    size: int, kernel: int, stride: int, pads: int, dilation: int = 1
) -> int:
    """Return the number of window positions along a dimension; below 1 if none fits."""
    return (size + pads - (dilation * (kernel - 1) + 1)) // stride + 1


def _window(
    src: Shape, kernels: Shape, strides: Shape, pads: Shape, dilation: Shape, channels: int
) -> Checks:
    """Yield the shape of Dest for windows of two or three dimensions over Src."""
    # Pads are [top, left, bottom, right], or two for each of three dimensions.
    sides = (pads[:2], pads[2:]) if len(pads) == 4 else (pads[::2], pads[1::2])
    around = map(sum, zip(*sides, strict=True))
    parts = zip(src[1:-1], kernels, strides, around, dilation, strict=True)
    extents = [count_window_positions(*part) for part in parts]
    if min(extents) < 1:
        found = f"Src {format_shape(src)}, Kernels {list(kernels)}"
        expected = "a window within the padded Src"
        yield InstructionProblem("Src", "the window does not fit into Src", found, expected)
    else:
        yield ExpectedShape("Dest", (src[0], *extents, channels), "from Src and the window")


@make_shape_rule
def check_pool_shape(src: Shape, kernels: Shape, strides: Shape, pads: Shape) -> Checks:
    """Check that Dest has the shape of the windows over Src and the channels of Src."""
    yield from _window(src, kernels, strides, pads, (1,) * len(kernels), src[-1])


@make_shape_rule
def check_convolution_shape(
    src: Shape,
    filter_: Shape,
    kernels: Shape,
    strides: Shape,
    pads: Shape,
    dilation: Shape = (1, 1, 1),
) -> Checks:
    """Check that Dest has the shape of the windows over Src and a channel for each filter."""
    yield from _window(src, kernels, strides, pads, dilation, filter_[0])


def check_average_dimensions(site: TypedInstruction) -> Iterator[InstructionProblem]:
    """Check the dimensions of windows: 2-D for Layout 0, 3-D for Layout 2."""
    layout = site.values.get("layout", 0)
    dimensions = 3 if layout == 2 else 2
    yield from require_rank(dimensions + 2, "Dest", "Src")(site)
    for name, count in (("Kernels", dimensions), ("Strides", dimensions), ("Pads", dimensions * 2)):
        found = site.values[name.lower()]
        if len(found) != count:
            message = f"{name} does not match Layout {layout}"
            yield make_attribute_problem(name, message, list(found), f"{count} numbers")


@make_shape_rule
def check_average_pads(kernels: Shape, pads: Shape, count_include_pads: int) -> Checks:
    """Check that no window lies entirely in the padding."""
    each = kernels * 2 if len(kernels) == 2 else [k for k in kernels for _ in range(2)]
    lies_outside = any(pad >= kernel for pad, kernel in zip(pads, each, strict=True))
    if lies_outside and not count_include_pads:
        message = "a window can lie entirely in the padding"
        expected = f"pads smaller than Kernels {list(kernels)}"
        yield make_attribute_problem("Pads", message, f"Pads {list(pads)}", expected)


def check_divisible_channels(group: int, **channels: int) -> Checks:
    """Yield a problem for each operand whose channels are not a multiple of Group."""
    for role, count in channels.items():
        if count % group:
            message = f"Group does not divide the channels of {role}"
            yield InstructionProblem(role, message, f"Group {group}", f"a divisor of {count}")


@make_shape_rule
def check_groups(src: Shape, filter_: Shape, group: int) -> Checks:
    """Check that Group divides the channels of Src and Filter."""
    yield from check_divisible_channels(group, Src=src[-1], Filter=filter_[0])


@make_shape_rule
def check_filter_shape(src: Shape, filter_: Shape, kernels: Shape, group: int) -> Checks:
    """Check that Filter has the layout OHWI or OTHWI for the channels of one group."""
    layout = "OHWI" if len(src) == 4 else "OTHWI"
    expected = (filter_[0], *kernels, src[-1] // group)
    yield ExpectedShape("Filter", expected, f"{layout} with I = channels / Group")


def require_channel_vectors(count: str, dimension: int, *roles: str) -> Rule:
    """Return a rule that operands are vectors of the length of a dimension of ``count``."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        length = site.get_shape(count)[dimension]
        for role in roles:
            yield from check_shape(site, role, (length,), "one for each output channel")

    return rule


@make_shape_rule
def check_activation_arguments(
    fused_activation: str = "NONE", fused_activation_args: Factors | None = None
) -> Checks:
    """Check the number of FusedActivationArgs and the order of clip limits."""
    arguments = fused_activation_args or ()
    expected = ACTIVATION_ARGUMENTS[fused_activation]
    if len(arguments) != expected:
        message = f"{fused_activation} has the wrong number of FusedActivationArgs"
        at = "FusedActivation" if fused_activation_args is None else "FusedActivationArgs"
        yield make_attribute_problem(at, message, len(arguments), str(expected))
    elif fused_activation == "CLIP":
        yield from _in_order(arguments[0], arguments[1], "FusedActivationArgs")


# Matrices


def require_product_shape(left: str, right: str, form: Literal["", "transposed"] = "") -> Rule:
    """Return a rule that checks the inner dimensions of a matrix product and the shape of Dest.

    ``transposed``: the rows of the right matrix are the columns of the result.
    """

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        (rows, inner), shape = site.get_shape(left), site.get_shape(right)
        outputs = shape[0] if form else shape[1]
        expected = (outputs, inner) if form else (inner, outputs)
        if shape != expected:
            yield from check_shape(site, right, expected, f"to match {left}")
        else:
            yield from check_shape(site, "Dest", (rows, outputs), f"from {left} and {right}")

    return rule


@make_shape_rule
def check_slice_shape(batch: Shape) -> Checks:
    """Yield the shape required of the operand Slice: that of one item of the operand Batch."""
    yield ExpectedShape("Slice", batch[1:], "one item of Batch")


@make_shape_rule
def check_reduced_shape(batch: Shape, axis: int) -> Checks:
    """Check that Dest is Batch without the dimension Axis."""
    if axis >= len(batch):
        yield InstructionProblem(
            "Batch", "Axis is not a dimension of Batch", str(axis), f"below {len(batch)}"
        )
    else:
        yield ExpectedShape("Dest", batch[:axis] + batch[axis + 1 :], "Batch without Axis")


# Moving data


@make_shape_rule
def check_permutation(src: Shape, shuffle: Shape) -> Checks:
    """Check that Shuffle is a permutation, and Dest is Src permuted."""
    if sorted(shuffle) != list(range(len(src))):
        expected = f"each of 0 to {len(src) - 1} once" if src else "an empty list"
        yield InstructionProblem(None, "Shuffle is not a permutation", str(list(shuffle)), expected)
    else:
        yield ExpectedShape("Dest", tuple(src[i] for i in shuffle), "Src after Shuffle")


def _within(inner: str, extent: Shape, outer: str, limits: Shape, offsets: Shape) -> Checks:
    """Check that a block of this extent at Offsets lies in the outer operand."""
    if not len(offsets) == len(extent) == len(limits):
        found = f"{len(offsets)} Offsets, {inner} of {len(extent)} dimensions"
        yield InstructionProblem(
            inner, "the dimensions do not agree", found, f"as many as {outer} has"
        )
        return
    for dim, (offset, size, limit) in enumerate(zip(offsets, extent, limits, strict=True)):
        if offset + size > limit:
            message = f"{inner} does not lie within {outer} in dimension {dim}"
            yield InstructionProblem(
                inner, message, f"{offset} to {offset + size}", f"at most {limit}"
            )


@make_shape_rule
def check_insertion(src: Shape, dest: Shape, offsets: Shape, axis: int, count: int) -> Checks:
    """Check that Src, repeated Count times along Axis, fits into Dest at Offsets."""
    if axis >= len(src):
        yield InstructionProblem(
            "Src", "Axis is not a dimension of Src", str(axis), f"below {len(src)}"
        )
        return
    extent = (*src[:axis], src[axis] * count, *src[axis + 1 :])
    yield from _within("Src", extent, "Dest", dest, offsets)


@make_shape_rule
def check_extraction(src: Shape, dest: Shape, offsets: Shape) -> Checks:
    """Check that Src contains a region of the shape of Dest at Offsets."""
    yield from _within("Dest", dest, "Src", src, offsets)


def check_view(site: TypedInstruction) -> Iterator[InstructionProblem]:
    """Check that a view begins and ends within its source."""
    view, offsets, source = site.types["Ty"], site.values["offsets"], site.types["Src"]
    if len(offsets) != len(source.shape):
        expected = f"{len(source.shape)} numbers"
        yield InstructionProblem(
            "Src", "Offsets do not agree with Src", str(list(offsets)), expected
        )
        return
    if any(offset >= dim for offset, dim in zip(offsets, source.shape, strict=True)):
        expected = f"below {format_shape(source.shape)}"
        yield InstructionProblem("Src", "the view begins outside Src", str(list(offsets)), expected)
        return
    start = 0
    for offset, dim in zip(offsets, source.shape, strict=True):
        start = start * dim + offset
    if view.elements > source.elements - start:
        expected = f"at most {source.elements - start}"
        found = f"{view.elements} elements"
        yield InstructionProblem("Src", "the view exceeds its source", found, expected)


@make_shape_rule
def check_resized_shape(src: Shape, dest: Shape, scale: Factors) -> Checks:
    """Check that Dest has the shape of Src times Scale, rounded down."""
    if not len(scale) == len(src) == len(dest):
        found = f"{len(scale)} factors, Dest {format_shape(dest)}"
        yield InstructionProblem(
            "Dest", "the dimensions do not agree", found, f"{len(src)} of each"
        )
    # Glow truncates the product in float; the last digit of a printed factor may be off.
    elif any(abs(d - s * f) >= 1.001 for d, s, f in zip(dest, src, scale, strict=True)):
        found = f"{format_shape(dest)} with Scale {list(scale)}"
        expected = f"{format_shape(src)} times Scale"
        yield InstructionProblem("Dest", "Dest has the wrong shape", found, expected)


def check_mapping_shape(site: TypedInstruction) -> Iterator[InstructionProblem]:
    """Check that Mapping has an entry for each value of the element type of Src."""
    entries = 65536 if site.get_elem("Src") == "i16" else 256
    yield from check_shape(site, "Mapping", (entries,), "one entry for each value")


@make_shape_rule
def check_row_dimensions(src: Shape) -> Checks:
    """Check that Src has at least two dimensions."""
    if len(src) < 2:
        yield InstructionProblem(
            "Src", "Src has too few dimensions", format_shape(src), "at least 2"
        )


@make_shape_rule
def check_limit_order(min_: float, max_: float) -> Checks:
    """Check that Min is not greater than Max."""
    yield from _in_order(min_, max_, "Min")


def _in_order(low: float, high: float, attribute: str) -> Checks:
    if not low <= high:
        message = "Min is greater than Max"
        yield make_attribute_problem(attribute, message, f"{low} and {high}", "Min <= Max")
