"""Shape rules of windows, matrices and movement."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.lir.constraints import (
    Problem,
    Rule,
    TypedInstruction,
    check_shape,
    format_shape,
    require_rank,
)
from nmpsim.lir.opcode import ACTIVATION_ARGUMENTS

# Windows: convolution and pools


def window_extent(size: int, kernel: int, stride: int, pads: int, dilation: int = 1) -> int:
    """Return the number of window positions along a dimension; below 1 if none fits."""
    return (size + pads - (dilation * (kernel - 1) + 1)) // stride + 1


def check_window_shape(
    site: TypedInstruction, channels: int, dilation: tuple[int, ...]
) -> Iterator[Problem]:
    """Check that Dest has the shape of the windows over Src."""
    images, height, width, _ = site.shape("Src")
    top, left, bottom, right = site.integers("Pads")
    kernels, strides = site.integers("Kernels"), site.integers("Strides")
    rows = window_extent(height, kernels[0], strides[0], top + bottom, dilation[0])
    columns = window_extent(width, kernels[1], strides[1], left + right, dilation[1])
    if rows < 1 or columns < 1:
        found = f"Src {format_shape(site.shape('Src'))}, Kernels {list(kernels)}"
        expected = "a window no larger than the padded Src"
        yield Problem("Src", "the window does not fit into Src", found, expected)
        return
    why = "from Src and the window"
    yield from check_shape(site, "Dest", (images, rows, columns, channels), why)


def check_pool_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the shape of the windows over Src and its channels."""
    yield from check_window_shape(site, site.shape("Src")[3], (1, 1))


def check_volume_shape(site: TypedInstruction, channels: int) -> Iterator[Problem]:
    """Check a 3-D window as ``check_window_shape`` does; Pads are two for each dimension."""
    source, pads = site.shape("Src"), site.integers("Pads")
    kernels, strides = site.integers("Kernels"), site.integers("Strides")
    around = [before + behind for before, behind in zip(pads[::2], pads[1::2], strict=True)]
    parts = zip(source[1:4], kernels, strides, around, strict=True)
    extents = [window_extent(*part) for part in parts]
    if min(extents) < 1:
        found = f"Src {format_shape(source)}, Kernels {list(kernels)}"
        expected = "a window no larger than the padded Src"
        yield Problem("Src", "the window does not fit into Src", found, expected)
        return
    why = "from Src and the window"
    yield from check_shape(site, "Dest", (source[0], *extents, channels), why)


def check_volume_convolution_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the shape of the 3-D windows, a channel for each filter."""
    yield from check_volume_shape(site, site.shape("Filter")[0])


def check_average_dimensions(site: TypedInstruction) -> Iterator[Problem]:
    """Check ranks: Layout 0 has 2-D windows (NHWC), 2 has 3-D windows (NTHWC)."""
    layout = site.instruction.attributes.get("Layout", 0)
    dimensions = 3 if layout == 2 else 2
    yield from require_rank(dimensions + 2, "Dest", "Src")(site)
    for name, count in (("Kernels", dimensions), ("Strides", dimensions), ("Pads", dimensions * 2)):
        found = site.integers(name)
        if len(found) != count:
            message = f"{name} does not go with Layout {layout}"
            yield Problem(None, message, str(list(found)), f"{count} numbers", "LIR008", name)


def check_average_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the shape of the windows over Src and its channels."""
    shape = site.shape("Src")
    yield from check_pool_shape(site) if len(shape) == 4 else check_volume_shape(site, shape[4])


def check_average_pads(site: TypedInstruction) -> Iterator[Problem]:
    """Check that no window lies in the padding only, where it has no mean."""
    if site.integer("CountIncludePads"):
        return
    kernels, pads = site.integers("Kernels"), site.integers("Pads")
    # Pads are [top, left, bottom, right], or two for each of three dimensions.
    each = kernels * 2 if len(kernels) == 2 else [k for k in kernels for _ in range(2)]
    if any(pad >= kernel for pad, kernel in zip(pads, each, strict=True)):
        expected = f"pads smaller than Kernels {list(kernels)}"
        message = "a window may lie in the padding only"
        yield Problem(None, message, f"Pads {list(pads)}", expected, "LIR008", "Pads")


