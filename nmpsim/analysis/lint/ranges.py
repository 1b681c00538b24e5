"""The rule ``range-wasted``: integers of which a tensor uses few."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.range_foreign import ranges_of
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.weighted import WEIGHTED, Scales, scales_of, weight_rows
from nmpsim.compiler.operations import Operation, View
from nmpsim.quantization import Range

Array: TypeAlias = npt.NDArray[Any]

RULE = "range-wasted"
LITTLE = 1.0 / 4.0
"""Used part of the range below which a tensor is mentioned: two bits of it are idle."""
VERY_LITTLE = 1.0 / 16.0
"""Below it a warning: four bits."""


def check(subject: Subject) -> Iterator[Finding]:
    """Weights, and results whose range was recorded."""
    ranges = ranges_of(subject)
    for op in subject.operations:
        if op.instruction.opcode in WEIGHTED:
            yield from _weights(op, subject)
        recorded = ranges.find(op.instruction.name)
        if recorded is not None and op.operands[0].type.quant is not None:
            yield from _activation(op, recorded, subject)


def used_part(low: float, high: float, view: View) -> float:
    """Share of a type's integers between two integers, zero point included."""
    info = np.iinfo(view.type.dtype)
    return (high - low) / (int(info.max) - int(info.min))


def _weights(op: Operation, subject: Subject) -> Iterator[Finding]:
    """One finding a tensor: by channel where each channel has a scale of its own."""
    rows, scales = weight_rows(subject.module, op), scales_of(subject.module, op)
    if rows is None or scales is None or not rows.size:
        return
    parts = _parts(rows, scales, op.operands[2])
    little = np.flatnonzero(parts < LITTLE)
    if not little.size or not (rows != scales.weight_offsets[:, None]).any():
        return
    worst = int(little[np.argmin(parts[little])])
    part = float(parts[worst])
    by_channel = parts.size > 1
    whose = (
        f"{little.size} of {parts.size} channels of the weights" if by_channel else "the weights"
    )
    yield at_layer(
        RULE,
        _severity(part),
        f"{whose} %{op.operands[2].name} use few of their integers",
        subject,
        op,
        tensor=op.operands[2],
        found=_part_text(part) + (f" in channel {worst}" if by_channel else ""),
        expected=f"at least {100 * LITTLE:.0f} %",
        hint="a smaller scale; was the range chosen from these weights?",
        facts={"part": part, "channels": int(little.size)},
    )


def _parts(rows: Array, scales: Scales, view: View) -> Array:
    """Used part of the range, of all weights together or of each channel that has a scale."""
    axis = 1 if scales.weights.size > 1 else None
    low = np.minimum(rows.min(axis=axis), scales.weight_offsets)
    high = np.maximum(rows.max(axis=axis), scales.weight_offsets)
    parts = np.array([used_part(a, b, view) for a, b in zip(low, high, strict=True)])
    idle: Array = np.where(low == high, 1.0, parts)  # a channel of zeros needs no range
    return idle


def _activation(op: Operation, recorded: Range, subject: Subject) -> Iterator[Finding]:
    view = op.operands[0]
    low, high = min(recorded.low, 0.0) / view.scale, max(recorded.high, 0.0) / view.scale
    part = used_part(low, high, view)
    if not 0.0 < part < LITTLE:
        return
    yield at_layer(
        RULE,
        _severity(part),
        f"the result of %{op.instruction.name} uses few of its integers",
        subject,
        op,
        found=f"{_part_text(part)}, real {recorded.low:.6g} to {recorded.high:.6g}",
        expected=f"at least {100 * LITTLE:.0f} %",
        hint="a smaller scale; does the range come from a calibration with other inputs?",
        facts={"part": part, "low": recorded.low, "high": recorded.high},
    )


def _severity(part: float) -> Severity:
    return "warning" if part < VERY_LITTLE else "note"


def _part_text(part: float) -> str:
    return f"{100 * part:.3g} % of the range, {-math.log2(part):.1f} bits idle"
