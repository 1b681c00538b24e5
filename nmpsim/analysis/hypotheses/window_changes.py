"""Changes of the window of a convolution or pool: pads, padding values, strides and dilation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nmpsim.analysis.hypotheses.constant_changes import list_zero_points
from nmpsim.analysis.hypotheses.layer import Change, IsolatedLayer
from nmpsim.arrays import Arrays
from nmpsim.lir.opcode import OpcodeKind

_WINDOWED = (OpcodeKind.CONVOLUTION, OpcodeKind.MAX_POOL, OpcodeKind.AVERAGE_POOL)
_STEPS = ((1, 1), (2, 2), (3, 3), (4, 4), (1, 2), (2, 1))
"""Strides and dilations that are tried."""
Pair = tuple[int, int]


def make_window(layer: IsolatedLayer) -> LayerWindow | None:
    """Make the window of a 2-D convolution or pool, or return None for another layer."""
    source = layer.find_operand("Src")
    if layer.kind not in _WINDOWED or source is None or len(layer.get_attribute("Kernels")) != 2:
        return None
    return LayerWindow(layer, source)


def change_window(layer: IsolatedLayer, others: Arrays) -> Iterator[Change]:
    """Yield (description, layer) pairs with changed pads, padding values, strides or dilations."""
    window = make_window(layer)
    if window is None:
        return
    (top, left), (bottom, right) = window.before, window.after
    if (top, left) != (bottom, right):
        yield "the padding on the other side", window.change((bottom, right))
        if top != bottom and left != right:
            yield "the rows' padding on the other side", window.change((bottom, left))
            yield "the columns' padding on the other side", window.change((top, right))
    if window.has_padding:
        yield from _change_padding_values(layer, window)
    for rows in range((window.kernel[0] - 1) * window.dilation[0] + 1):
        for columns in range((window.kernel[1] - 1) * window.dilation[1] + 1):
            if (rows, columns) != window.before:
                text = f"padding {rows} above and {columns} on the left, not {top} and {left}"
                yield text, window.change((rows, columns))
    for steps in _STEPS:
        if steps != window.strides:
            text = f"strides {steps}, not {window.strides}"
            yield text, window.change(window.before, strides=steps)
        if steps != window.dilation and layer.kind is OpcodeKind.CONVOLUTION:
            text = f"dilation {steps}, not {window.dilation}"
            for before in dict.fromkeys((window.before, *_adapt_padding(window, steps))):
                yield text, window.change(before, dilation=steps)


def _adapt_padding(window: LayerWindow, dilation: Pair) -> tuple[Pair, Pair]:
    """Return pads above and left that grow like the dilation, or that keep the window's centre."""
    (top, left), (row, column) = window.before, window.dilation
    rows, columns = ((size - 1) // 2 for size in window.kernel)
    return (
        (top * dilation[0] // row, left * dilation[1] // column),
        (max(top + rows * (dilation[0] - row), 0), max(left + columns * (dilation[1] - column), 0)),
    )


def _change_padding_values(layer: IsolatedLayer, window: LayerWindow) -> Iterator[Change]:
    offset = window.zero_point
    if layer.kind is OpcodeKind.MAX_POOL:
        for value in dict.fromkeys((offset, 0)):
            text = f"{value} as padding, not the lowest integer"
            yield text, window.change(window.before, constant_values=value)
    if layer.kind is not OpcodeKind.CONVOLUTION:
        return  # a mean with the nearest pixels often equals the mean without padding
    for value in list_zero_points(offset, window.values.dtype.itemsize):
        text = f"{value}, not the zero point {offset}, as padding"
        yield text, window.change(window.before, constant_values=value)
    yield "the nearest pixels as padding", window.change(window.before, mode="edge")
    if all(pad < size for pad, size in zip(window.before, window.values.shape[1:3], strict=True)):
        yield "mirrored pixels as padding", window.change(window.before, mode="reflect")


class LayerWindow:
    """Window of a convolution or pool, with changeable padding, strides and dilation."""

    def __init__(self, layer: IsolatedLayer, source: str) -> None:
        self._layer, self._source = layer, source
        self.values = layer.get_values(source)
        self.kernel: Pair = layer.get_attribute("Kernels")
        self.strides: Pair = tuple(layer.get_attribute("Strides"))
        self.dilation: Pair = tuple(layer.get_attribute("Dilation", (1, 1)))
        pads = layer.get_attribute("Pads")
        self.before: Pair = (pads[0], pads[1])
        self.after: Pair = (pads[2], pads[3])
        quant = layer.get_type(source).quant
        self.zero_point = quant.offset if quant else 0

    @property
    def has_padding(self) -> bool:
        """Whether the layer has padding on any side of its input."""
        return any((*self.before, *self.after))

    def change(
        self,
        before: Pair,
        *,
        strides: Pair | None = None,
        dilation: Pair | None = None,
        **padding: Any,
    ) -> IsolatedLayer:
        """Change the window; return a copy of the layer with a result of the same size.

        Missing pixels at the end are padding; pixels beyond the last window are removed.

        Parameters
        ----------
        before
            Padding above and on the left.
        strides, dilation
            Those of the layer if None.
        **padding
            Arguments of ``numpy.pad`` for padding with other values than the zero point.
        """
        layer = self._layer
        strides, dilation = strides or self.strides, dilation or self.dilation
        outputs, sizes = layer.get_type(layer.output).shape[1:3], self.values.shape[1:3]
        ends = [
            (count - 1) * step + (size - 1) * dilation + 1 - start - length
            for count, step, size, dilation, start, length in zip(
                outputs, strides, self.kernel, dilation, before, sizes, strict=True
            )
        ]
        kept = self.values[:, : sizes[0] + min(ends[0], 0), : sizes[1] + min(ends[1], 0)]
        after = [max(end, 0) for end in ends]
        attributes: dict[str, Any] = {"Strides": strides, "Pads": (*before, *after)}
        if layer.get_attribute("Dilation") is not None:
            attributes["Dilation"] = dilation
        if padding:
            around = ((0, 0), *zip(before, after, strict=True), (0, 0))
            kept = np.pad(kept, around, **padding)
            attributes["Pads"] = (0, 0, 0, 0)
        changed = layer.replace_values({self._source: np.ascontiguousarray(kept)})
        return changed.replace_attributes(**attributes)
