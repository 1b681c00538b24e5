"""A bias whose type was changed without its payload, found without any reference.

Nothing proves it then, but integers that were made for another scale show. Glow puts a bias on the
scale of the products, S_in * S_w, or, where that is too fine for an Int8 or Int16 bias, on the
scale that just holds it, so that its integers fill their range. On the much coarser scale of the
result the same integers stand for something as large as the result itself: an Int8 or Int16 bias
then spans half of all that the result can hold or more, an Int32 bias goes far beyond it. A bias
that was requantized spans a small part, but for networks that clip hard (ReLU6): so one such layer
is only doubtful, while a program of nothing but such layers is not.

docs/lint.md has the measured rates of detection and of false alarms behind the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from nmpsim.analysis.lint.biases import Bias

Evidence: TypeAlias = Literal["beyond", "fills", "large"]
"""beyond: most channels' bias is more than the result can hold. fills: the integers use at least
half of their range, as on a scale chosen for the bias alone. large: the bias of some channel is
more than the result can hold, and that of most is a quarter of it."""

SYSTEMATIC = 0.9
"""Share of a program's biases that must look wrong for all of them to be taken as wrong."""
FINER_ELSEWHERE = 2.0
"""Octaves that the other biases' scales lie below their results', for one layer to stand out."""


def evidence_of(bias: Bias) -> Evidence | None:
    """What speaks against the declared scale of a bias, if anything does."""
    if bias.on_products or not bias.integers.any():
        return None
    parts = np.abs(bias.reals) / bias.result_magnitude
    middle, most = float(np.median(parts)), float(parts.max())
    if middle > 1.0:
        return "beyond"
    if not bias.on_result:
        return None
    if bias.view.type.elem == "i32":
        return "large" if most > 1.0 and middle > 0.25 else None
    return "fills" if _fills_its_integers(bias) else None


def _fills_its_integers(bias: Bias) -> bool:
    """The largest integer needs all bits; what was clipped would touch the limit repeatedly."""
    limit = bias.limits[1]
    magnitudes = np.abs(bias.integers)
    return int(magnitudes.max()) > limit // 2 and int((magnitudes >= limit).sum()) <= 1


def is_systematic(biases: Sequence[Bias]) -> bool:
    """Whether (nearly) all biases are declared on their results' scales and look wrong there."""
    telling = [bias for bias in biases if bias.integers.any()]
    wrong = [bias for bias in telling if evidence_of(bias) is not None]
    on_result = [bias for bias in telling if bias.on_result]
    return bool(wrong) and min(len(wrong), len(on_result)) >= SYSTEMATIC * len(telling)


def stands_out(bias: Bias, biases: Sequence[Bias]) -> bool:
    """Whether the scale of the result is an odd choice for this bias in this program.

    Most other biases are on scales of their own then; and either these are much finer than their
    results', or no power of two can explain that this one equals its result's.
    """
    own = [other for other in biases if not other.on_result]
    if 2 * len(own) < len(biases) - 1 or not own:
        return False
    octaves = [float(np.log2(other.result_scale / np.median(other.scales))) for other in own]
    by_chance = math.frexp(bias.result_scale)[0] == 0.5
    return not by_chance or float(np.median(octaves)) >= FINER_ELSEWHERE
