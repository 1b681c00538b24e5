"""Probes: inputs, and if permitted weights, for which the rules of a class have other results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.classes import Identification, RuleClass, group_rules
from nmpsim.analysis.identify.dumps import CONSTANT_PREFIX, EXPECTED_PREFIX
from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.identify.layers import (
    CONNECTED,
    AnyLayer,
    RecordedLayer,
    RecordedOperation,
)
from nmpsim.analysis.identify.search import (
    RequantizationRule,
    RuleEvaluator,
    remove_duplicates,
)
from nmpsim.analysis.identify.thresholds import (
    MAX_THRESHOLDS,
    Thresholds,
    choose_sums,
    get_sum_limits,
    has_complete_limits,
    iterate_thresholds,
)
from nmpsim.analysis.layer_moves import find_input_moves
from nmpsim.arrays import Array, Arrays
from nmpsim.lir.nodes import Module

MAX_SUMS = 256
"""Most sums that a probe produces."""
_CHANNELS = 64
"""Most channels in which sums are chosen."""
_MAX_TAPS, _MAX_RANGE = 12, 1 << 22
"""Most weights of a channel, and largest difference of two sums, of which all sums are listed."""
_MOST_ELEMENTS = 1 << 18
_ITEMS = 4
"""Most recorded items that a probe of weights repeats."""
_ELEMENTS = 1 << 14
"""Elements on which all rules are compared at a time."""
_WINDOWS = 256
"""Most windows of an item for whose values weights are solved."""
_ATTEMPTS = 200


@attrs.frozen(eq=False)
class Probe:
    """Probe of a rule class: inputs of a layer for which groups of rules give different results."""

    layer: RecordedLayer
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
        """Make the arrays of the probe's file by key: inputs, and rules and results by group."""
        arrays = dict(self.inputs)
        arrays |= {CONSTANT_PREFIX + name: values for name, values in self.constants.items()}
        for index, (rules, values) in enumerate(zip(self.groups, self.results, strict=True)):
            arrays[f"{EXPECTED_PREFIX}{index}/result"] = values
            arrays[f"{EXPECTED_PREFIX}{index}/rules"] = np.array([rule.name for rule in rules])
        return arrays


@attrs.frozen(eq=False)
class ClassProbe:
    """Rule class of several rules, and its probe or the reason why it has none."""

    rule_class: RuleClass
    probe: Probe | None
    is_equal: bool | None = None
    """Whether the rules are equal for all sums of the layers; None if that is not known."""
    may_have_weights: bool = False
    """Whether a probe that replaces weights was not permitted and could exist."""


def probe_classes(found: Identification, *, weights: bool = False) -> tuple[ClassProbe, ...]:
    """Make a probe of the first class that has one, and compare the rules of classes without.

    A device runs one probe at a time. ``weights`` permits probes that replace weights and biases.
    """
    probes = []
    for one in found.classes:
        if len(one.rules) > 1:
            probe = make_probe(found, one, weights=weights)
            is_equal = has_equal_rules(one) if probe is None else False
            may_have_weights = not weights and _list_layers(one) is not None
            probes.append(ClassProbe(one, probe, is_equal, may_have_weights))
            if probe is not None:
                break
    return tuple(probes)


def make_probe(found: Identification, one: RuleClass, *, weights: bool = False) -> Probe | None:
    """Make a probe of a rule class, or return None if no probe divides the rules into groups.

    Only layers with weights have probes.

    Parameters
    ----------
    found
        Identification with the class.
    one
        The class.
    weights
        Whether the probe may replace weights and biases if no input divides the rules.
    """
    known = _list_layers(one)
    if len(one.rules) < 2 or known is None:
        return None
    module = found.program.module
    rules = [rule for group in group_rules(one.rules) for rule in group]
    layers = [layer for layer in known if not layer.has_recorded_constants]
    reads_input = [find_input_moves(module, layer.source_name) is not None for layer in layers]
    makers: list[tuple[Callable[..., Iterator[RecordedLayer]], bool]] = [(_probe_inputs, True)]
    if weights:
        makers += [
            (_probe_weights_and_inputs, True), (_probe_bias, False), (_probe_weights, False),
        ]  # fmt: skip
    for make, needs_input in makers:
        for layer, has_input in zip(layers, reads_input, strict=True):
            for changed in make(layer, rules) if has_input or not needs_input else ():
                groups, results = _group_results(changed, rules)
                if len(groups) > 1:
                    inputs = _find_inputs(module, layer, changed)
                    constants = _find_constants(module, layer, changed)
                    return Probe(changed, inputs, constants, groups, results)
    return None


