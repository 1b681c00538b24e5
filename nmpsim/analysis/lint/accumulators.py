"""The rule ``accumulator-overflow``: accumulators that can overflow for some inputs."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from nmpsim.analysis.lint.findings import LintFinding
from nmpsim.analysis.lint.subject import LintSubject, QuantizedBias
from nmpsim.analysis.weighted import read_constant, read_weight_rows, read_weighted_scales
from nmpsim.arrays import Array
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.lir.opcode import OpcodeKind

_CHUNK_WEIGHTS = 1 << 18


@attrs.frozen(eq=False)
class SumBounds:
    """Bounds of each channel's accumulator during a summation, float64 [channels]."""

    low: Array
    high: Array

    @property
    def magnitudes(self) -> Array:
        """Largest possible magnitude of each channel's accumulator: float64 [channels]."""
        largest: Array = np.maximum(-self.low, self.high)
        return largest


def check_accumulators(subject: LintSubject) -> Iterator[LintFinding]:
    """Report layers with a channel whose accumulator can overflow."""
    biases = {bias.op.instruction.name: bias for bias in subject.biases}
    for op in subject.operations:
        if len(op.operands) < 2 or not op.operands[1].is_narrow:
            continue
        bits = op.operands[1].accumulator_bits
        bounds = compute_sum_bounds(subject, op, biases.get(op.instruction.name))
        if bounds is not None and (bounds.magnitudes >= 2.0 ** (bits - 1)).any():
            yield _describe_overflow(op, bounds, bits)


def compute_sum_bounds(
    subject: LintSubject, op: Operation, bias: QuantizedBias | None
) -> SumBounds | None:
    """Compute bounds of a layer's accumulators for all inputs, or return None if unknown.

    Parameters
    ----------
    subject
        The program.
    op
        The layer.
    bias
        Its bias, or None if it has none or its values are unknown.

    Returns
    -------
    SumBounds or None
        None for an operation without sums, or with unknown weights.
    """
    weights = _weight_matrix(subject, op)
    if weights is None:
        return _matrix_product_bounds(op) if op.kind is OpcodeKind.PRODUCT else None
    low, high = _input_limits(op.operands[1])
    below, above = _signed_weight_sums(*weights)
    # 0 is among the inputs, so each product alone can only widen the range: a partial sum too
    # lies between the sum of the negative and that of the positive ones.
    worst_low = (above * low + below * high).astype(np.float64)
    worst_high = (above * high + below * low).astype(np.float64)
    is_added_later = bias is None or subject.get_numerics(op) == "nmp"
    start = 0.0 if bias is None or is_added_later else bias.dequantized / bias.product_scales
    return SumBounds(worst_low + start, worst_high + start)


def _weight_matrix(subject: LintSubject, op: Operation) -> tuple[Array, Array] | None:
    """Return weights [outputs, inputs] and zero points [outputs or 1]; None if not constant."""
    if op.kind is OpcodeKind.PRODUCT:
        matrix = read_constant(subject.module, op.operands[2])
        return None if matrix is None else (matrix.T, np.array([op.operands[2].offset]))
    scales = read_weighted_scales(subject.module, op)
    rows = None if scales is None else read_weight_rows(subject.module, op)
    return None if rows is None or scales is None else (rows, scales.weight_offsets)


def _signed_weight_sums(rows: Array, offsets: Array) -> tuple[Array, Array]:
    """Sum the negative and the positive weights of each output: int64 [outputs] each.

    Works on chunks of outputs: all weights as int64 would take eight times their memory.
    """
    sums = np.zeros((2, len(rows)), np.int64)
    offsets = np.broadcast_to(offsets, len(rows))
    count = max(_CHUNK_WEIGHTS // max(rows.shape[1], 1), 1)
    for first in range(0, len(rows), count):
        part = slice(first, first + count)
        wide = rows[part].astype(np.int64) - offsets[part, None]
        for total, end in zip(sums, (np.minimum, np.maximum), strict=True):
            total[part] = end(wide, 0).sum(axis=1)
    return sums[0], sums[1]


def _input_limits(view: BufferView) -> tuple[int, int]:
    """Return the input's limits minus its zero point, widened to include 0, the padding."""
    low, high = view.limits
    return min(low - view.offset, 0), max(high - view.offset, 0)


def _matrix_product_bounds(op: Operation) -> SumBounds:
    """Bound the sums of a product of two activations from their types."""
    _, lhs, rhs = op.operands
    (a, b), (c, d) = _input_limits(lhs), _input_limits(rhs)
    products = (a * c, a * d, b * c, b * d)
    depth = lhs.shape[1]
    return SumBounds(
        np.array([depth * min(products)], np.float64), np.array([depth * max(products)], np.float64)
    )


def _describe_overflow(op: Operation, bounds: SumBounds, bits: int) -> LintFinding:
    limit = 2.0 ** (bits - 1)
    channels = int((bounds.magnitudes >= limit).sum())
    worst = int(np.argmax(bounds.magnitudes))
    return LintFinding(
        "warning",
        f"the accumulator of %{op.instruction.name} can overflow {bits} bits",
        op,
        found=f"{channels} of {bounds.low.size} channels; channel {worst} can have sums from"
        f" {bounds.low[worst]:.6g} to {bounds.high[worst]:.6g}",
        expected=f"sums from {-limit:.6g} to {limit - 1:.6g}, the range of {bits} bits",
        hint="Use smaller weights or fewer inputs per result. The device saturates sums that"
        " overflow; Glow's kernels wrap them around.",
        facts={
            "channels": channels,
            "worst_channel": worst,
            "low": float(bounds.low[worst]),
            "high": float(bounds.high[worst]),
            "bits": bits,
        },
    )
