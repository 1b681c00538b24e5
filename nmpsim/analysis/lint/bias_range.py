"""The rules ``bias-saturates`` and ``bias-loses-bits``: what a scale does to a bias.

On the declared scale a float reference is needed to know what was lost. On the scale of the
result, where the NMP's library wants the bias, the declared bias itself is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.bias_reference import find_float_bias
from nmpsim.analysis.lint.biases import Bias
from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.subject import Subject

Array: TypeAlias = npt.NDArray[Any]

SATURATES, LOSES_BITS = "bias-saturates", "bias-loses-bits"
KEPT = 0.5
"""Share of its bits that a bias must keep."""
_MAY_BE_NMP = ("nmp", "glow-int", "glow-float")
"""Profiles of networks that ``--numerics nmp`` may be asked for; a model of another reference keeps
its biases where that has them."""
NEGLIGIBLE = 1.0 / 16.0
"""Error in steps of the result that nobody sees, however few bits are left."""


@attrs.frozen(eq=False)
class Placement:
    """A real bias as integers on a scale. One entry a channel in each array."""

    where: str
    """The scale, in words."""
    declared: bool
    """False if the scale is one that the bias would be put on."""
    reals: Array
    scales: Array
    offsets: Array
    limits: tuple[int, int]
    bits_before: float
    """What the bias has, or should have, of bits without the sign."""

    @property
    def wanted(self) -> Array:
        """The nearest integers, halves to even, whether they exist or not; float64."""
        integers: Array = np.rint(self.reals / self.scales) + self.offsets
        return integers

    @property
    def saturated(self) -> Array:
        """Channels whose integer does not exist."""
        low, high = self.limits
        beyond: Array = (self.wanted < low) | (self.wanted > high)
        return beyond

    @property
    def errors(self) -> Array:
        """What clipping and rounding take away, real."""
        integers = np.clip(self.wanted, *self.limits) - self.offsets
        lost: Array = np.abs(integers * self.scales - self.reals)
        return lost

    @property
    def bits(self) -> float:
        """Bits of the largest magnitude, without the sign; 0 if all are zero."""
        return float(np.log2(np.abs(self.wanted - self.offsets).max() + 1.0))


def placements(bias: Bias, subject: Subject) -> Iterator[Placement]:
    """The scales to look at: the declared one if a reference is there, and what nmp may want."""
    reference = (
        find_float_bias(bias, subject.float_weights) if subject.float_weights is not None else None
    )
    if reference is not None:
        result_bits = np.iinfo(bias.op.operands[0].type.dtype).bits - 1.0
        yield Placement(
            f"its declared scale, {bias.scale_text()}",
            True,
            reference.values,
            bias.scales,
            bias.offsets,
            bias.limits,
            result_bits,
        )
    if not bias.on_result and subject.numerics_of(bias.op) in _MAY_BE_NMP:
        yield Placement(
            f"the scale of the result, {bias.result_scale:.9g}, where nmp wants it",
            False,
            bias.reals,
            np.full_like(bias.scales, bias.result_scale),
            np.full_like(bias.offsets, bias.result_offset),
            bias.limits,
            float(np.log2(np.abs(bias.integers).max() + 1.0)),
        )


def check_saturates(subject: Subject) -> Iterator[Finding]:
    """Biases with channels that their integers cannot hold."""
    for bias in subject.biases:
        for placement in placements(bias, subject):
            if placement.saturated.any():
                yield _saturates(bias, placement, subject)


def _saturates(bias: Bias, placement: Placement, subject: Subject) -> Finding:
    channels = int(placement.saturated.sum())
    steps = placement.errors / placement.scales
    worst = int(np.argmax(steps))
    severity: Severity = "error" if _is_asked_for(bias, placement, subject) else "note"
    return at_layer(
        SATURATES,
        severity,
        f"bias %{bias.view.name} {_verb(placement, 'saturate')} on {placement.where}",
        subject,
        bias.op,
        tensor=bias.view,
        found=f"{channels} of {steps.size} channels; channel {worst} needs"
        f" {placement.wanted[worst]:.0f}",
        expected=f"integers from {placement.limits[0]} to {placement.limits[1]}",
        hint="an Int32 bias, or a coarser scale of the result",
        facts={
            "declared": placement.declared,
            "channels": channels,
            "worst_channel": worst,
            "worst_error_steps": float(steps[worst]),
        },
    )


def check_loses_bits(subject: Subject) -> Iterator[Finding]:
    """Biases of which a scale leaves less than half of the bits."""
    for bias in subject.biases:
        for placement in placements(bias, subject):
            visible = placement.errors.max() > NEGLIGIBLE * bias.result_scale
            if visible and placement.bits < KEPT * placement.bits_before:
                yield _loses(bias, placement, subject)


def _loses(bias: Bias, placement: Placement, subject: Subject) -> Finding:
    largest = int(np.abs(placement.wanted - placement.offsets).max())
    error = float(placement.errors.max()) / bias.result_scale
    severity: Severity = "warning" if _is_asked_for(bias, placement, subject) else "note"
    return at_layer(
        LOSES_BITS,
        severity,
        f"bias %{bias.view.name} {_verb(placement, 'lose')} most of its bits on {placement.where}",
        subject,
        bias.op,
        tensor=bias.view,
        found=f"integers up to {largest}: {placement.bits:.1f} of"
        f" {placement.bits_before:.1f} bits, an error of up to {error:.2g} steps of the result",
        expected=f"at least {KEPT * placement.bits_before:.1f} bits",
        hint="a smaller scale of the result, if its range allows",
        facts={
            "declared": placement.declared,
            "bits": placement.bits,
            "bits_before": placement.bits_before,
            "worst_error_result_steps": error,
        },
    )


def _verb(placement: Placement, verb: str) -> str:
    return f"{verb}s" if placement.declared else f"would {verb}"


def _is_asked_for(bias: Bias, placement: Placement, subject: Subject) -> bool:
    """Whether the program runs with the bias on this scale."""
    return placement.declared or subject.numerics_of(bias.op) == "nmp"
