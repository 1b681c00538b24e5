"""Histograms of layer outputs over the range of their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nmpsim.arrays import Array
from nmpsim.diagnostics import fail
from nmpsim.lir.layers import Layer, find_layer
from nmpsim.report.analyses import Histogram
from nmpsim.report.data import LayerReport, RunReport

MAX_BINS = 256
"""Largest number of bins of an integer type; smaller types have one bin per value."""
REAL_BINS = 64
"""Number of bins of other types."""
_WHOLE_RANGE = {"i8": (-128, 256), "ui8": (0, 256), "i16": (-32768, 65536)}
"""Element kind -> smallest value and number of values."""


def histograms(report: RunReport, layers: Iterable[str]) -> tuple[Histogram, ...]:
    """Return histograms of the stored outputs of layers.

    ``all`` selects every layer. A layer that a stopped run did not reach has no histogram.

    Raises
    ------
    UserError
        LAYER001 for an unknown layer, ARG001 if the run did not save layer outputs.
    """
    chosen = select_layers(report.layers, layers)
    if chosen and not report.layer_outputs and report.trap is None:
        message = "the report contains no layer outputs"
        raise fail("ARG001", message, hint="Run with device.run(bundle, inputs, save_layers=True).")
    kept = [(layer, _output(report, layer)) for layer in chosen]
    return tuple(make_histogram(layer, values) for layer, values in kept if values is not None)


def select_layers(layers: Sequence[Layer], names: Iterable[str]) -> list[Layer]:
    """Select layers by name, in program order and without duplicates; ``all`` selects all.

    ``all`` selects every layer. Raises UserError (LAYER001) for an unknown name.
    """
    chosen: dict[int, Layer] = {}
    for name in names:
        found = layers if name == "all" else [find_layer(layers, name)]
        chosen |= {layer.index: layer for layer in found}
    return [chosen[index] for index in sorted(chosen)]


def make_histogram(layer: LayerReport, values: Array) -> Histogram:
    """Return the histogram of a layer's stored output values."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    low, width, bins = _bins(layer.elem, finite)
    places = np.floor((finite.reshape(-1).astype(np.float64) - low) / width).astype(np.int64)
    counts = np.bincount(np.clip(places, 0, bins - 1), minlength=bins)
    lost = values.size - finite.size
    return Histogram(layer.index, layer.name, low, width, tuple(counts.tolist()), lost)


def _output(report: RunReport, layer: LayerReport) -> Array | None:
    return report.layer_outputs.get(f"{layer.number:04d}:{layer.name}")


def _bins(elem: str, values: Array) -> tuple[float, float, int]:
    """Return the start of the first bin, the bin width and the number of bins."""
    if elem in _WHOLE_RANGE:
        smallest, count = _WHOLE_RANGE[elem]
        return float(smallest), float(count // MAX_BINS), MAX_BINS
    if not values.size:
        return 0.0, 1.0, 1
    low, high = float(values.min()), float(values.max())
    return low, (high - low) / REAL_BINS or 1.0, REAL_BINS
