"""Faults of dumps and programs because of which no known rule explains a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import numpy as np

from nmpsim.analysis.identify.layers import RecordedLayer
from nmpsim.analysis.identify.limits import ROUND_EXPONENTS
from nmpsim.analysis.identify.rules import IN_SUM
from nmpsim.analysis.identify.search import (
    LayerRules,
    RequantizationRule,
    RuleEvaluator,
    find_rules,
    list_rules,
    remove_duplicates,
)
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import PROFILES

_ELEMENTS = 1 << 16
"""Most elements on which changes of the data and parameters of a layer are tried."""
_NEAR = 0.97
"""Share of results within one of the ideal ones from which data count as correct."""
_SLACK = 1.2
"""Largest error of an unknown rule besides the rounding, in units of the last place."""
_SECONDS = 60.0
"""Time after which changes of the data and the parameters of a layer are no longer tried."""
_FACTORS = 8
"""Factors of each family that are tried with other scales, and are usual."""
_SCALES = 3
"""Most scales that a description lists."""
_FIRST_FAMILIES = ("zero point", "bias")
_FAMILIES = ("layout", "channels", "type", "numbers", "single weights")
"""Families of changes of the data and parameters of a layer, see ``nmpsim.analysis.hypotheses``."""
_LARGE_FAMILIES = ("weights", "window", "activation")
"""Families of changes without which most results are wrong."""


@attrs.frozen(eq=False)
class LayerFault:
    """Fault of a layer's data or rule, and the rules that explain the results without the fault."""

    kind: str
    text: str
    rules: tuple[RequantizationRule, ...] = ()
    is_alternative: bool = False
    """Whether a usual rule explains the results without a fault, too."""


def find_fault(found: LayerRules, numerics: str) -> LayerFault | None:
    """Find the fault because of which no known rule explains a layer; return None if unknown.

    If rules explain the layer but the program's own profile does not, the fault is another scale
    with which a profile explains it: this one, or any profile if there is none among the rules.
    """
    whole, profiles = found.layer, {rule.profile for rule in found.rules} - {""}
    if not isinstance(whole, RecordedLayer) or numerics in profiles:
        return None
    simple = _list_simple_rules(whole)
    if found.rules:
        tried = {numerics} if profiles else set(PROFILES)
        fault = _find_scale_fault(whole, [group for group in simple if group[0].profile in tried])
        return fault and _compare_simplicity(fault, found.rules)
    layer = _shorten(whole, found.closest)
    is_near = measure_share(layer) >= _NEAR
    steps: list[Callable[[], LayerFault | None]] = [
        lambda: _find_scale_fault(whole, simple) if is_near else None,
        lambda: _find_change(layer, _FIRST_FAMILIES),
        lambda: _find_change(layer, _FAMILIES if is_near else (*_FAMILIES, *_LARGE_FAMILIES)),
    ]
    if not is_near:  # the factors of a device that only shifts are far from those of the scales
        steps += [partial(_find_fault_of_shifts, layer, function) for function in ROUND_EXPONENTS]
    close = None
    for step in steps:
        fault = step()
        if fault is not None and fault.rules:
            return fault
        close = close or fault
    return close


def _compare_simplicity(fault: LayerFault, rules: Sequence[RequantizationRule]) -> LayerFault:
    """Return a fault of the scales that states the rules which explain a layer without it."""
    more = f" or {len(rules) - 1:,} others" if len(rules) > 1 else ""
    text = f"{fault.text}; without it, `{rules[0].name}`{more} explain them"
    is_usual = any(_is_simple(rule) and rule.index < _FACTORS for rule in rules)
    return attrs.evolve(fault, text=text, is_alternative=is_usual)


def _find_scale_fault(
    layer: RecordedLayer, groups: Sequence[Sequence[RequantizationRule]]
) -> LayerFault | None:
    """Find the scales that differ in the last places with which one of the rules fits a layer."""
    # The packages of causes import this one.
    from nmpsim.analysis.hypotheses.constant_changes import change_scales
    from nmpsim.analysis.hypotheses.recorded import make_isolated_layer, record_layer

    sample = remove_duplicates(next(layer.iterate_samples()))
    isolated, expected = make_isolated_layer(layer)
    texts, rules = list[str](), dict[str, RequantizationRule]()
    for text, change in change_scales(isolated, {}):
        changed = record_layer(change, expected)
        if changed is None or len(texts) == _SCALES:
            break
        scaled = attrs.evolve(layer, scales=changed.scales)
        fitting = find_rules(scaled, groups, sample).rules
        if fitting:
            texts.append(text)
            rules |= {rule.name: rule for rule in fitting}
    if not texts:
        return None
    known = [name for name, rule in rules.items() if rule.profile] or list(rules)[:1]
    text = f"with {', or with '.join(texts)}, {' or '.join(known)} explains all results"
    return LayerFault("scale", text, tuple(rules.values()))


