"""Rounding rules and limits of sums that explain the result of a layer with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

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
        if may_be_rounding:
            yield from _list_plain_roundings(layer, expected)
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


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "down": np.floor,
    "towards zero": np.trunc,
    "up": np.ceil,
    "to nearest, halves to even": np.rint,
    "to nearest, halves up": lambda real: np.floor(real + 0.5),
    "to nearest, halves away from zero": lambda real: np.trunc(real + np.copysign(0.5, real)),
}


def _list_plain_roundings(layer: IsolatedLayer, expected: Array) -> Iterator[tuple[str, bool]]:
    """Yield each rounding of the exact real results, and whether it gives ``expected``."""
    real, quant = layer.compute_real(), layer.get_type(layer.output).quant
    if real is None or quant is None or layer.convert_result is not None:
        return
    limits = np.iinfo(expected.dtype)
    low, high = layer.clip or (limits.min, limits.max)
    for name, function in _ROUNDINGS.items():
        rounded = np.clip(function(real - quant.offset) + quant.offset, low, high)
        yield f"exact results rounded {name}", np.array_equal(rounded, expected)
