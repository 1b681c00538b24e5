"""The type rules that belong to one kind of operation: windows, matrices, moving data."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.lir.constraints import Problem, Rule, Site, describe, expect_shape, rank
from nmpsim.lir.opcode import ACTIVATION_ARGUMENTS

# Windows: convolution and pools


def window_extent(size: int, kernel: int, stride: int, pads: int, dilation: int = 1) -> int:
    """Positions of a window along one dimension; below 1 if the window does not fit."""
    return (size + pads - (dilation * (kernel - 1) + 1)) // stride + 1


def window_shape(site: Site, channels: int, dilation: tuple[int, ...]) -> Iterator[Problem]:
    """Dest is what the windows over Src give."""
    images, height, width, _ = site.shape("Src")
    top, left, bottom, right = site.integers("Pads")
    kernels, strides = site.integers("Kernels"), site.integers("Strides")
    rows = window_extent(height, kernels[0], strides[0], top + bottom, dilation[0])
    columns = window_extent(width, kernels[1], strides[1], left + right, dilation[1])
    if rows < 1 or columns < 1:
        found = f"Src {describe(site.shape('Src'))}, Kernels {list(kernels)}"
        expected = "a window no larger than the padded Src"
        yield Problem("Src", "the window does not fit into Src", found, expected)
        return
    why = "from Src and the window"
    yield from expect_shape(site, "Dest", (images, rows, columns, channels), why)


def pool_shape(site: Site) -> Iterator[Problem]:
    """Dest is what the windows over Src give, with as many channels."""
    yield from window_shape(site, site.shape("Src")[3], (1, 1))


def window_volume(site: Site, channels: int) -> Iterator[Problem]:
    """As ``window_shape``, in three dimensions; Pads are two for each of these."""
    source, pads = site.shape("Src"), site.integers("Pads")
    kernels, strides = site.integers("Kernels"), site.integers("Strides")
    around = [before + behind for before, behind in zip(pads[::2], pads[1::2], strict=True)]
    parts = zip(source[1:4], kernels, strides, around, strict=True)
    extents = [window_extent(*part) for part in parts]
    if min(extents) < 1:
        found = f"Src {describe(source)}, Kernels {list(kernels)}"
        expected = "a window no larger than the padded Src"
        yield Problem("Src", "the window does not fit into Src", found, expected)
        return
    why = "from Src and the window"
    yield from expect_shape(site, "Dest", (source[0], *extents, channels), why)


def volume_convolution_shape(site: Site) -> Iterator[Problem]:
    """Dest is what the windows over Src give, a channel for each filter."""
    yield from window_volume(site, site.shape("Filter")[0])


def average_dimensions(site: Site) -> Iterator[Problem]:
    """Layout 0 has windows of two dimensions, NHWC; 2 of three, NTHWC."""
    layout = site.instruction.attributes.get("Layout", 0)
    dimensions = 3 if layout == 2 else 2
    yield from rank(dimensions + 2, "Dest", "Src")(site)
    for name, count in (("Kernels", dimensions), ("Strides", dimensions), ("Pads", dimensions * 2)):
        found = site.integers(name)
        if len(found) != count:
            message = f"{name} does not go with Layout {layout}"
            yield Problem(None, message, str(list(found)), f"{count} numbers", "LIR008", name)


def average_shape(site: Site) -> Iterator[Problem]:
    """Dest is what the windows over Src give, with as many channels."""
    shape = site.shape("Src")
    yield from pool_shape(site) if len(shape) == 4 else window_volume(site, shape[4])


def mean_of_something(site: Site) -> Iterator[Problem]:
    """No window lies in the padding only, for then it has no values to take the mean of."""
    if site.integer("CountIncludePads"):
        return
    kernels, pads = site.integers("Kernels"), site.integers("Pads")
    # Pads are [top, left, bottom, right], or two for each of three dimensions.
    each = kernels * 2 if len(kernels) == 2 else [k for k in kernels for _ in range(2)]
    if any(pad >= kernel for pad, kernel in zip(pads, each, strict=True)):
        expected = f"pads smaller than Kernels {list(kernels)}"
        message = "a window may lie in the padding only"
        yield Problem(None, message, f"Pads {list(pads)}", expected, "LIR008", "Pads")


def groups(site: Site) -> Iterator[Problem]:
    """Group divides the channels of both sides."""
    group = site.integer("Group")
    counts = {"Src": site.shape("Src")[3], "Filter": site.shape("Filter")[0]}
    for role, channels in counts.items():
        if channels % group:
            message = f"Group does not divide the channels of {role}"
            yield Problem(role, message, f"Group {group}", f"a divisor of {channels}")


def filter_shape(site: Site) -> Iterator[Problem]:
    """The filter is OHWI; each output sees the channels of one group."""
    outputs = site.shape("Filter")[0]
    depth = site.shape("Src")[3] // site.integer("Group")
    expected = (outputs, *site.integers("Kernels"), depth)
    yield from expect_shape(site, "Filter", expected, "OHWI with I = channels / Group")


def convolution_shape(site: Site) -> Iterator[Problem]:
    """Dest is what the windows over Src give, a channel for each filter."""
    yield from window_shape(site, site.shape("Filter")[0], site.integers("Dilation"))


def vectors(count: str, dimension: int, *roles: str) -> Rule:
    """Each operand is a vector as long as a dimension of another one."""

    def rule(site: Site) -> Iterator[Problem]:
        length = site.shape(count)[dimension]
        for role in roles:
            yield from expect_shape(site, role, (length,), "one for each output channel")

    return rule


def activation_arguments(site: Site) -> Iterator[Problem]:
    """FusedActivationArgs has as many numbers as the activation takes, those of a clip in order."""
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


def product(left: str, right: str, rows_are_outputs: bool = False) -> Rule:
    """Dest is left times right, or times the transpose of right."""

    def rule(site: Site) -> Iterator[Problem]:
        (rows, inner), (a, b) = site.shape(left), site.shape(right)
        outputs = a if rows_are_outputs else b
        expected = (outputs, inner) if rows_are_outputs else (inner, outputs)
        if site.shape(right) != expected:
            yield from expect_shape(site, right, expected, f"to go with {left}")
        else:
            yield from expect_shape(site, "Dest", (rows, outputs), f"from {left} and {right}")

    return rule


def slice_shape(site: Site) -> Iterator[Problem]:
    """Slice has the shape of one item of Batch."""
    yield from expect_shape(site, "Slice", site.shape("Batch")[1:], "one item of Batch")


def reduced_shape(site: Site) -> Iterator[Problem]:
    """Dest is Batch without the dimension Axis."""
    batch, axis = site.shape("Batch"), site.integer("Axis")
    if axis >= len(batch):
        yield Problem("Batch", "Axis is not a dimension of Batch", str(axis), f"below {len(batch)}")
        return
    expected = batch[:axis] + batch[axis + 1 :]
    yield from expect_shape(site, "Dest", expected, "Batch without Axis")


# Moving data


def permutation(site: Site) -> Iterator[Problem]:
    """Shuffle is a permutation, and Dest is Src after it."""
    source, shuffle = site.shape("Src"), site.integers("Shuffle")
    if sorted(shuffle) != list(range(len(source))):
        expected = f"each of 0 to {len(source) - 1} once" if source else "an empty list"
        yield Problem(None, "Shuffle is not a permutation", str(list(shuffle)), expected)
        return
    expected_shape = tuple(source[i] for i in shuffle)
    yield from expect_shape(site, "Dest", expected_shape, "Src after Shuffle")


def _within(site: Site, inner: str, extent: tuple[int, ...], outer: str) -> Iterator[Problem]:
    """A block of this extent at Offsets lies in the outer operand."""
    offsets, limits = site.integers("Offsets"), site.shape(outer)
    if not len(offsets) == len(extent) == len(limits):
        found = f"{len(offsets)} Offsets, {inner} {describe(site.shape(inner))}"
        yield Problem(inner, "the dimensions do not agree", found, f"as many as {outer} has")
        return
    for dim, (offset, size, limit) in enumerate(zip(offsets, extent, limits, strict=True)):
        if offset + size > limit:
            message = f"{inner} does not lie within {outer} in dimension {dim}"
            yield Problem(inner, message, f"{offset} to {offset + size}", f"at most {limit}")


def inserted(site: Site) -> Iterator[Problem]:
    """Src, Count times along Axis, lies within Dest."""
    axis, extent = site.integer("Axis"), list(site.shape("Src"))
    if axis >= len(extent):
        yield Problem("Src", "Axis is not a dimension of Src", str(axis), f"below {len(extent)}")
        return
    extent[axis] *= site.integer("Count")
    yield from _within(site, "Src", tuple(extent), "Dest")


def extracted(site: Site) -> Iterator[Problem]:
    """Dest lies within Src."""
    yield from _within(site, "Dest", site.shape("Dest"), "Src")


def viewed(site: Site) -> Iterator[Problem]:
    """From its first element on, a view lies in its source."""
    view, offsets, source = site.types["Ty"], site.integers("Offsets"), site.shape("Src")
    if len(offsets) != len(source):
        yield Problem(
            "Src", "Offsets do not agree with Src", str(list(offsets)), f"{len(source)} numbers"
        )
        return
    if any(offset >= dim for offset, dim in zip(offsets, source, strict=True)):
        expected = f"below {describe(source)}"
        yield Problem("Src", "the view begins outside Src", str(list(offsets)), expected)
        return
    start = 0
    for offset, dim in zip(offsets, source, strict=True):
        start = start * dim + offset
    room = site.types["Src"].elements - start
    if view.elements > room:
        found = f"{view.elements} elements"
        yield Problem("Src", "the view is larger than what it views", found, f"at most {room}")


def resized(site: Site) -> Iterator[Problem]:
    """Dest is Src times Scale, rounded down."""
    source, dest = site.shape("Src"), site.shape("Dest")
    value = site.instruction.attributes["Scale"]
    factors = value if isinstance(value, tuple) else ()
    if len(factors) != len(source) or len(dest) != len(source):
        found = f"{len(factors)} factors, Dest {describe(dest)}"
        yield Problem("Dest", "the dimensions do not agree", found, f"{len(source)} of each")
        return
    # Glow truncates the product in float; the last digit of a printed factor may be off.
    if any(abs(d - s * f) >= 1.001 for d, s, f in zip(dest, source, factors, strict=True)):
        found = f"{describe(dest)} with Scale {list(factors)}"
        yield Problem("Dest", "Dest has the wrong shape", found, f"{describe(source)} times Scale")


def mapping_shape(site: Site) -> Iterator[Problem]:
    """Mapping has an entry for each value of its index."""
    entries = 65536 if site.elem("Src") == "i16" else 256
    yield from expect_shape(site, "Mapping", (entries,), "one entry a value")


def at_least_two_dimensions(site: Site) -> Iterator[Problem]:
    """There is a dimension 1 to work along."""
    if len(site.shape("Src")) < 2:
        yield Problem(
            "Src", "Src has too few dimensions", describe(site.shape("Src")), "at least 2"
        )


def limits_in_order(site: Site) -> Iterator[Problem]:
    """Min is not above Max."""
    yield from _in_order(site.number("Min"), site.number("Max"), "Min")


def _in_order(low: float, high: float, attribute: str) -> Iterator[Problem]:
    if not low <= high:
        found = f"{low} and {high}"
        yield Problem(None, "Min is above Max", found, "Min <= Max", "LIR008", attribute)
