"""Arithmetic of each numerics profile on the host, for operations that the device does not execute.

It lands here because the device has no unit for it, or because its operands overlap; the second
must give the bits that the device would give (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import numpy as np

from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.kernels.hostops.rounding import (
    GridValues,
    fused_multiply_add,
    multiply_quantized,
    quantize_mean_multiplier,
    quantize_to_floats,
    rescale,
    rescale_wide,
    round_half_away,
    round_half_away_float,
    round_half_even,
    to_float32,
)
from nmpsim.kernels.hostops.tensors import FloatArray, HostTensor, IntArray, UnsupportedHostOp
from nmpsim.records import frozen

UNSIGNED = 128
"""Difference between PyTorch's unsigned tensor and the Int8 tensor that stores it."""

# --- real numbers into integers -------------------------------------------------------------


def _place_tflite(x: FloatArray, grid: HostTensor) -> GridValues:
    """Compute ``rha(fl(x/S)) + O``."""
    return round_half_away_float(x / grid.scale32), grid.offset


def _place_onnx(x: FloatArray, grid: HostTensor) -> GridValues:
    """Compute ONNX Runtime's ``rne(fl(x/S)) + O``."""
    return np.rint(x / grid.scale32), grid.offset


def _place_torch(x: FloatArray, grid: HostTensor) -> GridValues:
    """Compute PyTorch's ``rne(fma(x, fl(1/S), O))``; O is of an unsigned 8-bit tensor."""
    moved = UNSIGNED if grid.dtype == np.int8 else 0
    return np.rint(fused_multiply_add(x, np.float32(1) / grid.scale32, grid.offset + moved)), -moved


# --- average pools --------------------------------------------------------------------------


@frozen(eq=False)
class WindowSums:
    """Sums of an average pool's windows, with the tap counts and the pool's settings."""

    totals: IntArray
    """[N, rows, columns, C]: sums of taps minus the zero point, with 0 for padding."""
    existing: IntArray
    """[rows, columns, 1]: number of taps that are not padding, at least 1."""
    taps: int
    """Number of taps of the whole window."""
    counts_padding: bool
    unsigned_offset: int
    """128 if the values are uint8 values minus 128, else 0."""
    is_global: bool
    """Whether the operation is ONNX's GlobalAveragePool."""
    reals: Callable[[], FloatArray]
    """Returns the sums of dequantized taps in order, in the shape of ``totals``."""
    src: HostTensor
    dest: HostTensor

    @property
    def ratio(self) -> np.float32:
        """Input scale divided by the result's scale, in float32: ``fl(Sx / Sy)``."""
        return self.src.scale32 / self.dest.scale32

    def compute_averages(self) -> FloatArray:
        """Compute the averages divided by the result's scale, in float32."""
        count = np.float32(self.taps) if self.counts_padding else to_float32(self.existing)
        return to_float32(self.totals) * (self.ratio / count)


def _libjit(s: WindowSums) -> IntArray:
    """Average as libjit: ``scale(sum; Sx / Sy / n) + Oy``; by existing taps it rounds twice."""
    scale = rescale if s.src.dtype == np.int8 else rescale_wide
    if s.counts_padding:
        return scale(s.totals, s.ratio / np.float32(s.taps), s.dest.offset)
    return _quotient(scale(s.totals, s.ratio), s.existing) + np.int64(s.dest.offset)


def _glow_int(s: WindowSums) -> IntArray:
    """Average as libjit for Int8; libjit has no Int16, which is the Interpreter's."""
    return _libjit(s) if s.src.dtype == np.int8 else _interpreter(s)


def _interpreter(s: WindowSums) -> IntArray:
    """Average as the Interpreter: ``rha(fl(t + Oy))``."""
    return round_half_away(s.compute_averages() + np.float32(s.dest.offset))


def _tflite(s: WindowSums) -> IntArray:
    """Average as TFLite's MEAN if all taps count, else as AVERAGE_POOL_2D."""
    if s.counts_padding and int(s.existing.min()) == s.taps:
        return _tflite_mean(s)
    kept = (s.src.scale, s.src.offset) == (s.dest.scale, s.dest.offset)
    if s.counts_padding or not kept:
        raise UnsupportedHostOp(
            "avgpool",
            "numerics q31 does not support an average that changes the scale or counts padding",
        )
    # Halves of unsigned averages are rounded up, others away from zero.
    raw = s.totals + s.existing * np.int64(s.src.offset + s.unsigned_offset)
    return _quotient(raw, s.existing) - np.int64(s.unsigned_offset)


