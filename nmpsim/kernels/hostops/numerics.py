"""The arithmetic of each reference on the host, where the device does not do an operation.

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
from nmpsim.kernels.hostops.later import Later
from nmpsim.kernels.hostops.rounding import (
    Placed,
    float32_of,
    fused_multiply_add,
    halves_away,
    mean_multiplier,
    multiplied,
    placed_reals,
    rescaled,
    rescaled_wide,
    round_half_away,
    round_half_even,
)
from nmpsim.kernels.hostops.tensors import FloatArray, HostTensor, IntArray, UnsupportedHostOp
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.kernels.hostops import softmax_glow, softmax_onnx, softmax_tflite
else:
    softmax_glow, softmax_onnx = Later("softmax_glow"), Later("softmax_onnx")
    softmax_tflite = Later("softmax_tflite")

UNSIGNED = 128
"""An Int8 tensor is PyTorch's unsigned one less this."""

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
"""Operations on the host that take values as they are, or tell where they lie."""
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
"""Operations that no profile changes, or whose formulas are in the table below."""
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
"""Operations that calculate and that the device has no unit for."""


# --- which operations -----------------------------------------------------------------------


def _all(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return True


def _none(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return False


def _of_tflite(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    return opcode in ("rescalequantized", "resizebilinear")


def _without_bias(opcode: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Operations without a unit, which are Glow's, and Int8 ones without a bias."""
    return opcode in _HOST_ONLY or (opcode not in _WITH_WEIGHTS and dtypes[0].name == "int8")


# --- real numbers into integers -------------------------------------------------------------


def _placed_tflite(x: FloatArray, grid: HostTensor) -> Placed:
    """``rha(fl(x/S)) + O``."""
    return halves_away(x / grid.scale32), grid.offset


def _placed_onnx(x: FloatArray, grid: HostTensor) -> Placed:
    """ONNX Runtime: ``rne(fl(x/S)) + O``."""
    return np.rint(x / grid.scale32), grid.offset


def _placed_torch(x: FloatArray, grid: HostTensor) -> Placed:
    """PyTorch: ``rne(fma(x, fl(1/S), O))``, where O is that of an unsigned 8-bit tensor."""
    moved = UNSIGNED if grid.dtype == np.int8 else 0
    return np.rint(fused_multiply_add(x, np.float32(1) / grid.scale32, grid.offset + moved)), -moved


# --- average pools --------------------------------------------------------------------------


@frozen(eq=False)
class Sums:
    """The sums of a pool's windows and what they are divided by."""

    totals: IntArray
    """[N, rows, columns, C]: of taps less the zero point, 0 for padding"""
    existing: IntArray
    """[rows, columns, 1]: taps that are not padding, at least 1"""
    taps: int
    """Of the whole window."""
    counts_padding: bool
    is_unsigned: bool
    """Whether the values are those of uint8 less 128."""
    is_global: bool
    """Whether it is ONNX's GlobalAveragePool."""
    reals: Callable[[], FloatArray]
    """Sums of dequantized taps, one after the other, as ``totals``."""
    src: HostTensor
    dest: HostTensor

    @property
    def ratio(self) -> np.float32:
        """``fl(Sx / Sy)``."""
        return self.src.scale32 / self.dest.scale32

    def scaled(self) -> FloatArray:
        """``fl(sum * fl(fl(Sx / Sy) / n))``."""
        count = np.float32(self.taps) if self.counts_padding else float32_of(self.existing)
        return float32_of(self.totals) * (self.ratio / count)


def _by_integers(s: Sums) -> IntArray:
    """libjit: ``scale(sum; Sx / Sy / n) + Oy``; by existing taps it rounds twice."""
    scale = rescaled if s.src.dtype == np.int8 else rescaled_wide
    if s.counts_padding:
        return scale(s.totals, s.ratio / np.float32(s.taps), s.dest.offset)
    return _quotient(scale(s.totals, s.ratio), s.existing) + np.int64(s.dest.offset)


def _glow_int(s: Sums) -> IntArray:
    """libjit has no Int16: that is the Interpreter's."""
    return _by_integers(s) if s.src.dtype == np.int8 else _interpreter(s)


def _interpreter(s: Sums) -> IntArray:
    """``rha(fl(t + Oy))``."""
    return round_half_away(s.scaled() + np.float32(s.dest.offset))


def _tflite(s: Sums) -> IntArray:
    """MEAN where all taps count; AVERAGE_POOL_2D, of the integers as they are, where some exist."""
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


def _tflite_mean(s: Sums) -> IntArray:
    """Every tap counts: ``sum * (Sx / Sy / n)`` in fixed point."""
    scaled = multiplied(s.totals, *mean_multiplier(s.src.scale / s.dest.scale, s.taps))
    return scaled + np.int64(s.dest.offset)


def _onnx(s: Sums) -> IntArray:
    """ONNX Runtime: ``rne(fl(mean of reals / Sy) + Oy)``, Oy of uint8 being unsigned."""
    if s.is_global:
        return _late(s)
    moved = UNSIGNED if s.is_unsigned else 0
    count = np.float32(s.taps) if s.counts_padding else float32_of(s.existing)
    placed = s.reals() / count / s.dest.scale32 + np.float32(s.dest.offset + moved)
    return round_half_even(placed) - np.int64(moved)


def _late(s: Sums) -> IntArray:
    """ONNX Runtime's GlobalAveragePool: ``rne(t) + Oy``."""
    return round_half_even(s.scaled()) + np.int64(s.dest.offset)


def _early(s: Sums) -> IntArray:
    """PyTorch's fbgemm and onednn: ``rne(fl(t + Oy))``, Oy being an unsigned tensor's."""
    moved = UNSIGNED if s.dest.dtype == np.int8 else 0
    return round_half_even(s.scaled() + np.float32(s.dest.offset + moved)) - np.int64(moved)


def _qnnpack(s: Sums) -> IntArray:
    """As ONNX Runtime, but padding always counts."""
    return _late(attrs.evolve(s, counts_padding=True))


def _quotient(totals: IntArray, counts: IntArray) -> IntArray:
    """``t / n`` in C integers, half of n added away from zero first."""
    quotients: IntArray = (np.abs(totals) + counts // 2) // counts
    return np.sign(totals) * quotients


# --- softmax --------------------------------------------------------------------------------

Softmax: TypeAlias = Callable[[IntArray, HostTensor, HostTensor, float], IntArray]
"""(rows [N, C], source, result, beta) -> results, before the clip."""
_GLOW: Mapping[str, Softmax] = {"int8": softmax_glow.softmax_int8}
_TFLITE: Mapping[str, Softmax] = {
    "int8": softmax_tflite.softmax_int8,
    "int16": softmax_tflite.softmax_int16,
}


# --- the table ------------------------------------------------------------------------------


@frozen
class HostArithmetic:
    """What the host has of a reference's arithmetic."""

    average: Callable[[Sums], IntArray]
    """Averages, before the clip."""
    place: Callable[[FloatArray, HostTensor], Placed] = placed_reals
    """Real numbers on a tensor's grid, before the clip; unless told otherwise Glow's
    ``rne(fl(fl(x/S) + O))``, as the Interpreter does it (libjit's int32 cast differs only where
    it is undefined). NaN stays."""
    softmax: Mapping[str, Softmax] = MappingProxyType({})
    """dtype -> softmax of quantized rows, before the clip."""
    has: Callable[[str, Sequence[np.dtype[Any]]], bool] = _none
    """Which opcodes, on operands of these dtypes, it has besides those that are alike in all."""


ARITHMETIC = exhaustive_table(
    f"{__name__}.ARITHMETIC",
    {
        "glow-int": HostArithmetic(_glow_int, softmax=_GLOW, has=_all),
        "glow-float": HostArithmetic(_interpreter, softmax=_GLOW, has=_all),
        "nmp": HostArithmetic(_by_integers, softmax=_GLOW, has=_without_bias),
        "q31": HostArithmetic(_tflite, _placed_tflite, _TFLITE, _of_tflite),
        "float": HostArithmetic(_onnx, _placed_onnx, {"int8": softmax_onnx.softmax_int8}),
        "float-fbgemm": HostArithmetic(_early, _placed_torch),
        "float-qnnpack": HostArithmetic(_qnnpack, _placed_torch),
        "float-onednn": HostArithmetic(_early, _placed_torch),
    },
    NUMERICS_NAMES,
)
"""As ``--numerics`` names it -> the host's arithmetic."""


def numerics_mismatch(opcode: str, dtypes: Sequence[np.dtype[Any]], numerics: str) -> str | None:
    """Why the host cannot follow ``numerics`` in an operation, or None."""
    arithmetic = ARITHMETIC.get(numerics)
    if arithmetic is None:
        return f"there are no numerics {numerics}"
    is_quantized = any(dtype.name in ("int8", "int16") for dtype in dtypes)
    if opcode == "softmax" and is_quantized:
        has_formula = dtypes[0].name in arithmetic.softmax
        return None if has_formula else f"the host has no {numerics} softmax of {dtypes[0].name}"
    if opcode in _SAME_FOR_ALL or not is_quantized or arithmetic.has(opcode, dtypes):
        return None
    return f"the host has no {numerics} arithmetic for {opcode}"