def check_groups(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Group divides the channels of both sides."""
    group = site.integer("Group")
    counts = {"Src": site.shape("Src")[3], "Filter": site.shape("Filter")[0]}
    for role, channels in counts.items():
        if channels % group:
            message = f"Group does not divide the channels of {role}"
            yield Problem(role, message, f"Group {group}", f"a divisor of {channels}")


def check_filter_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that the filter is OHWI, with the channels of one group."""
    outputs = site.shape("Filter")[0]
    depth = site.shape("Src")[3] // site.integer("Group")
    expected = (outputs, *site.integers("Kernels"), depth)
    yield from check_shape(site, "Filter", expected, "OHWI with I = channels / Group")


def check_convolution_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the shape of the windows, with a channel for each filter."""
    yield from check_window_shape(site, site.shape("Filter")[0], site.integers("Dilation"))


def require_channel_vectors(count: str, dimension: int, *roles: str) -> Rule:
    """Return a rule that operands are vectors as long as another one's dimension."""

    def rule(site: TypedInstruction) -> Iterator[Problem]:
        length = site.shape(count)[dimension]
        for role in roles:
            yield from check_shape(site, role, (length,), "one for each output channel")

    return rule


def check_activation_arguments(site: TypedInstruction) -> Iterator[Problem]:
    """Check the number of FusedActivationArgs, and the order of a clip's."""
    attributes = site.instruction.attributes
    activation = str(attributes.get("FusedActivation", "NONE"))
    arguments = attributes.get("FusedActivationArgs", ())
    found = len(arguments) if isinstance(arguments, tuple) else 0
    expected = ACTIVATION_ARGUMENTS[activation]
    if found != expected:
        message = f"{activation} has the wrong number of FusedActivationArgs"
        at = "FusedActivationArgs" if "FusedActivationArgs" in attributes else "FusedActivation"
        yield Problem(None, message, str(found), str(expected), "LIR008", at)
    elif activation == "CLIP" and isinstance(arguments, tuple):
        low, high = (float(argument) for argument in arguments)
        yield from _in_order(low, high, "FusedActivationArgs")


# Matrices


def require_product_shape(left: str, right: str, rows_are_outputs: bool = False) -> Rule:
    """Return a rule that Dest is left times right, or times right transposed."""

    def rule(site: TypedInstruction) -> Iterator[Problem]:
        (rows, inner), (a, b) = site.shape(left), site.shape(right)
        outputs = a if rows_are_outputs else b
        expected = (outputs, inner) if rows_are_outputs else (inner, outputs)
        if site.shape(right) != expected:
            yield from check_shape(site, right, expected, f"to go with {left}")
        else:
            yield from check_shape(site, "Dest", (rows, outputs), f"from {left} and {right}")

    return rule


def check_slice_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Slice has the shape of one item of Batch."""
    yield from check_shape(site, "Slice", site.shape("Batch")[1:], "one item of Batch")


def check_reduced_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest is Batch without the dimension Axis."""
    batch, axis = site.shape("Batch"), site.integer("Axis")
    if axis >= len(batch):
        yield Problem("Batch", "Axis is not a dimension of Batch", str(axis), f"below {len(batch)}")
        return
    expected = batch[:axis] + batch[axis + 1 :]
    yield from check_shape(site, "Dest", expected, "Batch without Axis")


# Moving data


def check_permutation(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Shuffle is a permutation, and Dest is Src permuted."""
    source, shuffle = site.shape("Src"), site.integers("Shuffle")
    if sorted(shuffle) != list(range(len(source))):
        expected = f"each of 0 to {len(source) - 1} once" if source else "an empty list"
        yield Problem(None, "Shuffle is not a permutation", str(list(shuffle)), expected)
        return
    expected_shape = tuple(source[i] for i in shuffle)
    yield from check_shape(site, "Dest", expected_shape, "Src after Shuffle")


def _within(
    site: TypedInstruction, inner: str, extent: tuple[int, ...], outer: str
) -> Iterator[Problem]:
    """Check that a block of this extent at Offsets lies in the outer operand."""
    offsets, limits = site.integers("Offsets"), site.shape(outer)
    if not len(offsets) == len(extent) == len(limits):
        found = f"{len(offsets)} Offsets, {inner} {format_shape(site.shape(inner))}"
        yield Problem(inner, "the dimensions do not agree", found, f"as many as {outer} has")
        return
    for dim, (offset, size, limit) in enumerate(zip(offsets, extent, limits, strict=True)):
        if offset + size > limit:
            message = f"{inner} does not lie within {outer} in dimension {dim}"
            yield Problem(inner, message, f"{offset} to {offset + size}", f"at most {limit}")


def check_insertion(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Src, repeated Count times along Axis, lies within Dest."""
    axis, extent = site.integer("Axis"), list(site.shape("Src"))
    if axis >= len(extent):
        yield Problem("Src", "Axis is not a dimension of Src", str(axis), f"below {len(extent)}")
        return
    extent[axis] *= site.integer("Count")
    yield from _within(site, "Src", tuple(extent), "Dest")


def check_extraction(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest lies within Src."""
    yield from _within(site, "Dest", site.shape("Dest"), "Src")


def check_view(site: TypedInstruction) -> Iterator[Problem]:
    """Check that a view lies in its source, from its first element on."""
    view, offsets, source = site.types["Ty"], site.integers("Offsets"), site.shape("Src")
    if len(offsets) != len(source):
        yield Problem(
            "Src", "Offsets do not agree with Src", str(list(offsets)), f"{len(source)} numbers"
        )
        return
    if any(offset >= dim for offset, dim in zip(offsets, source, strict=True)):
        expected = f"below {format_shape(source)}"
        yield Problem("Src", "the view begins outside Src", str(list(offsets)), expected)
        return
    start = 0
    for offset, dim in zip(offsets, source, strict=True):
        start = start * dim + offset
    room = site.types["Src"].elements - start
    if view.elements > room:
        found = f"{view.elements} elements"
        yield Problem("Src", "the view is larger than what it views", found, f"at most {room}")


def check_resized_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest is Src times Scale, rounded down."""
    source, dest = site.shape("Src"), site.shape("Dest")
    value = site.instruction.attributes["Scale"]
    factors = value if isinstance(value, tuple) else ()
    if len(factors) != len(source) or len(dest) != len(source):
        found = f"{len(factors)} factors, Dest {format_shape(dest)}"
        yield Problem("Dest", "the dimensions do not agree", found, f"{len(source)} of each")
        return
    # Glow truncates the product in float; the last digit of a printed factor may be off.
    if any(abs(d - s * f) >= 1.001 for d, s, f in zip(dest, source, factors, strict=True)):
        found = f"{format_shape(dest)} with Scale {list(factors)}"
        yield Problem(
            "Dest", "Dest has the wrong shape", found, f"{format_shape(source)} times Scale"
        )


def check_mapping_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Mapping has an entry for each value of its index."""
    entries = 65536 if site.elem("Src") == "i16" else 256
    yield from check_shape(site, "Mapping", (entries,), "one entry a value")


def check_row_dimensions(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Src has at least two dimensions."""
    if len(site.shape("Src")) < 2:
        yield Problem(
            "Src", "Src has too few dimensions", format_shape(site.shape("Src")), "at least 2"
        )


def check_limit_order(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Min is not above Max."""
    yield from _in_order(site.number("Min"), site.number("Max"), "Min")


def _in_order(low: float, high: float, attribute: str) -> Iterator[Problem]:
    if not low <= high:
        found = f"{low} and {high}"
        yield Problem(None, "Min is above Max", found, "Min <= Max", "LIR008", attribute)
