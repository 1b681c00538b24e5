"""Each reference's formulas for sums, pairs and rescaled values, as an oracle.

Written from the references' formulas and from scales alone, slowly: Python integers where widths
matter, one float32 operation at a time elsewhere. Nothing of the compiler or the engines is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.scale import make_integer_scale

Array = np.ndarray[Any, Any]
f32 = np.float32


@attrs.frozen(eq=False)
class Layer:
    """Layer with weights, given by its exact sums and its scales (one, or one per channel)."""

    sums: Array
    dest: HostTensor
    source_scale: Any
    weight_scales: Any
    by_channel: bool
    is_full: bool
    is_convolution: bool
    bias: HostTensor
    bias_scales: Any
    bias_offsets: Any

    @property
    def product(self) -> Any:
        return f32(self.source_scale) * self.weight_scales

    @property
    def integers(self) -> Array:
        return self.bias.values.astype(np.int64) - self.bias_offsets

    @property
    def reals(self) -> Array:
        if self.bias.is_float:
            return self.bias.values
        return self.bias_scales * self.integers.astype(np.float32)

    @property
    def bias_is_on_product(self) -> bool:
        return not self.bias.is_float and bool(np.all(self.bias_scales == self.product))


def round_half_away(x: Any) -> Array:
    """Round exactly to the nearest integer, with halves away from zero."""
    wide = np.asarray(x, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(np.int64)


def even(x: Any) -> Array:
    return np.rint(np.asarray(x, np.float64)).astype(np.int64)


def multiply_add(x: Any, factor: Any, addend: Any) -> Array:
    """Return ``x * factor + addend`` of float32 numbers, rounded to odd in float64, then again."""
    product, c = np.asarray(np.float64(x) * np.float64(factor)), np.float64(addend)
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    is_odd = (total.view(np.int64) & 1) == 1
    towards = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    return np.where((lost == 0) | is_odd, total, towards).astype(np.float32)


class Profile:
    clips_input = False
    averages_raw = False
    averages_reals = False

    def result(self, layer: Layer) -> Array:
        raise NotImplementedError

    def matmul(self, sums: Array, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Array:
        """Return the unclipped results of a matrix product, given its exact sums."""
        raise NotImplementedError

    def scale(self, x: Array, factor: Any, dest: HostTensor) -> Array:
        raise NotImplementedError

    def quantize(self, value: float, grid: HostTensor) -> int:
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
    """Profile of the NMP: shifts and integer multipliers of libjit at any width, then the bias."""

    clips_input = True

    def scale(self, x: Array, factor: Any, dest: HostTensor) -> Array:
        scale = make_integer_scale(float(factor))
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
        columns = [self.scale(layer.sums[..., c], ratio, dest) for c, ratio in enumerate(ratios)]
        return np.stack(columns, axis=-1) + layer.integers + dest.offset

    def matmul(self, sums: Array, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Array:
        return self.scale(sums, lhs.scale32 * rhs.scale32 / dest.scale32, dest) + dest.offset

    def quantize(self, value: float, grid: HostTensor) -> int:
        return int(even(f32(f32(value) / grid.scale32) + f32(grid.offset)))

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        left, right = np.broadcast_arrays(lhs.subtract_offset(), rhs.subtract_offset())
        if opcode == "elementmul":
            return (
                self.scale(left * right, lhs.scale32 * rhs.scale32 / dest.scale32, dest)
                + dest.offset
            )
        x = self.scale(left, lhs.scale32 / dest.scale32, dest)
        y = self.scale(right, rhs.scale32 / dest.scale32, dest)
        return _operation(opcode, x, y) + dest.offset

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        x = source.subtract_offset()
        values = self.scale(x, source.scale32 / dest.scale32, dest)
        if alpha is not None:
            below = self.scale(x, source.scale32 * alpha / dest.scale32, dest)
            values = np.where(x < 0, below, values)
        return values + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        dest, source = at
        ratio = source.scale32 / dest.scale32
        if all_taps:
            return self.scale(sums, ratio / f32(taps), dest) + dest.offset
        return divide_rounded(self.scale(sums, ratio, dest), counts) + dest.offset


def divide_rounded(values: Array, counts: Array) -> Array:
    """Divide integers and round to the nearest one, with halves away from zero."""
    return np.sign(values) * ((np.abs(values) + counts // 2) // counts)


class Q31(Profile):
    """Profile of TFLite; a multiplier is (mul, exponent) with mul / 2^31 between 0.5 and 1."""

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

    @staticmethod
    def once(x: Array, factor: float) -> Array:
        mul, exponent = Q31.multiplier(factor)
        exact = (Fraction(int(v) * mul, 2) / 2 ** (30 - exponent) for v in x.reshape(-1).tolist())
        away = [int(abs(v) + Fraction(1, 2)) * (1 if v >= 0 else -1) for v in exact]
        return np.array(away, np.int64).reshape(x.shape)

    def result(self, layer: Layer) -> Array:
        dest = layer.dest
        count = layer.sums.shape[-1]
        scales = np.broadcast_to(layer.weight_scales, (count,)).tolist()
        factors = [float(layer.source_scale) * s / float(dest.scale32) for s in scales]
        sums = layer.sums + layer.integers
        form = self.fixed if dest.dtype == np.int8 else self.wide
        if not layer.is_convolution:
            form = self.once
        columns = [form(sums[..., c], factor) for c, factor in enumerate(factors)]
        return np.stack(columns, axis=-1) + dest.offset

    def matmul(self, sums: Array, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Array:
        factor = float(lhs.scale32 * rhs.scale32) / float(dest.scale32)
        form = self.fixed if dest.dtype == np.int8 else self.wide
        return form(sums, factor) + dest.offset

    def quantize(self, value: float, grid: HostTensor) -> int:
        return int(round_half_away(f32(value) / grid.scale32)) + grid.offset

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        left, right = np.broadcast_arrays(lhs.subtract_offset(), rhs.subtract_offset())
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
        x = source.subtract_offset()
        if alpha is None:
            return self.fixed(x, float(source.scale32) / float(dest.scale32)) + dest.offset
        above = self.fixed(x, float(source.scale32 / dest.scale32))
        below = self.fixed(x, float(source.scale32 * alpha / dest.scale32))
        return np.where(x >= 0, above, below) + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        assert not all_taps
        return divide_rounded(sums, counts)


class Float(Profile):
    """Profile of ONNX Runtime, and base of the profiles of PyTorch's engines."""

    averages_reals = True

    def factor(self, layer: Layer) -> Any:
        return layer.product / layer.dest.scale32

    def bias_integers(self, layer: Layer) -> Array:
        return even(layer.reals / layer.product)

    def result(self, layer: Layer) -> Array:
        bias = layer.integers
        if not layer.bias_is_on_product:
            bias = self.bias_integers(layer)
        total = (layer.sums + bias).astype(np.float32)
        return even(total * self.factor(layer)) + layer.dest.offset

    def quantize(self, value: float, grid: HostTensor) -> int:
        return int(even(f32(value) / grid.scale32)) + grid.offset

    def ratio(self, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Any:
        return lhs.scale32 * rhs.scale32 / dest.scale32

    def matmul(self, sums: Array, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Array:
        return even(sums.astype(np.float32) * self.ratio(lhs, rhs, dest)) + dest.offset

    def real(self, side: HostTensor) -> Array:
        return side.subtract_offset().astype(np.float32) * side.scale32

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        if opcode == "elementmul":
            products = (lhs.subtract_offset() * rhs.subtract_offset()).astype(np.float32)
            return even(products * self.ratio(lhs, rhs, dest) + f32(dest.offset))
        if opcode == "elementadd":
            left, right = lhs.scale32 / dest.scale32, rhs.scale32 / dest.scale32
            both = multiply_add(np.array(lhs.offset), left, right * f32(rhs.offset))
            addend = f32(dest.offset) - both
            return even(multiply_add(lhs.values, left, multiply_add(rhs.values, right, addend)))
        return self.of_reals(opcode, dest, lhs, rhs)

    def of_reals(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        if opcode == "elementmul":
            products = (lhs.subtract_offset() * rhs.subtract_offset()).astype(np.float32)
            return even(products * self.ratio(lhs, rhs, dest)) + dest.offset
        total = _operation(opcode, self.real(lhs), self.real(rhs))
        return even(total * (f32(1) / dest.scale32)) + dest.offset

    def unary(self, source: HostTensor, dest: HostTensor, alpha: Any) -> Array:
        x = source.subtract_offset()
        real = x.astype(np.float32) * source.scale32
        if alpha is not None:
            real = np.where(x < 0, real * alpha, real)
        return even(real * (f32(1) / dest.scale32)) + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        dest, source = at
        divisor = f32(taps) if all_taps else counts.astype(np.float32)
        if self.averages_reals:
            return even(sums / divisor / dest.scale32 + f32(dest.offset))
        factor = source.scale32 / dest.scale32 / divisor
        return self.add_zero_point(sums.astype(np.float32) * factor, dest)

    def add_zero_point(self, value: Array, dest: HostTensor) -> Array:
        return even(value) + dest.offset


class Torch(Float):
    """Base of the profiles of PyTorch's engines; Int16 matrix products are the simulator's own."""

    averages_reals = False

    def pair(self, opcode: str, dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> Array:
        return self.of_reals(opcode, dest, lhs, rhs)

    def ratio(self, lhs: HostTensor, rhs: HostTensor, dest: HostTensor) -> Any:
        return lhs.scale32 * rhs.scale32 * (f32(1) / dest.scale32)

    def real(self, side: HostTensor) -> Array:
        """Dequantize by a fused multiply-add on unsigned integers, rounded once from float64."""
        moved = 128 if side.dtype == np.int8 else 0
        addend = -(f32(side.offset + moved) * side.scale32)
        unsigned = side.values.astype(np.float64) + moved
        return (unsigned * np.float64(side.scale32) + np.float64(addend)).astype(np.float32)

    def add_zero_point(self, value: Array, dest: HostTensor) -> Array:
        """Add the zero point of the unsigned tensor before rounding."""
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
        return self.add_zero_point(value * (f32(1) / layer.dest.scale32), layer.dest)


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
        x, y = np.broadcast_arrays(lhs.subtract_offset(), rhs.subtract_offset())
        total = _operation(opcode, x * a, y * b)
        rounded = np.sign(total) * ((np.abs(total) + (1 << shift >> 1)) >> shift)
        return rounded + dest.offset

    def average(
        self, sums: Array, counts: Array, taps: int, all_taps: bool, at: Sequence[HostTensor]
    ) -> Array:
        return super().average(sums, counts, taps, True, at)

    def add_zero_point(self, value: Array, dest: HostTensor) -> Array:
        return even(value) + dest.offset


NO_INT8_MATMUL = ("float-fbgemm", "float-qnnpack", "float-onednn")
"""Profiles that refuse it."""

PROFILES: dict[str, type[Profile]] = {
    "nmp": Nmp,
    "q31": Q31,
    "float": Float,
    "float-fbgemm": Fbgemm,
    "float-qnnpack": Qnnpack,
    "float-onednn": Onednn,
}
