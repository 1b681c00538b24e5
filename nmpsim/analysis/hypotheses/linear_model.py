"""Layer with weights as a matrix product, from which weights and orders of channels are solved."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.layer import WrongLayer
from nmpsim.analysis.hypotheses.recorded import record_layer
from nmpsim.arrays import Array
from nmpsim.kernels.hostops.windows import SlidingWindow

MAX_ROWS = 1024
"""Largest number of pixels or rows of the result from which a model is made."""
MAX_VALUES = 1 << 25
"""Largest number of input values in a model."""


@attrs.frozen(eq=False)
class LinearModel:
    """Linear model of a layer, whose sums are products of input windows and weights.

    Attributes
    ----------
    windows : float64 [rows, taps, inputs]
        Input values, less the zero point, in the window of each row of the result.
    weights : float64 [outputs, taps, inputs per group]
        Weights, less the zero point.
    targets : float64 [rows, outputs]
        Sums without bias that give the expected result.
    tolerances : float64 [outputs]
        Largest difference of a sum from its target at which the result is the expected one.
    limits : float64 [2, outputs]
        Smallest and largest sum that is not clipped.
    """

    windows: Array
    weights: Array
    targets: Array
    tolerances: Array
    limits: Array

    @cached_property
    def is_known(self) -> Array:
        """Mask of the target sums that are known, because their results are not clipped."""
        return np.asarray((self.targets > self.limits[0]) & (self.targets < self.limits[1]))

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return int(self.weights.shape[0])

    @property
    def group_inputs(self) -> int:
        """Number of input channels that each output channel reads."""
        return int(self.weights.shape[2])

    @property
    def groups(self) -> int:
        """Number of channel groups, which is 1 without a grouped convolution."""
        return int(self.windows.shape[2]) // self.group_inputs

    def get_input_slice(self, output: int) -> slice:
        """Return the slice of input channels that the output channel ``output`` reads."""
        group = output * self.groups // self.outputs
        return slice(group * self.group_inputs, (group + 1) * self.group_inputs)

    @cached_property
    def residuals(self) -> Array:
        """Residuals [rows, outputs]: targets minus sums, or 0 where the target is unknown."""
        sums = np.empty(self.targets.shape)
        size = self.outputs // self.groups
        for group in range(self.groups):
            own = slice(group * size, (group + 1) * size)
            sums[:, own] = self.compute_sums(group, own)
        return np.where(self.is_known, self.targets - sums, 0)

    def compute_sums(self, group: int, outputs: slice = slice(None)) -> Array:
        """Compute the sums [rows, outputs] of output channels with the inputs of one group."""
        inputs = slice(group * self.group_inputs, (group + 1) * self.group_inputs)
        weights = self.weights[outputs]
        return np.tensordot(self.windows[..., inputs], weights, ((1, 2), (1, 2)))


def make_linear_model(wrong: WrongLayer) -> LinearModel | None:
    """Make a linear model of a wrong layer from sampled rows, or return None if unsupported.

    Returns None for a layer without constant weights, with more than two spatial dimensions or
    with very large windows.
    """
    layer, recorded = wrong.layer, record_layer(wrong.layer, wrong.expected)
    if recorded is None:
        return None
    expected = wrong.expected.reshape(-1, wrong.expected.shape[-1])
    errors = np.count_nonzero(expected != wrong.actual.reshape(expected.shape), axis=1)
    chosen = np.argsort(-errors, kind="stable")[: MAX_ROWS // 2]
    spread = np.linspace(0, len(expected) - 1, min(len(expected), MAX_ROWS // 2)).astype(np.int64)
    rows = np.unique([*chosen, *spread])
    values = recorded.inputs[0].astype(np.float64) - recorded.scales.source.offset
    weights = recorded.weights.astype(np.float64)
    if not recorded.scales.is_convolution:
        weights = weights.T if layer.operation.opcode == "fullyconnected" else weights
        windows = values.reshape(-1, 1, weights.shape[1])[rows]
        weights = weights[:, None, :]
    else:
        window = SlidingWindow.from_attributes(layer.operation.attributes)
        if len(window.kernel) != 2 or len(rows) * window.taps * values.shape[-1] > MAX_VALUES:
            return None
        windows = _cut_windows(values, window, wrong.expected.shape, rows)
        weights = weights.reshape(len(weights), window.taps, -1)
    factors = recorded.ideal_factors

    def compute_targets(results: Array) -> Array:
        return np.asarray((results - np.float64(recorded.offset)) / factors - recorded.biases)

    limits = np.stack([compute_targets(np.asarray(limit)) for limit in recorded.clip])
    targets = [
        compute_targets(one.reshape(expected.shape)[rows]) for one in (wrong.actual, expected)
    ]
    current = LinearModel(windows, weights, targets[0], 0.5 / factors, limits)
    # How far the exact arithmetic is from the real one shows in the actual result.
    errors = np.abs(current.residuals).max(axis=0, initial=0)
    tolerances = 1.25 * np.maximum(errors, 0.5 / factors) + wrong.slack / factors
    return attrs.evolve(current, targets=targets[1], tolerances=tolerances)


def _cut_windows(
    values: Array, window: SlidingWindow, shape: tuple[int, ...], rows: Array
) -> Array:
    """Return the windows [rows, taps, channels] of results by their flat index."""
    padded = np.pad(values, ((0, 0), *window.pads, (0, 0)))
    batch, *starts = np.unravel_index(rows, shape[:3])
    axes = [
        start[:, None] * stride + np.arange(kernel) * dilation
        for start, stride, kernel, dilation in zip(
            starts, window.strides, window.kernel, window.dilation, strict=True
        )
    ]
    cut = padded[batch[:, None, None], axes[0][:, :, None], axes[1][:, None, :]]
    return np.asarray(cut.reshape(len(rows), window.taps, -1))
