"""The rule ``accumulator-overflow``: sums that may not fit, from geometry and actual weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.biases import Bias
from nmpsim.analysis.lint.findings import Finding, at_layer
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.weighted import WEIGHTED, scales_of, values_of, weight_rows
from nmpsim.compiler.work import Operation, View
from nmpsim.lir.opcode import Kind

Array: TypeAlias = npt.NDArray[Any]

RULE = "accumulator-overflow"
ACCUMULATOR_BITS = {"i8": 32, "i16": 48}


@attrs.frozen(eq=False)
class SumBounds:
    """What the accumulator of each channel can come to, at any time. float64 [channels]."""

    low: Array
    high: Array

    @property
    def magnitudes(self) -> Array:
        """The larger end of each channel."""
        largest: Array = np.maximum(-self.low, self.high)
        return largest


def check(subject: Subject) -> Iterator[Finding]:
    """Layers with a channel whose accumulator can overflow."""
    biases = {bias.op.instruction.name: bias for bias in subject.biases}
    for op in subject.operations:
        bits = ACCUMULATOR_BITS.get(op.operands[1].type.elem) if len(op.operands) > 1 else None
        if bits is None or op.operands[1].type.quant is None:
            continue
        bounds = sum_bounds(subject, op, biases.get(op.instruction.name))
        if bounds is not None and (bounds.magnitudes >= 2.0 ** (bits - 1)).any():
            yield _overflow(subject, op, bounds, bits)


def sum_bounds(subject: Subject, op: Operation, bias: Bias | None) -> SumBounds | None:
    """Worst case over all inputs that the input's type allows; None for what sums nothing."""
    weights = _weights(subject, op)
    if weights is None:
        return _matrices(op) if op.kind is Kind.PRODUCT else None
    low, high = _ends(op.operands[1])
    lowest, highest = weights * low, weights * high
    # 0 is among the inputs, so each product alone can only widen the range: a partial sum too
    # lies between the sum of the negative and that of the positive ones.
    worst_low = np.minimum(lowest, highest).sum(axis=1).astype(np.float64)
    worst_high = np.maximum(lowest, highest).sum(axis=1).astype(np.float64)
    start = 0.0 if bias is None or subject.numerics_of(op) == "nmp" else _start(bias)
    return SumBounds(worst_low + start, worst_high + start)


def _weights(subject: Subject, op: Operation) -> Array | None:
    """int64 [outputs, inputs of one output], zero points subtracted; None if they vary."""
    if op.kind is Kind.PRODUCT:
        matrix = values_of(subject.module, op.operands[2])
        return None if matrix is None else matrix.T.astype(np.int64) - op.operands[2].offset
    if op.instruction.opcode not in WEIGHTED:
        return None
    rows, scales = weight_rows(subject.module, op), scales_of(subject.module, op)
    return None if rows is None or scales is None else rows - scales.weight_offsets[:, None]


def _start(bias: Bias) -> Array:
    """The bias on the accumulator's scale, where the sum begins."""
    on_sum: Array = bias.reals / bias.product_scales
    return on_sum


def _ends(view: View) -> tuple[int, int]:
    """Lowest and highest input less its zero point; 0, which padding is, lies between."""
    info = np.iinfo(view.type.dtype)
    return min(int(info.min) - view.offset, 0), max(int(info.max) - view.offset, 0)


def _matrices(op: Operation) -> SumBounds:
    """Nothing is known of either matrix but its type."""
    _, lhs, rhs = op.operands
    (a, b), (c, d) = _ends(lhs), _ends(rhs)
    products = (a * c, a * d, b * c, b * d)
    depth = lhs.shape[1]
    return SumBounds(
        np.array([depth * min(products)], np.float64), np.array([depth * max(products)], np.float64)
    )


def _overflow(subject: Subject, op: Operation, bounds: SumBounds, bits: int) -> Finding:
    limit = 2.0 ** (bits - 1)
    channels = int((bounds.magnitudes >= limit).sum())
    worst = int(np.argmax(bounds.magnitudes))
    return at_layer(
        RULE,
        "warning",
        f"the accumulator of %{op.instruction.name} can overflow {bits} bits",
        subject,
        op,
        found=f"{channels} of {bounds.low.size} channels; channel {worst} can come to"
        f" {bounds.low[worst]:.6g} or {bounds.high[worst]:.6g}",
        expected=f"within -2^{bits - 1} to 2^{bits - 1} - 1, {limit:.6g}",
        hint="the device saturates there and reports it, Glow wraps around;"
        " smaller weights or fewer inputs of a result avoid both",
        facts={
            "channels": channels,
            "worst_channel": worst,
            "low": float(bounds.low[worst]),
            "high": float(bounds.high[worst]),
            "bits": bits,
        },
    )
