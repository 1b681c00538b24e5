"""Search for the rules that explain the recorded results of layers, by elimination."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.identify.evaluation import Integers, evaluate_formula, list_formula_names
from nmpsim.analysis.identify.layers import (
    AVERAGE_POOL,
    AnyLayer,
    LayerSample,
    RecordedLayer,
    RecordedOperation,
)
from nmpsim.analysis.identify.limits import NO_LIMITS, ArithmeticLimits, find_limits
from nmpsim.analysis.identify.operation_rules import make_operation_families
from nmpsim.analysis.identify.rules import IN_SUM, RuleFactor, RuleFamily, make_families
from nmpsim.arrays import Array
from nmpsim.bundle.formula_check import SCALE_WORDS
from nmpsim.compiler.numerics import PROFILES, ChannelBias, Requantization, WeightedLayerScales
from nmpsim.compiler.tiling.elementwise import BINARY
from nmpsim.diagnostics import UserError
from nmpsim.isa.profiles import PROFILES as DEVICE_PROFILES
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS

_STAGES = 96, 1024
"""Elements on which all rules, and the remaining ones, are tried before the whole layer."""
_PREDICTIONS = 1 << 14
"""Predictions of a group of rules that are computed at a time."""
_CLOSEST = 5
"""Rules of which the one with the most equal results is reported."""
_MIXED = 10
"""How much less simple each factor is than the one before if a rule rounds twice."""
_CHANNELS = 24
"""Most channels of the first sample."""
_TABLE, _UNKNOWN = 1 << 24, np.iinfo(np.int32).min
"""Most entries of a table of results, and the entry of a sum that was not recorded."""
Words: TypeAlias = Mapping[str, Integers]
"""Words of a requantization by name: [variants, channels]."""


@attrs.frozen(eq=False)
class RequantizationRule:
    """Rule that requantizes sums: a built-in profile, or a family with one of its factors."""

    profile: str = ""
    """Name of a profile of ``--numerics``; empty for other rules."""
    family: RuleFamily | None = None
    factor: RuleFactor | None = None
    index: int = 0
    """Position of the factor in the family's order of simplicity."""
    limits: ArithmeticLimits = NO_LIMITS
    """Limits of sums and results that the formula of the family lacks."""

    @property
    def rounding(self) -> str:
        """Name of the rounding and description of the limits; empty for a built-in profile."""
        rounding = self.family.rounding if self.family else ""
        return "; ".join(filter(None, (rounding, self.limits.description)))

    @property
    def formula(self) -> str:
        """Formula of the family with the limits added; empty for a built-in profile."""
        return self.limits.limit_formula(self.family.text) if self.family else ""

    @property
    def name(self) -> str:
        """Name of the rule, from its profile or from its factor, rounding and bias."""
        if self.profile:
            return f"profile {self.profile}"
        assert self.family is not None and self.factor is not None
        if not self.family.place:
            return f"{self.factor.name}; {self.rounding}"
        bias = "" if self.family.bias == "rint" else f", bias {self.family.bias}"
        return f"{self.factor.name}; {self.rounding}; bias in the {self.family.place}{bias}"

    @property
    def rank(self) -> tuple[int, int]:
        """Rank of the rule by simplicity; a smaller rank means a simpler rule."""
        if self.family is None:
            return -1, list(PROFILES).index(self.profile)
        index = self.index * (_MIXED if self.family.rounds_twice else 1)
        return index + self.family.rank, self.family.rank


@attrs.frozen(eq=False)
class LayerRules:
    """Rules that explain all recorded results of a layer, or the closest rule if no rule does."""

    layer: AnyLayer
    rules: tuple[RequantizationRule, ...]
    elements: int
    closest: RequantizationRule | None = None
    equal: int = 0
    """Results that ``closest`` explains."""
    residual: str = ""
    """Description of the results that ``closest`` does not explain."""
    largest_sum: int = 0
    """Largest magnitude of the sums, without bias, that ``rules`` explain."""


def _select_channels(layer: WeightedLayerScales, channels: Any) -> WeightedLayerScales:
    bias = layer.bias
    return attrs.evolve(
        layer,
        weight_scales=layer.weight_scales[channels],
        weight_offsets=layer.weight_offsets[channels],
        bias=ChannelBias(bias.values[channels], bias.scales[channels], bias.offsets[channels]),
    )