def _find_fault_of_shifts(
    layer: RecordedLayer, round_exponents: Callable[[Array], Array]
) -> LayerFault | None:
    """Find a fault of the data of a device whose factors are powers of two."""
    exponents = np.log2(layer.ideal_factors)
    factors = np.exp2(round_exponents(exponents) - exponents)
    fault = _find_change(layer, (*_FIRST_FAMILIES, *_FAMILIES), factors)
    return fault if fault is not None and fault.rules else None


def _replace_scales(layer: RecordedLayer, weights: Array, bias: Array) -> RecordedLayer:
    """Return a copy of a layer with other scales [channels] of its weights and its bias."""
    scales = layer.scales
    changed = attrs.evolve(scales.bias, scales=bias)
    return attrs.evolve(layer, scales=attrs.evolve(scales, weight_scales=weights, bias=changed))


def _find_change(
    layer: RecordedLayer, families: Sequence[str], factors: Array | None = None
) -> LayerFault | None:
    """Find the first change after which rules explain a layer, or one that comes close.

    Changes are tried in real arithmetic, and then with all rules.

    Parameters
    ----------
    layer
        Layer that no rule explains.
    families
        Families of changes.
    factors
        Factors of the weights' scales in real arithmetic, for each channel.
    """
    from nmpsim.analysis.hypotheses.change_filter import (
        ChangeFilter,
        SearchClock,
        SearchLimits,
        SearchStoppedError,
    )
    from nmpsim.analysis.hypotheses.layer import WrongLayer
    from nmpsim.analysis.hypotheses.recorded import make_isolated_layer, record_layer

    own = layer.scales.weight_scales, layer.scales.bias.scales
    scaled = layer if factors is None else _replace_scales(layer, *(one * factors for one in own))
    isolated, expected = make_isolated_layer(scaled)
    actual = isolated.estimate()
    if actual is None:
        return None
    wrong, clock = (
        WrongLayer(isolated, actual, expected, _SLACK),
        SearchClock(SearchLimits(_SECONDS)),
    )
    near = ChangeFilter(wrong, {}, clock, tolerance=1, share=_NEAR)
    start = measure_share(layer, 0) if measure_share(layer) >= _NEAR else 0.0
    equal = max(start + 0.02, _NEAR) if start else 0.0
    best: LayerFault | None = None
    with suppress(SearchStoppedError):
        for family in families:
            for text, change in near.list_near_changes(family):
                changed = record_layer(change, expected)
                if changed is not None and factors is not None:
                    changed = _replace_scales(changed, *own)
                share = 0.0 if changed is None else measure_share(changed, 0)
                if changed is None or share < start - 0.02:
                    continue
                rules = find_rules(changed).rules
                if rules:
                    count = f"{changed.results.size:,}"
                    return LayerFault(
                        family, f"with {text}, rules explain all {count} results", rules
                    )
                if share >= equal:
                    text = f"with {text}, {share:.1%} of the results are ideal"
                    equal, best = share, LayerFault(family, text)
    return best


def _list_simple_rules(layer: RecordedLayer) -> list[list[RequantizationRule]]:
    """Return the rules that are built in, or add the bias to the sum and round once."""
    usual = list_rules(layer.element, layer.has_bias)
    return [list(group[:_FACTORS]) for group in usual if _is_simple(group[0])]


def _is_simple(rule: RequantizationRule) -> bool:
    """Return whether a rule is built in, or adds the bias to the sum and rounds once."""
    family = rule.family
    return family is None or (family.place == IN_SUM and not family.rounds_twice)


def _shorten(layer: RecordedLayer, closest: RequantizationRule | None) -> RecordedLayer:
    """Return a layer with the recorded items that the closest rule explains worst.

    They are so few that a fault is found quickly.
    """
    items, size = len(layer.inputs), max(layer.results[0].size, 1)
    if items * size <= _ELEMENTS or closest is None:
        return layer
    evaluator = RuleEvaluator(layer)
    wrong = [
        (evaluator.predict([closest], one)[0] != one.results).reshape(-1, size).sum(axis=1)
        for one in layer.iterate_samples()
    ]
    worst = np.argsort(-np.concatenate(wrong), kind="stable")[: max(_ELEMENTS // size, 1)]
    return attrs.evolve(layer, inputs=layer.inputs[worst], results=layer.results[worst])


def measure_share(layer: RecordedLayer, distance: int = 1) -> float:
    """Measure the share of recorded results that differ from the ideal by at most ``distance``."""
    near = count = 0
    for sample in layer.iterate_samples():
        error = np.abs(sample.results - layer.estimate_results(sample))
        near += int((error <= distance).sum())
        count += sample.size
    return near / max(count, 1)
