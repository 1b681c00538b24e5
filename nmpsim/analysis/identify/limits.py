"""Limits of a device's sums and results: narrow accumulators, and clamps that a layer lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.identify.layers import AnyLayer, LayerSample, RecordedLayer
from nmpsim.arrays import Array
from nmpsim.records import frozen

ROUND_EXPONENTS = np.rint, np.floor, np.ceil
"""Functions that round the exponent of a factor that is a power of two."""
_NEAR = 0.97
"""Share of results close to the ideal ones from which limits are considered."""
_CANDIDATES = 4
"""Most limits that are returned."""
_EXTREMES = 1024
"""Elements with extreme values on which limits are compared."""
_RELATIVE = 1 / 64
"""Relative error of a result that coarse factors cause."""


@frozen
class ArithmeticLimits:
    """Limits that arithmetic adds to those of a layer: accumulator width and clamp of results."""

    bits: int = 0
    """Width of the accumulator; 0 if sums are not limited."""
    wraps: bool = False
    """Whether the accumulator wraps instead of saturating."""
    clamp: tuple[int, int] | None = None
    """Range to which results are clamped."""

    @property
    def description(self) -> str:
        """Description such as "the accumulator of 16 bits wraps", or "" without limits."""
        parts = []
        if self.bits:
            action = "wraps" if self.wraps else "saturates"
            parts.append(f"the accumulator of {self.bits} bits {action}")
        if self.clamp is not None:
            parts.append(f"results are clamped to {self.clamp[0]} ... {self.clamp[1]}")
        return "; ".join(parts)

    def limit_sums(self, sums: Integers) -> Integers:
        """Return sums after wrapping or saturation to the width of the accumulator."""
        half = 1 << max(self.bits - 1, 0)
        if not self.bits:
            return sums
        if self.wraps:
            return sums - ((sums + half) >> self.bits << self.bits)
        limited: Integers = np.clip(sums, -half, half - 1)
        return limited

    def limit_clip(self, clip: tuple[int, int]) -> tuple[int, int]:
        """Return the part of a range of results that the clamp leaves."""
        if self.clamp is None:
            return clip
        return max(clip[0], self.clamp[0]), min(clip[1], self.clamp[1])

    def limit_formula(self, text: str) -> str:
        """Return the text of a formula with the limits added."""
        if self.bits:
            half = 1 << self.bits - 1
            limited = f"saturate(acc, {self.bits})"
            if self.wraps:
                limited = f"hold(acc - (acc + {half} >> {self.bits} << {self.bits}), {half})"
            text = f"narrow_sum = {limited}\n" + re.sub(r"\bacc\b", "narrow_sum", text)
        if self.clamp is not None:
            *lines, last = text.splitlines()
            text = "\n".join([*lines, f"min(max({last}, {self.clamp[0]}), {self.clamp[1]})"])
        return text


NO_LIMITS = ArithmeticLimits()


def find_limits(layer: AnyLayer, sample: LayerSample) -> list[ArithmeticLimits]:
    """Find up to four limits with which ideal results are closest to the recorded results.

    Parameters
    ----------
    layer
        Layer with the ideal factors.
    sample
        Elements of the layer.

    Returns
    -------
    list of ArithmeticLimits
        The limits with fewer differences than none have, the closest first. Empty if there are
        none, or if too many results differ with each of them.
    """
    if not isinstance(layer, RecordedLayer):
        return []
    least, most = int(sample.results.min()), int(sample.results.max())
    low, high = layer.clip
    clamps = [(-high, high), (least, high), (low, most), (least, most)]
    known = [None, *(one for one in clamps if low <= one[0] <= least < most <= one[1] <= high)]
    sample = _select_extremes(layer, sample)
    exponents = np.log2(layer.ideal_factors)
    # The factors of a device that only shifts are far from the ideal ones.
    for factors in (layer.ideal_factors, *(np.exp2(one(exponents)) for one in ROUND_EXPONENTS)):
        scores = _score_limits(layer, sample, factors[sample.channels], known)
        usable = [one for one, (wrong, _) in scores.items() if wrong <= sample.size * (1 - _NEAR)]
        if usable:
            better = [one for one in usable if scores[one] < scores[NO_LIMITS]]
            return sorted(better, key=scores.__getitem__)[:_CANDIDATES]
    return []


def _score_limits(
    layer: RecordedLayer, sample: LayerSample, factors: Array, clamps: Sequence[Any]
) -> dict[ArithmeticLimits, tuple[int, int]]:
    """Count the results that differ, and sum up the differences, with each limit."""
    biases = layer.biases[sample.channels]
    totals = sample.sums + biases
    largest = int(np.abs(totals).max(initial=0))
    widths = [bits for bits in range(16, 48) if largest >= 1 << bits - 1]
    sums = [NO_LIMITS]
    sums += [ArithmeticLimits(bits, wraps) for bits in widths for wraps in (True, False)]
    scores: dict[ArithmeticLimits, tuple[int, int]] = {}
    for one in sums:
        for limited in (one.limit_sums(totals), one.limit_sums(sample.sums) + biases):
            ideal = limited * factors
            rounded = np.rint(ideal).astype(np.int64) + layer.offset
            tolerance = 1 + np.abs(ideal) * _RELATIVE
            reached = (rounded + tolerance).min(), (rounded - tolerance).max()
            for clamp in clamps:
                if clamp is not None and not _is_reached(clamp, layer.clip, reached):
                    continue
                difference = np.abs(sample.results - np.clip(rounded, *(clamp or layer.clip)))
                score = int((difference > tolerance).sum()), int(difference.sum())
                key = attrs.evolve(one, clamp=clamp)
                scores[key] = min(score, scores.get(key, score))
    return scores


def _select_extremes(layer: RecordedLayer, sample: LayerSample) -> LayerSample:
    """Return the elements with the largest sums and results, and evenly spread ones."""
    if sample.size <= 4 * _EXTREMES:
        return sample
    totals = np.abs(sample.sums + layer.biases[sample.channels])
    spread = np.linspace(0, sample.size - 1, 2 * _EXTREMES).astype(np.int64)
    values = totals, totals * layer.ideal_factors[sample.channels]
    largest = [np.argpartition(one, -_EXTREMES)[-_EXTREMES:] for one in values]
    return sample.take(np.unique(np.concatenate([spread, *largest])))


def _is_reached(
    clamp: tuple[int, int], usual: tuple[int, int], reached: tuple[float, float]
) -> bool:
    """Return whether unclamped results are beyond each end of ``clamp`` that is not usual."""
    return (clamp[0] == usual[0] or reached[0] < clamp[0]) and (
        clamp[1] == usual[1] or reached[1] > clamp[1]
    )
