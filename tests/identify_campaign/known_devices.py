"""Known devices: their requantization as their public sources compute it, on arrays of integers.

Each function takes sums, biases, the scales of input, weights and result, and the zero point.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.identify_campaign.devices import Device


def get_factors(scales: Any) -> Any:
    """Return the real factors, float64 [O]."""
    source, weights, target = scales
    return np.float64(source) * weights.astype(np.float64) / np.float64(target)


def quantize_multiplier(factors: Any) -> tuple[Any, Any]:
    """Return multipliers and exponents as TFLite's QuantizeMultiplier (quantization_util.cc)."""
    fractions, exponents = np.frexp(factors)
    mul = np.floor(fractions * 2.0**31 + 0.5).astype(np.int64)
    is_full = mul == 1 << 31
    return np.where(is_full, mul // 2, mul), exponents.astype(np.int64) + is_full


def divide_by_power(x: Any, exponent: Any) -> Any:
    """Return gemmlowp's RoundingDivideByPOT (fixedpoint.h)."""
    mask = (np.int64(1) << exponent) - 1
    threshold = (mask >> 1) + (x < 0)
    return (x >> exponent) + ((x & mask) > threshold)


def tflite(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """MultiplyByQuantizedMultiplier: SaturatingRoundingDoublingHighMul, RoundingDivideByPOT."""
    mul, exponent = quantize_multiplier(get_factors(scales))
    product = ((sums + bias) << np.maximum(exponent, 0)) * mul
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.sign(nudged) * (np.abs(nudged) >> 31)
    return divide_by_power(high, np.maximum(-exponent, 0)) + zero


def tflite_single(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """MultiplyByQuantizedMultiplier with TFLITE_SINGLE_ROUNDING."""
    mul, exponent = quantize_multiplier(get_factors(scales))
    shift = 31 - exponent
    return ((sums + bias) * mul + (np.int64(1) << shift - 1) >> shift) + zero


def cmsis_double(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """arm_nn_requantize: arm_nn_doubling_high_mult_no_sat, arm_nn_divide_by_power_of_two."""
    mul, exponent = quantize_multiplier(get_factors(scales))
    high = ((sums + bias) << np.maximum(exponent, 0)) * mul + (1 << 30) >> 31
    return divide_by_power(high, np.maximum(-exponent, 0)) + zero


def cmsis_single(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """arm_nn_requantize with CMSIS_NN_USE_SINGLE_ROUNDING."""
    mul, exponent = quantize_multiplier(get_factors(scales))
    return (((sums + bias) * mul >> 30 - exponent) + 1 >> 1) + zero


def deeploy(sums: Any, bias: Any, scales: Any, zero: int, log: int = 20, rounds: int = 1) -> Any:
    """RequantShift: multiply, add, shift by a common number of bits."""
    mul = np.rint(get_factors(scales) * (1 << log)).astype(np.int64)
    add = np.rint(bias * get_factors(scales) * (1 << log)).astype(np.int64)
    return (sums * mul + add + rounds * (1 << log - 1) >> log) + zero


def tosa(sums: Any, bias: Any, scales: Any, zero: int, mode: str = "SINGLE_ROUND") -> Any:
    """RESCALE with scale32: apply_scale_32 of the specification."""
    mul, exponent = quantize_multiplier(get_factors(scales))
    total, shift = sums + bias, 31 - exponent
    nudge = np.broadcast_to(np.int64(1) << shift - 1, total.shape)
    if mode == "DOUBLE_ROUND":
        nudge = nudge + np.where(shift > 31, np.where(total >= 0, 1 << 30, -(1 << 30)), 0)
    if mode == "INEXACT_ROUND":
        nudge = 0 * nudge
    return (total * mul + nudge >> shift) + zero


def onnx_runtime(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """MlasRequantizeOutput: product in float32, clamp, round to even, zero point."""
    source, weights, target = scales
    value = (sums + bias).astype(np.float32) * (source * weights / target)
    return np.rint(np.clip(value, np.float32(-128 - zero), np.float32(127 - zero))) + zero


def xnnpack_fp32(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """xnn_qs8_requantize_fp32 with the magic bias 12582912."""
    source, weights, target = scales
    value = (sums + bias).astype(np.float32) * (source * weights / target)
    value = np.clip(value, np.float32(-128 - zero), np.float32(127 - zero))
    magic = (value + np.float32(12582912.0)).view(np.int32).astype(np.int64)
    return magic - (0x4B400000 - zero)


def xnnpack_rndnu(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """xnn_qs8_requantize_rndnu: the mantissa of the float32 scale, halves up."""
    source, weights, target = scales
    bits = (source * weights / target).view(np.uint32).astype(np.int64)
    mul, shift = (bits & 0x7FFFFF) | 0x800000, 127 + 23 - (bits >> 23)
    return ((sums + bias) * mul + (np.int64(1) << shift - 1) >> shift) + zero


def nvdla(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """Output converter: a scale of 15 bits, truncation that rounds halves away from zero."""
    fractions, exponents = np.frexp(get_factors(scales))
    mul, shift = np.floor(fractions * 2.0**15 + 0.5).astype(np.int64), 15 - exponents
    product = (sums + bias) * mul
    return np.sign(product) * (np.abs(product) + (np.int64(1) << shift - 1) >> shift) + zero


def shift_only(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """A device whose only factor is a shift, which rounds halves up."""
    shift = -np.rint(np.log2(get_factors(scales))).astype(np.int64)
    return (sums + bias + (np.int64(1) << shift - 1) >> shift) + zero


def k210(sums: Any, bias: Any, scales: Any, zero: int) -> Any:
    """Batch normalization of the K210: a multiplier of 24 bits, a shift, an addition."""
    fractions, exponents = np.frexp(get_factors(scales))
    mul = np.floor(fractions * 2.0**23 + 0.5).astype(np.int64)
    add = np.rint(bias * get_factors(scales)).astype(np.int64)
    return (sums * mul >> 23 - exponents) + add + zero


KNOWN = (
    Device("TFLite, rounded twice", "", compute=tflite),
    Device("TFLite, rounded once", "", compute=tflite_single),
    Device("CMSIS-NN, rounded twice", "", compute=cmsis_double),
    Device("CMSIS-NN, rounded once", "", compute=cmsis_single),
    Device("Deeploy RequantShift", "", compute=partial(deeploy, rounds=0)),
    Device("Deeploy RequantShift, rounded", "", compute=partial(deeploy, log=16)),
    Device("TOSA, single", "", compute=tosa),
    Device("TOSA, double", "", compute=partial(tosa, mode="DOUBLE_ROUND")),
    Device("TOSA, inexact", "", compute=partial(tosa, mode="INEXACT_ROUND")),
    Device("TOSA, 16 bits", "fixed 15", "up"),
    Device("ONNX Runtime", "", compute=onnx_runtime),
    Device("XNNPACK, fp32", "", compute=xnnpack_fp32),
    Device("XNNPACK, rndnu", "", compute=xnnpack_rndnu),
    Device("NVDLA", "", compute=nvdla),
    Device("NNIE, shift", "", compute=shift_only),
    Device("K210", "", compute=k210),
    Device("32-bit multiplier", "fixed 32", "up"),
    Device("32-bit multiplier, bias in the product", "fixed 32", "floor", place="product"),
    Device("float32, zero point first", "float32", "away", late_offset=False),
    Device("float32, real bias", "float32", "even", place="real"),
    Device("float64", "float64", "even"),
)
"""Devices that exist, or whose arithmetic is specified."""
