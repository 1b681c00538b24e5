"""The rules ``bias-saturates`` and ``bias-loses-bits``: biases that do not fit a scale.

On the declared scale, a bias is compared with its float values. On the scale of the result, which
the NMP's library requires, it is compared with its declared values.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.analysis.lint.bias_payload import find_float_bias
from nmpsim.analysis.lint.findings import LintFinding
from nmpsim.analysis.lint.subject import LintSubject, QuantizedBias
from nmpsim.arrays import Array

MIN_KEPT_BITS = 0.5
"""Smallest share of its bits that a bias must keep."""
_NMP_COMPATIBLE = ("nmp", "glow-int", "glow-float")
"""Profiles of networks that may also be compiled with ``--numerics nmp``."""
NEGLIGIBLE_ERROR_STEPS = 1.0 / 16.0
"""Largest error, in steps of the result, that is never reported."""


@attrs.frozen(eq=False)
class ScaledBias:
    """Real-valued bias and a scale for its quantization, as arrays [channels]."""

    scale_text: str
    """Description of the scale for messages."""
    is_declared: bool
    """Whether the program declares this scale, rather than a profile requiring it."""
    reals: Array
    scales: Array
    offsets: Array
    limits: tuple[int, int]
    reference_bits: float
    """Bits of the unquantized bias, without the sign."""

    @property
    def rounded(self) -> Array:
        """Bias divided by the scale and rounded half to even, not saturated: float64 [channels]."""
        integers: Array = np.rint(self.reals / self.scales) + self.offsets
        return integers

    @property
    def is_saturated(self) -> Array:
        """Whether the integer of each channel is outside the type's limits: bool [channels]."""
        low, high = self.limits
        beyond: Array = (self.rounded < low) | (self.rounded > high)
        return beyond

    @property
    def errors(self) -> Array:
        """Absolute error of each channel's quantized bias, as a real value: float64 [channels]."""
        integers = np.clip(self.rounded, *self.limits) - self.offsets
        lost: Array = np.abs(integers * self.scales - self.reals)
        return lost

    @property
    def bits(self) -> float:
        """Number of bits of the largest magnitude without sign, or 0 if all integers are zero."""
        return float(np.log2(np.abs(self.rounded - self.offsets).max() + 1.0))


def list_scaled_biases(bias: QuantizedBias, subject: LintSubject) -> Iterator[ScaledBias]:
    """Yield a bias with each scale to check: its declared scale and its result's scale.

    These are the declared scale, if float values of the bias are known, and the scale of the
    result, if the program may be compiled with numerics nmp.
    """
    reference = (
        find_float_bias(bias, subject.float_weights) if subject.float_weights is not None else None
    )
    if reference is not None:
        result_bits = np.iinfo(bias.op.operands[0].type.dtype).bits - 1.0
        yield ScaledBias(
            f"its declared scale, {bias.format_scales()}",
            True,
            reference.values,
            bias.scales,
            bias.offsets,
            bias.limits,
            result_bits,
        )
    if not bias.is_on_result_scale and subject.get_numerics(bias.op) in _NMP_COMPATIBLE:
        yield ScaledBias(
            f"the scale of the result, {bias.result_scale:.9g}, which numerics nmp requires",
            False,
            bias.dequantized,
            np.full_like(bias.scales, bias.result_scale),
            np.full_like(bias.offsets, bias.result_offset),
            bias.limits,
            float(np.log2(np.abs(bias.integers).max() + 1.0)),
        )


def check_bias_saturation(subject: LintSubject) -> Iterator[LintFinding]:
    """Report biases that saturate in at least one channel when quantized."""
    for bias, scaled in _list_all(subject):
        if not scaled.is_saturated.any():
            continue
        channels = int(scaled.is_saturated.sum())
        steps = scaled.errors / scaled.scales
        worst = int(np.argmax(steps))
        yield LintFinding(
            "error" if _is_used(bias, scaled, subject) else "note",
            f"bias %{bias.view.name} {_verb(scaled, 'saturate')} with {scaled.scale_text}",
            bias.op,
            tensor=bias.view,
            found=f"{channels} of {steps.size} channels saturate; channel {worst} needs the"
            f" integer {scaled.rounded[worst]:.0f}",
            expected=f"integers from {scaled.limits[0]} to {scaled.limits[1]}",
            hint="Use an Int32 bias or a coarser scale of the result.",
            facts={
                "declared": scaled.is_declared,
                "channels": channels,
                "worst_channel": worst,
                "worst_error_steps": float(steps[worst]),
            },
        )


def check_bias_precision(subject: LintSubject) -> Iterator[LintFinding]:
    """Report biases that lose more than half of their bits when quantized."""
    for bias, scaled in _list_all(subject):
        needed = MIN_KEPT_BITS * scaled.reference_bits
        visible = scaled.errors.max() > NEGLIGIBLE_ERROR_STEPS * bias.result_scale
        if not visible or scaled.bits >= needed:
            continue
        error = float(scaled.errors.max()) / bias.result_scale
        largest = int(np.abs(scaled.rounded - scaled.offsets).max())
        yield LintFinding(
            "warning" if _is_used(bias, scaled, subject) else "note",
            f"bias %{bias.view.name} {_verb(scaled, 'lose')} most of its bits with"
            f" {scaled.scale_text}",
            bias.op,
            tensor=bias.view,
            found=f"{scaled.bits:.1f} of the {scaled.reference_bits:.1f} bits of the bias: integers"
            f" up to {largest}, and errors of up to {error:.2g} steps of the result",
            expected=f"at least {needed:.1f} bits",
            hint="Use a smaller scale of the result if its range allows.",
            facts={
                "declared": scaled.is_declared,
                "bits": scaled.bits,
                "bits_before": scaled.reference_bits,
                "worst_error_result_steps": error,
            },
        )


def _list_all(subject: LintSubject) -> Iterator[tuple[QuantizedBias, ScaledBias]]:
    return ((bias, one) for bias in subject.biases for one in list_scaled_biases(bias, subject))


def _verb(scaled: ScaledBias, verb: str) -> str:
    return f"{verb}s" if scaled.is_declared else f"would {verb}"


def _is_used(bias: QuantizedBias, scaled: ScaledBias, subject: LintSubject) -> bool:
    """Return whether the program runs with the bias on this scale."""
    return scaled.is_declared or subject.get_numerics(bias.op) == "nmp"
