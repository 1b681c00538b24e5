"""Code for the host that makes Int8 results of a block's sums, in each way of ``result_blocks.py``.

All ways are monotonic in the sum: so the extremes of the results are those of the least and the
largest sum, and if these two are within what a way can take, so are all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nmpsim.kernels.result_blocks import AWAY, EVEN, FIXED, INTEGER
from nmpsim.kernels.result_rows import (
    ADDEND,
    AFTER,
    AHEAD,
    BASE,
    BEFORE,
    BELOW,
    BIAS,
    FACTOR,
    HALF,
    LIMIT,
    MOST,
    MUL,
    POST,
    PRE,
    REACH,
    UP,
)
from nmpsim.kernels.vector_code import (
    I32,
    LANES,
    Loop,
    any_of,
    constant,
    declared,
    function_of,
    larger,
    load,
    smaller,
    splat,
    store,
    vector,
    words,
)
from nmpsim.kernels.vector_reals import DOUBLES, REALS, nearest, of_real, reals

ROW_BYTES = 4 * LANES
_WORDS, _HALVES, _BYTES, _LONGS = vector(32), vector(16), vector(8), vector(64)
_MAX_REAL = 1 << 30
"""Reals beyond it are no integers of 32 bits, or might be none with what is added."""

Scale = Callable[[ir.Value], Any]
"""Of sums (int32) before a block's start is added: scaled results (int32), or where these mean
nothing."""


def row_of(b: ir.IRBuilder, table: ir.Value, row: int, kind: ir.Type = _WORDS) -> Any:
    """A row of a block's table."""
    return load(b, b.add(table, constant(row * ROW_BYTES)), kind, 4)


def is_far(b: ir.IRBuilder, values: ir.Value, limit: ir.Value) -> Any:
    """Where values are beyond a limit, or below its negative."""
    is_low = b.icmp_signed("<", values, b.sub(words(0), limit))
    return b.or_(is_low, b.icmp_signed(">", values, limit))


def _by_integers(b: ir.IRBuilder, table: ir.Value, _: ir.Value) -> tuple[Scale, Scale]:
    base, pre, limit, mul, half, post = (
        row_of(b, table, row) for row in (BASE, PRE, LIMIT, MUL, HALF, POST)
    )

    def shifted(total: ir.Value) -> Any:
        return b.ashr(b.add(total, base), pre)

    def scaled(total: ir.Value) -> Any:
        return b.ashr(b.add(b.mul(shifted(total), mul), half), post)

    return scaled, lambda total: is_far(b, shifted(total), limit)


def _by_fixed_point(b: ir.IRBuilder, table: ir.Value, _: ir.Value) -> tuple[Scale, Scale]:
    """Doubling high product, halves up; then a shift, halves away from zero (``rounding.py``)."""
    base, up, reach, mul, post = (row_of(b, table, row) for row in (BASE, UP, REACH, MUL, POST))
    factor, nudge = b.sext(mul, _LONGS), ir.Constant(_LONGS, [1 << 30] * LANES)
    mask = b.sub(b.shl(words(1), post), words(1))
    threshold = b.ashr(mask, words(1))

    def scaled(total: ir.Value) -> Any:
        wide = b.mul(b.sext(b.shl(b.add(total, base), up), _LONGS), factor)
        high = b.trunc(b.ashr(b.add(wide, nudge), ir.Constant(_LONGS, [31] * LANES)), _WORDS)
        most = b.sub(threshold, b.ashr(high, words(31)))
        rest = b.icmp_signed(">", b.and_(high, mask), most)
        return b.sub(b.ashr(high, post), b.sext(rest, _WORDS))

    return scaled, lambda total: is_far(b, b.add(total, base), reach)


def _by_reals(away: bool) -> Callable[..., tuple[Scale, Scale]]:
    def scale(b: ir.IRBuilder, table: ir.Value, zero: ir.Value) -> tuple[Scale, Scale]:
        """Each operation is rounded. Of the profiles that round halves away from zero all factors
        but one are 1, and the bias is 0."""
        base, reach = row_of(b, table, BASE), row_of(b, table, REACH)
        ahead, factor, after = (row_of(b, table, row, REALS) for row in (AHEAD, FACTOR, AFTER))
        bias = row_of(b, table, BIAS, DOUBLES)
        early = splat(b, b.bitcast(b.trunc(zero, I32), ir.FloatType()), LANES)

        def real(total: ir.Value) -> Any:
            exact = b.sitofp(b.add(total, base), REALS)
            if away:
                return b.fadd(b.fmul(exact, factor), early)
            scaled = b.fpext(b.fmul(b.fmul(exact, ahead), factor), DOUBLES)
            return b.fadd(b.fmul(b.fptrunc(b.fadd(scaled, bias), REALS), after), early)

        def scaled(total: ir.Value) -> Any:
            return nearest(b, real(total), away)

        def far(total: ir.Value) -> Any:
            size = of_real(b, "fabs", real(total))
            beyond = b.fcmp_unordered(">", size, reals(_MAX_REAL))
            return b.or_(beyond, b.icmp_signed("<", reach, words(0)))

        return scaled, far

    return scale