def has_equal_rules(one: RuleClass) -> bool | None:
    """Return whether the rules of a class are equal for all sums of its layers.

    All sums are compared that any inputs and weights of a layer have, with its scales and bias.
    Returns None if there are too many to compare.
    """
    rules = [rule for group in group_rules(one.rules) for rule in group]
    layers = _list_layers(one)
    if len(rules) == 1:
        return True
    if layers is None:
        return _compare_operands(one, rules)
    if not has_complete_limits(rules):
        return None
    work = 0
    for layer in layers:
        work += len(rules) * (layer.clip[1] - layer.clip[0]) * layer.channels
        if work > MAX_THRESHOLDS:
            return None
        channels = np.arange(layer.channels)
        for part in _find_all_thresholds(layer, rules, channels, has_all_results=True):
            if (part.sums != part.sums[0]).any():
                return False
    return True


def _compare_operands(one: RuleClass, rules: Sequence[RequantizationRule]) -> bool | None:
    """Return whether the rules of Int8 operations are equal for all operands; None for Int16."""
    for layer in one.layers:
        assert isinstance(layer, RecordedOperation)
        if layer.element:
            return None
        grid = np.arange(-128, 128, dtype=np.int8)
        operands = np.meshgrid(*[grid] * len(layer.inputs))
        every = attrs.evolve(layer, inputs=tuple(operands), results=operands[0])
        if len(_group_results(every, rules)[0]) > 1:
            return False
    return True


def _list_layers(one: RuleClass) -> list[RecordedLayer] | None:
    """Return the layers of a class without repetitions; those with the model's weights first.

    Returns None for operations without weights.
    """
    layers = [layer for layer in one.layers if isinstance(layer, RecordedLayer)]
    if not layers:
        return None
    ordered = sorted(layers, key=lambda layer: layer.has_recorded_constants)
    return list({layer.name: layer for layer in reversed(ordered)}.values())[::-1]


def _group_results(
    layer: AnyLayer, rules: Sequence[RequantizationRule]
) -> tuple[tuple[tuple[RequantizationRule, ...], ...], tuple[Array, ...]]:
    """Return the groups of rules with equal results for the inputs of a layer, and the results."""
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


def _find_inputs(module: Module, layer: RecordedLayer, changed: RecordedLayer) -> Arrays:
    """Return the program's inputs by name for the inputs of a probe's layer."""
    traced = find_input_moves(module, layer.source_name)
    if traced is None or changed.program_inputs:
        return {name: _stack(values) for name, values in changed.program_inputs.items()}
    name, moves = traced
    values = changed.inputs
    for move in reversed(moves):
        values = move.undo(values)
    return {name: _stack(values)}


def _stack(values: Array) -> Array:
    """Return items [N, B, ...] as one batch."""
    return np.ascontiguousarray(values).reshape(-1, *values.shape[2:])


def _find_constants(module: Module, layer: RecordedLayer, changed: RecordedLayer) -> Arrays:
    """Return the stored weights and biases that differ from a layer's, by name of the constant."""
    own, bias = layer.operation.operands[2:4], changed.scales.bias
    values = {}
    if changed.weights is not layer.weights:
        values[own[0].buffer.name] = changed.stored_weights
    if bias is not layer.scales.bias:
        values[own[1].buffer.name] = bias.values
    stored = {name: module.constants[name] for name in values}
    return {name: values[name].astype(one.dtype).reshape(one.shape) for name, one in stored.items()}


# --- sums ----------------------------------------------------------------------------------------


def _flatten_weights(layer: RecordedLayer) -> Integers:
    """Return the weights as [outputs, inputs per output]."""
    if layer.operation.instruction.opcode == "fullyconnected":
        return layer.weights.T
    return layer.weights.reshape(len(layer.weights), -1)


