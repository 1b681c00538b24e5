"""Thresholds of rules: sums at which results change, by which rules are compared on all sums.

A rule's results rise with the sum, so that two rules have equal results for all sums of a channel
if each result begins at the same sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from nmpsim.analysis.identify.classes import group_rules
from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.identify.layers import RecordedLayer
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator

_LARGEST_SUM = 1 << 30
_COLUMNS = 1 << 13
"""Most thresholds of a rule that are searched at a time."""
MAX_THRESHOLDS = 1 << 26
"""Most thresholds of all rules that are searched."""


@attrs.frozen(eq=False)
class Thresholds:
    """Thresholds of rules: the smallest sums whose results are at least given results."""

    channels: Integers
    """[columns]"""
    sums: Integers
    """[rules, columns]"""

    def select_columns(self, columns: Integers) -> Thresholds:
        """Return the thresholds of some columns."""
        return Thresholds(self.channels[columns], self.sums[:, columns])

    def group_rules(self, groups: Integers) -> Integers:
        """Divide groups of rules, given by a number for each rule, by equal thresholds."""
        keys = np.concatenate([groups[:, None], self.sums], axis=1)
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)


def get_sum_limits(layer: RecordedLayer) -> tuple[int, int]:
    """Return the limits of the sums of a layer with any inputs and any weights."""
    limits, offset = np.iinfo(layer.inputs.dtype), layer.scales.source.offset
    most = max(abs(int(limits.min) - offset), abs(int(limits.max) - offset))
    narrow = np.iinfo(layer.operation.operands[2].type.dtype)
    offsets = layer.scales.weight_offsets
    weight = max(int(offsets.max()) - int(narrow.min), int(narrow.max) - int(offsets.min()))
    largest = min(most * weight * layer.taps, _LARGEST_SUM)
    return -largest, largest


def iterate_thresholds(
    layer: RecordedLayer,
    rules: Sequence[RequantizationRule],
    channels: Integers,
    limits: tuple[int, int],
) -> Iterator[Thresholds]:
    """Find the thresholds of rules by bisection, for some channels at a time.

    Parameters
    ----------
    layer
        Layer whose scales and bias the rules use.
    rules
        Rules, the members of each family consecutive.
    channels
        Output channels.
    limits
        Smallest and largest sum without bias. A threshold is one more than the largest sum if no
        sum has the result.

    Yields
    ------
    Thresholds
        Thresholds for each result that the layer does not clip.
    """
    low, high = layer.clip
    results = np.arange(low + 1, high + 1)
    step = max(_COLUMNS // max(results.size, 1), 1)
    evaluator = RuleEvaluator(layer)
    for first in range(0, channels.size, step):
        part = np.repeat(channels[first : first + step], results.size)
        wanted = np.tile(results, channels[first : first + step].size)
        found = [
            _bisect(evaluator, layer, group, part, wanted, limits) for group in group_rules(rules)
        ]
        yield Thresholds(part, np.concatenate(found))


def _bisect(
    evaluator: RuleEvaluator,
    layer: RecordedLayer,
    group: Sequence[RequantizationRule],
    channels: Integers,
    results: Integers,
    limits: tuple[int, int],
) -> Integers:
    """Find the smallest sums whose results are at least ``results``: [rules, columns]."""
    predict = evaluator.make_predictor(group, channels)
    factor = layer.ideal_factors[channels]
    ideal = (results - layer.offset) / factor - layer.biases[channels]
    shape = len(group), channels.size
    ends = []
    for side, outer in ((-3, limits[0] - 1), (3, limits[1] + 1)):
        near = np.clip(ideal + side / factor, limits[0] - 1, limits[1] + 1).astype(np.int64)
        is_above = predict(near) >= results
        ends.append(np.where(is_above == (side > 0), near, outer))
    below, above = (np.broadcast_to(one, shape).copy() for one in ends)
    while (above - below > 1).any():
        middle = below + above >> 1
        is_above = predict(middle) >= results
        above = np.where(is_above, middle, above)
        below = np.where(is_above, below, middle)
    return above


def choose_sums(found: Thresholds, groups: Integers) -> Iterator[tuple[int, int, Integers]]:
    """Choose sums at which rules of one group have different results.

    Parameters
    ----------
    found
        Thresholds of the rules.
    groups
        Number of the group of each rule.

    Yields
    ------
    tuple of int, int and numpy.ndarray
        Channel, sum, and the numbers of the groups after their division by this sum.
    """
    most = np.unique(found.group_rules(groups)).size
    varying = np.flatnonzero((found.sums != found.sums[0]).any(axis=0))
    for column in varying.tolist():
        sums = found.sums[:, column]
        for value in np.unique(sums)[:-1].tolist():
            if np.unique(groups).size == most:
                return
            divided = np.unique(groups * 2 + (sums <= value), return_inverse=True)[1].reshape(-1)
            if divided.max() > groups.max():
                groups = divided
                yield int(found.channels[column]), value, groups
