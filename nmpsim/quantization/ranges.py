"""Choice of the range that a type represents, from the distribution of a tensor's values.

A range that leaves out a few large values has a smaller scale and so smaller rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.kernels.array_types import Float64s, Int64s
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.quantization.parameters import RangeMethod, Schema, choose_parameters
from nmpsim.quantization.profile import ValueRange

BINS = 2048
STEPS = 100
"""Number of ends that are tried on each side of a range."""
_LEAST_PART = 0.01
"""Smallest end that is tried, as a part of the largest value."""


@attrs.frozen(eq=False)
class ValueHistogram:
    """ValueHistogram of a tensor's values over their whole range, which includes zero.

    Values of zero, which every type represents exactly, are not counted.
    """

    range: ValueRange
    counts: Int64s
    """[BINS] number of values."""

    @classmethod
    def from_range(cls, range_: ValueRange) -> ValueHistogram:
        """Create an empty histogram for values of a range."""
        whole = ValueRange(min(range_.low, 0.0), max(range_.high, 0.0))
        return cls(whole, np.zeros(BINS, np.int64))

    def add(self, values: Array) -> None:
        """Count the values of an array."""
        if self.range.low < self.range.high:
            limits = self.range.low, self.range.high
            self.counts[...] += np.histogram(values[values != 0], BINS, limits)[0]

    @property
    def centers(self) -> Float64s:
        """[BINS] values in the middle of the bins."""
        width = (self.range.high - self.range.low) / BINS
        return np.asarray(self.range.low + width * (np.arange(BINS) + 0.5), np.float64)


def choose_range(
    histogram: ValueHistogram, method: RangeMethod, percentile: float, schema: Schema, elem: str
) -> ValueRange:
    """Choose the range of a tensor that its quantized type represents.

    Parameters
    ----------
    histogram
        Values of the tensor over all samples.
    method
        ``minmax``: the whole range. ``percentile``: the range without the largest absolute
        values that keeps this share of values other than zero. ``mse``: the range with the least
        mean square error of quantized values. ``kl``: the range with the least Kullback-Leibler
        divergence between the distributions of clipped and of quantized values (Migacz, *8-bit
        Inference with TensorRT*, 2017).
    percentile
        Share of values that ``percentile`` keeps, in percent.
    schema, elem
        Schema and element type of the quantized tensor, for ``mse`` and ``kl``.
    """
    if method == "minmax" or not histogram.counts.any():
        return histogram.range
    if method == "percentile":
        return _find_percentile(histogram, percentile)
    measure = _measure_square_error if method == "mse" else _measure_divergence
    return _search(histogram, measure, schema, elem)


def _find_percentile(histogram: ValueHistogram, percentile: float) -> ValueRange:
    """Return the range without the smallest and the largest values, with bins as the unit.

    Values are left out on the side of the larger absolute value first.
    """
    counts, edges = histogram.counts, _list_edges(histogram)
    allowed = counts.sum() * (1 - percentile / 100)
    first, last, left_out = 0, BINS - 1, 0
    while first < last:
        is_low = -edges[first] > edges[last + 1]
        bin_ = first if is_low else last
        left_out += counts[bin_]
        if left_out > allowed:
            break
        first, last = (first + 1, last) if is_low else (first, last - 1)
    return ValueRange(min(float(edges[first]), 0.0), max(float(edges[last + 1]), 0.0))


def _list_edges(histogram: ValueHistogram) -> Float64s:
    return np.linspace(histogram.range.low, histogram.range.high, BINS + 1)


_Measure: TypeAlias = Callable[[ValueHistogram, ValueRange, Schema, str], float]


def _search(histogram: ValueHistogram, measure: _Measure, schema: Schema, elem: str) -> ValueRange:
    """Return the range with the smallest error; scale both ends together, then each separately."""
    best = histogram.range
    least = measure(histogram, best, schema, elem)
    for move in (_scale_both, _scale_low, _scale_high):
        for range_ in list(move(best)):
            found = measure(histogram, range_, schema, elem)
            if found < least:
                best, least = range_, found
    return best


def _scale_both(range_: ValueRange) -> Iterator[ValueRange]:
    for part in np.linspace(1, _LEAST_PART, STEPS):
        yield ValueRange(range_.low * float(part), range_.high * float(part))


def _scale_low(range_: ValueRange) -> Iterator[ValueRange]:
    for part in np.linspace(1, _LEAST_PART, STEPS if range_.low else 0):
        yield ValueRange(range_.low * float(part), range_.high)


def _scale_high(range_: ValueRange) -> Iterator[ValueRange]:
    for part in np.linspace(1, _LEAST_PART, STEPS if range_.high else 0):
        yield ValueRange(range_.low, range_.high * float(part))


def _place(
    values: Float64s, range_: ValueRange, schema: Schema, elem: str
) -> tuple[Float64s, float, float]:
    """Return the integers of values before rounding and clipping, the scale and the offset."""
    found = choose_parameters(range_.low, range_.high, schema, elem)
    scale, offset = float(found.scale), float(found.offset)
    return values / scale + offset, scale, offset


def _measure_square_error(
    histogram: ValueHistogram, range_: ValueRange, schema: Schema, elem: str
) -> float:
    """Return the mean square error of quantized values that are spread evenly over their bins."""
    values, counts = histogram.centers, histogram.counts
    limits = np.iinfo(ELEM_DTYPES[elem])
    placed, scale, _ = _place(values, range_, schema, elem)
    width = (histogram.range.high - histogram.range.low) / BINS / scale
    beyond = np.maximum(np.maximum(limits.min - placed, placed - limits.max), 0.0)
    # A bin that is wider than an integer has values with all rounding errors.
    rounding = (np.rint(placed) - placed) ** 2 if width < 1 else 1 / 12
    squares = np.where(beyond > 0, beyond**2 + width**2 / 12, rounding)
    return float(squares @ counts) * scale**2 / float(counts.sum())


def _measure_divergence(
    histogram: ValueHistogram, range_: ValueRange, schema: Schema, elem: str
) -> float:
    """Return the divergence of the distribution of quantized values from that of clipped ones."""
    counts = histogram.counts.astype(np.float64)
    limits = np.iinfo(ELEM_DTYPES[elem])
    placed, _, _ = _place(histogram.centers, range_, schema, elem)
    is_inside = (placed >= limits.min - 0.5) & (placed <= limits.max + 0.5)
    inside = np.flatnonzero(is_inside)
    if inside.size == 0:
        return np.inf
    first, last = inside[0], inside[-1]
    clipped = counts[first : last + 1].copy()
    clipped[0] += counts[:first].sum()
    clipped[-1] += counts[last + 1 :].sum()
    part = counts[first : last + 1]
    levels = np.rint(placed[first : last + 1]).astype(np.int64)
    levels -= levels[0]
    is_used = clipped > 0
    mass = np.bincount(levels, part)
    bins = np.bincount(levels, is_used)
    quantized = (mass / np.maximum(bins, 1))[levels]
    expected, found = clipped[is_used], quantized[is_used]
    if not found.any():
        return np.inf
    expected, found = expected / expected.sum(), found / found.sum()
    floor = 1 / (counts.sum() * 1e3)  # of a bin that the quantized values do not reach
    divergence = float((expected * np.log(expected / np.maximum(found, floor))).sum())
    # Few values per bin differ at random within a level (Miller-Madow correction).
    return divergence - float(is_used.sum() - np.count_nonzero(bins)) / (2 * float(counts.sum()))


def choose_ranges(
    histograms: Mapping[str, ValueHistogram],
    method: RangeMethod,
    percentile: float,
    schema: Schema,
    elem: str,
) -> dict[str, ValueRange]:
    """Choose the range of each tensor by name, as :func:`choose_range` does."""
    return {
        name: choose_range(histogram, method, percentile, schema, elem)
        for name, histogram in histograms.items()
    }