def _get_input_range(layer: RecordedLayer) -> tuple[int, int]:
    limits = np.iinfo(layer.inputs.dtype)
    offset = layer.scales.source.offset
    return int(limits.min) - offset, int(limits.max) - offset


def _get_weight_range(layer: RecordedLayer, channel: int) -> tuple[int, int]:
    """Return the range of the weights of a channel without the smallest stored integer."""
    limits = np.iinfo(layer.operation.operands[2].type.dtype)
    offset = int(layer.scales.weight_offsets[channel])
    return int(limits.min) + 1 - offset, int(limits.max) - offset


def _select_channels(layer: RecordedLayer, rules: Sequence[RequantizationRule]) -> Integers:
    """Select so many channels that their thresholds are found quickly."""
    most = MAX_THRESHOLDS // (len(rules) * (layer.clip[1] - layer.clip[0] + 1))
    count = min(max(most, 1), _CHANNELS, layer.channels)
    return np.unique(np.linspace(0, layer.channels - 1, count).astype(np.int64))


def _find_all_thresholds(
    layer: RecordedLayer,
    rules: Sequence[RequantizationRule],
    channels: Integers,
    *,
    has_all_results: bool = False,
) -> Iterator[Thresholds]:
    """Yield the thresholds of rules among all sums that any inputs and weights have."""
    limits = get_sum_limits(layer, rules)
    parts = iterate_thresholds(layer, rules, channels, limits, has_all_results=has_all_results)
    for part in parts:
        if layer.taps > 1:
            yield part
            continue
        first, last = _get_input_range(layer)
        sums = {}
        for channel in np.unique(part.channels).tolist():
            low, high = _get_weight_range(layer, channel)
            products = np.outer(np.arange(first, last + 1), np.arange(low - 1, high + 1))
            sums[channel] = np.unique(products)
        yield _select_sums(part, sums, limits)


def _find_reachable_thresholds(
    layer: RecordedLayer, rules: Sequence[RequantizationRule], channels: Integers
) -> Iterator[Thresholds]:
    """Yield the thresholds of rules among the sums that inputs have with a layer's weights.

    Sums of many weights are not listed, and are not restricted.
    """
    limits, (low, high) = get_sum_limits(layer, rules), _get_input_range(layer)
    weights = _flatten_weights(layer)
    for part in iterate_thresholds(layer, rules, channels, limits):
        sums = {}
        for channel in np.unique(part.channels).tolist():
            row = weights[channel]
            ends = [
                np.minimum(row * low, row * high).sum(),
                np.maximum(row * low, row * high).sum(),
            ]
            listed = list_sums(row[row != 0], (low, high))
            sums[channel] = np.arange(ends[0], ends[1] + 1) if listed is None else listed
        yield _select_sums(part, sums, limits)


def list_sums(weights: Integers, limits: tuple[int, int]) -> Integers | None:
    """List the sums of products of weights with integers within ``limits``.

    Returns
    -------
    numpy.ndarray or None
        The sums in increasing order; None if there are too many weights or sums.
    """
    low, high = limits
    span = int(np.abs(weights).sum()) * (high - low)
    if weights.size > _MAX_TAPS or span > _MAX_RANGE:
        return None
    found = np.zeros(span + 1, bool)
    found[0] = True
    for weight in np.abs(weights).tolist():
        steps, covered = high - low, 0
        while covered < steps:  # the sums with 0 to ``covered`` times the weight are known
            shift = min(covered + 1, steps - covered)
            moved = found[: found.size - shift * weight].copy()
            found[shift * weight :] |= moved
            covered += shift
    first = int(np.minimum(weights * low, weights * high).sum())
    return np.flatnonzero(found) + first


def _select_sums(part: Thresholds, sums: Mapping[int, Integers], limits: Integers) -> Thresholds:
    """Replace thresholds by the next sums that can occur, or by the limit if there is none."""
    chosen = part.sums.copy()
    for channel, known in sums.items():
        columns = part.channels == channel
        ends = np.append(known, limits[1, channel] + 1)
        next_sums = ends[np.searchsorted(known, part.sums[:, columns])]
        chosen[:, columns] = np.minimum(next_sums, ends[-1])
    return Thresholds(part.channels, chosen)


