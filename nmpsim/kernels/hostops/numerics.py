"""Arithmetic of each numerics profile on the host, for operations that the device does not execute.

It lands here because the device has no unit for it, or because its operands overlap; the second
must give the bits that the device would give (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.kernels.hostops.formulas import ELEMENTWISE
from nmpsim.kernels.hostops.lazy_imports import LazyModule
from nmpsim.kernels.hostops.rounding import (
    GridValues,
    fused_multiply_add,
    multiply_quantized,
    place_on_grid,
    quantize_mean_multiplier,
    rescale,
    rescale_wide,
    round_half_away,
    round_half_away_float,
    round_half_even,
    to_float32,
)
from nmpsim.kernels.hostops.tensors import FloatArray, HostTensor, IntArray, UnsupportedHostOp
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.kernels.hostops import softmax_glow, softmax_onnx, softmax_tflite
else:
    softmax_glow, softmax_onnx = LazyModule("softmax_glow"), LazyModule("softmax_onnx")
    softmax_tflite = LazyModule("softmax_tflite")

UNSIGNED = 128
"""Difference between PyTorch's unsigned tensor and the Int8 tensor that stores it."""

MOVES_OR_COMPARES = frozenset(
    {
        "argmax",
        "argmin",
        "batchedreducemax",
        "batchedreducemin",
        "batchonehot",
        "bucketize",
        "convertto",
        "flip",
        "gather",
        "gatherelements",
        "gathernd",
        "gatherranges",
        "nonmaxsuppression",
        "nonzero",
        "spacetodepth",
        "topk",
    }
)
"""Host operations that move or compare values without changing them."""
_SAME_FOR_ALL = MOVES_OR_COMPARES | frozenset(
    {
        "avgpool",
        "copy",
        "dequantize",
        "extracttensor",
        "inserttensor",
        "intlookuptable",
        "maxpool",
        "maxpoolwithargmax",
        "quantize",
        "resizenearest",
        "splat",
        "touch",
        "transpose",
    }
)
"""Operations that are the same in all profiles, or whose formulas are in the table below."""
_WITH_WEIGHTS = frozenset(
    {
        "channelwisequantizedconvolution",
        "convolution",
        "fullyconnected",
        "rowwisequantizedfullyconnected",
    }
)
_HOST_ONLY = frozenset(
    {
        "batchedreduceadd",
        "elementcmpeq",
        "elementcmplt",
        "elementcmplte",
        "elementcmpneq",
        "elementdiv",
        "elementselect",
        "adaptiveavgpool",
        "batchnormalization",
        "convolution3d",
        "resizebilinear",
        "scatterdata",
        *(row.opcode for row in ELEMENTWISE),
    }
)
"""Operations that calculate and for which the device has no unit."""


# --- which operations -----------------------------------------------------------------------


