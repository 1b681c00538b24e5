"""Shape rules of operations that only the host executes.

As in :mod:`nmpsim.lir.shapes`, each function is one rule, which looks at one instruction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from nmpsim.lir.constraints import Problem, Rule, TypedInstruction, check_shape, format_shape


def require_axis(attribute: str, role: str, beyond: int = 0) -> Rule:
    """Return a rule that an attribute is a dimension of an operand.

    Negative dimensions count from the end if ``beyond`` is 1.
    """

    def rule(site: TypedInstruction) -> Iterator[Problem]:
        value, rank = site.integer(attribute), len(site.shape(role))
        if not -beyond * rank <= value < rank:
            message = f"{attribute} is not a dimension of {role}"
            expected = f"{-rank} to {rank - 1}" if beyond else f"below {rank}"
            yield Problem(None, message, str(value), expected, "LIR008", attribute)

    return rule


def check_axes(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Axes are distinct dimensions of Batch, and Dest is Batch without them."""
    axes, batch = site.integers("Axes"), site.shape("Batch")
    if not axes or len(set(axes)) != len(axes) or max(axes) >= len(batch):
        expected = f"some of 0 to {len(batch) - 1}, each once"
        yield Problem(None, "Axes does not fit", str(list(axes)), expected, "LIR008", "Axes")
        return
    kept = tuple(1 if d in axes else n for d, n in enumerate(batch))
    left = tuple(n for d, n in enumerate(batch) if d not in axes)
    if site.shape("Dest") != kept:
        yield from check_shape(site, "Dest", left, "Batch without Axes")


def check_top_k_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Values and Indices are Input with a last dimension of K."""
    source, count = site.shape("Input"), site.integer("K")
    if not source or count > source[-1]:
        expected = f"at most {source[-1]}" if source else "a dimension to look along"
        yield Problem(None, "K does not fit Input", str(count), expected, "LIR008", "K")
        return
    for role in ("Values", "Indices"):
        yield from check_shape(site, role, (*source[:-1], count), "Input with a last one of K")


def check_arg_extreme_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest is Src without Axis, or with 1 there."""
    source, axis = site.shape("Src"), site.integer("Axis")
    kept = (1,) if site.integer("KeepDims") else ()
    expected = (*source[:axis], *kept, *source[axis + 1 :])
    yield from check_shape(site, "Dest", expected, "Src without Axis" if not kept else "from Src")


def check_gather_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest is Data with the shape of Indices in place of dimension BatchDims."""
    data, axis = site.shape("Data"), site.integer("BatchDims")
    expected = (*data[:axis], *site.shape("Indices"), *data[axis + 1 :])
    yield from check_shape(site, "Dest", expected, "from Data and Indices")


def check_gather_nd_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Indices has the batch of Data and coordinates in it, and check Dest."""
    data, indices, batch = site.shape("Data"), site.shape("Indices"), site.integer("BatchDims")
    length = indices[-1] if indices else 0
    if len(indices) <= batch or indices[:batch] != data[:batch] or batch + length > len(data):
        found = f"Data {format_shape(data)}, Indices {format_shape(indices)}, BatchDims {batch}"
        expected = "the same batch, and places of no more dimensions than Data has left"
        yield Problem("Indices", "Indices does not fit Data", found, expected)
        return
    expected_shape = (*indices[:-1], *data[batch + length :])
    yield from check_shape(site, "Dest", expected_shape, "from Data and Indices")


def check_gather_elements_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the shape of Indices, which fits Data except along Dim."""
    data, indices, axis = site.shape("Data"), site.shape("Indices"), site.integer("Dim")
    fits = len(data) == len(indices) and all(
        d == axis or n <= m for d, (n, m) in enumerate(zip(indices, data, strict=True))
    )
    if not fits:
        expected = f"no larger than Data {format_shape(data)}, but for dimension {axis}"
        yield Problem("Indices", "Indices does not fit Data", format_shape(indices), expected)
        return
    yield from check_shape(site, "Dest", indices, "as Indices")


def check_gather_ranges_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Ranges is [examples, ranges, 2], with a length for each example."""
    ranges = site.shape("Ranges")
    if len(ranges) != 3 or ranges[2] != 2:
        yield Problem("Ranges", "Ranges has the wrong shape", format_shape(ranges), "<E x R x 2>")
        return
    yield from check_shape(site, "Lengths", ranges[:1], "one for each example")


