"""Probes: inputs, and if permitted weights, for which the rules of a class have other results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from nmpsim.analysis.identify.classes import Identification, RuleClass, group_rules
from nmpsim.analysis.identify.dumps import CONSTANT_PREFIX, EXPECTED_PREFIX
from nmpsim.analysis.identify.layers import (
    AnyLayer,
    RecordedLayer,
    RecordedOperation,
)
from nmpsim.analysis.identify.probe_layers import (
    find_all_thresholds,
    make_operand_grid,
    probe_constant_inputs,
    probe_inputs,
    probe_operands,
    probe_weights,
    probe_weights_and_inputs,
)
from nmpsim.analysis.identify.search import (
    RequantizationRule,
    RuleEvaluator,
    find_rules,
    remove_duplicates,
)
from nmpsim.analysis.identify.thresholds import (
    MAX_THRESHOLDS,
    has_complete_limits,
)
from nmpsim.analysis.layer_moves import find_input_moves
from nmpsim.arrays import Array, Arrays
from nmpsim.lir.nodes import Module

_ELEMENTS = 1 << 14
"""Elements on which all rules are compared at a time."""


@attrs.frozen(eq=False)
class Probe:
    """Probe of a rule class: inputs of a layer for which groups of rules give different results."""

    layer: AnyLayer
    """Layer with the probe's weights."""
    inputs: Arrays
    """Stacked inputs of the program by name, in its layout; empty if they were not recorded."""
    constants: Arrays
    """Weights to replace by name of the constant, in the layout of LIR."""
    groups: tuple[tuple[RequantizationRule, ...], ...]
    """Rules with equal results."""
    results: tuple[Array, ...]
    """Stacked results of the layer for each group, channels last."""

    def make_arrays(self) -> Arrays:
        """Make the arrays of the probe's file: inputs, constants, and rules with their results."""
        arrays = dict(self.inputs)
        arrays |= {CONSTANT_PREFIX + name: values for name, values in self.constants.items()}
        for index, (rules, values) in enumerate(zip(self.groups, self.results, strict=True)):
            arrays[f"{EXPECTED_PREFIX}{index}/result"] = values
            arrays[f"{EXPECTED_PREFIX}{index}/rules"] = np.array([rule.name for rule in rules])
        return arrays


@attrs.frozen(eq=False)
class ClassProbe:
    """Probe of a rule class if there is one, and whether the rules of the class are equal."""

    rule_class: RuleClass
    probe: Probe | None
    is_equal: bool | None = None
    """Whether the rules are equal for all sums of the layers; None if that is not known."""
    may_have_weights: bool = False
    """Whether a probe that replaces weights was not permitted and could exist."""


def is_open_class(one: RuleClass, probes: Sequence[ClassProbe]) -> bool:
    """Return whether a class has several rules that ``probes`` do not prove equal."""
    return len(one.rules) > 1 and not any(
        known.rule_class is one and known.is_equal for known in probes
    )


def make_class_probes(found: Identification, *, weights: bool = False) -> tuple[ClassProbe, ...]:
    """Make the first possible probe of a class; compare the rules of classes without a probe.

    A device runs one probe at a time. ``weights`` permits probes that replace weights and biases.
    """
    probes = []
    for one in found.classes:
        if len(one.rules) > 1:
            probe = make_probe(found, one, weights=weights)
            is_equal = has_equal_rules(one) if probe is None else False
            may_have_weights = not weights and isinstance(one.layers[0], RecordedLayer)
            probes.append(ClassProbe(one, probe, is_equal, may_have_weights))
            if probe is not None:
                break
    return tuple(probes)


def make_probe(found: Identification, one: RuleClass, *, weights: bool = False) -> Probe | None:
    """Make a probe of a rule class, or return None if no probe divides the rules into groups.

    Parameters
    ----------
    found
        Identification with the class.
    one
        The class.
    weights
        Whether the probe may replace weights and biases if no input divides the rules.
    """
    if len(one.rules) < 2:
        return None
    module = found.program.module
    rules = [rule for group in group_rules(one.rules) for rule in group]
    layers = [layer for layer in _list_layers(one) if not layer.has_recorded_constants]
    makers: list[tuple[Callable[..., Iterator[AnyLayer]], bool]] = [(probe_inputs, True)]
    if not isinstance(one.layers[0], RecordedLayer):
        makers = [(probe_operands, True)]
    elif weights:
        makers += [(probe_weights_and_inputs, True), (probe_weights, False)]
    for make, needs_input in makers:
        for layer in layers:
            has_input = all(find_input_moves(module, name) for name in layer.sources)
            for changed in make(layer, rules) if has_input or not needs_input else ():
                groups, results = _group_results(changed, rules)
                if len(groups) > 1:
                    inputs = _find_inputs(module, changed)
                    constants = _find_constants(module, layer, changed)
                    return Probe(changed, inputs, constants, groups, results)
    for layer, source, known in _list_readers(found, layers) if weights else ():
        for changed, constant in probe_constant_inputs(layer, rules, source):
            groups, results = _group_results(changed, rules)
            agreeing = find_rules(constant, group_rules(known)).rules
            if len(groups) > 1 and len(agreeing) == len(known):
                inputs = _find_inputs(module, changed)
                constants = _find_constants(module, source, constant)
                constants = {**_find_constants(module, layer, changed), **constants}
                return Probe(changed, inputs, constants, groups, results)
    return None


