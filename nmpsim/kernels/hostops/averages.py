"""What each profile makes of the sums of an average pool (docs/numerics.md, Pools)."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from nmpsim.kernels.hostops.quantization import UNSIGNED, rescaled, rescaled_wide
from nmpsim.kernels.hostops.rounding import float32_of, round_half_away, round_half_even
from nmpsim.kernels.hostops.tensors import FloatArray, HostTensor, IntArray, UnsupportedHostOp


@attrs.frozen(eq=False)
class Sums:
    """The sums of a pool's windows and what they are divided by."""

    totals: IntArray
    """[N, rows, columns, C]: of taps less the zero point, 0 for padding"""
    existing: IntArray
    """[rows, columns, 1]: taps that are not padding, at least 1"""
    taps: int
    """Of the whole window."""
    counts_padding: bool
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
    """The mean of the integers as they are: TFLite's pools keep scale and zero point."""
    kept = (s.src.scale, s.src.offset) == (s.dest.scale, s.dest.offset)
    if s.counts_padding or not kept:
        raise UnsupportedHostOp(
            "avgpool", "q31 has no average between scales, nor one that counts padding"
        )
    return _quotient(s.totals + s.existing * np.int64(s.src.offset), s.existing)


def _late(s: Sums) -> IntArray:
    """ONNX Runtime: ``rne(t) + Oy``."""
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


AVERAGES: dict[str, Callable[[Sums], IntArray]] = {
    "glow-int": _glow_int,
    "glow-float": _interpreter,
    "nmp": _by_integers,
    "q31": _tflite,
    "float": _late,
    "float-fbgemm": _early,
    "float-qnnpack": _qnnpack,
    "float-onednn": _early,
}
"""Profile -> the averages, before the clip."""
