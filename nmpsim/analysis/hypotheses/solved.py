"""Changes of a layer's numbers that are computed from the expected result.

Each number enters the result in real arithmetic linearly: a zero point, a scale, a bias. An element
of the expected result that is not saturated therefore limits the number to an interval. The middle
of all intervals is a change to try. A number for each channel is computed only from several
elements of the channel, because one element can always be made right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np

from nmpsim.analysis.hypotheses.constant_changes import add_relu
from nmpsim.analysis.hypotheses.layer import Change, IsolatedLayer, WrongLayer
from nmpsim.analysis.hypotheses.solved_channels import describe_order, is_new_order
from nmpsim.analysis.hypotheses.window_changes import LayerWindow, make_window
from nmpsim.arrays import Array
from nmpsim.core.device import Device
from nmpsim.lir.opcode import OpcodeKind

PER_CHANNEL = "another "
"""Beginning of the description of a change of a number of each channel."""
MIN_ELEMENTS = 4
"""Smallest number of unsaturated elements from which a number is computed."""
MAX_REFINEMENTS = 12
"""Largest number of exact results with which numbers are refined."""
MAX_REFINED_SHARE = 0.5
"""Largest share of wrong elements at which numbers are refined."""
_FACTOR_ERROR = 0.02
"""Largest relative difference of solved biases from a multiple of the present ones."""
MAX_REFINED_ERROR = 3
"""Largest error in units of the last place at which numbers are refined."""


@attrs.frozen(eq=False)
class _Number:
    """Number, or number of each channel, that a change computes."""

    name: str
    current: Array
    """Current values: float64, of one element or of a value for each channel."""
    replace: Callable[[Array], IsolatedLayer]
    is_integer: bool = False
    invert: bool = False
    """Whether the result is linear in the reciprocal."""

    @property
    def is_missing_bias(self) -> bool:
        """Whether the number is a bias that is zero in all channels."""
        return self.name == "bias" and not self.current.any()

    def convert(self, values: Array) -> Array:
        """Return the reciprocals of values if the result is linear in them; round integers."""
        values = 1 / values if self.invert else values
        return np.rint(values) if self.is_integer else values


def list_solved_changes(wrong: WrongLayer, device: Device | None) -> Iterator[Change]:
    """Yield (description, layer) pairs with zero points, scales or biases solved from the result.

    The values are refined by execution on a device if one is given.
    """
    for number in _list_numbers(wrong.layer):
        solution = _solve(wrong, number)
        if solution is None:
            continue
        solved = number.convert(solution[0])
        distance = np.abs(solved - number.current[:, None])
        order = distance.argmin(axis=0)
        if is_new_order(order):
            text = f"the {number.name} with {describe_order(order)}"
            yield text, number.replace(number.current[order])
        values = solved if device is None else _refine(wrong, number, *solution, device)
        if not np.array_equal(values, number.current):
            yield _describe(number, values), number.replace(values)


def _refine(
    wrong: WrongLayer,
    number: _Number,
    values: Array,
    gain: Array,
    step: Array,
    device: Device,
) -> Array:
    """Return values moved until the exact result fits, or the given values if it never does.

    Exact arithmetic rounds several times, and may need values beyond the middle of the interval.
    ``gain`` [elements, values] is the change of each element for a change of its value by ``step``.
    """
    moved, before = values, np.zeros(values.shape)
    step = np.abs(step) / 4 / np.maximum(np.max(np.abs(gain), axis=0), 1e-9)
    for turn in range(MAX_REFINEMENTS):
        result = number.replace(number.convert(moved)).execute(device)
        if result is None or result.shape != wrong.expected.shape:
            break
        errors = wrong.expected.astype(np.int64) - result
        is_far = np.abs(errors).max(initial=0) > MAX_REFINED_ERROR
        if is_far or np.mean(errors != 0) > MAX_REFINED_SHARE:
            break
        if not errors.any():
            return number.convert(moved)
        lines = errors.reshape(-1, values.size)
        direction = np.sign((lines * np.sign(gain)).sum(axis=0))
        is_mixed = (direction == 0) & lines.any(axis=0)
        direction = np.where(is_mixed, (-1) ** turn * (turn + 1), direction)
        step = np.where((direction * before < 0) & ~is_mixed, step / 2, step)
        before = np.where(direction, direction, before)
        moved = moved + direction * step
    return number.convert(values)


def _solve(wrong: WrongLayer, number: _Number) -> tuple[Array, Array, Array] | None:
    """Return values that fit the expected result, or None without any.

    The values are reciprocals if the result is linear in the reciprocal. They are followed by the
    change of each element [elements, values] for a change of its value by a step, and these steps.
    """
    start = number.convert(number.current)
    step = np.maximum(np.abs(start), 1.0) if number.is_integer else start
    if not np.all(np.isfinite(start)) or not np.all(step):
        return None

    def evaluate(values: Array) -> Array | None:
        layer = number.replace(number.convert(values))
        return layer.remove_activations().compute_real()

    first, second = evaluate(start), evaluate(start + step)
    if first is None or second is None or first.shape != wrong.expected.shape:
        return None
    channels = number.current.size
    lines = (-1, channels) if channels > 1 else (-1, 1)
    gain = (second - first).reshape(lines)
    low, high = ((ends - first).reshape(lines) for ends in _find_real_limits(wrong, first))
    with np.errstate(all="ignore"):
        ends = np.where(gain > 0, low, high) / gain, np.where(gain > 0, high, low) / gain
    is_used = np.abs(gain) > 1e-9
    low = np.max(np.where(is_used, ends[0], -np.inf), axis=0)
    high = np.min(np.where(is_used, ends[1], np.inf), axis=0)
    is_two_sided = is_used & np.isfinite(ends[0]) & np.isfinite(ends[1])
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        middle = np.where(np.isinf(low), high, np.where(np.isinf(high), low, (low + high) / 2))
    fits = (np.count_nonzero(is_used, axis=0) >= MIN_ELEMENTS) & (low <= high)
    fits &= np.isfinite(middle)
    changed = wrong.wrong_channels if channels > 1 else np.ones(1, np.bool_)
    known, count = np.count_nonzero(is_two_sided[:, changed]), max(int(changed.sum()), 1)
    # A missing bias is likely enough that fewer elements confirm the computed one.
    needed = count + 4 * MIN_ELEMENTS if number.is_missing_bias else MIN_ELEMENTS * count
    if not fits[changed].all() or known < needed:
        return None
    found = start + np.where(changed & fits, middle, 0) * step
    return found, gain, np.where(changed, step, 0)


def _find_real_limits(wrong: WrongLayer, real: Array) -> tuple[Array, Array]:
    """Return the lowest and highest real result of each element, infinite where it is clipped.

    Parameters
    ----------
    wrong
        The layer with both results.
    real
        Result of the unchanged layer in real arithmetic. How far the exact result is from it
        widens all limits.
    """
    expected, actual = wrong.expected, wrong.actual
    info = np.iinfo(expected.dtype)
    is_inside = (actual > actual.min()) & (actual < actual.max())
    error = np.abs(actual - real).max(initial=0.5, where=is_inside) + wrong.slack
    ends = []
    for limit, end, side in ((expected.min(), info.min, -1), (expected.max(), info.max, 1)):
        is_clipped = limit == end or np.count_nonzero(expected == limit) > 1
        at_limit = (expected == limit) & is_clipped
        ends.append(np.where(at_limit, side * np.inf, expected + side * error))
    return ends[0], ends[1]


def _describe(number: _Number, values: Array) -> str:
    """Return the description of a change."""
    if values.size == 1:
        return f"{number.name} {values.item():.9g}, not {number.current.item():.9g}"
    channels = np.flatnonzero(values != number.current)
    first = channels[0]
    if number.is_missing_bias:
        return f"a bias, which is zero here (channel {first}: {values[first]:.0f})"
    example = f"channel {first}: {values[first]:.6g}, not {number.current[first]:.6g}"
    where = f"{channels.size} of {values.size} channels{_describe_factor(number, values)}"
    return f"{PER_CHANNEL}{number.name} in {where} ({example})"


def _describe_factor(number: _Number, values: Array) -> str:
    """Return the factor of all solved biases, such as ``, about times 2.7``; "" without one."""
    if number.name != "bias" or not number.current.all():
        return ""
    factor = float(np.median(values / number.current))
    is_near = np.allclose(values, factor * number.current, rtol=_FACTOR_ERROR, atol=abs(factor))
    is_other = abs(factor - 1) > _FACTOR_ERROR
    return f", about times {factor:.3g}" if is_near and is_other else ""


def _list_numbers(layer: IsolatedLayer) -> Iterator[_Number]:
    """Yield the numbers of a layer, the simplest first."""
    yield from _list_type_numbers(layer, layer.output, "result")
    for label, name in layer.list_operands()[1:]:
        if label != "bias":
            yield from _list_type_numbers(layer, name, label)
    window = make_window(layer)
    if window is not None and window.has_padding and layer.kind is OpcodeKind.CONVOLUTION:
        yield _make_padding_number(window)
    offsets = layer.find_constant("FilterOffsets", "Offsets")
    if offsets is not None and not np.ptp(values := layer.get_values(offsets)):
        yield _Number(
            "the zero point of the weights",
            values.reshape(-1)[:1].astype(np.float64),
            lambda x: layer.replace_values({offsets: np.full_like(values, np.rint(x.item()))}),
            is_integer=True,
        )
    tables = [layer.find_operand("FilterScales", "Scales"), layer.find_operand("BiasScales")]
    known = [name for name in tables if name is not None]
    if known:
        yield _make_table_number(layer, known[:1], "scale of the weights")
    if len(known) > 1:
        yield _make_table_number(layer, known, "scale of weights and bias")
    bias = layer.find_operand("Bias")
    if bias is not None and bias in layer.program.module.constants:
        stored = layer.get_values(bias)
        if stored.dtype.kind == "i" and stored.size > 1:
            limits = np.iinfo(stored.dtype)

            def replace(values: Array) -> IsolatedLayer:
                clipped = np.clip(np.rint(values), limits.min, limits.max)
                return layer.replace_values(
                    {bias: clipped.astype(stored.dtype).reshape(stored.shape)}
                )

            current = stored.reshape(-1).astype(np.float64)
            if np.count_nonzero(current) > 1:
                one = np.ones(1)
                yield _Number("the factor of the bias", one, lambda x: replace(x * current))
            yield _Number("bias", current, replace, is_integer=True)
    if len(known) > 1:
        yield _make_table_number(layer, known[1:], "scale of the bias")


def _list_type_numbers(layer: IsolatedLayer, name: str, label: str) -> Iterator[_Number]:
    """Yield zero point and scale of a tensor."""
    quant = layer.get_type(name).quant
    if quant is None or not layer.has_scale(name):
        return
    info = np.iinfo(layer.get_type(name).dtype)

    def replace_offset(values: Array) -> IsolatedLayer:
        return layer.replace_quantization(
            name, offset=int(np.clip(np.rint(values.item()), info.min, info.max))
        )

    def replace_scale(values: Array) -> IsolatedLayer:
        return layer.replace_quantization(name, scale=float(np.float32(values.item())))

    is_result = name == layer.output
    if info.bits <= 16:
        offset = np.array([float(quant.offset)])
        yield _Number(f"the zero point of the {label}", offset, replace_offset, is_integer=True)
        if is_result and quant.offset == info.min:
            yield _Number(
                "the zero point of the result and of its ReLU",
                offset,
                lambda x: add_relu(replace_offset(x)),
                is_integer=True,
            )
    scale = np.array([quant.scale])
    yield _Number(f"the scale of the {label}", scale, replace_scale, invert=is_result)


def _make_padding_number(window: LayerWindow) -> _Number:
    """Return the value of the padding, which is the zero point of the input."""
    limits = np.iinfo(window.values.dtype)

    def replace(values: Array) -> IsolatedLayer:
        value = int(np.clip(np.rint(values.item()), limits.min, limits.max))
        return window.change(window.before, constant_values=value)

    current = np.array([float(window.zero_point)])
    return _Number("the padding value", current, replace, is_integer=True)


def _make_table_number(layer: IsolatedLayer, tables: list[str], name: str) -> _Number:
    """Return the scales of a layer's channels, all tables changed by the same factors."""
    current = layer.get_values(tables[0]).astype(np.float64)

    def replace(values: Array) -> IsolatedLayer:
        factors = values / current
        return layer.replace_values(
            {one: (layer.get_values(one) * factors).astype(np.float32) for one in tables}
        )

    return _Number(name, current, replace)