def _all(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return True


def _none(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return False


def _of_tflite(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return opcode in ("rescalequantized", "resizebilinear")


def _without_bias(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Return whether an operation is Glow's on the host, or an Int8 one without bias."""
    return opcode in _HOST_ONLY or (opcode not in _WITH_WEIGHTS and dtypes[0].name == "int8")


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
    """Sums of a pool's windows, and their divisors."""

    totals: IntArray
    """[N, rows, columns, C]: sums of taps minus the zero point, with 0 for padding."""
    existing: IntArray
    """[rows, columns, 1]: number of taps that are not padding, at least 1."""
    taps: int
    """Number of taps of the whole window."""
    counts_padding: bool
    is_unsigned: bool
    """Whether the values are uint8 values minus 128."""
    is_global: bool
    """Whether the operation is ONNX's GlobalAveragePool."""
    reals: Callable[[], FloatArray]
    """Returns the sums of dequantized taps in order, in the shape of ``totals``."""
    src: HostTensor
    dest: HostTensor

    @property
    def ratio(self) -> np.float32:
        """Ratio of scales, ``fl(Sx / Sy)``."""
        return self.src.scale32 / self.dest.scale32

    def scaled(self) -> FloatArray:
        """Return ``fl(sum * fl(fl(Sx / Sy) / n))``."""
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
    return round_half_away(s.scaled() + np.float32(s.dest.offset))


def _tflite(s: WindowSums) -> IntArray:
    """Average as TFLite's MEAN if all taps count, else as AVERAGE_POOL_2D."""
    if s.counts_padding and int(s.existing.min()) == s.taps:
        return _tflite_mean(s)
    kept = (s.src.scale, s.src.offset) == (s.dest.scale, s.dest.offset)
    if s.counts_padding or not kept:
        raise UnsupportedHostOp(
            "avgpool", "q31 has no average between scales, nor one that counts padding"
        )
    moved = UNSIGNED if s.is_unsigned else 0  # of these halves go up, of others away from zero
    raw = s.totals + s.existing * np.int64(s.src.offset + moved)
    return _quotient(raw, s.existing) - np.int64(moved)


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
    moved = UNSIGNED if s.is_unsigned else 0
    count = np.float32(s.taps) if s.counts_padding else to_float32(s.existing)
    placed = s.reals() / count / s.dest.scale32 + np.float32(s.dest.offset + moved)
    return round_half_even(placed) - np.int64(moved)


def _global_onnx(s: WindowSums) -> IntArray:
    """Average as ONNX Runtime's GlobalAveragePool: ``rne(t) + Oy``."""
    return round_half_even(s.scaled()) + np.int64(s.dest.offset)


def _unsigned_offset(s: WindowSums) -> IntArray:
    """Average as PyTorch's fbgemm and onednn: ``rne(fl(t + Oy))`` with an unsigned Oy."""
    moved = UNSIGNED if s.dest.dtype == np.int8 else 0
    return round_half_even(s.scaled() + np.float32(s.dest.offset + moved)) - np.int64(moved)


def _qnnpack(s: WindowSums) -> IntArray:
    """Average as QNNPACK: like ONNX Runtime's GlobalAveragePool, but padding always counts."""
    return _global_onnx(attrs.evolve(s, counts_padding=True))


def _quotient(totals: IntArray, counts: IntArray) -> IntArray:
    """Return ``t / n`` in C integers, with half of n added away from zero first."""
    quotients: IntArray = (np.abs(totals) + counts // 2) // counts
    return np.sign(totals) * quotients


# --- softmax --------------------------------------------------------------------------------

Softmax: TypeAlias = Callable[[IntArray, HostTensor, HostTensor, float], IntArray]
"""(rows [N, C], source, result, beta) -> results before saturation."""
_GLOW: Mapping[str, Softmax] = {"int8": softmax_glow.softmax_int8}
_TFLITE: Mapping[str, Softmax] = {
    "int8": softmax_tflite.softmax_int8,
    "int16": softmax_tflite.softmax_int16,
}


# --- the table ------------------------------------------------------------------------------


@frozen
class HostArithmetic:
    """Arithmetic of one numerics profile on the host."""

    average: Callable[[WindowSums], IntArray]
    """Computes averages before saturation."""
    place_on_grid: Callable[[FloatArray, HostTensor], GridValues] = place_on_grid
    """Places reals on a tensor's grid before saturation; NaN stays. The default is the
    Interpreter's ``rne(fl(fl(x/S) + O))`` (libjit's int32 cast differs only where it is
    undefined)."""
    softmax: Mapping[str, Softmax] = MappingProxyType({})
    """dtype -> softmax of quantized rows before saturation."""
    supports: Callable[[str, Sequence[np.dtype[Any]]], bool] = _none
    """(opcode, dtypes) -> whether the profile has it, besides operations that are the same in
    all."""


ARITHMETIC = exhaustive_table(
    f"{__name__}.ARITHMETIC",
    {
        "glow-int": HostArithmetic(_glow_int, softmax=_GLOW, supports=_all),
        "glow-float": HostArithmetic(_interpreter, softmax=_GLOW, supports=_all),
        "nmp": HostArithmetic(_libjit, softmax=_GLOW, supports=_without_bias),
        "q31": HostArithmetic(_tflite, _place_tflite, _TFLITE, _of_tflite),
        "float": HostArithmetic(_onnx, _place_onnx, {"int8": softmax_onnx.softmax_int8}),
        "float-fbgemm": HostArithmetic(_unsigned_offset, _place_torch),
        "float-qnnpack": HostArithmetic(_qnnpack, _place_torch),
        "float-onednn": HostArithmetic(_unsigned_offset, _place_torch),
    },
    NUMERICS_NAMES,
)
"""Numerics profile, as ``--numerics`` names it -> arithmetic of the host."""


def numerics_mismatch(opcode: str, dtypes: Sequence[np.dtype[Any]], numerics: str) -> str | None:
    """Return why the host cannot follow a profile in an operation, or None."""
    arithmetic = ARITHMETIC.get(numerics)
    if arithmetic is None:
        return f"unknown numerics {numerics}"
    is_quantized = any(dtype.name in ("int8", "int16") for dtype in dtypes)
    if opcode == "softmax" and is_quantized:
        has_formula = dtypes[0].name in arithmetic.softmax
        return None if has_formula else f"the host has no {numerics} softmax of {dtypes[0].name}"
    if opcode in _SAME_FOR_ALL or not is_quantized or arithmetic.supports(opcode, dtypes):
        return None
    return f"the host has no {numerics} arithmetic for {opcode}"