class RuleEvaluator:
    """Evaluator that predicts the results of a layer's elements under requantization rules.

    Parameters
    ----------
    layer
        Layer whose scales the words represent.
    """

    def __init__(self, layer: AnyLayer) -> None:
        self._layer = layer
        self._words: dict[tuple[str, ...], dict[str, Integers] | None] = {}
        self._tables: dict[Any, tuple[list[int], dict[str, Integers]]] = {}
        self._factors: dict[str, Requantization] = {}
        self._encoder = PROFILES["float"]
        self._channels = np.arange(layer.channels)

    def restrict(self, channels: Integers) -> None:
        """Restrict predictions to elements of ``channels``; discard all cached descriptor words."""
        self._channels = channels
        self._words, self._tables, self._factors = {}, {}, {}

    def predict(self, rules: Sequence[RequantizationRule], sample: LayerSample) -> Integers:
        """Predict the clipped results [rules, elements] of a sample under rules of one formula.

        A rule whose factor has no words for the layer has results that no device can record.
        """
        return self.make_predictor(rules, sample.channels, sample.operands)(sample.sums)

    def make_predictor(
        self,
        rules: Sequence[RequantizationRule],
        channels: Integers,
        operands: Mapping[str, Array] = MappingProxyType({}),
    ) -> Callable[[Integers], Integers]:
        """Make a function that predicts the results [rules, n] for sums [n] or [rules, n].

        Parameters
        ----------
        rules
            Rules of one family with the same limits.
        channels
            Output channel of each element, [n].
        operands
            Other values of the formula, see :class:`LayerSample`.
        """
        limits = rules[0].limits
        low, high = limits.limit_clip(self._layer.clip)
        element, out_offset = self._layer.element, np.int64(self._layer.offset)
        places = np.searchsorted(self._channels, channels)
        known, table = self._find_table(rules)
        text = self.get_text(rules[0]) if known else "0"
        used = list_formula_names(text, element) & table.keys()
        words = {name: table[name].take(places, axis=1) for name in used}
        start = table["start"].take(places, axis=1) if known and table["start"].any() else 0
        limit = 1 << (47 if element else 31)
        value = "acc"
        if isinstance(self._layer, RecordedOperation):
            value = self._layer.operation_kind.value
        words |= operands
        if known and "rhs" in operands:
            words["rhs"] = operands["rhs"] + table["rhs_start"].take(places, axis=1)
        if known and "divisor" in operands:
            start = start * operands["divisor"]
            is_valid = table["divide"].take(places, axis=1) == DIVIDE_BY_VALID_TAPS
            words["divisor"] = np.where(is_valid, operands["divisor"], table["other_divisor"])

        def predict(sums: Integers) -> Integers:
            results = np.full((len(rules), channels.size), np.iinfo(np.int64).min)
            if not known:
                return results
            acc = (sums[known] if sums.ndim > 1 else sums) + start
            if np.abs(acc).max(initial=0) >= limit:
                acc = np.clip(acc, -limit, limit - 1)
            acc = limits.limit_sums(acc)
            raw = evaluate_formula(text, element, {"out_offset": out_offset, **words, value: acc})
            results[known] = np.clip(raw, low, high)
            return results

        return predict

    def _find_table(
        self, rules: Sequence[RequantizationRule]
    ) -> tuple[list[int], dict[str, Integers]]:
        """Return the indices of the rules that have words, and their words [rules, channels]."""
        keys = tuple(map(self._make_key, rules))
        if keys not in self._tables:
            found = [self._find_words(*pair) for pair in zip(keys, rules, strict=True)]
            words = [one for one in found if one is not None]
            known = [index for index, one in enumerate(found) if one is not None]
            names = set(words[0]).intersection(*words) if words else ()
            table = {name: np.stack([one[name] for one in words]) for name in names}
            self._tables[keys] = known, table
        return self._tables[keys]

    def _make_key(self, rule: RequantizationRule) -> tuple[str, ...]:
        family, factor = rule.family, rule.factor
        if family is None or factor is None:
            return (rule.profile,)
        return factor.name, family.place, family.bias, str(family.adds_bias_first)

    def get_text(self, rule: RequantizationRule) -> str:
        """Return the formula of a rule without its limits, which may be that of a profile."""
        if rule.family is not None:
            return rule.family.text
        if isinstance(self._layer, RecordedLayer):
            number, kind = self._encode_profile(rule.profile).profile, "sums"
        else:
            number = self._layer.encode_factors(PROFILES[rule.profile])["profile"]
            kind = self._layer.operation_kind.formula
        text = FORMULAS[DEVICE_PROFILES[number]][kind]
        return str(text[ELEMENTS[self._layer.element]] if isinstance(text, dict) else text)

    def _encode(self, row: Mapping[str, str]) -> Requantization:
        return self._encoder.with_factors({"sums": row}).make_requantization(self._scales)

    def _encode_profile(self, name: str) -> Requantization:
        return PROFILES[name].make_requantization(self._scales)

    @property
    def _scales(self) -> WeightedLayerScales:
        assert isinstance(self._layer, RecordedLayer)
        return _select_channels(self._layer.scales, self._channels)

    def _find_words(
        self, key: tuple[str, ...], rule: RequantizationRule
    ) -> dict[str, Integers] | None:
        """Return the words of a rule, or None if its factors cannot be encoded."""
        if key not in self._words:
            try:
                self._words[key] = self._make_words(rule)
            except (UserError, KeyError, OverflowError, ValueError):
                self._words[key] = None
        return self._words[key]

    def _make_words(self, rule: RequantizationRule) -> dict[str, Integers]:
        if isinstance(self._layer, RecordedOperation):
            return _make_operation_words(self._layer, rule)
        if rule.family is None:
            made = self._encode_profile(rule.profile)
            start_text = FORMULAS[DEVICE_PROFILES[made.profile]]["bias"]
        else:
            assert rule.factor is not None
            row = rule.family.make_factor_row(rule.factor)
            if rule.factor.name not in self._factors:
                self._factors[rule.factor.name] = self._encode(row)
            known = self._factors[rule.factor.name]
            made = known
            if rule.family.place != IN_SUM:  # the factor's words are known
                made = self._encode({**row, "form": "float", "out": "1"})
                made = attrs.evolve(
                    made, bias_scales=known.bias_scales, out_scales=known.out_scales
                )
            start_text = "bias" if rule.family.place == IN_SUM else "0"
        words = {"bias": made.bias}
        for name, scales in (("bias", made.bias_scales), ("out", made.out_scales)):
            table = np.array([(one.pre, one.mul, one.post) for one in scales], np.int64)
            words |= zip((f"{name}_pre", f"{name}_mul", f"{name}_post"), table.T, strict=True)
        words["result_scale"] = np.full(made.bias.size, made.result_scale, np.int64)
        start = evaluate_formula(start_text, self._layer.element, words)
        words["start"] = np.broadcast_to(start, made.bias.shape)
        return words