def check_scatter_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Indices is [slices, dimensions], and that the slices fit Data."""
    data, indices, slices = (site.shape(role) for role in ("Data", "Indices", "Slices"))
    if len(indices) != 2 or indices[1] > len(data):
        expected = f"<slices x at most {len(data)}>"
        yield Problem("Indices", "Indices does not fit Data", format_shape(indices), expected)
        return
    expected_shape = (indices[0], *data[indices[1] :])
    if slices != expected_shape:
        yield from check_shape(site, "Slices", expected_shape, "from Data and Indices")


def check_nonzero_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has space for an index of each element of Cond."""
    room, needed = math.prod(site.shape("Dest")), math.prod(site.shape("Cond"))
    if room < needed:
        yield Problem("Dest", "Dest has too little room", f"{room} elements", f"at least {needed}")


def check_boundaries(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Boundaries ascend."""
    value = site.instruction.attributes["Boundaries"]
    numbers = value if isinstance(value, tuple) else ()
    if not all(a <= b for a, b in itertools.pairwise(numbers)):
        message = "Boundaries are not in order"
        found = str(list(numbers))[:60]
        yield Problem(None, message, found, "none below the one before", "LIR008", "Boundaries")


def check_one_hot_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Data is [B, F], Lengths [F], Values [V] and Dest [B, V]."""
    batch, features = site.shape("Data")
    yield from check_shape(site, "Lengths", (features,), "one for each feature")
    (values,) = site.shape("Values")
    yield from check_shape(site, "Dest", (batch, values), "from Data and Values")


def check_suppression_shapes(site: TypedInstruction) -> Iterator[Problem]:
    """Check Boxes [N, B, 4], Scores [N, C, B], Indices [M, 3]; TF: [B, 4], [B], [M]."""
    boxes, scores = site.shape("Boxes"), site.shape("Scores")
    is_single = bool(site.integer("IsTFVersion4"))
    fits = len(boxes) == (2 if is_single else 3) and boxes[-1] == 4
    if not fits:
        expected = "<boxes x 4>" if is_single else "<batches x boxes x 4>"
        yield Problem("Boxes", "Boxes has the wrong shape", format_shape(boxes), expected)
        return
    batches, count = (1, boxes[0]) if is_single else (boxes[0], boxes[1])
    if is_single:
        yield from check_shape(site, "Scores", (count,), "one for each box")
    elif len(scores) != 3 or (scores[0], scores[2]) != (batches, count):
        expected = f"<{batches} x classes x {count}>"
        yield Problem("Scores", "Scores has the wrong shape", format_shape(scores), expected)
    indices = site.shape("Indices")
    if len(indices) != (1 if is_single else 2) or indices[1:] != (() if is_single else (3,)):
        expected = "<rows>" if is_single else "<rows x 3>"
        yield Problem("Indices", "Indices has the wrong shape", format_shape(indices), expected)
    elif indices[0] % batches:
        expected = f"a multiple of {batches} rows"
        yield Problem(
            "Indices", "Indices is not shared out evenly", format_shape(indices), expected
        )
    numbers = (batches * site.integer("MaxOutputBoxesPerClass"),)
    why = "MaxOutputBoxesPerClass for each batch"
    yield from check_shape(site, "NumberOfSelectedIndices", numbers, why)


def check_block_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that BlockSize divides height and width, and its pixels become channels."""
    images, height, width, channels = site.shape("Src")
    block = site.integer("BlockSize")
    if height % block or width % block:
        found = f"BlockSize {block}, Src {format_shape(site.shape('Src'))}"
        yield Problem(
            "Src", "BlockSize does not divide Src", found, "a divisor of height and width"
        )
        return
    expected = (images, height // block, width // block, channels * block * block)
    yield from check_shape(site, "Dest", expected, "from Src and BlockSize")


def check_resize_factors(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Scale changes height and width only, and is above 0."""
    value = site.instruction.attributes["Scale"]
    factors = value if isinstance(value, tuple) else ()
    if len(factors) != 4 or factors[0] != 1 or factors[3] != 1 or not min(factors) > 0:
        expected = "[1, above 0, above 0, 1]"
        message = "only height and width are resized"
        yield Problem(None, message, str(list(factors)), expected, "LIR008", "Scale")


def check_batch_product_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest [B, M, N] is LHS [B, M, K] times RHS [B, K, N]."""
    batch, rows, inner = site.shape("LHS")
    columns = site.shape("RHS")[2]
    yield from check_shape(site, "RHS", (batch, inner, columns), "to go with LHS")
    yield from check_shape(site, "Dest", (batch, rows, columns), "from LHS and RHS")


def check_channel_parameters(site: TypedInstruction) -> Iterator[Problem]:
    """Check ChannelIdx (1 or the last dimension) and one parameter for each channel."""
    shape, along = site.shape("Src"), site.integer("ChannelIdx")
    if len(shape) < 2 or along not in (1, len(shape) - 1):
        expected = f"1 or {len(shape) - 1}" if len(shape) > 1 else "two dimensions or more"
        message = "ChannelIdx is not the channels' dimension"
        yield Problem(None, message, str(along), expected, "LIR008", "ChannelIdx")
        return
    for role in ("Scale", "Bias", "Mean", "Var"):
        yield from check_shape(site, role, (shape[along],), "one for each channel")


def check_normalized_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Scale and Bias have some of the last dimensions of Src."""
    source, scale = site.shape("Src"), site.shape("Scale")
    if not 0 < len(scale) < len(source) or source[-len(scale) :] != scale:
        expected = f"the last dimensions of Src {format_shape(source)}"
        yield Problem("Scale", "Scale does not fit Src", format_shape(scale), expected)


def check_adaptive_pool_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest is no higher and no wider than Src."""
    source, dest = site.shape("Src"), site.shape("Dest")
    same = (source[0], source[3]) == (dest[0], dest[3])
    if not same or dest[1] > source[1] or dest[2] > source[2]:
        expected = f"{source[0]} images of {source[3]} channels, no larger than Src"
        yield Problem("Dest", "Dest has the wrong shape", format_shape(dest), expected)


def check_volume_filter(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Group divides the channels, and the shapes of filter (OTHWI) and bias."""
    group = site.integer("Group")
    channels, outputs = site.shape("Src")[4], site.shape("Filter")[0]
    if channels % group or outputs % group:
        found, expected = f"Group {group}", f"a divisor of {channels} and {outputs}"
        yield Problem("Filter", "Group does not divide the channels", found, expected)
        return
    expected_shape = (outputs, *site.integers("Kernels"), channels // group)
    yield from check_shape(site, "Filter", expected_shape, "OTHWI with I = channels / Group")
    yield from check_shape(site, "Bias", (outputs,), "one for each output channel")


def check_transposed_filter(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Group divides the channels, and the shapes of filter and bias."""
    group = site.integer("Group")
    channels, outputs = site.shape("Src")[3], site.shape("Dest")[3]
    if channels % group or outputs % group:
        found, expected = f"Group {group}", f"a divisor of {channels} and {outputs}"
        yield Problem("Filter", "Group does not divide the channels", found, expected)
        return
    expected_shape = (outputs // group, *site.integers("Kernels"), channels)
    yield from check_shape(site, "Filter", expected_shape, "OHWI with O = channels / Group")
    yield from check_shape(site, "Bias", (outputs,), "one for each output channel")


def check_transposed_shape(site: TypedInstruction) -> Iterator[Problem]:
    """Check that Dest has the images of Src and holds the windows of all its pixels."""
    source, dest, pads = site.shape("Src"), site.shape("Dest"), site.integers("Pads")
    parts = zip(
        source[1:3], site.integers("Kernels"), site.integers("Strides"), site.integers("Dilation"),
        pads[:2], pads[2:], strict=True,
    )  # fmt: skip
    least = [(n - 1) * s + (k - 1) * d + 1 - p - q for n, k, s, d, p, q in parts]
    if min(least) < 1:
        message, found = "the pads take away all of Dest", f"Pads {list(pads)}"
        yield Problem(None, message, found, "pads smaller than the windows", "LIR008", "Pads")
    elif dest[0] != source[0] or dest[1] < least[0] or dest[2] < least[1]:
        expected = f"{source[0]} images of at least {least[0]} x {least[1]}"
        yield Problem("Dest", "Dest has the wrong shape", format_shape(dest), expected)
