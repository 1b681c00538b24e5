"""Inputs on which the rules of a class have different results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.classes import RuleClass, group_rules
from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.identify.layers import CONNECTED, LayerSample, RecordedLayer
from nmpsim.analysis.identify.search import RequantizationRule, RuleEvaluator
from nmpsim.analysis.layer_moves import Move, find_input_moves
from nmpsim.analysis.program import Program
from nmpsim.arrays import Array, Arrays

MAX_TARGETS = 96
"""Most sums that a probe produces."""
_CHANNELS = 12
_SPAN = 1 << 21
"""Most sums of a channel that are examined."""
_NEAREST = 192
"""Sums next to a tie, and next to a whole number, that are examined in each channel."""
_ATTEMPTS = 200


@attrs.frozen(eq=False)
class Probe:
    """Probe of a rule class: inputs of a layer for which groups of rules give different results."""

    layer: RecordedLayer
    name: str
    """Name of the input tensor."""
    inputs: Array
    """Stacked inputs in the layout of the tensor ``name``."""
    groups: tuple[tuple[RequantizationRule, ...], ...]
    """Rules with equal results."""
    results: tuple[Array, ...]
    """Stacked results of the layer for each group, channels last."""

    def make_arrays(self) -> Arrays:
        """Make the arrays of the probe's file by key: input, and rules and results by group."""
        arrays: dict[str, Array] = {self.name: self.inputs}
        for index, (rules, values) in enumerate(zip(self.groups, self.results, strict=True)):
            arrays[f"expected/{index}/result"] = values
            arrays[f"expected/{index}/rules"] = np.array([rule.name for rule in rules])
        return arrays


def make_probe(program: Program, one: RuleClass) -> Probe | None:
    """Make a probe of a rule class, or return None if no input divides the rules into groups."""
    if len(one.rules) < 2:
        return None
    layer = min(one.layers, key=lambda layer: (_find_source(program, layer)[1] is None, layer.name))
    evaluator = RuleEvaluator(layer)
    rng = np.random.default_rng(0)
    targets = _choose_targets(evaluator, layer, one.rules, rng)
    if not targets.size:
        return None
    inputs = _make_inputs(layer, targets, rng)
    sample = next(attrs.evolve(layer, inputs=inputs, results=_make_results(layer, inputs))
                  .iterate_samples())  # fmt: skip
    groups: dict[bytes, list[RequantizationRule]] = {}
    values: dict[bytes, Array] = {}
    for rules in group_rules(one.rules):
        for rule, predicted in zip(rules, evaluator.predict(rules, sample), strict=True):
            result = predicted.astype(layer.results.dtype)
            key = result.tobytes()
            groups.setdefault(key, []).append(rule)
            values[key] = result.reshape(-1, *layer.results.shape[2:])
    if len(groups) < 2:
        return None
    name, moves = _find_source(program, layer)
    for move in reversed(moves or ()):
        inputs = move.undo(inputs)
    stacked = np.ascontiguousarray(inputs).reshape(-1, *inputs.shape[2:])
    return Probe(layer, name, stacked, tuple(map(tuple, groups.values())), tuple(values.values()))


def _make_results(layer: RecordedLayer, inputs: Array) -> Array:
    return np.zeros((len(inputs), *layer.results.shape[1:]), layer.results.dtype)


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


def _choose_targets(
    evaluator: RuleEvaluator,
    layer: RecordedLayer,
    rules: Sequence[RequantizationRule],
    rng: np.random.Generator,
) -> Integers:
    """Return pairs of a channel and a sum that divide the rules into as many groups as possible."""
    pairs = np.concatenate(list(_list_candidates(layer, rng)))
    sample = LayerSample(pairs[:, 1], pairs[:, 0], np.zeros(len(pairs), np.int64))
    predicted = np.concatenate([evaluator.predict(group, sample) for group in group_rules(rules)])
    differs = np.flatnonzero((predicted != predicted[0]).any(axis=0))
    groups, chosen = np.zeros(len(predicted), np.int64), []
    order = np.argsort(-np.abs(predicted[:, differs] - np.median(predicted[:, differs], 0)).sum(0))
    for column in differs[order].tolist():
        values = predicted[:, column]
        key = groups * 1024 + (values - values.min())
        _, refined = np.unique(key, return_inverse=True)
        if refined.max() > groups.max():
            groups = refined
            chosen.append(column)
        if len(chosen) == MAX_TARGETS:
            break
    return pairs[chosen]


def _list_candidates(layer: RecordedLayer, rng: np.random.Generator) -> Iterator[Integers]:
    """Yield pairs [n, 2] of a channel and sums near ties and near whole results."""
    weights, (low, high) = _flatten_weights(layer), _get_input_range(layer)
    count = layer.scales.channels
    for channel in np.unique(np.linspace(0, count - 1, min(_CHANNELS, count)).astype(int)).tolist():
        row, factor = weights[channel], layer.ideal_factors[channel]
        reach = [
            int(np.where((row > 0) == up, row * high, row * low).sum()) for up in (False, True)
        ]
        bias = int(layer.biases[channel])
        bounds = [(limit - layer.offset) / factor - bias for limit in layer.clip]
        first, last = max(reach[0], int(bounds[0]) - 2), min(reach[1], int(bounds[1]) + 2)
        if first >= last:
            continue
        sums = np.arange(first, last + 1, max((last - first) // _SPAN, 1), dtype=np.int64)
        exact = (sums + bias) * factor
        fraction = exact - np.floor(exact)
        tie, whole = np.abs(fraction - 0.5), np.minimum(fraction, 1 - fraction)
        chosen = [np.argsort(one)[:_NEAREST] for one in (tie, whole)]
        chosen.append(rng.integers(0, sums.size, _NEAREST))
        picked = sums[np.unique(np.concatenate(chosen))]
        yield np.stack([np.full(picked.size, channel), picked], axis=1)


# --- inputs --------------------------------------------------------------------------------------


def _make_inputs(layer: RecordedLayer, targets: Integers, rng: np.random.Generator) -> Array:
    """Return inputs [N, *shape] whose sums contain the targets, where they can be reached."""
    weights = _flatten_weights(layer)
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
    return (inputs + offset).astype(layer.inputs.dtype)


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
    rng: np.random.Generator,
) -> Integers | None:  # fmt: skip
    """Solve for integers within ``limits`` whose weighted sum is ``target``, or return None.

    Random values are moved towards the target; then two values solve the rest exactly.
    """
    low, high = limits
    used = np.flatnonzero(weights)
    if not used.size:
        return None
    for _ in range(_ATTEMPTS):
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


def _find_source(program: Program, layer: RecordedLayer) -> tuple[str, Sequence[Move] | None]:
    """Return the name of the program's input that a layer reads, and the moves from the input.

    Without such an input, return the name of the layer's own input and None.
    """
    view = layer.operation.operands[1]
    return find_input_moves(program.module, view.name) or (
        view.buffer.name.removesuffix("_res"),
        None,
    )