def _narrow(b: ir.IRBuilder, values: ir.Value, kind: ir.VectorType) -> Any:
    """Values in half as many bits, limited to what these hold; one instruction on most hosts."""
    most = (1 << kind.element.width - 1) - 1
    low, high = (ir.Constant(values.type, [limit] * LANES) for limit in (-most - 1, most))
    return b.trunc(smaller(b, larger(b, values, low), high), kind)


def _add_narrow(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """Their sum, limited to 16 bits."""
    kind = ir.FunctionType(_HALVES, [_HALVES, _HALVES])
    return b.call(declared(b, kind, "llvm.sadd.sat.v16i16"), [one, other])


def _finisher(scale: Callable[..., tuple[Scale, Scale]]) -> Callable[..., Any]:
    """The function for a block of channels."""

    def emit(
        b: ir.IRBuilder,
        sums: ir.Value,
        row: ir.Value,
        pixels: ir.Value,
        table: ir.Value,
        zero: ir.Value,
        low: ir.Value,
        high: ir.Value,
        results: ir.Value,
        results_row: ir.Value,
    ) -> Any:
        """Complete, scale, clip and count; the sums stay as they are.

        A result that 16 bits do not hold is beyond its limits all the same.
        """
        scaled, is_beyond = scale(b, table, zero)
        addend = row_of(b, table, ADDEND)
        accounts = [row_of(b, table, one) for one in range(BELOW, MOST + 1)]
        for i, account in enumerate(accounts):
            store(b, account, b.add(table, constant((BEFORE + i) * ROW_BYTES)), 4)
        low, high = (splat(b, b.trunc(side, _HALVES.element), LANES) for side in (low, high))
        added = b.trunc(addend, _HALVES)
        none = ir.Constant(_HALVES, None)
        first = load(b, sums, _WORDS, 4)
        turns = Loop(b, pixels, [sums, results, none, none, first, first])
        at, to, below, above, lowest, highest = turns.values
        total = load(b, at, _WORDS, 4)
        value = _add_narrow(b, _narrow(b, scaled(total), _HALVES), added)
        is_below, is_above = b.icmp_signed("<", value, low), b.icmp_signed(">", value, high)
        result = smaller(b, larger(b, value, low), high)
        store(b, _narrow(b, result, _BYTES), to, 1)
        counted = [b.sub(below, b.sext(is_below, _HALVES)), b.sub(above, b.sext(is_above, _HALVES))]
        extremes = [smaller(b, total, lowest), larger(b, total, highest)]
        after = turns.end([b.add(at, row), b.add(to, results_row), *counted, *extremes])
        ends = after[4:]
        values = [b.add(scaled(total), addend) for total in ends]
        found = [
            b.add(accounts[0], b.zext(after[2], _WORDS)),
            b.add(accounts[1], b.zext(after[3], _WORDS)),
            smaller(b, accounts[2], smaller(b, *values)),
            larger(b, accounts[3], larger(b, *values)),
        ]
        for i, account in enumerate(found):
            store(b, account, b.add(table, constant((BELOW + i) * ROW_BYTES)), 4)
        bits = [
            any_of(b, b.icmp_signed("!=", after[2], none)),
            b.shl(any_of(b, b.icmp_signed("!=", after[3], none)), constant(1)),
            b.shl(any_of(b, b.or_(*map(is_beyond, ends))), constant(2)),
        ]
        return b.or_(b.or_(bits[0], bits[1]), bits[2])

    return emit


_WAYS = {
    INTEGER: _by_integers,
    FIXED: _by_fixed_point,
    AWAY: _by_reals(away=True),
    EVEN: _by_reals(away=False),
}
finish_by_integers, finish_by_fixed_point, finish_away, finish_even = (
    function_of(f"finish_{way}", _finisher(scale)) for way, scale in sorted(_WAYS.items())
)
"""Results of a block's sums. Bit 0 of the answer: a result was limited from below; bit 1: from
above; bit 2: a sum was beyond what the way can take, and nothing here means anything."""
