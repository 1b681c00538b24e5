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
from nmpsim.analysis.identify.rules import IN_SUM
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator

_MOST_RESULTS = 1024
"""Most results of a channel whose thresholds a probe compares."""
_BLOCK = 1 << 21
"""Thresholds of all rules that are searched at a time, or those of one channel."""
MAX_THRESHOLDS = 1 << 25
"""Most thresholds of all rules that are searched."""


@attrs.frozen(eq=False)
class Thresholds:
    """Thresholds of rules: the smallest sum at which each rule reaches each of several results."""

    channels: Integers
    """[columns]"""
    sums: Integers
    """[rules, columns]"""

    def select_columns(self, columns: Integers) -> Thresholds:
        """Return the thresholds in ``columns``; a column is a channel and a result."""
        return Thresholds(self.channels[columns], self.sums[:, columns])

    def split_groups(self, groups: Integers) -> Integers:
        """Split groups of rules with unequal thresholds; return the new group of each rule."""
        keys = np.concatenate([groups[:, None], self.sums], axis=1)
        return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)


def compute_sum_limits(layer: RecordedLayer, rules: Sequence[RequantizationRule]) -> Integers:
    """Compute the limits [2, channels] of a layer's sums for any inputs and any weights.

    If an accumulator wraps, the limits are those of sums with which it does not wrap.
    """
    limits, offset = np.iinfo(layer.inputs.dtype), layer.scales.source.offset
    most = max(abs(int(limits.min) - offset), abs(int(limits.max) - offset))
    narrow = np.iinfo(layer.operation.operands[2].type.dtype)
    offsets = layer.scales.weight_offsets
    weight = max(int(offsets.max()) - int(narrow.min), int(narrow.max) - int(offsets.min()))
    largest = min(most * weight * layer.taps, 1 << layer.operation.operands[0].accumulator_bits - 1)
    ends = np.array([[-largest], [largest]]) + np.zeros(layer.scales.channels, np.int64)
    for bits, is_in_sum in {get_wrapping(rule) for rule in rules} - {(0, False)}:
        half = 1 << bits - 1
        bias = layer.biases if is_in_sum else 0
        ends[0] = np.maximum(ends[0], -half - bias)
        ends[1] = np.minimum(ends[1], half - 1 - bias)
    return ends


def has_complete_limits(rules: Sequence[RequantizationRule]) -> bool:
    """Return whether rules that are equal for all sums within their limits are equal for all sums.

    All rules must have the same accumulator, and add the bias at the same place if it wraps.
    """
    return len({get_wrapping(rule) for rule in rules}) == 1


def get_wrapping(rule: RequantizationRule) -> tuple[int, bool]:
    """Return the width of a rule's accumulator if it wraps, else 0, and whether it has the bias."""
    bits = rule.limits.bits if rule.limits.wraps else 0
    return bits, bool(bits and rule.family and rule.family.place == IN_SUM)


def iterate_thresholds(
    layer: RecordedLayer,
    rules: Sequence[RequantizationRule],
    channels: Integers,
    limits: Integers,
    *,
    has_all_results: bool = False,
) -> Iterator[Thresholds]:
    """Yield the thresholds of rules, found by bisection, for a few channels at a time.

    Parameters
    ----------
    layer
        Layer whose scales and bias the rules use.
    rules
        Rules, the members of each family consecutive.
    channels
        Output channels.
    limits
        Smallest and largest sum without bias: [2, channels]. A threshold is one more than the
        largest sum if no sum has the result.
    has_all_results
        Whether thresholds of all results are found, or those of some results of an Int16 layer.

    Yields
    ------
    Thresholds
        Thresholds for each result that the layer does not clip.
    """
    low, high = layer.clip
    count = high - low if has_all_results else min(high - low, _MOST_RESULTS)
    results = np.linspace(low + 1, high, count).astype(np.int64)
    step = max(_BLOCK // max(results.size * len(rules), 1), 1)
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
    limits: Integers,
) -> Integers:
    """Find the smallest sums whose results are at least ``results``: [rules, columns]."""
    predict = evaluator.make_predictor(group, channels)
    factor = layer.ideal_factors[channels]
    ideal = (results - layer.offset) / factor - layer.biases[channels]
    shape = len(group), channels.size
    ends = []
    outside = limits[0, channels] - 1, limits[1, channels] + 1
    for side, outer in zip((-3, 3), outside, strict=True):
        near = np.clip(ideal + side / factor, *outside).astype(np.int64)
        is_above = predict(near) >= results
        is_usable = (is_above == (side > 0)) & (near > outside[0]) & (near < outside[1])
        ends.append(np.where(is_usable, near, outer))
    below, above = (np.broadcast_to(one, shape).copy() for one in ends)
    while (above - below > 1).any():
        middle = below + above >> 1
        is_above = predict(middle) >= results
        above = np.where(is_above, middle, above)
        below = np.where(is_above, below, middle)
    return above


def choose_sums(found: Thresholds, groups: Integers) -> Iterator[tuple[int, int, Integers]]:
    """Choose sums that split groups of rules; yield (channel, sum, new groups) tuples.

    Sums close to 0 come first, because most weights and inputs can have them.

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
    most = np.unique(found.split_groups(groups)).size
    varying = np.flatnonzero((found.sums != found.sums[0]).any(axis=0))
    varying = varying[np.argsort(np.abs(found.sums[:, varying]).min(axis=0), kind="stable")]
    for column in varying.tolist():
        sums = found.sums[:, column]
        for value in np.unique(sums)[:-1].tolist():
            if np.unique(groups).size == most:
                return
            divided = np.unique(groups * 2 + (sums <= value), return_inverse=True)[1].reshape(-1)
            if divided.max() > groups.max():
                groups = divided
                yield int(found.channels[column]), value, groups