def _tflite_mean(s: WindowSums) -> IntArray:
    """Average where every tap counts: ``sum * (Sx / Sy / n)`` in fixed point."""
    scaled = multiply_quantized(
        s.totals, *quantize_mean_multiplier(s.src.scale / s.dest.scale, s.taps)
    )
    return scaled + np.int64(s.dest.offset)


def _onnx(s: WindowSums) -> IntArray:
    """Average as ONNX Runtime: ``rne(fl(mean of reals / Sy) + Oy)``; Oy of uint8 is unsigned."""
    if s.is_global:
        return _global_onnx(s)
    count = np.float32(s.taps) if s.counts_padding else to_float32(s.existing)
    placed = s.reals() / count / s.dest.scale32 + np.float32(s.dest.offset + s.unsigned_offset)
    return round_half_even(placed) - np.int64(s.unsigned_offset)


def _global_onnx(s: WindowSums) -> IntArray:
    """Average as ONNX Runtime's GlobalAveragePool: ``rne(t) + Oy``."""
    return round_half_even(s.compute_averages()) + np.int64(s.dest.offset)


def _unsigned_offset(s: WindowSums) -> IntArray:
    """Average as PyTorch's fbgemm and onednn: ``rne(fl(t + Oy))`` with an unsigned Oy."""
    moved = UNSIGNED if s.dest.dtype == np.int8 else 0
    return round_half_even(s.compute_averages() + np.float32(s.dest.offset + moved)) - np.int64(
        moved
    )


def _qnnpack(s: WindowSums) -> IntArray:
    """Average as QNNPACK: like ONNX Runtime's GlobalAveragePool, but padding always counts."""
    return _global_onnx(attrs.evolve(s, counts_padding=True))


def _quotient(totals: IntArray, counts: IntArray) -> IntArray:
    """Return ``t / n`` in C integers, with half of n added away from zero first."""
    quotients: IntArray = (np.abs(totals) + counts // 2) // counts
    return np.sign(totals) * quotients


# --- softmax --------------------------------------------------------------------------------

_GLOW = {"int8": "softmax.softmax_glow"}
_TFLITE = {"int8": "softmax.softmax_int8", "int16": "softmax.softmax_int16"}


# --- the table ------------------------------------------------------------------------------


@frozen
class HostArithmetic:
    """Arithmetic of a numerics profile: functions for quantization, average pools and softmax."""

    average: Callable[[WindowSums], IntArray]
    """Computes averages before saturation."""
    quantize_to_floats: Callable[[FloatArray, HostTensor], GridValues] = quantize_to_floats
    """Places reals on a tensor's grid before saturation; NaN stays. The default is the
    Interpreter's ``rne(fl(fl(x/S) + O))`` (libjit's int32 cast differs only where it is
    undefined)."""
    softmax: Mapping[str, str] = MappingProxyType({})
    """dtype -> ``MODULE.FUNCTION`` of a quantized softmax.

    (rows [N, C], source, result, beta) -> results before saturation.
    """


ARITHMETIC = make_exhaustive_table(
    f"{__name__}.ARITHMETIC",
    {
        "glow-int": HostArithmetic(_glow_int, softmax=_GLOW),
        "glow-float": HostArithmetic(_interpreter, softmax=_GLOW),
        "nmp": HostArithmetic(_libjit, softmax=_GLOW),
        "q31": HostArithmetic(_tflite, _place_tflite, _TFLITE),
        "float": HostArithmetic(_onnx, _place_onnx, {"int8": "softmax.softmax_onnx"}),
        "float-fbgemm": HostArithmetic(_unsigned_offset, _place_torch),
        "float-qnnpack": HostArithmetic(_qnnpack, _place_torch),
        "float-onednn": HostArithmetic(_unsigned_offset, _place_torch),
    },
    NUMERICS_NAMES,
)
"""Numerics profile, as ``--numerics`` names it -> arithmetic of the host."""
