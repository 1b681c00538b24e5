"""Rounding rules and limits of sums that explain the result of a layer with weights."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.analysis.hypotheses.layer import IsolatedLayer
from nmpsim.analysis.hypotheses.recorded import record_layer
from nmpsim.analysis.identify.limits import find_limits
from nmpsim.analysis.identify.search import RequantizationRule, find_rules
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import PROFILES


def list_rounding_rules(
    layer: IsolatedLayer, expected: Array, may_be_rounding: bool
) -> Iterator[tuple[str, bool]]:
    """Yield a description of each tried arithmetic, and whether its result equals ``expected``.

    Other rounding rules are tried only if ``may_be_rounding`` is set.
    """
    recorded = record_layer(layer, expected)
    if recorded is None:
        return
    if layer.program.numerics in PROFILES:
        # A clamp of results often has the same effect as a narrow accumulator.
        found = find_limits(recorded, next(recorded.iterate_samples()))
        for limits in sorted(found, key=lambda one: one.clamp is not None):
            rule = RequantizationRule(profile=layer.program.numerics, limits=limits)
            text = f"arithmetic in which {limits.description}"
            yield text, bool(find_rules(recorded, [[rule]]).rules)
    if not may_be_rounding:
        return
    rules = find_rules(recorded).rules
    more = f" (or {len(rules) - 1} other rules)" if len(rules) > 1 else ""
    yield f"the requantization `{rules[0].name}`{more}" if rules else "", bool(rules)
