"""Rounding rules and narrow accumulators that explain the result of a layer with weights."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.layer import IsolatedLayer
from nmpsim.analysis.hypotheses.recorded import record_layer
from nmpsim.analysis.identify.layers import LayerSample, RecordedLayer
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator, find_rules
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import PROFILES

ACCUMULATOR_BITS = (16, 18, 20, 22, 24)
"""Widths of accumulators that are tried."""


def list_rounding_rules(
    layer: IsolatedLayer, expected: Array, may_be_rounding: bool
) -> Iterator[tuple[str, bool]]:
    """Yield a description of each tried arithmetic, and whether its result equals ``expected``.

    Other rounding rules are tried only if ``may_be_rounding`` is set.
    """
    recorded = record_layer(layer, expected)
    if recorded is None:
        return
    yield from _list_accumulators(recorded, layer.program.numerics)
    if not may_be_rounding:
        return
    rules = find_rules(recorded).rules
    more = f" (or {len(rules) - 1} other rules)" if len(rules) > 1 else ""
    yield f"the requantization `{rules[0].name}`{more}" if rules else "", bool(rules)


def _list_accumulators(layer: RecordedLayer, numerics: str) -> Iterator[tuple[str, bool]]:
    """Yield narrow accumulators, which saturate or wrap, and whether each explains all results."""
    if numerics not in PROFILES:
        return
    evaluator, rules = RuleEvaluator(layer), [RequantizationRule(profile=numerics)]
    samples = list(layer.iterate_samples())
    for bits in ACCUMULATOR_BITS:
        half = 1 << bits - 1
        for name in ("saturates", "wraps"):

            def narrow(sample: LayerSample, half: int = half, name: str = name) -> LayerSample:
                bias = layer.biases[sample.channels]
                sums = sample.sums + bias
                if name == "saturates":
                    kept = np.clip(sums, -half, half - 1)
                else:
                    kept = (sums + half) % (2 * half) - half
                return attrs.evolve(sample, sums=kept - bias)

            fits = all(
                bool((evaluator.predict(rules, narrow(sample))[0] == sample.results).all())
                for sample in samples
            )
            yield f"an accumulator of {bits} bits that {name}", fits
