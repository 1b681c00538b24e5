"""Windows of convolutions and pools, read from ONNX attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import require

_MAX_SIZE = 1 << 20


@attrs.frozen
class Window:
    """Window of a convolution or pool, with its strides, dilation, padding and output size."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    out: tuple[int, int] = (1, 1)
    """Rows and columns of the result."""
    counts_padding: bool = False
    is_extended: bool = False
    """Whether ``ceil_mode`` has added padding at the end."""


def read_window(
    spatial: Sequence[int],
    kernel: Shape | None = None,
    extra_pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: bool = False,
) -> Window:
    """Read the window that ONNX attributes describe for an input of the size ``spatial``.

    Parameters
    ----------
    spatial : sequence of int
        Rows and columns of the input, or the length of a sequence.
    kernel : tuple of int, optional
        Rows and columns of the weights.
    extra_pads : tuple of int
        Padding by a node before, added on top, left, bottom and right.
    kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, count_include_pad
        Attributes of ONNX; auto_pad may be SAME, TFLite's padding for strides of any size.

    Raises
    ------
    UnsupportedError
        For attributes that do not fit the input, or are out of range.
    """
    dims = len(spatial)
    require(dims in (1, 2), f"windows with {dims} dimensions", "windows with 1 or 2 dimensions")

    def read(name: str, value: Any, least: int = 1) -> tuple[int, int]:
        """Return the numbers of an attribute for rows and columns; a sequence has one row."""
        found = f"{name} {list(value) if isinstance(value, tuple) else value}"
        require(
            isinstance(value, tuple) and len(value) == dims, found, f"{name} with {dims} numbers"
        )
        is_valid = all(least <= number < _MAX_SIZE for number in value)
        require(is_valid, found, f"{name} from {least} to 1,048,575")
        rows, columns = (least, *map(int, value))[-2:]
        return rows, columns

    sizes = kernel if kernel_shape is None else kernel_shape
    require(
        kernel in (None, sizes), f"kernel_shape {sizes}", f"kernel_shape {kernel}, as the weights"
    )
    given = (0,) * (2 * dims) if pads is None or auto_pad != "NOTSET" else pads
    befores, afters = read("pads", given[:dims], 0), read("pads", given[dims:], 0)
    ones = (1,) * dims
    kernel, steps = (
        read("kernel_shape", sizes),
        read("strides", ones if strides is None else strides),
    )
    gaps = read("dilations", ones if dilations is None else dilations)
    names = ("NOTSET", "VALID", "SAME", "SAME_UPPER", "SAME_LOWER")
    require(auto_pad in names, f"auto_pad {auto_pad}", f"auto_pad {list_alternatives(names)}")
    out, begins, ends, is_extended = [], [], [], False
    for d, length in enumerate((1, *spatial)[-2:]):
        step, extent = steps[d], (kernel[d] - 1) * gaps[d] + 1
        begin, end = befores[d], afters[d]
        if auto_pad.startswith("SAME"):
            total = (-(-length // step) - 1) * step + extent - length
            # ONNX Runtime leaves out as much in front as behind, where it computes it at all.
            least = {"SAME_UPPER": -1, "SAME_LOWER": -2}.get(auto_pad, total)
            require(
                total >= least,
                f"auto_pad {auto_pad} with a stride of {step}",
                f"a stride of at most {extent}, the size of the window",
            )
            begin = (max(total, 0) + (auto_pad == "SAME_LOWER")) // 2
            end = max(total, 0) - begin
        begin, end = begin + extra_pads[d], end + extra_pads[2 + d]
        free = length + begin + end - extent
        require(
            free >= 0,
            f"a window of {extent} positions along spatial axis {d - 2 + dims}, whose size is"
            f" {length} with a padding of {begin} before and {end} after it",
            f"a window of at most {length + begin + end} positions, within the padded input",
        )
        count, rest = free // step + 1, free % step
        # A window that would begin behind the input does not count.
        if ceil_mode and rest and count * step < length + begin:
            end, count, is_extended = end + step - rest, count + 1, True
        out.append(count)
        begins.append(begin)
        ends.append(end)
    around = (begins[0], begins[1], ends[0], ends[1])
    size = (out[0], out[1])
    return Window(kernel, steps, gaps, around, size, count_include_pad, is_extended)
