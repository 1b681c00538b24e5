"""Faults of dumps and programs that are looked for if no rule explains a layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.identify.layers import CONNECTED, LayerSample, RecordedLayer
from nmpsim.analysis.identify.limits import find_limits
from nmpsim.analysis.identify.rules import IDEAL, IN_SUM, RuleFactor, RuleFamily
from nmpsim.analysis.identify.search import LayerRules, RequantizationRule, find_rules, list_rules
from nmpsim.arrays import Array
from nmpsim.compiler.numerics import WeightedLayerScales
from nmpsim.compiler.operations import BufferView

_ELEMENTS = 1 << 16
"""Most elements on which a fault is tried first."""
_NEAR = 0.97
"""Share of results within one of the ideal ones from which data count as correct."""
_FACTORS = 8
"""Factors of each family that are tried with other scales."""
_PAIRS = 24
"""Most input channels whose pairs are swapped."""


@attrs.frozen(eq=False)
class LayerFault:
    """Fault of a layer's data or rule, and the rules that explain the results without the fault."""

    kind: str
    text: str
    rules: tuple[RequantizationRule, ...] = ()
    is_data_fault: bool = True
    """Whether recorded values or parameters are wrong, not the rule."""


@attrs.frozen(eq=False)
class _Correction:
    kind: str
    text: str
    layer: RecordedLayer


def find_fault(found: LayerRules) -> LayerFault | None:
    """Find the fault because of which no rule explains a layer; return None if it is unknown."""
    layer = _shorten(found.layer)
    is_near = measure_share(layer) >= _NEAR
    steps: Sequence[Callable[[RecordedLayer], LayerFault | None]] = (
        _try_offsets, _find_unusual_rules, _try_others, _try_last_bits,
    )  # fmt: skip
    for step in steps if is_near else (_try_offsets, _find_unusual_rules, _try_others):
        fault = step(layer)
        if fault is not None:
            return fault
    return None


def _try(
    layer: RecordedLayer,
    corrections: Iterator[_Correction],
    groups: Sequence[Sequence[RequantizationRule]] | None = None,
) -> LayerFault | None:
    """Return the first correction with which rules explain the layer, or one that comes close."""
    equal = max(measure_share(layer, 0) + 0.02, _NEAR)
    best: LayerFault | None = None
    for one in corrections:
        if measure_share(one.layer) < _NEAR:
            continue
        rules = find_rules(one.layer, groups).rules
        if rules:
            return LayerFault(one.kind, one.text, rules)
        share = measure_share(one.layer, 0)
        if share >= equal:
            equal, best = share, LayerFault(one.kind, one.text)
    return best


def _try_offsets(layer: RecordedLayer) -> LayerFault | None:
    return _try(layer, _correct_offsets(layer))


def _try_others(layer: RecordedLayer) -> LayerFault | None:
    kinds = (_correct_layouts, _correct_channels, _correct_types, _correct_scales)
    return _try(layer, itertools.chain.from_iterable(kind(layer) for kind in kinds))


def _try_last_bits(layer: RecordedLayer) -> LayerFault | None:
    usual = list_rules(layer.element, bool(layer.biases.any()))
    few = [group[:_FACTORS] for group in usual if _is_simple(group)]
    return _try(layer, _correct_last_bits(layer), few)


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


def _with_values(layer: RecordedLayer, name: str, values: Array) -> RecordedLayer:
    """Return a layer with other ``inputs`` or ``results``."""
    changed: Any = {name: values}
    return attrs.evolve(layer, **changed)


# --- data ----------------------------------------------------------------------------------------


