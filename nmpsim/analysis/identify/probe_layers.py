"""Layers with the inputs, weights or biases of a probe, chosen by the thresholds of rules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.evaluation import Integers
from nmpsim.analysis.identify.layers import (
    AVERAGE_POOL,
    CONNECTED,
    MATMUL,
    LayerSample,
    RecordedLayer,
    RecordedOperation,
)
from nmpsim.analysis.identify.search import RequantizationRule
from nmpsim.analysis.identify.thresholds import (
    MAX_THRESHOLDS,
    Thresholds,
    choose_sums,
    compute_sum_limits,
    get_wrapping,
    has_complete_limits,
    iterate_thresholds,
)
from nmpsim.arrays import Array

MAX_SUMS = 256
"""Most sums that a probe produces."""
_CHANNELS = 64
"""Most channels in which sums are chosen."""
_MAX_TAPS, _MAX_RANGE = 12, 1 << 22
"""Most weights of a channel, and largest difference of two sums, of which all sums are listed."""
_WRAPPING_CHANNELS = 8
"""Channels in which sums are chosen at which an accumulator wraps."""
_MOST_ELEMENTS = 1 << 18
_ITEMS = 4
"""Most recorded items that a probe of weights repeats."""
_WINDOWS = 256
"""Most windows of an item for whose values weights are solved."""
_ATTEMPTS = 256
"""Most values with which a sum is solved."""
_MAX_GRID = 1 << 24
"""Most values of the inputs with which the windows of a pool have all sums."""
_OPERANDS = 1 << 14, 1 << 16, 1 << 16, 1 << 16
"""Results of each random probe of operands that is tried."""


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
    """Select a number of channels whose thresholds are found quickly."""
    most = MAX_THRESHOLDS // (len(rules) * (layer.clip[1] - layer.clip[0] + 1))
    count = min(max(most, 1), _CHANNELS, layer.channels)
    return np.unique(np.linspace(0, layer.channels - 1, count).astype(np.int64))


def find_all_thresholds(
    layer: RecordedLayer,
    rules: Sequence[RequantizationRule],
    channels: Integers,
    *,
    has_all_results: bool = False,
) -> Iterator[Thresholds]:
    """Find the thresholds of rules among all sums that inputs and weights can have; yield parts."""
    limits = compute_sum_limits(layer, rules)
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
    limits, (low, high) = compute_sum_limits(layer, rules), _get_input_range(layer)
    weights = _flatten_weights(layer)
    for part in iterate_thresholds(layer, rules, channels, limits):
        sums = {}
        for channel in np.unique(part.channels).tolist():
            row = weights[channel]
            ends = [
                np.minimum(row * low, row * high).sum(),
                np.maximum(row * low, row * high).sum(),
            ]
            listed = list_weighted_sums(row[row != 0], (low, high))
            sums[channel] = np.arange(ends[0], ends[1] + 1) if listed is None else listed
        yield _select_sums(part, sums, limits)


def list_weighted_sums(weights: Integers, limits: tuple[int, int]) -> Integers | None:
    """List the sums of weights times integers within ``limits``; return None if there are too many.

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


def _find_wrapping_sums(layer: RecordedLayer, rules: Sequence[RequantizationRule]) -> Integers:
    """Find the first sums at which accumulators wrap, if rules wrap at different sums.

    Returns pairs of a channel and a sum, for the channels with the largest biases.
    """
    if has_complete_limits(rules):
        return np.empty((0, 2), np.int64)
    channels = np.argsort(-np.abs(layer.biases), kind="stable")[:_WRAPPING_CHANNELS]
    pairs = []
    for bits, is_in_sum in {get_wrapping(rule) for rule in rules} - {(0, False)}:
        bias, half = layer.biases[channels] * is_in_sum, 1 << bits - 1
        pairs += [np.stack([channels, end - bias], axis=1) for end in (half, -half - 1)]
    return np.concatenate(pairs)


# --- inputs and weights --------------------------------------------------------------------------