def _list_readers(
    found: Identification, layers: Sequence[AnyLayer]
) -> Iterator[tuple[RecordedLayer, RecordedLayer, tuple[RequantizationRule, ...]]]:
    """Yield layers that read another layer with weights, this layer, and its rules."""
    writers = {
        layer.operation.output.buffer.name: (layer, one.rules)
        for one in found.classes
        for layer in _list_layers(one)
        if isinstance(layer, RecordedLayer) and not layer.has_recorded_constants
    }
    for layer in layers:
        name = layer.operation.operands[1].buffer.name
        if isinstance(layer, RecordedLayer) and name in writers:
            yield layer, *writers[name]


def has_equal_rules(one: RuleClass) -> bool | None:
    """Return whether the rules of a class are equal for all sums, or None if that is unknown.

    All sums are compared that any inputs and weights of a layer have, with its scales and bias.
    Returns None if there are too many to compare.
    """
    rules = [rule for group in group_rules(one.rules) for rule in group]
    if len(rules) == 1:
        return True
    if isinstance(one.layers[0], RecordedOperation):
        return _compare_operands(one, rules)
    if not has_complete_limits(rules):
        return None
    work = 0
    for layer in _list_layers(one):
        assert isinstance(layer, RecordedLayer)
        work += len(rules) * (layer.clip[1] - layer.clip[0]) * layer.channels
        if work > MAX_THRESHOLDS:
            return None
        channels = np.arange(layer.channels)
        for part in find_all_thresholds(layer, rules, channels, has_all_results=True):
            if (part.sums != part.sums[0]).any():
                return False
    return True


def _compare_operands(one: RuleClass, rules: Sequence[RequantizationRule]) -> bool | None:
    """Return whether the rules of Int8 operations are equal for all operands.

    Returns None for Int16, for matrix products and for rules whose sums depend on their order.
    """
    for layer in one.layers:
        assert isinstance(layer, RecordedOperation)
        every = make_operand_grid(layer)
        texts = map(RuleEvaluator(layer).get_text, rules)
        if every is None or any("total" in text and "total =" not in text for text in texts):
            return None
        if len(_group_results(every, rules)[0]) > 1:
            return False
    return True


def _list_layers(one: RuleClass) -> list[AnyLayer]:
    """Return the layers of a class without repetitions; those with the model's weights first."""
    ordered = sorted(one.layers, key=lambda layer: layer.has_recorded_constants)
    return list({layer.name: layer for layer in reversed(ordered)}.values())[::-1]


def _group_results(
    layer: AnyLayer, rules: Sequence[RequantizationRule]
) -> tuple[tuple[tuple[RequantizationRule, ...], ...], tuple[Array, ...]]:
    """Group rules by their results for a layer's inputs; return groups and results."""
    evaluator, families = RuleEvaluator(layer), group_rules(rules)
    samples = list(layer.iterate_samples())
    groups = np.zeros(len(rules), np.int64)
    for sample in samples:
        known = remove_duplicates(sample)
        for first in range(0, known.size, _ELEMENTS):
            part = known.take(slice(first, first + _ELEMENTS))
            predicted = np.concatenate([evaluator.predict(one, part) for one in families])
            _, rows = np.unique(predicted.astype(np.int16), axis=0, return_inverse=True)
            keys = groups * len(rules) + rows.reshape(-1)
            groups = np.unique(keys, return_inverse=True)[1].reshape(-1)
    found = {number: np.flatnonzero(groups == number) for number in groups.tolist()}
    members = tuple(tuple(rules[index] for index in one.tolist()) for one in found.values())
    results = []
    for first_rule, *_ in members:
        parts = [evaluator.predict([first_rule], sample)[0] for sample in samples]
        values = np.concatenate(parts).astype(layer.results.dtype)
        results.append(values.reshape(-1, *layer.results.shape[2:]))
    return members, tuple(results)


def _find_inputs(module: Module, changed: AnyLayer) -> Arrays:
    """Return the program's inputs by name for the inputs of a probe's layer."""
    inputs = dict(changed.program_inputs)
    for source, values in changed.sources.items() if not inputs else ():
        traced = find_input_moves(module, source)
        if traced is not None:
            for move in reversed(traced[1]):
                values = move.undo(values)
            inputs[traced[0]] = values
    return {name: _stack(values) for name, values in inputs.items()}


def _stack(values: Array) -> Array:
    """Return an array [N, B, ...] of N batches reshaped to one batch [N * B, ...]."""
    return np.ascontiguousarray(values).reshape(-1, *values.shape[2:])


def _find_constants(module: Module, layer: AnyLayer, changed: AnyLayer) -> Arrays:
    """Return the stored weights and biases that differ from a layer's, by name of the constant."""
    if not (isinstance(layer, RecordedLayer) and isinstance(changed, RecordedLayer)):
        return {}
    own, bias = layer.operation.operands[2:4], changed.scales.bias
    values = {}
    if changed.weights is not layer.weights:
        values[own[0].buffer.name] = changed.stored_weights
    if bias is not layer.scales.bias:
        values[own[1].buffer.name] = bias.values
    stored = {name: module.constants[name] for name in values}
    return {name: values[name].astype(one.dtype).reshape(one.shape) for name, one in stored.items()}
