"""What an operation answers under the profiles that the host operations do not have.

Written from the references' formulas and from scales alone, slowly: Python integers where widths
matter, one float32 operation at a time elsewhere. Nothing of the compiler or the engines is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.windows import Window
from nmpsim.kernels.scale import integer_scale

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
WEIGHTED = ("convolution", "fullyconnected")
f32 = np.float32


def answer(
    opcode: str, operands: Sequence[HostTensor], attributes: Attributes, numerics: str
) -> Array:
    """The result, clipped."""
    dest = operands[0]
    with np.errstate(all="ignore"):
        value, low, high = _unclipped(opcode, operands, attributes, PROFILES[numerics]())
    limits = np.iinfo(dest.dtype)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    return np.clip(value.astype(np.float64), low, max(low, high)).astype(dest.dtype)


def is_of_profile(numerics: str, opcode: str, operands: Sequence[HostTensor]) -> bool:
    """True for what is computed here; all else is the host operations'."""
    narrow = operands[0].dtype in (np.int8, np.int16)
    known = opcode.endswith(WEIGHTED) or opcode in _OTHERS
    return numerics in PROFILES and narrow and known


# Operations


def _unclipped(
    opcode: str, operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    dest = operands[0]
    if opcode.endswith(WEIGHTED) or opcode == "matmul":
        values = profile.result(_layer(opcode, operands, attributes))
        return _activated(values, dest, attributes, profile)
    return _OTHERS[opcode](operands, attributes, profile)


def _activated(
    values: Array, dest: HostTensor, attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    kind = attributes.get("FusedActivation", "NONE")
    arguments = attributes.get("FusedActivationArgs", ())
    low, high = -(1 << 40), 1 << 40
    if kind == "RELU":
        low = dest.offset
    elif kind == "CLIP":
        low, high = (_held(profile.quantized(a, dest), dest) for a in arguments)
        low = min(low, high)
    elif kind == "LEAKY_RELU":
        below = values - dest.offset
        values = np.where(below < 0, profile.scaled(below, f32(arguments[0]), dest), below)
        values = values + dest.offset
    return values, low, high


def _held(value: int, grid: HostTensor) -> int:
    limits = np.iinfo(grid.dtype)
    return max(int(limits.min), min(int(limits.max), value))


@attrs.frozen(eq=False)
class Layer:
    """Exact sums of a layer with weights, and its scales (one, or one a channel)."""

    sums: Array
    dest: HostTensor
    source_scale: Any
    weight_scales: Any
    by_channel: bool
    is_full: bool
    is_convolution: bool
    bias: HostTensor | None
    bias_scales: Any
    bias_offsets: Any

    @property
    def product(self) -> Any:
        return f32(self.source_scale) * self.weight_scales

    @property
    def integers(self) -> Array:
        if self.bias is None:
            return np.zeros(1, np.int64)
        return self.bias.values.astype(np.int64) - self.bias_offsets

    @property
    def reals(self) -> Array:
        if self.bias is None:
            return np.zeros(1, np.float32)
        if self.bias.is_float:
            return self.bias.values
        return self.bias_scales * self.integers.astype(np.float32)

    @property
    def bias_is_on_product(self) -> bool:
        return (
            self.bias is not None
            and not self.bias.is_float
            and bool(np.all(self.bias_scales == self.product))
        )


def _layer(opcode: str, operands: Sequence[HostTensor], attributes: Attributes) -> Layer:
    dest, source, weights = operands[:3]
    bias = operands[3] if len(operands) > 3 else None
    tables = [t.values for t in operands[4:]]
    scales: Any = weights.scale32
    offsets: Any = np.int64(weights.offset)
    if tables:
        scales, offsets = tables[0], tables[1].astype(np.int64)
    bias_scales: Any = bias.scale32 if bias else f32(0)
    bias_offsets: Any = np.int64(bias.offset if bias else 0)
    if len(tables) == 4:
        bias_scales, bias_offsets = tables[2], tables[3].astype(np.int64)
    x = source.centered()
    w = weights.values.astype(np.int64)
    if opcode.endswith("convolution"):
        per_channel = offsets[:, None, None, None] if tables else offsets
        sums = _convolved(x, w - per_channel, dest.shape, attributes)
    elif tables:
        sums = x.reshape(x.shape[0], -1) @ (w - offsets[:, None]).T
    else:
        sums = x.reshape(x.shape[0], -1) @ (w - offsets)
    return Layer(
        sums, dest, source.scale32, scales, bool(tables),
        opcode.endswith("fullyconnected"), opcode.endswith("convolution"),
        bias, bias_scales, bias_offsets,
    )  # fmt: skip


def _convolved(x: Array, w: Array, shape: tuple[int, ...], attributes: Attributes) -> Array:
    window, groups = Window.of(attributes), int(attributes["Group"])
    padded = window.padded(x, 0)
    inputs, outs = x.shape[3] // groups, w.shape[0] // groups
    sums = np.zeros(shape, np.int64)
    for ky, kx, view in window.views(padded, shape[1], shape[2]):
        for g in range(groups):
            part = view[..., g * inputs : (g + 1) * inputs]
            taps = w[g * outs : (g + 1) * outs, ky, kx]
            sums[..., g * outs : (g + 1) * outs] += part @ taps.T
    return sums


def _average(
    operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    dest, source = operands
    window = Window.of(attributes)
    counts = window.valid_taps(*source.shape[1:3], *dest.shape[1:3])[:, :, None]
    values = source.values.astype(np.int64) if profile.averages_raw else source.centered()
    padded = window.padded(values, 0)
    sums = sum(view for _, _, view in window.views(padded, *dest.shape[1:3]))
    all_taps = bool(attributes["CountIncludePads"])
    found = profile.average(
        np.asarray(sums), np.maximum(counts, 1), window.taps, all_taps, operands
    )
    return found, -(1 << 40), 1 << 40


def _pair(opcode: str) -> Callable[..., tuple[Array, int, int]]:
    def run(
        operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
    ) -> tuple[Array, int, int]:
        return profile.pair(opcode, *operands), -(1 << 40), 1 << 40

    return run


def _unary(opcode: str) -> Callable[..., tuple[Array, int, int]]:
    def run(
        operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
    ) -> tuple[Array, int, int]:
        dest, source = operands
        alpha = f32(attributes["Alpha"]) if opcode == "leakyrelu" else None
        low, high = -(1 << 40), 1 << 40
        if opcode == "relu":
            source = _clamped(source, source.offset, 1 << 20)
        elif opcode == "clip" and profile.clips_input:
            bounds = (
                _held(profile.quantized(attributes[k], source), source) for k in ("Min", "Max")
            )
            source = _clamped(source, *bounds)
        elif opcode == "clip":
            low, high = (
                _held(profile.quantized(attributes[k], dest), dest) for k in ("Min", "Max")
            )
        elif opcode == "cpumaxsplat":
            floor = _held(profile.quantized(attributes["SplatValue"], source), source)
            source = _clamped(source, floor, 1 << 20)
        return profile.unary(source, dest, alpha), low, high

    return run


def _clamped(source: HostTensor, low: int, high: int) -> HostTensor:
    values = np.clip(source.values.astype(np.int64), low, high).astype(source.dtype)
    return attrs.evolve(source, values=values)


def _splat(
    operands: Sequence[HostTensor], attributes: Attributes, profile: Profile
) -> tuple[Array, int, int]:
    (dest,) = operands
    value = profile.quantized(attributes["Value"], dest)
    return np.full(dest.shape, value), -(1 << 40), 1 << 40


PAIRS = ("elementadd", "elementsub", "elementmul", "elementmax", "elementmin", "batchedadd")
UNARY = ("relu", "clip", "leakyrelu", "cpumaxsplat", "rescalequantized")
_OTHERS: dict[str, Callable[..., tuple[Array, int, int]]] = {
    "matmul": lambda *_: (np.zeros(0), 0, 0),
    "avgpool": _average,
    "splat": _splat,
    **{name: _pair(name) for name in PAIRS},
    **{name: _unary(name) for name in UNARY},
}


# Profiles


def away(x: Any) -> Array:
    """Halves away from zero, exact."""
    wide = np.asarray(x, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(np.int64)


def even(x: Any) -> Array:
    return np.rint(np.asarray(x, np.float64)).astype(np.int64)


class Profile:
    clips_input = False
    averages_raw = False

    def result(self, layer: Layer) -> Array:
        raise NotImplementedError

    def scaled(self, x: Array, factor: Any, dest: HostTensor) -> Array:
        raise NotImplementedError

    def quantized(self, value: float, grid: HostTensor) -> int:
        raise NotImplementedError

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        raise NotImplementedError

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        raise NotImplementedError

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        raise NotImplementedError


def _operation(opcode: str, x: Array, y: Array) -> Array:
    if opcode == "elementsub":
        return x - y
    if opcode in ("elementmax", "elementmin"):
        return (np.maximum if opcode == "elementmax" else np.minimum)(x, y)
    return x + y


class Nmp(Profile):
    """Shifts and integer multipliers as libjit has them, at any width; the bias behind them."""

    clips_input = True

    def scaled(self, x: Array, factor: Any, dest: HostTensor) -> Array:
        scale = integer_scale(float(factor))
        half = 1 << scale.post >> 1

        def one(value: int) -> int:
            total = (int(value) >> scale.pre) * scale.mul + half
            if dest.dtype == np.int8:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            return max(-(1 << 50), min(1 << 50, total >> scale.post))

        return np.array([one(v) for v in x.reshape(-1).tolist()], np.int64).reshape(x.shape)

    def result(self, layer: Layer) -> Array:
        dest = layer.dest
        ratios = np.broadcast_to(layer.product / dest.scale32, layer.sums.shape[-1:])
        columns = [self.scaled(layer.sums[..., c], ratio, dest) for c, ratio in enumerate(ratios)]
        return np.stack(columns, axis=-1) + layer.integers + dest.offset

    def quantized(self, value: float, grid: HostTensor) -> int:
        return int(even(f32(f32(value) / grid.scale32) + f32(grid.offset)))

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        left, right = np.broadcast_arrays(lhs.centered(), rhs.centered())
        if opcode == "elementmul":
            return (
                self.scaled(left * right, lhs.scale32 * rhs.scale32 / dest.scale32, dest)
                + dest.offset
            )
        x = self.scaled(left, lhs.scale32 / dest.scale32, dest)
        y = self.scaled(right, rhs.scale32 / dest.scale32, dest)
        return _operation(opcode, x, y) + dest.offset

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        x = source.centered()
        values = self.scaled(x, source.scale32 / dest.scale32, dest)
        if alpha is not None:
            below = self.scaled(x, source.scale32 * alpha / dest.scale32, dest)
            values = np.where(x < 0, below, values)
        return values + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        dest, source = at
        ratio = source.scale32 / dest.scale32
        if all_taps:
            return self.scaled(sums, ratio / f32(taps), dest) + dest.offset
        return divided(self.scaled(sums, ratio, dest), counts) + dest.offset


def divided(values: Array, counts: Array) -> Array:
    """C's division of values moved half a divisor away from zero."""
    return np.sign(values) * ((np.abs(values) + counts // 2) // counts)


class Q31(Profile):
    """TFLite. A multiplier is (mul, exponent) with mul / 2^31 between one half and one."""

    averages_raw = True

    @staticmethod
    def multiplier(factor: float) -> tuple[int, int]:
        fraction, exponent = math.frexp(factor)
        mul = math.floor(Fraction(fraction) * 2**31 + Fraction(1, 2))
        if mul == 1 << 31:
            mul, exponent = mul >> 1, exponent + 1
        return (0, 0) if exponent < -31 else (mul, exponent)

    @staticmethod
    def fixed(x: Array, factor: float, left: int = 0) -> Array:
        mul, exponent = Q31.multiplier(factor)
        right = max(-exponent, 0)

        def one(value: int) -> int:
            shifted = int(value) << left << max(exponent, 0)
            shifted = max(-(1 << 31), min((1 << 31) - 1, shifted))
            product = shifted * mul
            nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
            high = abs(product + nudge) >> 31
            high = high if product + nudge >= 0 else -high
            rest, threshold = high & (1 << right) - 1, ((1 << right) - 1 >> 1) + (high < 0)
            return (high >> right) + (rest > threshold)

        return np.array([one(v) for v in x.reshape(-1).tolist()], np.int64).reshape(x.shape)

    @staticmethod
    def wide(x: Array, factor: float) -> Array:
        mul, exponent = Q31.multiplier(factor)
        reduced = (mul + 0x8000) >> 16 if mul < 0x7FFF0000 else 0x7FFF
        shift = 15 - exponent
        values = [(int(v) * reduced + (1 << shift - 1)) >> shift for v in x.reshape(-1).tolist()]
        return np.array(values, np.int64).reshape(x.shape)

    def result(self, layer: Layer) -> Array:
        dest = layer.dest
        count = layer.sums.shape[-1]
        if not (layer.is_convolution or layer.by_channel):
            factors = [float(layer.product) / float(dest.scale32)] * count
        else:
            scales = np.broadcast_to(layer.weight_scales, (count,)).tolist()
            factors = [float(layer.source_scale) * s / float(dest.scale32) for s in scales]
        sums = layer.sums + layer.integers
        form = self.fixed if dest.dtype == np.int8 else self.wide
        columns = [form(sums[..., c], factor) for c, factor in enumerate(factors)]
        return np.stack(columns, axis=-1) + dest.offset

    def quantized(self, value: float, grid: HostTensor) -> int:
        return int(away(f32(value) / grid.scale32)) + grid.offset

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        left, right = np.broadcast_arrays(lhs.centered(), rhs.centered())
        a, b, y = (float(t.scale32) for t in (lhs, rhs, dest))
        if opcode == "elementmul":
            ratio = float(lhs.scale32 * rhs.scale32 / dest.scale32)
            return self.fixed(left * right, ratio) + dest.offset
        if opcode in ("elementmax", "elementmin"):
            sides = self.fixed(left, a / y), self.fixed(right, b / y)
            return _operation(opcode, *sides) + dest.offset
        up, twice = (20 if dest.dtype == np.int8 else 15), 2 * max(a, b)
        total = _operation(
            opcode, self.fixed(left, a / twice, up), self.fixed(right, b / twice, up)
        )
        return self.fixed(total, twice / (2.0**up * y)) + dest.offset

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        x = source.centered()
        if alpha is None:
            return self.fixed(x, float(source.scale32) / float(dest.scale32)) + dest.offset
        above = self.fixed(x, float(source.scale32 / dest.scale32))
        below = self.fixed(x, float(source.scale32 * alpha / dest.scale32))
        return np.where(x >= 0, above, below) + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        assert not all_taps
        return divided(sums, counts)


class Float(Profile):
    """ONNX Runtime, and what PyTorch's engines share with it."""

    def factor(self, layer: Layer) -> Any:
        return layer.product / layer.dest.scale32

    def bias_integers(self, layer: Layer) -> Array:
        return even(layer.reals / layer.product)

    def result(self, layer: Layer) -> Array:
        bias = layer.integers
        if layer.bias is not None and not layer.bias_is_on_product:
            bias = self.bias_integers(layer)
        total = (layer.sums + bias).astype(np.float32)
        return even(total * self.factor(layer)) + layer.dest.offset

    def quantized(self, value: float, grid: HostTensor) -> int:
        return int(even(f32(value) / grid.scale32)) + grid.offset

    def product(self, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Any:
        return lhs.scale32 * rhs.scale32 / dest.scale32

    def real(self, side: HostTensor) -> Array:
        return side.centered().astype(np.float32) * side.scale32

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        if opcode == "elementmul":
            products = (lhs.centered() * rhs.centered()).astype(np.float32)
            return even(products * self.product(lhs, rhs, dest)) + dest.offset
        total = _operation(opcode, self.real(lhs), self.real(rhs))
        return even(total * (f32(1) / dest.scale32)) + dest.offset

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        x = source.centered()
        real = x.astype(np.float32) * source.scale32
        if alpha is not None:
            real = np.where(x < 0, real * alpha, real)
        return even(real * (f32(1) / dest.scale32)) + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        dest, source = at
        divisor = f32(taps) if all_taps else counts.astype(np.float32)
        factor = source.scale32 / dest.scale32 / divisor
        return self.placed(sums.astype(np.float32) * factor, dest)

    def placed(self, value: Array, dest: HostTensor) -> Array:
        return even(value) + dest.offset


class Torch(Float):
    def product(self, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Any:
        return lhs.scale32 * rhs.scale32 * (f32(1) / dest.scale32)

    def real(self, side: HostTensor) -> Array:
        """A fused multiply-add on unsigned integers; float64 holds it before it is rounded."""
        moved = 128 if side.dtype == np.int8 else 0
        addend = -(f32(side.offset + moved) * side.scale32)
        unsigned = side.values.astype(np.float64) + moved
        return (unsigned * np.float64(side.scale32) + np.float64(addend)).astype(np.float32)

    def placed(self, value: Array, dest: HostTensor) -> Array:
        """The zero point is added before rounding, that of an unsigned tensor."""
        moved = 128 if dest.dtype == np.int8 else 0
        return even(value + f32(dest.offset + moved)) - moved


class Fbgemm(Torch):
    def result(self, layer: Layer) -> Array:
        sums = layer.sums.astype(np.float32)
        if layer.by_channel:
            biased = sums + layer.reals / layer.product
        else:
            exact = layer.reals.astype(np.float64) * np.float64(f32(1) / layer.product)
            biased = (sums.astype(np.float64) + exact).astype(np.float32)
        return even(biased * self.factor(layer)) + layer.dest.offset


class Onednn(Torch):
    def result(self, layer: Layer) -> Array:
        weights = layer.weight_scales
        if layer.is_full:
            weights = f32(1) / (f32(1) / weights)
        source = f32(1) / (f32(1) / layer.source_scale)
        value = layer.sums.astype(np.float32) * source * weights + layer.reals
        return self.placed(value * (f32(1) / layer.dest.scale32), layer.dest)


class Qnnpack(Torch):
    def factor(self, layer: Layer) -> Any:
        return layer.product * (f32(1) / layer.dest.scale32)

    def bias_integers(self, layer: Layer) -> Array:
        return even(layer.reals * (f32(1) / layer.product))

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        if opcode in ("elementmul", "elementmax", "elementmin"):
            return super().pair(opcode, dest, lhs, rhs)
        left, right = lhs.scale32 / dest.scale32, rhs.scale32 / dest.scale32
        shift = 21 - math.floor(math.log2(float(max(left, right))))
        a, b = (int(even(np.ldexp(np.float64(v), shift))) for v in (left, right))
        x, y = np.broadcast_arrays(lhs.centered(), rhs.centered())
        total = _operation(opcode, x * a, y * b)
        rounded = np.sign(total) * ((np.abs(total) + (1 << shift >> 1)) >> shift)
        return rounded + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        return super().average(sums, counts, taps, True, at)

    def placed(self, value: Array, dest: HostTensor) -> Array:
        return even(value) + dest.offset


PROFILES: dict[str, type[Profile]] = {
    "nmp": Nmp,
    "q31": Q31,
    "float": Float,
    "float-fbgemm": Fbgemm,
    "float-qnnpack": Qnnpack,
    "float-onednn": Onednn,
}