def probe_inputs(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a copy of a layer with inputs for which rules give different results, if possible."""
    parts = _find_reachable_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=MAX_SUMS)
    targets = np.concatenate([_find_wrapping_sums(layer, rules), targets])
    if targets.size:
        yield _make_inputs(layer, targets)


def make_operand_grid(layer: RecordedOperation) -> RecordedOperation | None:
    """Make a copy of an Int8 operation with all operands that it can have.

    The windows of a pool have all sums. Returns None for Int16, matrix products and large pools.
    """
    if layer.element or layer.opcode == MATMUL:
        return None
    grid = np.arange(-128, 128, dtype=np.int8)
    if layer.opcode != AVERAGE_POOL:
        operands = np.meshgrid(*[grid] * len(layer.inputs))
        return attrs.evolve(layer, inputs=tuple(operands), results=operands[0])
    one, taps = layer.inputs[0].shape[1:], layer.window.taps
    if math.prod(one) * taps * grid.size > _MAX_GRID:
        return None
    # Each window contains each number below ``taps`` once, and the number of its values that are
    # one step larger runs from 0 to ``taps - 1``.
    numbers = np.zeros(one, np.int64)
    for axis, size in enumerate(layer.window.kernel, 1):
        places = np.arange(one[axis]) % size
        numbers = numbers * size + places.reshape([-1 if k == axis else 1 for k in range(len(one))])
    more = numbers < np.arange(taps).reshape(-1, *(1 for _ in one))
    inputs = grid[:, None, None, None, None, None] + more
    inputs = np.minimum(inputs, 127).astype(np.int8).reshape(-1, *one)
    results = np.zeros((len(inputs), *layer.results.shape[1:]), np.int8)
    return attrs.evolve(layer, inputs=(inputs,), results=results)


def probe_operands(
    layer: RecordedOperation, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedOperation]:
    """Yield copies of an operation with random operands, for which rules may differ.

    The values of an item are spread around its mean. A row of a matrix product has a sum near a
    tie with the first column.
    """
    if layer.opcode == AVERAGE_POOL:
        grid = make_operand_grid(layer)
        yield from [] if grid is None else [grid]
    views, limits = layer.operation.operands[1:], np.iinfo(layer.results.dtype)
    for seed, elements in enumerate(_OPERANDS):
        items = max(elements // max(layer.results[0].size, 1), 1)
        results = np.zeros((items, *layer.results.shape[1:]), layer.results.dtype)
        rng, known = np.random.default_rng(seed), dict[str, Array]()
        for view, values in zip(views, layer.inputs, strict=True):
            shape = items, *(1 for _ in view.shape)
            spread = rng.choice([0, 1, 16, 256], shape) << 8 * layer.element
            mean = rng.integers(limits.min, limits.max + 1, shape)
            drawn = mean + rng.integers(-spread, spread + 1, (items, *view.shape))
            drawn = np.clip(drawn, limits.min, limits.max).astype(values.dtype)
            known.setdefault(view.name, values if view.buffer.constant else drawn)
        changed = attrs.evolve(
            layer, inputs=tuple(known[view.name] for view in views), results=results
        )
        if layer.opcode == MATMUL and not views[0].buffer.constant:
            _solve_rows(changed, rng)
        yield changed


def _solve_rows(layer: RecordedOperation, rng: np.random.Generator) -> None:
    """Solve rows of the left operand of a matrix product for sums near ties, in place."""
    left, right = layer.inputs
    offsets = [view.offset for view in layer.operation.operands[1:]]
    ends = np.iinfo(left.dtype)
    limits = int(ends.min) - offsets[0], int(ends.max) - offsets[0]
    unit = np.ones(1, np.int64)
    factor = layer.compute_ideal_results(LayerSample(unit, unit, unit)).item()
    rows = list(np.ndindex(left.shape[:-1]))[:MAX_SUMS]
    levels = rng.integers(layer.clip[0], layer.clip[1], len(rows)) - layer.offset + 0.5
    targets = np.rint(levels / factor).astype(np.int64) + rng.integers(-2, 3, len(rows))
    for (item, *index), target in zip(rows, targets.tolist(), strict=True):
        column = right[(item % len(right), *index[:-1])][:, 0].astype(np.int64) - offsets[1]
        values = left[(item, *index)].astype(np.int64) - offsets[0]
        solved = solve_sum(column, values, target, limits, rng, attempts=4)
        if solved is not None:
            left[(item, *index)] = solved + offsets[0]


def probe_weights_and_inputs(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a copy of a layer with weights and inputs for which rules differ, if possible."""
    parts = find_all_thresholds(layer, rules, _select_channels(layer, rules))
    targets = _choose_targets(parts, len(rules), most=MAX_SUMS)
    if not targets.size:
        return
    weights = _flatten_weights(layer).copy()
    limits, rng = _get_input_range(layer), np.random.default_rng(1)
    for channel in np.unique(targets[:, 0]).tolist():
        own = targets[targets[:, 0] == channel, 1].tolist()
        ends = _get_weight_range(layer, channel)
        end = ends[(own[0] > 0) == (limits[1] > -limits[0])]
        for row in _iterate_values(end, ends, layer.taps):
            weights[channel] = row
            start = np.zeros(layer.taps, np.int64)
            if solve_sum(weights[channel], start, own[0], limits, rng, attempts=4) is not None:
                break
    yield _make_inputs(_with_weights(layer, weights), targets)


def probe_weights(
    layer: RecordedLayer, rules: Sequence[RequantizationRule]
) -> Iterator[RecordedLayer]:
    """Yield a copy of a layer with new weights for which rules differ on recorded inputs, if any.

    Each channel has the weights of one sum.
    """
    parts = find_all_thresholds(layer, rules, _select_channels(layer, rules))
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


def probe_constant_inputs(
    layer: RecordedLayer, rules: Sequence[RequantizationRule], source: RecordedLayer
) -> Iterator[tuple[RecordedLayer, RecordedLayer]]:
    """Yield copies of a layer and of the layer that it reads, for which rules differ, if any.

    The weights of ``source`` are 0 and its biases give each channel one result, with which the
    weights of ``layer`` have a chosen sum.
    """
    bias, shape = source.scales.bias, layer.inputs.shape[1:]
    windows = list(itertools.islice(_list_windows(layer), 1))
    has_integers = not bias.is_float and np.array_equal(bias.scales, source.scales.products)
    if not (windows and has_integers and math.prod(shape) == source.results[0].size):
        return
    parts = find_all_thresholds(layer, rules, _select_channels(layer, rules))
    few, rng = _take_items(source), np.random.default_rng(3)
    least, most = int(source.results.min()), int(source.results.max())
    limits = least - source.offset, most - source.offset
    end = max(limits, key=abs)
    for channel, target in _choose_targets(parts, len(rules), most=1).tolist():
        weights, ends = _flatten_weights(layer).copy(), _get_weight_range(layer, channel)
        for values in _iterate_values(end, limits, source.channels):
            whole = np.broadcast_to(values, source.results.shape[1:]).reshape(shape)
            row = whole[windows[0](channel)].reshape(-1)
            solved = solve_sum(row, weights[channel], target, ends, rng, attempts=4)
            if solved is None:
                continue
            weights[channel] = solved
            inputs = np.broadcast_to(whole + source.offset, (len(few.inputs), *shape))
            inputs = inputs.astype(layer.inputs.dtype)
            changed = attrs.evolve(
                _with_weights(layer, weights), inputs=inputs, program_inputs=few.program_inputs,
                results=np.zeros((len(inputs), *layer.results.shape[1:]), layer.results.dtype),
            )  # fmt: skip
            constant = attrs.evolve(
                few,
                weights=np.zeros_like(source.weights),
                results=inputs.reshape(few.results.shape),
            )
            for middle in (0, 0.5, -0.5):  # of the reals that rules round to a value
                biases = np.rint((values + middle) / source.ideal_factors).astype(np.int64)
                scales = attrs.evolve(source.scales, bias=attrs.evolve(bias, values=biases))
                yield changed, attrs.evolve(constant, scales=scales)
            break


def _iterate_values(end: int, limits: tuple[int, int], count: int) -> Iterator[Integers]:
    """Yield ``count`` integers around each integer within ``limits``, those near ``end`` first."""
    middles = range(limits[0], limits[1] + 1)[:: 1 if end == limits[0] else -1]
    for middle in middles[:_ATTEMPTS]:
        yield np.clip(middle + np.arange(count) % 3 - 1, *limits)


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
    """Solve for integers within ``limits`` with weighted sum ``target``; return None on failure.

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
