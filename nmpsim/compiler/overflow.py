"""Warnings about average pools whose sums can overflow when they are rescaled."""

from __future__ import annotations

from nmpsim.compiler.numerics import get_profile
from nmpsim.compiler.numerics.ratios import find_overflow
from nmpsim.compiler.operations import Operation
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.kernels.scale import INT32_MAX, INT32_MIN, IntegerScale
from nmpsim.lir.opcode import OpcodeKind


def find_overflow_warning(op: Operation, place: Place) -> str | None:
    """Return a warning if the window sums of an average pool can exceed 32 bits, else None.

    The integer profiles rescale the sum of a window and then divide it by the number of taps, so a
    value can saturate although its average fits the result. Where the factor includes the number
    of taps, a sum that saturates to 32 bits exceeds the result's type, too.
    """
    if (
        op.kind is not OpcodeKind.AVERAGE_POOL
        or op.output.type.elem != "i8"
        or len(op.output.shape) != 4
    ):
        return None
    target, source = op.operands
    words = get_profile(op).get_factor_words(op, place)
    if op.get_number("CountIncludePads") or words["profile"] not in (GLOW_INT, NMP):
        return None
    kernel = op.get_integers("Kernels")
    taps = min(kernel[0], source.shape[1]) * min(kernel[1], source.shape[2])
    post = words["out_post"]
    overflow = find_overflow(IntegerScale(words["out_pre"], post, words["out_mul"]), 32)
    lowest, highest = (limit - source.offset for limit in source.limits)
    low, high = (limit - target.offset for limit in target.limits)
    sums = None
    # A sum that saturates is harmless if its average exceeds the result's type anyway.
    if overflow.high is not None and highest * taps >= overflow.high:
        sums = (highest * taps, overflow.high) if INT32_MAX >> post < high * taps else None
    if sums is None and overflow.low is not None and lowest * taps <= overflow.low:
        sums = (lowest * taps, overflow.low) if INT32_MIN >> post > low * taps else None
    if sums is None:
        return None
    return (
        f"%{op.last_fused.instruction.name}: averages can be wrong, because sums of {taps:,} values"
        f" can reach {sums[0]:,} and saturate at {sums[1]:,} before the division; use a smaller"
        " window, or pass --numerics LAYER=glow-float"
    )
