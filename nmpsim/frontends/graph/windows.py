"""Windows of convolutions and pools: sizes, strides and padding, as ONNX has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import UnsupportedError

EXPLICIT = "nmpsim.EXPLICIT"
"""Padding as it is given, to which no node before adds any."""


@attrs.frozen
class Window:
    """Over rows and columns; a sequence is one row."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    out: tuple[int, int]
    """Rows and columns of the result."""
    counts_padding: bool
    is_extended: bool
    """Whether ``ceil_mode`` has added padding behind."""


def window_of(
    attributes: Mapping[str, Any],
    spatial: Shape,
    kernel: Shape | None = None,
    more: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> Window:
    """The window of a node over an input of these rows and columns.

    ``kernel`` is that of the weights, ``more`` is padding that was a node of its own.
    """
    dims = len(spatial)
    if dims not in (1, 2):
        raise UnsupportedError(f"windows of {dims} dimensions")
    sizes = _numbers(attributes.get("kernel_shape", kernel), dims, "kernel_shape")
    if kernel is not None and sizes != tuple(kernel):
        raise UnsupportedError(f"kernel_shape {list(sizes)} for weights of {list(kernel)}")
    strides = _numbers(attributes.get("strides", (1,) * dims), dims, "strides")
    dilation = _numbers(attributes.get("dilations", (1,) * dims), dims, "dilations")
    extents = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    begins, ends = _padding(attributes, spatial, extents, strides)
    begins = [b + m for b, m in zip(begins, more[2 - dims : 2], strict=True)]
    ends = [e + m for e, m in zip(ends, more[4 - dims :], strict=True)]
    out, extended = [], False
    for d in range(dims):
        free = spatial[d] + begins[d] + ends[d] - extents[d]
        if free < 0:
            raise UnsupportedError(f"a window {list(sizes)} for an input {list(spatial)}")
        count = free // strides[d] + 1
        rest = free % strides[d]
        # A window that would begin behind the input does not count.
        begins_inside = count * strides[d] < spatial[d] + begins[d]
        if attributes.get("ceil_mode") and rest and begins_inside:
            ends[d] += strides[d] - rest
            count, extended = count + 1, True
        out.append(count)
    if dims == 1:
        sizes, strides, dilation = (1, *sizes), (1, *strides), (1, *dilation)
        begins, ends, out = [0, *begins], [0, *ends], [1, *out]
    return Window(
        (sizes[0], sizes[1]),
        (strides[0], strides[1]),
        (dilation[0], dilation[1]),
        (begins[0], begins[1], ends[0], ends[1]),
        (out[0], out[1]),
        bool(attributes.get("count_include_pad", 0)),
        extended,
    )


def _numbers(value: Any, dims: int, name: str) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) != dims or min(value) < 1:
        raise UnsupportedError(f"{name} {value} for {dims} dimensions")
    if max(value) >= 1 << 20:
        raise UnsupportedError(f"{name} {value}")
    return tuple(int(one) for one in value)


def _padding(
    attributes: Mapping[str, Any],
    spatial: Shape,
    extents: list[int],
    strides: tuple[int, ...],
) -> tuple[list[int], list[int]]:
    """What is added before and behind each dimension."""
    auto, dims = attributes.get("auto_pad", "NOTSET"), len(spatial)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = [], []
        for size, extent, stride in zip(spatial, extents, strides, strict=True):
            total = (-(-size // stride) - 1) * stride + extent - size
            if total < (-1 if auto == "SAME_UPPER" else -2):
                # ONNX Runtime leaves out as much in front as behind, where it computes it at all.
                raise UnsupportedError(f"{auto} at strides {list(strides)} beyond the window")
            total = max(total, 0)
            less, more = total // 2, total - total // 2
            begins.append(less if auto == "SAME_UPPER" else more)
            ends.append(more if auto == "SAME_UPPER" else less)
        return begins, ends
    given = (
        attributes.get("pads", (0,) * (2 * dims))
        if auto in ("NOTSET", EXPLICIT)
        else (0,) * (2 * dims)
    )
    if (
        auto not in ("NOTSET", EXPLICIT, "VALID")
        or not isinstance(given, tuple)
        or len(given) != 2 * dims
    ):
        raise UnsupportedError(f"pads {given}, auto_pad {auto}")
    if min(given) < 0 or max(given) >= 1 << 20:
        raise UnsupportedError(f"pads {list(given)}")
    return [int(p) for p in given[:dims]], [int(p) for p in given[dims:]]