def _choose_targets(parts: Iterator[Thresholds], rules: int, *, most: int) -> Integers:
    """Choose pairs of a channel and a sum, at most ``most`` in a channel, that divide rules."""
    groups, targets = np.zeros(rules, np.int64), list[tuple[int, int]]()
    for part in parts:
        if len(targets) == MAX_SUMS:
            break
        for channel in np.unique(part.channels).tolist():
            own = part.select_columns(np.flatnonzero(part.channels == channel))
            for count, (_, value, divided) in enumerate(choose_sums(own, groups)):
                if count == most or len(targets) == MAX_SUMS:
                    break
                groups = divided
                targets.append((channel, value))
    return np.array(targets, np.int64).reshape(-1, 2)


# --- inputs and weights --------------------------------------------------------------------------


def _probe_inputs(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a layer with inputs on which rules differ, if there are any."""
    parts = _find_reachable_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=MAX_SUMS)
    if targets.size:
        yield _make_inputs(layer, targets)


def _probe_weights_and_inputs(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a layer with weights and inputs on which rules differ, if there are any."""
    parts = _find_all_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=MAX_SUMS)
    if not targets.size:
        return
    weights, rng = _flatten_weights(layer).copy(), np.random.default_rng(1)
    low, high = _get_input_range(layer)
    for channel in range(len(weights)):
        first, last = _get_weight_range(layer, channel)
        own = targets[targets[:, 0] == channel, 1]
        weights[channel] = rng.integers(first, last + 1, layer.taps)
        if layer.taps == 1:
            values = np.array([one for one in range(first, last + 1) if one])
            factors, rest = np.divmod(own[:, None], values)
            fits = (rest == 0) & (factors >= low) & (factors <= high)
            weights[channel] = values[fits.sum(axis=0).argmax()]
        else:
            weights[channel, :2] = 1, last
    yield _make_inputs(_with_weights(layer, weights), targets)


def _probe_weights(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a layer with its recorded inputs and weights on which rules differ, if there are any.

    Each channel has the weights of one sum.
    """
    parts = _find_all_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=1)
    weights, rng = _flatten_weights(layer).copy(), np.random.default_rng(2)
    windows = list(_list_windows(layer))[:_WINDOWS]
    few = _take_items(layer)
    inputs = few.inputs.astype(np.int64) - layer.scales.source.offset
    for channel, target in targets.tolist():
        limits = _get_weight_range(layer, channel)
        values = np.stack([one[place(channel)].reshape(-1) for one in inputs for place in windows])
        largest = np.maximum(values * limits[0], values * limits[1]).sum(axis=1)
        least = np.minimum(values * limits[0], values * limits[1]).sum(axis=1)
        usable = values[(least <= target) & (target <= largest)]
        for row in rng.permutation(np.unique(usable, axis=0))[:_WINDOWS]:
            solved = solve_sum(row, weights[channel], target, limits, rng, attempts=4)
            if solved is not None:
                weights[channel] = solved
                break
    if targets.size:
        yield _with_weights(few, weights)


def _probe_bias(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a layer with its recorded inputs and biases for which rules differ, if there are any.

    Each channel has the bias with which a recorded sum becomes the chosen sum.
    """
    bias = layer.scales.bias
    if bias.is_float or not np.array_equal(bias.scales, layer.scales.products):
        return
    parts = _find_all_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=1)
    values, rng = bias.values.copy(), np.random.default_rng(3)
    few = _take_items(layer)
    sample = next(few.iterate_samples())
    for channel, target in targets.tolist():
        known = sample.sums[sample.channels == channel]
        values[channel] += target - int(known[rng.integers(known.size)])
    if targets.size:
        changed = attrs.evolve(bias, values=values)
        yield attrs.evolve(few, scales=attrs.evolve(layer.scales, bias=changed))