def _make_operation_words(
    layer: RecordedOperation, rule: RequantizationRule
) -> dict[str, Integers]:
    """Return the words of a rule of an operation without weights."""
    opcode, views = layer.operation.instruction.opcode, layer.operation.operands
    encoder = PROFILES[rule.profile or "float"]
    if rule.family is not None and rule.factor is not None:
        encoder = encoder.with_factors({opcode: rule.family.make_factor_row(rule.factor)})
    words = dict.fromkeys(_OPERATION_WORDS, 0) | layer.encode_factors(encoder)
    words["operation"] = BINARY.get(opcode, 0)
    names = ("in",) if opcode == AVERAGE_POOL else ("lhs", "rhs")
    for name, view, key in zip(names, views[1:], ("start", "rhs_start"), strict=False):
        words[key] = view.offset - words.get(f"{name}_offset", view.offset)
    words.setdefault("out_offset", views[0].offset)
    if opcode == AVERAGE_POOL:  # a formula with a float32 sum divides by the whole window
        has_total = "total" in str(FORMULAS[DEVICE_PROFILES[words["profile"]]].get("average"))
        words["other_divisor"] = layer.window.taps if has_total else 1
    return {name: np.array([number], np.int64) for name, number in words.items()}


_OPERATION_WORDS = [
    f"{name}_{part}" for name in ("lhs", "rhs", "out", "bias") for part in SCALE_WORDS
]
_OPERATION_WORDS += ["result_scale", "bias"]


@cache
def list_rules(element: int, has_bias: bool) -> list[list[RequantizationRule]]:
    """Return all rules that requantize sums, grouped by formula; built-in profiles come first."""
    return _group_families(make_families(element, has_bias=has_bias))


@cache
def list_operation_rules(
    opcode: str, element: int, has_padding: bool
) -> list[list[RequantizationRule]]:
    """Return all rules of an operation without weights, grouped by formula, profiles first."""
    return _group_families(make_operation_families(opcode, element, has_padding=has_padding))


def _list_all_rules(layer: AnyLayer) -> list[list[RequantizationRule]]:
    """Return all rules of a layer, grouped by formula."""
    if isinstance(layer, RecordedLayer):
        return list_rules(layer.element, layer.has_bias)
    return list_operation_rules(layer.opcode, layer.element, layer.has_padding)


