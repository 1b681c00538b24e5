"""Orders of channels and single weights that are solved from the expected result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from nmpsim.analysis.hypotheses.layer import Change, WrongLayer
from nmpsim.analysis.hypotheses.linear_model import LinearModel, make_linear_model
from nmpsim.arrays import Array

MAX_WEIGHTS = 8
"""Largest number of wrong weights of a layer that are solved."""
SURPLUS_BITS = 8
"""Bits of errors, ``log2(1 + error)``, that solved weights explain besides their own choice."""
MIN_ROWS = 3
"""Smallest number of known results that depend on a wrong weight."""
MAX_PRODUCTS = 1 << 23
"""Largest number of products of input channels, weight channels and elements."""
MAX_ANNEALED = 40
"""Largest number of channels whose order is searched by simulated annealing."""
ANNEALED_ORDERS = 64
"""Number of orders that simulated annealing changes at the same time."""
STEPS_PER_CHANNEL = 200
"""Number of random swaps of each annealed order, by channel."""
CHECKED_SWAPS = 32
"""Smallest number of promising swaps of two channels of which the best is made."""
CHECKED_VALUES = 1 << 14
"""Number of elements that are checked for more swaps than that."""
MAX_SWAPS = 200
"""Largest number of swaps that improve an order of channels."""
_LISTED = 4
"""Number of channels that the description of an order lists."""


def list_solved_orders(wrong: WrongLayer) -> Iterator[Change]:
    """Yield (description, layer) pairs with zero channels or solved orders of channels."""
    layer = wrong.layer
    yield from _list_zero_channels(wrong)
    order = _match_columns(*_sample_columns(wrong))
    if order is not None:
        reorder = partial(np.take, indices=order, axis=-1)
        yield f"the result with {describe_order(order)}", layer.reorder_result(reorder)
    model = make_linear_model(wrong)
    if model is None:
        return
    order = _solve_output_order(model)
    name = layer.find_constant("Filter", "Weights")
    if order is not None and name is not None:
        values = layer.get_values(name)
        changed = layer.replace_values({name: np.take(values, order, layer.get_output_axis())})
        yield f"the weights with output {describe_order(order)}", changed
    source = layer.find_operand("Src")
    order = _solve_input_order(model)
    if order is not None and source is not None:
        values = layer.get_values(source)
        changed = layer.replace_values({source: np.take(values, order, -1)})
        yield f"the input with {describe_order(order)}", changed


def _list_zero_channels(wrong: WrongLayer) -> Iterator[Change]:
    """Yield (description, layer) pairs with zero weights where the expected result is constant."""
    layer, columns = wrong.layer, wrong.expected.reshape(-1, wrong.expected.shape[-1])
    name = layer.find_constant("Filter", "Weights")
    channels = np.flatnonzero(wrong.wrong_channels)
    if name is None or len(columns) < MIN_ROWS or np.ptp(columns[:, channels], axis=0).any():
        return
    stored, axis = layer.get_values(name), layer.get_output_axis()
    quant = layer.get_type(name).quant
    changes = {name: stored.copy()}
    np.moveaxis(changes[name], axis, 0)[channels] = quant.offset if quant else 0
    where = f"in {describe_channels(channels)}"
    yield f"weights of zero {where}", layer.replace_values(changes)
    bias = layer.find_constant("Bias")
    if bias is not None:
        changes[bias] = layer.get_values(bias).copy()
        changes[bias][channels] = 0
        yield f"weights and biases of zero {where}", layer.replace_values(changes)


def describe_channels(channels: Array) -> str:
    """Describe output channels by index, such as "output channels 3 and 5"."""
    listed = [str(one) for one in channels[:_LISTED]]
    if len(channels) == 1:
        return f"output channel {listed[0]}"
    if len(channels) > _LISTED:
        return f"output channels {', '.join(listed)} and {len(channels) - _LISTED} more"
    return f"output channels {', '.join(listed[:-1])} and {listed[-1]}"


def describe_order(order: Array) -> str:
    """Describe an order of channels, such as "channels 3 and 5 swapped"."""
    moved = np.flatnonzero(order != np.arange(order.size)).tolist()
    if len(moved) == 2:
        return f"channels {moved[0]} and {moved[1]} swapped"
    pairs = ", ".join(f"{one} from {order[one]}" for one in moved[:_LISTED])
    more = f" and {len(moved) - _LISTED} more" if len(moved) > _LISTED else ""
    return f"channels in another order ({pairs}{more})"


def is_new_order(order: Array) -> bool:
    """Return whether an array is a permutation other than the identity."""
    count = np.arange(order.size)
    return bool(np.array_equal(np.sort(order), count) and not np.array_equal(order, count))


def _sample_columns(wrong: WrongLayer) -> tuple[Array, Array]:
    """Return at most 512 rows of the actual and the expected result: float64 [rows, channels]."""
    channels = wrong.expected.shape[-1]
    step = max(wrong.expected.size // channels // 512, 1)
    columns = (one.reshape(-1, channels)[::step] for one in (wrong.actual, wrong.expected))
    actual, expected = (one.astype(np.float64) for one in columns)
    return actual, expected


def _match_columns(actual: Array, expected: Array) -> Array | None:
    """Assign an actual column to each expected one; return None if all are in order."""
    costs = np.array([np.abs(actual - column[:, None]).mean(axis=0) for column in expected.T])
    return _find_new_order(costs)


def _find_new_order(costs: Array) -> Array | None:
    """Return the column assigned to each row at the lowest costs, or None if all are in order.

    Equal columns, such as clipped ones, keep their places if possible.
    """
    order = _assign(1e-9 * np.eye(len(costs)) - costs.T)
    return order if is_new_order(order) else None


def _solve_output_order(model: LinearModel) -> Array | None:
    """Return the output channel whose weights each channel uses, or None if they are its own."""
    sums: dict[int, Array] = {}
    errors = []
    for output in range(model.outputs):
        group = model.get_input_slice(output).start // model.group_inputs
        if group not in sums:
            sums = {group: model.compute_sums(group)}
        clipped = np.clip(sums[group], *model.limits[:, output])
        errors.append(np.abs(clipped - model.targets[:, output, None]).mean(axis=0))
    return _find_new_order(np.array(errors))


def _solve_input_order(model: LinearModel) -> Array | None:
    """Return the input channel that each channel of the weights should read, or None.

    The order whose products are most similar to the targets is improved by swaps of two channels,
    then random orders are improved by simulated annealing.
    """
    inputs = model.windows.shape[2]
    rows = min(len(model.windows), MAX_PRODUCTS // (inputs * inputs * model.outputs))
    if inputs < 2 or rows * model.outputs < np.log2(inputs) * inputs / 4 + 8:
        return None  # an element confirms about four bits
    chosen = np.linspace(0, len(model.windows) - 1, rows).astype(np.int64)
    is_known = model.is_known[chosen]
    targets = np.where(is_known, model.targets[chosen], 0)
    products = np.zeros((inputs, inputs, rows, model.outputs))
    for output in range(model.outputs):
        # The channels of other groups of weights contribute nothing.
        part = np.tensordot(model.windows[chosen], model.weights[output], (1, 0))
        products[:, model.get_input_slice(output), :, output] = part.transpose(1, 2, 0)
    products = np.where(is_known, products, 0).reshape(inputs, inputs, -1)
    limits = np.where(is_known, model.tolerances, np.inf).reshape(-1)
    order = _improve_order(products, targets.reshape(-1), limits)
    if order is None and inputs <= MAX_ANNEALED:
        order = _anneal_order(products, targets.reshape(-1), limits)
    return order


def _anneal_order(products: Array, targets: Array, limits: Array) -> Array | None:
    """Return an order found by simulated annealing, or None.

    Parameters
    ----------
    products, targets, limits
        As for ``_improve_order``.
    """
    inputs, rng = len(products), np.random.default_rng(0)
    chosen = rng.permutation(np.flatnonzero(np.isfinite(limits)))[: 8 * inputs]
    parts, rows = products[..., chosen], np.arange(ANNEALED_ORDERS)
    orders = rng.permuted(np.tile(np.arange(inputs), (ANNEALED_ORDERS, 1)), axis=1)
    residuals = targets[chosen] - parts[orders, np.arange(inputs)].sum(axis=1)
    errors = np.square(residuals).sum(axis=1)
    start, steps = float(errors.mean()) / inputs, STEPS_PER_CHANNEL * inputs
    for temperature in np.geomspace(start, 0.002 * start, steps):
        one = rng.integers(0, inputs, ANNEALED_ORDERS)
        two = (one + rng.integers(1, inputs, ANNEALED_ORDERS)) % inputs
        a, b = orders[rows, one], orders[rows, two]
        swapped = residuals - (parts[b, one] + parts[a, two] - parts[a, one] - parts[b, two])
        changed = np.square(swapped).sum(axis=1)
        is_taken = np.log(rng.random(ANNEALED_ORDERS)) * temperature < errors - changed
        orders[rows[is_taken], one[is_taken]] = b[is_taken]
        orders[rows[is_taken], two[is_taken]] = a[is_taken]
        residuals[is_taken], errors[is_taken] = swapped[is_taken], changed[is_taken]
    best: Array = orders[errors.argmin()]
    residual = targets - products[best, np.arange(inputs)].sum(axis=0)
    return best if is_new_order(best) and np.all(np.abs(residual) <= limits) else None


def _improve_order(products: Array, targets: Array, limits: Array) -> Array | None:
    """Return the order of inputs after which the sum of products is near the targets, or None.

    Parameters
    ----------
    products : float64 [inputs, weights, elements]
        Contributions of each input channel with the weights of each channel.
    targets : float64 [elements]
        Sums that give the expected result.
    limits : float64 [elements]
        Largest differences from the targets, infinite for unknown targets.
    """
    everything = np.arange(len(products))
    squares = np.square(products).sum(axis=2)
    similarity = 2 * products @ targets - squares
    for order in (everything.copy(), _assign(similarity)):
        residual = targets - products[order, everything].sum(axis=0)
        for _ in range(MAX_SWAPS):
            if is_new_order(order) and np.all(np.abs(residual) <= limits):
                return order
            best, gain, change = None, 1e-6 * float(residual @ residual), residual
            for first, second in _list_swaps(products @ residual, squares, order, residual.size):
                swapped = (
                    products[order[second], first]
                    + products[order[first], second]
                    - products[order[first], first]
                    - products[order[second], second]
                )
                own = float((2 * residual - swapped) @ swapped)
                if own > gain:
                    best, gain, change = (first, second), own, swapped
            if best is None:
                break
            order[list(best)] = order[list(best[::-1])]
            residual = residual - change
    return None


def _list_swaps(
    similarity: Array, squares: Array, order: Array, elements: int
) -> list[tuple[int, int]]:
    """Return the pairs of channels whose swap promises to be nearest to the targets."""
    everything = np.arange(order.size)
    gains = 2 * similarity - squares
    kept = 2 * similarity + squares
    own, crossed = kept[order, everything], gains[order]
    promise = np.triu(crossed + crossed.T - own - own[:, None], 1)
    count = min(max(CHECKED_SWAPS, CHECKED_VALUES // elements), promise.size)
    best = np.argpartition(-promise, count - 1, axis=None)[:count]
    pairs = zip(*np.unravel_index(best, promise.shape), strict=True)
    return [(int(first), int(second)) for first, second in pairs if first < second]


def _assign(similarity: Array) -> Array:
    """Return the row assigned to each column, the most similar pairs first."""
    order = np.zeros(len(similarity), np.int64)
    remaining = similarity.copy()
    for _ in range(len(similarity)):
        row, column = np.unravel_index(remaining.argmax(), remaining.shape)
        order[column] = row
        remaining[row], remaining[:, column] = -np.inf, -np.inf
    return order


def list_solved_weights(wrong: WrongLayer) -> Iterator[Change]:
    """Yield (description, layer) pairs with a few weights solved from the expected result."""
    model, layer = make_linear_model(wrong), wrong.layer
    name = layer.find_constant("Filter", "Weights")
    if model is None or name is None:
        return
    stored = layer.get_values(name)
    is_column = layer.operation.opcode == "fullyconnected"
    changes = np.zeros(model.weights.shape, np.int64)
    wrong_channels = (np.abs(model.residuals) > model.tolerances).any(axis=0)
    for output in map(int, np.flatnonzero(wrong_channels)):
        is_known = model.is_known[:, output]
        windows = model.windows[is_known][..., model.get_input_slice(output)]
        columns = windows.reshape(len(windows), -1)
        target, tolerance = model.residuals[is_known, output], model.tolerances[output]
        found = _solve_weights(columns, target, tolerance)
        if found is None:
            return
        changes[output] = found.reshape(changes.shape[1:])
    places = np.argwhere(changes)
    if not 0 < len(places) <= MAX_WEIGHTS:
        return
    errors = np.abs(wrong.actual.astype(np.float64) - wrong.expected)
    choice_bits = np.log2(stored.size) + 8 * stored.itemsize
    if np.log2(1 + errors).sum() < len(places) * choice_bits + SURPLUS_BITS:
        return  # weights explain any result with so few errors
    solutions = [changes]
    for place, step in product(places, (1, -1)):  # real arithmetic may be off by one unit
        solutions.append(changes.copy())
        solutions[-1][tuple(place)] += step
    limits = np.iinfo(stored.dtype)
    for changed in solutions:
        values = stored + (changed[:, 0].T if is_column else changed).reshape(stored.shape)
        if limits.min <= values.min() and values.max() <= limits.max:
            text = _describe_weights(stored, values, layer.get_output_axis())
            yield text, layer.replace_values({name: values.astype(stored.dtype)})


def _describe_weights(stored: Array, values: Array, axis: int) -> str:
    places = np.argwhere(values != stored)
    at = tuple(places[0])
    channels = np.unique(places[:, axis])
    if all(np.ptp(np.take(stored, channel, axis)) == 0 for channel in channels):
        where = f"{describe_channels(channels)} are equal here"
        return f"other weights where those of {where} (weight {list(map(int, at))}: {values[at]})"
    text = f"weight {list(map(int, at))} equal to {values[at]}, not {stored[at]}"
    return text if len(places) == 1 else f"other values of {len(places)} weights ({text})"


def _solve_weights(columns: Array, target: Array, tolerance: float) -> Array | None:
    """Return integers, few of them not 0, whose products with columns are near the target.

    Returns None if too few rows confirm the integers.
    """
    norms = np.sqrt(np.square(columns).sum(axis=0))
    is_rare = np.count_nonzero(columns, axis=0) < MIN_ROWS
    support: list[int] = []
    residual = target
    most = min(MAX_WEIGHTS, len(columns) // MIN_ROWS)
    while np.any(np.abs(residual) > tolerance):
        if len(support) >= most:
            return None
        with np.errstate(all="ignore"):
            fit = np.where(norms > 0, np.abs(residual @ columns) / norms, 0)
        fit[support] = 0
        fit[is_rare] = 0
        support.append(int(fit.argmax()))
        chosen = columns[:, support]
        real = np.linalg.lstsq(chosen, target, rcond=None)[0]
        whole = _round_within(chosen, target, real, tolerance)
        residual = target - chosen @ whole
    found = np.zeros(columns.shape[1], np.int64)
    if support:
        found[support] = whole
    return found


def _round_within(columns: Array, target: Array, real: Array, tolerance: float) -> Array:
    """Round numbers so that the products with columns are nearest to the target."""
    whole = np.rint(real)

    def measure(values: Array) -> float:
        excess = np.abs(target - columns @ values) - tolerance
        return float(np.maximum(excess, 0).sum())

    least = measure(whole)
    for index in [*range(len(whole))] * 4:
        for step in (-1, 1):
            other = whole.copy()
            other[index] += step
            amount = measure(other)
            if amount < least:
                whole, least = other, amount
    return whole