def _correct_layouts(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer with other orders of the axes of its input and result."""
    for name in ("results", "inputs"):
        array = getattr(layer, name)
        if array.ndim != 5:
            continue
        items, one, height, width, channels = array.shape
        flat = array.reshape(items, -1)
        changed = {
            "have channels first (NCHW), not last": flat.reshape(
                items, one, channels, height, width
            ).transpose(0, 1, 3, 4, 2),
            "have channels last (NHWC), not first": array.transpose(0, 1, 4, 2, 3).reshape(
                array.shape
            ),
            "have height and width swapped": flat.reshape(
                items, one, width, height, channels
            ).transpose(0, 1, 3, 2, 4),
        }
        for text, values in changed.items():
            own = _with_values(layer, name, np.ascontiguousarray(values))
            yield _Correction("layout", f"the {name} {text}", own)


def _correct_channels(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer whose output or input channels are in another order."""
    sample = next(layer.iterate_samples())
    channels = layer.scales.channels
    ideal = np.clip(np.rint(_compute_ideal(layer, sample)) + layer.offset, *layer.clip)
    predicted = ideal.reshape(-1, channels)[:512]
    recorded = sample.results.reshape(-1, channels)[:512]
    distance = np.abs(predicted[:, :, None] - recorded[:, None, :]).mean(axis=0)
    order = distance.argmin(axis=1)
    if np.unique(order).size == channels and (order != np.arange(channels)).any():
        moved = np.flatnonzero(order != np.arange(channels))
        pairs = ", ".join(f"{one} is stored as {order[one]}" for one in moved[:4].tolist())
        more = "" if moved.size <= 4 else f" and {moved.size - 4} more"
        own = attrs.evolve(layer, results=layer.results[..., order])
        yield _Correction("channels", f"output channels are in another order: {pairs}{more}", own)
    count = layer.inputs.shape[-1]
    if layer.kind == CONNECTED and layer.inputs.ndim < 3:
        return
    orders = [np.arange(count)[::-1]]
    if count <= _PAIRS:
        for first, second in itertools.combinations(range(count), 2):
            swapped = np.arange(count)
            swapped[[first, second]] = second, first
            orders.append(swapped)
    for one in orders:
        moved = np.flatnonzero(one != np.arange(count))
        if moved.size:
            text = f"input channels {', '.join(map(str, moved[:4].tolist()))} are in another order"
            yield _Correction("channels", text, attrs.evolve(layer, inputs=layer.inputs[..., one]))


def _correct_types(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer whose values were stored as unsigned integers."""
    bits = 8 * layer.results.dtype.itemsize
    flip = -(1 << bits - 1)
    for name in ("results", "inputs"):
        values = getattr(layer, name)
        own = _with_values(layer, name, values ^ values.dtype.type(flip))
        yield _Correction("type", f"the {name} are uint{bits} stored as int{bits}", own)


# --- parameters ----------------------------------------------------------------------------------


def _with_quantization(view: BufferView, **fields: Any) -> BufferView:
    quant = view.type.quant
    assert quant is not None
    return attrs.evolve(view, type=attrs.evolve(view.type, quant=attrs.evolve(quant, **fields)))


def _with_view(layer: RecordedLayer, side: str, **fields: Any) -> RecordedLayer:
    changed: Any = {side: _with_quantization(getattr(layer.scales, side), **fields)}
    return _with_scales(layer, attrs.evolve(layer.scales, **changed))


def _with_scales(layer: RecordedLayer, scales: WeightedLayerScales) -> RecordedLayer:
    """Return a layer with other scales; a bias on the scale of the sum follows them."""
    if np.array_equal(layer.scales.bias.scales, layer.scales.products):
        scales = attrs.evolve(scales, bias=attrs.evolve(scales.bias, scales=scales.products))
    return attrs.evolve(layer, scales=scales)


def _select_inner(layer: RecordedLayer) -> LayerSample:
    """Return the elements of a layer that are not clipped."""
    sample = next(layer.iterate_samples())
    low, high = layer.clip
    return sample.take(np.flatnonzero((sample.results > low) & (sample.results < high)))


def _correct_offsets(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer with another zero point or without bias."""
    inner = _select_inner(layer)
    if not inner.size:
        return
    residual = inner.results - layer.offset - _compute_ideal(layer, inner)
    shift = int(np.rint(np.median(residual)))
    if shift:
        text = f"the zero point of the result is {layer.offset + shift}, not {layer.offset}"
        own = _with_view(layer, "target", offset=layer.offset + shift)
        yield _Correction("zero point", text, own)
    source = layer.scales.source
    for change in (1, -1, 128, -128):
        text = f"the zero point of the input is {source.offset + change}, not {source.offset}"
        own = _with_view(layer, "source", offset=source.offset + change)
        yield _Correction("zero point", text, own)
    if layer.biases.any():
        bias = layer.scales.bias
        empty = attrs.evolve(bias, values=np.zeros_like(bias.values), offsets=bias.offsets * 0)
        own = attrs.evolve(layer, scales=attrs.evolve(layer.scales, bias=empty))
        yield _Correction("bias", "the device does not add the bias", own)


def _correct_scales(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer with another scale of the result or other scales of channels."""
    inner = _select_inner(layer)
    ideal = _compute_ideal(layer, inner)
    energy = float((ideal * ideal).sum())
    if not energy:
        return
    ratio = float(((inner.results - layer.offset) * ideal).sum()) / energy
    if ratio > 0:
        scale, power = layer.scales.target.scale, round(np.log2(ratio))
        if power and abs(np.log2(ratio) - power) < 0.03:
            factor = 2.0**power
            text = f"results are {factor:g} times as large as the scales say: a shift is off by "
            text += f"{abs(power)}"
            yield _Correction("scale", text, _with_view(layer, "target", scale=scale / factor))
        if abs(ratio - 1) > 1e-4:
            text = f"results are about {ratio:.6g} times as large as the scales say"
            own = _with_view(layer, "target", scale=float(np.float32(scale / ratio)))
            yield _Correction("scale", text, own)
    yield from _correct_channel_scales(layer, inner, ideal)


def _correct_channel_scales(
    layer: RecordedLayer, inner: LayerSample, ideal: Array
) -> Iterator[_Correction]:
    count = layer.scales.channels
    energy = np.bincount(inner.channels, ideal * ideal, count)
    product = np.bincount(inner.channels, ideal * (inner.results - layer.offset), count)
    if not layer.scales.by_channel or not energy.all() or (product <= 0).any():
        return
    real = layer.scales.weight_scales * product / energy
    distance = np.abs(np.log(real[:, None] / layer.scales.weight_scales[None, :]))
    order = distance.argmin(axis=1)
    if (order != np.arange(count)).any():
        moved = np.flatnonzero(order != np.arange(count))
        pairs = ", ".join(f"{one} has that of {order[one]}" for one in moved[:4].tolist())
        scales = attrs.evolve(layer.scales, weight_scales=layer.scales.weight_scales[order])
        text = f"scales of channels are in another order: {pairs}"
        yield _Correction("scale", text, _with_scales(layer, scales))


def _correct_last_bits(layer: RecordedLayer) -> Iterator[_Correction]:
    """Yield a layer with scales that differ in the last place of float32 or of nine decimals."""
    for side, name in (("target", "result"), ("source", "input")):
        scale = np.float32(getattr(layer.scales, side).scale)
        for limit, change in ((np.inf, "above"), (-np.inf, "below")):
            other = float(np.nextafter(scale, np.float32(limit)))
            text = f"the scale of the {name} is {other!r}, the float32 {change} {float(scale)!r}"
            yield _Correction("scale", text, _with_view(layer, side, scale=other))
        for unit in (1e-9, -1e-9, 1e-6, -1e-6):
            other = float(np.float32(float(scale) + unit))
            text = f"the scale of the {name} is {other!r}, not {float(scale)!r}"
            if other > 0:
                yield _Correction("scale", text, _with_view(layer, side, scale=other))
    for limit, change in ((np.inf, "above"), (-np.inf, "below")):
        nearest = np.nextafter(layer.scales.weight_scales, np.float32(limit))
        text = f"the scales of the weights are the float32 numbers {change} those of the program"
        own = _with_scales(layer, attrs.evolve(layer.scales, weight_scales=nearest))
        yield _Correction("scale", text, own)


# --- unusual rules -------------------------------------------------------------------------------


def _find_unusual_rules(layer: RecordedLayer) -> LayerFault | None:
    """Search rules with other limits of sums and results, or a multiplier off by one unit."""
    usual = list_rules(layer.element, bool(layer.biases.any()))
    for limits in find_limits(layer):
        rules = find_rules(layer, limits.change_groups(usual)).rules
        if rules:
            kind = "accumulator" if limits.bits else "clamp"
            return LayerFault(kind, limits.name, rules, is_data_fault=False)
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
