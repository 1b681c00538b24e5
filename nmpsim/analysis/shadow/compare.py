"""Errors of a run against its evaluation in real arithmetic, layer by layer.

With ``y`` the device's dequantized output of a layer and ``op`` its operation in real arithmetic,

    F   the float network's value                          (float weights, float inputs)
    L   op on the layer's actual, quantized inputs             (float weights and bias)
    B   as L, with the quantized bias
    R   as B, with the quantized weights too
    C   R clipped to the range that the type of the output has

the error ``y - F`` is the sum of

    inherited     L - F   from earlier layers
    bias          B - L   quantization of the bias
    weights       R - B   quantization of the weights
    saturation    C - R   values beyond the range, or saturated on the way
    rescale       y - C   rounding

A ReLU that the network asks for, hidden in a type or not, is part of ``op``: it clips, but does
not saturate.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from nmpsim.analysis.shadow.evaluate import (
    Evaluations,
    Real,
    RecordedResults,
    RunEvaluator,
    list_constants,
)
from nmpsim.analysis.shadow.recording import ExecutedLayer
from nmpsim.interpreter import compute_sqnr_db
from nmpsim.report.analyses import ErrorSize, ShadowLayer, Split


def compare_run(evaluator: RunEvaluator, run: RecordedResults) -> Iterator[ShadowLayer]:
    """Compare each layer of a run with real arithmetic; yield the errors in program order."""
    for index, layer, values in evaluator.evaluate(run):
        yield measure_layer(index, layer, values)


def measure_layer(index: int, layer: ExecutedLayer, values: Evaluations) -> ShadowLayer:
    """Measure the errors of a layer at position ``index`` of a report."""
    name = layer.steps[-1].instruction.name
    if values.obstacle:
        return ShadowLayer(index, layer.number, name, values.obstacle)
    quant = layer.result.type.quant
    unit = quant.scale if quant else None

    def against(right: Real | None, found: Real | None = values.device) -> ErrorSize | None:
        if right is None or found is None:
            return None
        return measure_error(right, found - right, unit)

    return ShadowLayer(
        index,
        layer.number,
        name,
        accumulated=against(values.network),
        isolated=against(values.isolated),
        rounding=against(values.real),
        bias=against(values.isolated, values.quantized_bias)
        if list_constants(layer, of_bias=True)
        else None,
        split=split_error(values, unit),
    )


def measure_error(reference: Real, error: Real, step: float | None) -> ErrorSize:
    """Measure an error relative to the reference, as SQNR and in units of the last place.

    Parameters
    ----------
    reference
        The expected values.
    error
        Actual values minus expected ones.
    step
        Real size of one unit of the last place; None if the output is float.
    """
    size = np.abs(error)
    return ErrorSize(
        sqnr_db=compute_sqnr_db(reference, error),
        mean_error_ulp=None if step is None else float(size.mean()) / step,
        max_error_ulp=None if step is None else float(size.max(initial=0.0)) / step,
    )


def split_error(values: Evaluations, step: float | None) -> Split:
    """Split a layer's error into the errors of consecutive evaluations.

    Parameters
    ----------
    values
        The evaluations of the layer.
    step
        Real size of one unit of the last place; None if the output is float.

    Returns
    -------
    Split
        Parts whose SQNR is relative to the float network, or to ``R`` without one.
    """
    reference = values.real if values.network is None else values.network
    steps = (values.network, values.isolated, values.quantized_bias, values.real)
    inherited, bias, weights = (
        None if right is None or found is None else measure_error(reference, found - right, step)
        for right, found in pairwise(steps)
    )
    saturation = measure_error(reference, values.in_range - values.real, step)
    rescale = measure_error(reference, values.device - values.in_range, step)
    return Split(inherited, bias, weights, saturation, rescale)