def _take_items(layer: RecordedLayer) -> RecordedLayer:
    """Return a layer with some recorded items."""
    items = max(min(_MOST_ELEMENTS // max(layer.results[0].size, 1), _ITEMS), 1)
    few = {name: values[:items] for name, values in layer.program_inputs.items()}
    inputs, results = layer.inputs[:items], layer.results[:items]
    return attrs.evolve(layer, inputs=inputs, results=results, program_inputs=few)


def _with_weights(layer: RecordedLayer, weights: Integers) -> RecordedLayer:
    """Return a layer with other weights [outputs, inputs per output]."""
    is_column = layer.operation.instruction.opcode == "fullyconnected"
    own = weights.T if is_column else weights.reshape(layer.weights.shape)
    return attrs.evolve(layer, weights=np.ascontiguousarray(own))


def _make_inputs(layer: RecordedLayer, targets: Integers) -> RecordedLayer:
    """Return a layer with inputs whose sums contain the targets, where they can be reached."""
    weights, rng = _flatten_weights(layer), np.random.default_rng(0)
    shape, offset = layer.inputs.shape[1:], layer.scales.source.offset
    windows = list(_list_windows(layer))
    items = -(-len(targets) // len(windows))
    low, high = _get_input_range(layer)
    inputs = rng.integers(low, high + 1, (items, *shape))
    for index, (channel, target) in enumerate(targets.tolist()):
        item, window = divmod(index, len(windows))
        place = windows[window](channel)
        values = inputs[item][place].reshape(-1)
        solved = solve_sum(weights[channel], values, int(target), (low, high), rng)
        if solved is not None:
            inputs[item][place] = solved.reshape(inputs[item][place].shape)
    results = np.zeros((items, *layer.results.shape[1:]), layer.results.dtype)
    stored = (inputs + offset).astype(layer.inputs.dtype)
    return attrs.evolve(layer, inputs=stored, results=results, program_inputs={})


def _list_windows(layer: RecordedLayer) -> Iterator[Any]:
    """Yield functions from an output channel to the indices of the inputs of one result.

    Windows do not overlap and lie within the input.
    """
    op = layer.operation
    if layer.kind == CONNECTED:
        for row in range(op.operands[1].shape[0]):
            yield lambda _, row=row: (row, slice(None))
        return
    kernel, strides = op.get_integers("Kernels"), op.get_integers("Strides")
    pads, dilation = op.get_integers("Pads"), op.get_integers("Dilation") or (1, 1)
    _, rows, columns, channels = op.operands[0].shape
    height, width = op.operands[1].shape[1:3]
    group = int(op.get_number("Group", 1))
    depth = op.operands[1].shape[3] // group
    extents = [dilation[axis] * (kernel[axis] - 1) + 1 for axis in (0, 1)]
    steps = [-(-extents[axis] // strides[axis]) for axis in (0, 1)]
    for y in range(0, rows, steps[0]):
        for x in range(0, columns, steps[1]):
            top, left = y * strides[0] - pads[0], x * strides[1] - pads[1]
            if top < 0 or left < 0 or top + extents[0] > height or left + extents[1] > width:
                continue
            vertical = slice(top, top + extents[0], dilation[0])
            horizontal = slice(left, left + extents[1], dilation[1])

            def place(channel: int, at: Any = (vertical, horizontal)) -> Any:
                first = channel // (channels // group) * depth
                return (0, *at, slice(first, first + depth))

            yield place


def solve_sum(
    weights: Integers, values: Integers, target: int, limits: tuple[int, int],
    rng: np.random.Generator, attempts: int = _ATTEMPTS,
) -> Integers | None:  # fmt: skip
    """Solve for integers within ``limits`` whose weighted sum is ``target``, or return None.

    Random values are moved towards the target; then two values solve the rest exactly.
    """
    low, high = limits
    used = np.flatnonzero(weights)
    if not used.size:
        return None
    for _ in range(attempts):
        solved = values.copy()
        for place in rng.permutation(used).tolist():
            rest = target - int(weights @ solved)
            step = rest // int(weights[place])
            solved[place] = min(max(int(solved[place]) + step, low), high)
        rest = target - int(weights @ solved)
        if rest == 0:
            return solved
        pair = rng.choice(used, 2, replace=used.size < 2).tolist()
        first, second = pair
        moves = np.arange(low - int(solved[first]), high - int(solved[first]) + 1)
        left = rest - moves * int(weights[first])
        other = left // int(weights[second])
        fits = (left % int(weights[second]) == 0) & (first != second)
        fits &= (solved[second] + other >= low) & (solved[second] + other <= high)
        if fits.any():
            at = int(np.flatnonzero(fits)[0])
            solved[first] += moves[at]
            solved[second] += other[at]
            return solved
        values = rng.integers(low, high + 1, values.shape)
    return None
