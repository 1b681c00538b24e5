"""Windows of pixels, copied into rows without gaps."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Int, Int16s
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.movement import Scratchpad, copy_run
from nmpsim.kernels.operands import ConvShape


@jit
def row_length(w: ConvShape, element: Int) -> Any:
    """Inputs of a row of the window, padded to whole blocks of weights."""
    side = 4 >> element
    return (w.kernel_w * w.in_channels + side - 1) // side * side


@jit_inlined
def gather(spm: Scratchpad, element: Int, w: ConvShape, corner: Int, patch: Int16s) -> None:
    """Copy the window at byte ``corner`` into ``patch``, row by row, each padded."""
    row, length, columns = row_length(w, element), w.in_channels, w.kernel_w
    if w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << element:
        length *= columns
        columns = 1
    for ky in range(w.kernel_h):
        for kx in range(columns):
            source = corner + ky * w.dilation_h * w.in_row_stride
            source += kx * w.dilation_w * w.in_pixel_stride
            target = ky * row + kx * length
            if element == INT16:
                copy_run(spm.i16, source >> 1, patch, target, length)
            else:
                copy_run(spm.i8, source, patch, target, length)
