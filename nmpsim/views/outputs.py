"""Short texts of the outputs of a run: range of values, best classes of a classifier."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.report.data import OutputReport
from nmpsim.views.text import format_elem, format_real, format_shape

TOP = 5
"""Number of best classes."""
CLASSES = range(2, 100_001)
"""Sizes of a last dimension that is taken for classes."""


def describe_output(output: OutputReport) -> Iterator[str]:
    """Yield one or two lines with an output's type, shape, range and best classes."""
    values = output.values
    head = f"{output.name}: {format_elem(output.elem)} {format_shape(values.shape)}"
    if values.size == 0:
        yield f"{head}, empty"
        return
    if output.scale is not None:
        head += f", scale {output.scale!r}, offset {output.offset}"
    yield f"{head}, {format_range(output)}"
    if is_score_shape(values.shape):
        yield f"  top {min(TOP, values.size)}: {', '.join(_best(output))}"


def is_score_shape(shape: Shape) -> bool:
    """Return whether the last dimension is 2 to 100,000 and all other dimensions are 1."""
    return bool(shape) and shape[-1] in CLASSES and all(dim == 1 for dim in shape[:-1])


def find_top_classes(values: Array, count: int = TOP) -> list[int]:
    """Return the indices of the ``count`` largest values, largest first."""
    flat = values.astype(np.float64).reshape(-1)
    order = np.argsort(-flat, kind="stable")[:count]
    return [int(index) for index in order]


def format_range(output: OutputReport) -> str:
    """Format the range of an output's real values: ``min 0, max 1``."""
    if output.values.size == 0:
        return "empty"
    real = output.dequantize().astype(np.float64)
    not_numbers = int(np.isnan(real).sum())
    if not_numbers == real.size:
        return "all values are NaN"
    text = f"min {format_real(float(np.nanmin(real)))}, max {format_real(float(np.nanmax(real)))}"
    return f"{text}, {not_numbers:,} NaN" if not_numbers else text


def _best(output: OutputReport) -> Iterator[str]:
    real = output.dequantize().reshape(-1)
    for index in find_top_classes(real):
        yield f"{index} ({float(real[index]):.4g})"
