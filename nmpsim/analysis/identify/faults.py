"""Faults of dumps and programs that are looked for if no rule explains a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nmpsim.analysis.identify.layers import LayerSample, RecordedLayer
from nmpsim.analysis.identify.rules import IDEAL, IN_SUM, RuleFactor, RuleFamily
from nmpsim.analysis.identify.search import LayerRules, RequantizationRule, find_rules, list_rules
from nmpsim.arrays import Array

if TYPE_CHECKING:
    from nmpsim.analysis.hypotheses.change_filter import ChangeFilter
    from nmpsim.analysis.hypotheses.layer import Change

_ELEMENTS = 1 << 16
"""Most elements on which a fault is tried first."""
_NEAR = 0.97
"""Share of results within one of the ideal ones from which data count as correct."""
_SLACK = 1.2
"""Largest error of an unknown rule besides the rounding, in units of the last place."""
_SECONDS = 60.0
"""Time after which changes of the data and the parameters of a layer are no longer tried."""
_FACTORS = 8
"""Factors of each family that are tried with other scales."""
_FIRST_FAMILIES = ("zero point", "bias")
_LOG_ROUNDINGS = np.rint, np.floor, np.ceil
"""Functions that round the exponent of a factor that is a power of two."""
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


def find_fault(found: LayerRules) -> LayerFault | None:
    """Find the fault because of which no rule explains a layer; return None if it is unknown."""
    if not isinstance(found.layer, RecordedLayer):
        return None
    layer = _shorten(found.layer)
    changes = _DataChanges(layer)
    simple = _list_simple_rules(layer)
    is_near = measure_share(layer) >= _NEAR
    steps: list[Callable[[], LayerFault | None]] = [
        lambda: changes.find_fault(_FIRST_FAMILIES),
        lambda: changes.find_fault(("scale",), simple) if is_near else None,
        lambda: _find_unusual_rules(layer),
        lambda: changes.find_fault(_FAMILIES if is_near else (*_FAMILIES, *_LARGE_FAMILIES)),
    ]
    if not is_near:  # the factors of a device that only shifts are far from those of the scales
        steps += [partial(_find_fault_of_shifts, layer, function) for function in _LOG_ROUNDINGS]
    close = None
    for step in steps:
        fault = step()
        if fault is not None and fault.rules:
            return fault
        close = close or fault
    return close


def _find_fault_of_shifts(
    layer: RecordedLayer, round_exponents: Callable[[Array], Array]
) -> LayerFault | None:
    """Find a fault of the data of a device whose factors are powers of two."""
    exponents = np.log2(layer.ideal_factors)
    changes = _DataChanges(layer, np.exp2(round_exponents(exponents) - exponents))
    fault = changes.find_fault((*_FIRST_FAMILIES, *_FAMILIES))
    return fault if fault is not None and fault.rules else None


def _replace_scales(layer: RecordedLayer, weights: Array, bias: Array) -> RecordedLayer:
    """Return a copy of a layer with other scales [channels] of its weights and its bias."""
    scales = layer.scales
    changed = attrs.evolve(scales.bias, scales=bias)
    return attrs.evolve(layer, scales=attrs.evolve(scales, weight_scales=weights, bias=changed))


class _DataChanges:
    """Changes of a layer's data and parameters, tried on real arithmetic and then on all rules.

    Parameters
    ----------
    layer
        Layer that no rule explains.
    factors
        Factors of the weights' scales in real arithmetic, for each channel.
    """

    def __init__(self, layer: RecordedLayer, factors: Array | None = None) -> None:
        # The packages of causes import this one.
        from nmpsim.analysis.hypotheses.change_filter import ChangeFilter, SearchClock, SearchLimits
        from nmpsim.analysis.hypotheses.layer import WrongLayer
        from nmpsim.analysis.hypotheses.recorded import make_isolated_layer

        self._scales = layer.scales.weight_scales, layer.scales.bias.scales
        scaled, self._is_scaled = layer, factors is not None
        if factors is not None:
            scaled = _replace_scales(layer, *(one * factors for one in self._scales))
        isolated, expected = make_isolated_layer(scaled)
        actual = isolated.estimate()
        self._layer, self._expected = layer, expected
        self._filter: ChangeFilter | None = None
        if actual is not None:
            wrong = WrongLayer(isolated, actual, expected, _SLACK)
            self._filter = ChangeFilter(
                wrong, {}, SearchClock(SearchLimits(_SECONDS)), tolerance=1, share=_NEAR
            )

    def find_fault(
        self,
        families: Sequence[str],
        groups: Sequence[Sequence[RequantizationRule]] | None = None,
    ) -> LayerFault | None:
        """Return the first change after which rules explain the layer, or one that comes close."""
        from nmpsim.analysis.hypotheses.change_filter import SearchStoppedError
        from nmpsim.analysis.hypotheses.recorded import record_layer

        start = measure_share(self._layer, 0) if measure_share(self._layer) >= _NEAR else 0.0
        equal = max(start + 0.02, _NEAR) if start else 0.0
        best: LayerFault | None = None
        with suppress(SearchStoppedError):
            for family, (text, changed) in self._list_changes(families):
                layer = record_layer(changed, self._expected)
                if layer is not None and self._is_scaled:
                    layer = _replace_scales(layer, *self._scales)
                share = 0.0 if layer is None else measure_share(layer, 0)
                if layer is None or share < start - 0.02:
                    continue
                rules = find_rules(layer, groups).rules
                if rules:
                    return LayerFault(family, f"with {text}, rules explain all results", rules)
                if share >= equal:
                    text = f"with {text}, {share:.1%} of the results are ideal"
                    equal, best = share, LayerFault(family, text)
        return best

    def _list_changes(self, families: Sequence[str]) -> Iterator[tuple[str, Change]]:
        for family in families if self._filter is not None else ():
            assert self._filter is not None
            for change in self._filter.list_near_changes(family):
                yield family, change


def _list_simple_rules(layer: RecordedLayer) -> list[list[RequantizationRule]]:
    """Return the rules that are built in, or add the bias to the sum and shift once."""
    usual = list_rules(layer.element, bool(layer.biases.any()))
    return [list(group[:_FACTORS]) for group in usual if _is_simple(group)]


def _is_simple(group: Sequence[RequantizationRule]) -> bool:
    """Return whether rules are built in, or add the bias to the sum and shift once."""
    family = group[0].family
    is_usual = family is None or family.place == IN_SUM
    return is_usual and (family is None or "first" not in family.rounding)


def _shorten(layer: RecordedLayer) -> RecordedLayer:
    """Return a layer with so many recorded items that a fault is found quickly."""
    items = max(_ELEMENTS // max(layer.results[0].size, 1), 1)
    return attrs.evolve(layer, inputs=layer.inputs[:items], results=layer.results[:items])


def _compute_ideal(layer: RecordedLayer, sample: LayerSample) -> Array:
    """Return the real results without zero point, float64."""
    total = sample.sums + layer.biases[sample.channels]
    ideal: Array = total * layer.ideal_factors[sample.channels]
    return ideal


def measure_share(layer: RecordedLayer, distance: int = 1) -> float:
    """Measure the share of recorded results that differ from the ideal by at most ``distance``."""
    near = count = 0
    low, high = layer.clip
    for sample in layer.iterate_samples():
        ideal = np.clip(np.rint(_compute_ideal(layer, sample)) + layer.offset, low, high)
        near += int((np.abs(sample.results - ideal) <= distance).sum())
        count += sample.size
    return near / max(count, 1)


# --- unusual rules -------------------------------------------------------------------------------


def _find_unusual_rules(layer: RecordedLayer) -> LayerFault | None:
    """Search rules with a multiplier that is off by one unit."""
    usual = list_rules(layer.element, bool(layer.biases.any()))
    simple = [one for one in usual if one[0].family and one[0].family.place == IN_SUM]
    for sign, name in ((1, "more"), (-1, "less")):
        factors = tuple(_make_shifted_factor(bits, sign) for bits in range(7, 17))
        groups = [_replace_factors(group, factors) for group in simple]
        rules = find_rules(layer, groups).rules
        if rules:
            text = f"the multiplier is one unit {name} than the scales say"
            return LayerFault("scale", text, rules)
    return None


def _make_shifted_factor(bits: int, sign: int) -> RuleFactor:
    rounded = f"round_bits({IDEAL}, {bits})"
    out = f"{rounded} {'+' if sign > 0 else '-'} exp2(exponent({rounded}) - {bits})"
    name = f"fixed point of {bits} bits, one unit {'more' if sign > 0 else 'less'}"
    return RuleFactor(name, "fixed point", out, f"exponent({rounded}) - {bits}")


def _replace_factors(
    group: Sequence[RequantizationRule], factors: tuple[RuleFactor, ...]
) -> list[RequantizationRule]:
    family = group[0].family
    assert family is not None
    if (
        "real(out_mul)" in family.text
        or "bias_mul" in family.text
        or "narrow * out_mul" in family.text
    ):
        return list(group[:1])
    own: RuleFamily = attrs.evolve(family, factors=factors)
    return [RequantizationRule("", own, one, index) for index, one in enumerate(factors)]
