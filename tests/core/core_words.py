"""From scales to the words of a descriptor, as each reference forms its factors.

float32 operations are rounded one by one. Columns are (pre, mul, post), one value a channel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from core_tensors import Array, scale, scale_records

from nmpsim.kernels.scale import make_integer_scale, make_integer_scales

F32 = np.float32
Columns = tuple[Array, Array, Array]
Words = dict[str, Any]
UNSIGNED = 128
"""PyTorch's unsigned numbers are greater than ours by so much."""


def reciprocal(value: Any) -> Any:
    """Return the float32 reciprocal of a value or of each element of an array."""
    return F32(1) / np.asarray(value).astype(F32)[()]


def bits(value: Any) -> int:
    """Return the bits of a float32 as a signed word."""
    return int(F32(value).view(np.int32))


def doubles(values: Array) -> Array:
    """Return biases as the float64 bits that fbgemm and onednn read in channel records."""
    return values.astype(np.float64).view(np.int64)


def float_words(prefix: str, factor: Any) -> Words:
    """Return the descriptor words of a factor of the float profiles."""
    return scale(prefix, mul=bits(factor))


def float_columns(factors: Array) -> Columns:
    words = np.asarray(factors).astype(F32).view(np.int32)
    return np.zeros_like(words), words, np.zeros_like(words)


def integer_words(prefix: str, factor: Any) -> Words:
    """Return the descriptor words of a factor of glow_int and nmp."""
    s = make_integer_scale(float(factor))
    return scale(prefix, s.pre, s.mul, s.post)


def integer_columns(factors: Array) -> Columns:
    pre, post, mul = make_integer_scales(factors)
    return pre, mul, post


def quantized_multiplier(factor: float) -> tuple[int, int, int]:
    """Return left shift, 31-bit factor and right shift of TFLite's ``QuantizeMultiplier``."""
    fraction, exponent = math.frexp(factor)
    mul = math.floor(fraction * 2**31 + 0.5)
    if mul == 1 << 31:
        mul, exponent = mul // 2, exponent + 1
    return max(exponent, 0), mul, max(-exponent, 0)


def fixed_words(prefix: str, factor: float, shift: int = 0) -> Words:
    """Return the words of a q31 factor that follows a left shift by ``shift`` bits."""
    pre, mul, post = quantized_multiplier(float(factor))
    return scale(prefix, pre + shift, mul, post)


def fixed_columns(factors: Array) -> Columns:
    pre, mul, post = np.array([quantized_multiplier(float(f)) for f in factors]).T
    return pre, mul, post


def glow_float_pair(operation: str, lhs: Any, rhs: Any, out: Any) -> Words:
    """Return the factor words of an elementwise operation of Glow's Interpreter."""
    if operation == "mul":
        return float_words("out", F32(lhs * rhs) / out)
    if operation == "add":
        return {
            **float_words("lhs", lhs * F32(1 << 15)),
            **float_words("rhs", rhs * F32(1 << 15)),
            **float_words("out", F32(2.0**-15) / out),
        }
    if operation == "sub":
        return {**float_words("lhs", lhs / out), **float_words("rhs", rhs / out)}
    sides = {**float_words("lhs", lhs), **float_words("rhs", rhs)}
    return {**sides, "result_scale": bits(out)}


def glow_int_pair(operation: str, lhs: Any, rhs: Any, out: Any) -> Words:
    """Return the factor words of an elementwise operation of Glow's libjit."""
    if operation == "mul":
        return integer_words("out", F32(lhs * rhs) / out)
    return {**integer_words("lhs", lhs / out), **integer_words("rhs", rhs / out)}


def q31_sum(lhs: Any, rhs: Any, out: Any, shift: int) -> Words:
    """Return the words of TFLite's add or sub of inputs shifted left; factors are float64."""
    left, right = float(lhs), float(rhs)
    twice = 2 * max(left, right)
    return {
        **fixed_words("lhs", left / twice, shift),
        **fixed_words("rhs", right / twice, shift),
        **fixed_words("out", twice / ((1 << shift) * float(out))),
    }


def torch_sum(lhs: tuple[Any, int], rhs: tuple[Any, int], out: Any) -> Words:
    """Return the words of PyTorch's add without qnnpack; sides are (scale, unsigned zero point)."""
    words: Words = {"profile": "float", "result_scale": bits(reciprocal(out))}
    for side, (factor, zero_point) in (("lhs", lhs), ("rhs", rhs)):
        words |= scale(side, mul=bits(factor), post=bits(-F32(zero_point) * F32(factor)))
        words[f"{side}_offset"] = -UNSIGNED
    return words


def qnnpack_sum(lhs: tuple[Any, int], rhs: tuple[Any, int], out: Any) -> Words:
    """Return the words of qnnpack's add, which gives the larger factor 22 bits."""
    left, right = (float(F32(side[0]) / F32(out)) for side in (lhs, rhs))
    shift = 22 - math.frexp(max(left, right))[1]
    return {
        "profile": "qnnpack",
        "out_post": shift,
        "lhs_mul": round(math.ldexp(left, shift)),
        "rhs_mul": round(math.ldexp(right, shift)),
        "lhs_offset": lhs[1] - UNSIGNED,
        "rhs_offset": rhs[1] - UNSIGNED,
    }


def torch_layer(
    engine: str, source: Any, weights: Array, bias: Array, out: Any, *, connected: bool
) -> tuple[Words, Array, Array]:
    """Return words, bias and scale records of a layer; ``weights`` has one scale or [O].

    With one scale for all weights fbgemm fuses the bias's division and its sum: the bias is a
    product, exact in float64.
    """
    channels, is_single = bias.size, weights.size == 1
    weights = np.broadcast_to(weights.astype(F32), channels)
    products = F32(source) * weights
    none, words = float_columns(np.zeros(channels)), {"profile": engine}
    if engine == "qnnpack":
        words["profile"] = "float"
        bias = np.rint(bias * reciprocal(products)).astype(np.int64)
        columns = none, float_columns(products * reciprocal(out))
    elif engine == "fbgemm":
        reals = bias.astype(np.float64) * reciprocal(products) if is_single else bias / products
        bias, columns = doubles(reals), (none, float_columns(products / F32(out)))
    else:
        words["result_scale"] = bits(reciprocal(out))
        twice = np.full(channels, reciprocal(reciprocal(source)))
        weights = reciprocal(reciprocal(weights)) if connected else weights
        bias, columns = doubles(bias), (float_columns(twice), float_columns(weights))
    return words, bias, scale_records(np.zeros(channels, np.int64), *columns)