def _group_families(families: Sequence[RuleFamily]) -> list[list[RequantizationRule]]:
    groups = [[RequantizationRule(profile)] for profile in PROFILES]
    for family in families:
        groups.append(
            [RequantizationRule("", family, one, i) for i, one in enumerate(family.factors)]
        )
    return groups


def select_elements(layer: AnyLayer, sample: LayerSample, count: int) -> Integers:
    """Select at most ``count`` elements by index: those nearest to ties, and evenly spread ones."""
    exact = layer.compute_ideal_results(sample)
    low, high = layer.clip
    inner = np.flatnonzero((sample.results > low) & (sample.results < high))
    if inner.size < count // 2:
        inner = np.arange(sample.size)
    fraction = np.abs(exact[inner] - np.floor(exact[inner]) - 0.5)
    near = inner[np.argsort(fraction, kind="stable")]
    spread = inner[np.linspace(0, inner.size - 1, min(count // 2, inner.size)).astype(int)]
    return np.unique(np.concatenate([near[: count - spread.size], spread]))


def find_rules(
    layer: AnyLayer,
    groups: Sequence[Sequence[RequantizationRule]] | None = None,
    first: LayerSample | None = None,
    table: ResultTable | None = None,
) -> LayerRules:
    """Find the rules whose predictions equal all recorded results of a layer.

    All rules are tried on some elements, the remaining ones on more, then on all. If none remains,
    they are tried with limits of sums and results, which the first elements do not exceed.

    Parameters
    ----------
    layer
        Layer with its recorded results.
    groups
        Rules to try without further limits, grouped by formula. None for all rules.
    first
        Distinct elements of the layer's first block, if they are known. No closest rule is then
        determined.
    table
        Results of earlier rows that ``groups`` explain. Updated.
    """
    evaluator = RuleEvaluator(layer)
    whole = None
    if first is None:
        whole = next(layer.iterate_samples())
        first = remove_duplicates(whole) if table is None else whole
    limits = find_limits(layer, first) if groups is None else []
    if groups is None:
        groups = _list_all_rules(layer)
    reaches_limits = _find_limited(layer, first, limits)
    inside = first.take(np.flatnonzero(~reaches_limits))
    if layer.channels > _CHANNELS:
        chosen = np.linspace(0, layer.channels - 1, _CHANNELS).astype(np.int64)
        evaluator.restrict(chosen)
        inside = inside.take(np.flatnonzero(np.isin(inside.channels, chosen)))
    for count in _STAGES if inside.size and table is None else ():
        part = inside.take(select_elements(layer, inside, count))
        remaining = list(_eliminate(evaluator, groups, part))
        if not remaining:
            return _describe_failure(layer, groups, part, whole)
        groups = remaining
    evaluator.restrict(np.arange(layer.channels))
    block = first
    for one in (NO_LIMITS, *limits):
        remaining = [
            [attrs.evolve(rule, limits=one) if limits else rule for rule in group]
            for group in groups
            if group[0].family or one is NO_LIMITS
        ]
        for block in _iterate_blocks(layer, first, reaches_limits, table):
            remaining = list(_eliminate(evaluator, remaining, block))
            if not remaining:
                break
        else:
            rules = sorted(
                (rule for group in remaining for rule in group), key=lambda rule: rule.rank
            )
            largest = int(np.abs(first.sums).max(initial=0))
            return LayerRules(layer, tuple(rules), layer.results.size, largest_sum=largest)
    is_later = whole is not None and block.size and block is not first
    return _describe_failure(layer, groups, block, block if is_later else whole)


def _find_limited(
    layer: AnyLayer, sample: LayerSample, limits: Sequence[ArithmeticLimits]
) -> npt.NDArray[np.bool_]:
    """Return whether each element of a sample reaches any of the limits."""
    totals = sample.sums
    if isinstance(layer, RecordedLayer):
        totals = np.maximum(np.abs(totals), np.abs(totals + layer.biases[sample.channels]))
    found = np.zeros(sample.size, bool)
    for one in limits:
        low, high = one.limit_clip(layer.clip)
        found |= (sample.results <= low) | (sample.results >= high)
        found |= one.limit_sums(totals) != totals
    return found


def _iterate_blocks(
    layer: AnyLayer,
    first: LayerSample,
    reaches_limits: npt.NDArray[np.bool_],
    table: ResultTable | None,
) -> Iterator[LayerSample]:
    """Yield the distinct elements of a layer in blocks, after some elements that reach limits."""
    reached = np.flatnonzero(reaches_limits)
    if reached.size:
        spread = np.linspace(0, reached.size - 1, min(_STAGES[-1], reached.size)).astype(np.int64)
        yield first.take(reached[spread])
    table = table or ResultTable(first)
    yield table.take_new(first)
    yield from map(table.take_new, itertools.islice(layer.iterate_samples(), 1, None))


class ResultTable:
    """Table of a layer's recorded results by channel and sum, which rules need not explain again.

    Parameters
    ----------
    sample
        Elements whose range of sums the table covers with a margin.
    """

    def __init__(self, sample: LayerSample) -> None:
        least, most = int(sample.sums.min(initial=0)), int(sample.sums.max(initial=0))
        margin = most - least >> 2
        self._least, self._span = least - margin, most - least + 2 * margin + 1
        size = self._span * (int(sample.channels.max(initial=0)) + 1)
        is_usable = size <= _TABLE and not sample.operands
        self._results = np.full(size if is_usable else 0, _UNKNOWN, np.int32)

    def take_new(self, sample: LayerSample) -> LayerSample:
        """Return the distinct elements that the table lacks, and add them to the table."""
        if not self._results.size:
            return remove_duplicates(sample)
        places = sample.sums - self._least
        outside = (places < 0) | (places >= self._span)
        keys = np.where(outside, 0, sample.channels * self._span + places)
        is_new = outside | (self._results.take(keys) != sample.results)
        if not is_new.any():
            return sample.take(slice(0))
        new = np.flatnonzero(is_new)
        inside = new[~outside[new]]
        self._results[keys[inside]] = sample.results[inside]
        return remove_duplicates(sample.take(new))


def remove_duplicates(sample: LayerSample) -> LayerSample:
    """Return a sample with each distinct element of ``sample`` once."""
    least, lowest = int(sample.sums.min()), int(sample.results.min())
    span, width = int(sample.sums.max()) - least + 1, int(sample.results.max()) - lowest + 1
    if span * width * (int(sample.channels.max()) + 1) >= 1 << 63:
        return sample
    if sample.operands:
        table = np.stack([sample.sums, sample.results, *sample.operands.values()])
        return sample.take(np.unique(table, axis=1, return_index=True)[1])
    keys = (sample.channels * span + sample.sums - least) * width + sample.results - lowest
    return sample.take(np.unique(keys, return_index=True)[1])


def _eliminate(
    evaluator: RuleEvaluator, groups: Sequence[Sequence[RequantizationRule]], sample: LayerSample
) -> Iterator[list[RequantizationRule]]:
    """Yield the rules of each group that explain all elements of a sample."""
    for group in groups:
        remaining, first = list(group), 0
        while remaining and first < sample.size:
            count = max(_PREDICTIONS // len(remaining), _STAGES[0])
            part = sample.take(slice(first, first + count))
            fits = (evaluator.predict(remaining, part) == part.results).all(axis=1)
            remaining = list(itertools.compress(remaining, fits))
            first += count
        if remaining:
            yield remaining


def _describe_failure(
    layer: AnyLayer,
    groups: Sequence[Sequence[RequantizationRule]],
    sample: LayerSample,
    block: LayerSample | None,
) -> LayerRules:
    """Return the rule with the most equal results, and the pattern of the other results.

    The best rules of a sample are compared on a block of the layer, if there is one.
    """
    if block is None:
        return LayerRules(layer, (), 0)
    evaluator = RuleEvaluator(layer)
    counts: list[tuple[int, RequantizationRule]] = []
    for group in groups:
        equal = (evaluator.predict(group, sample) == sample.results).sum(axis=1)
        counts.append((int(equal.max()), group[int(equal.argmax())]))
    counts.sort(key=lambda pair: (-pair[0], pair[1].rank))
    best = [evaluator.predict([rule], block)[0] for _, rule in counts[:_CLOSEST]]
    equals = [int((one == block.results).sum()) for one in best]
    index = int(np.argmax(equals))
    residual = describe_residual(best[index], block)
    return LayerRules(layer, (), block.size, counts[index][1], equals[index], residual)


def describe_residual(predicted: Integers, sample: LayerSample) -> str:
    """Describe the most frequent differences between a sample's recorded and predicted results."""
    difference = sample.results - predicted
    wrong = difference != 0
    values, counts = np.unique(difference[wrong], return_counts=True)
    most = np.argsort(-counts)[:3]
    shown = ", ".join(f"{values[one]:+d} ({counts[one]:,} times)" for one in most)
    channels = np.unique(sample.channels[wrong]).size
    known = np.unique(sample.channels).size
    return f"recorded less predicted: {shown}; in {channels:,} of {known:,} channels"
