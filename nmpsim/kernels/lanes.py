"""Vector code of formulas, in the narrowest integers that hold every value.

The ranges of a formula's integers (see ``formula_ranges.py``) determine their widths. Limits
(``saturate``, ``limit``, ``hold``, and the magnitude of a float that is rounded) are assumed not to
be met. Separate code decides whether a value meets one. Every step of a formula is monotonic in the
sum, so this code is needed for the smallest and the largest sum only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.formula_ranges import (
    FLOAT32,
    FLOAT64,
    FormulaRanges,
    Interval,
    ValueRange,
    contains,
    make_signed_interval,
    require,
)
from nmpsim.kernels.formulas import RESULT, Formula
from nmpsim.kernels.vector_code import (
    DOUBLES,
    FLOATS,
    LANES,
    call_intrinsic,
    make_int_vector_type,
    make_splat_constant,
    make_zero_constant,
)

MAX_ROUNDED = 1 << 30
"""Largest magnitude of a float that vector code rounds, so that 32 bits hold the result."""
_MAGIC = 0x4338_0000_0000_0000
"""Bits of 1.5 * 2^52, a float64 whose last bit has the value one."""
_CONVERTS_INT64 = "+avx512dq" in FEATURES
"""Whether the host has an instruction that converts int64 to floats."""
_FLOAT_TYPES: Mapping[str, tuple[Any, Any]] = {
    FLOAT32: (FLOATS, np.float32),
    FLOAT64: (DOUBLES, np.float64),
}
"""Type of a float -> types of its vectors and of a number."""


def get_width(x: Interval) -> int:
    """Return 32 if a 32-bit integer type holds every value of an interval, else 64."""
    return 32 if contains(make_signed_interval(32), x) else 64


class FormulaEmitter:
    """Emitter of vector code for a formula, and of checks whether any value exceeds a limit.

    Parameters
    ----------
    builder
        Builder of the code.
    formula
        Formula without constant terms.
    ranges
        Ranges of the parameters and of ``acc``.
    emitters
        Functions of the same names. They emit a vector, of integers in the given number of bits.
    """

    def __init__(
        self,
        builder: IRBuilder,
        formula: Formula,
        ranges: Mapping[str, ValueRange],
        emitters: Mapping[str, Callable[[int], Any]],
    ) -> None:
        self.builder: Any = builder
        self.ranges = FormulaRanges(formula, ranges, Interval(-MAX_ROUNDED, MAX_ROUNDED))
        self.ranges.find(formula.steps)
        self._emitters = emitters
        self._values: dict[tuple[ast.expr | str, int], Any] = {}
        self._limits: list[Callable[[], Any]] = []

    def emit_result(self) -> Any:
        """Emit code that computes the formula; return the results as a vector of int32."""
        return _saturate(self, 32, ast.Name(RESULT), ast.Constant(32))

    def emit_limits(self) -> Any:
        """Emit a mask of the lanes in which a value exceeds its limit; return the mask."""
        found = make_zero_constant(make_int_vector_type(1))
        for emit in self._limits:
            found = self.builder.or_(found, emit())
        return found

    def emit(self, node: ast.expr, bits: int = 0) -> Any:
        """Emit code for an expression; return its floats, or its integers' low ``bits`` bits."""
        if isinstance(node, ast.Name) and node.id not in self._emitters:
            node = self.ranges.terms[node.id]
        key = node.id if isinstance(node, ast.Name) else node, bits
        if key not in self._values:
            if bits == 64 and get_width(self.ranges.get_interval(node)) == 32:
                value = self.builder.sext(self.emit(node, 32), make_int_vector_type(64))
            else:
                value = self._compute(node, bits)
            self._values[key] = value
        return self._values[key]

    def emit_exactly(
        self, bits: int, emit: Callable[..., Any], x: ast.expr, *others: ast.expr
    ) -> Any:
        """Emit an operation in the full width of operand ``x``; return its low ``bits`` bits."""
        own = get_width(self.ranges.get_interval(x))
        value = emit(self.builder, *(self.emit(one, own) for one in (x, *others)))
        return self.builder.trunc(value, make_int_vector_type(bits)) if bits < own else value

    def add_limit(self, emit: Callable[[], Any]) -> None:
        """Add a function that emits a mask of the lanes that exceed a limit."""
        self._limits.append(emit)

    def _compute(self, node: ast.expr, bits: int) -> Any:
        match node:
            case ast.Name(name):
                return self._emitters[name](bits)
            case ast.Constant(int(value)):
                return _emit_constant(value, bits)
            case ast.BinOp(left, ast.RShift(), right):
                return self.emit_exactly(bits, lambda b, x, n: b.ashr(x, n), left, right)
            case ast.BinOp(left, op, right):
                name = _OPERATORS[type(op)][bits == 0]
                return getattr(self.builder, name)(self.emit(left, bits), self.emit(right, bits))
            case ast.Call(ast.Name(name), [x, *others]):
                return PRIMITIVES[name](self, bits, x, *others)
        raise AssertionError(ast.dump(node))


_OPERATORS = {
    ast.Add: ("add", "fadd"),
    ast.Sub: ("sub", "fsub"),
    ast.Mult: ("mul", "fmul"),
    ast.LShift: ("shl", ""),
}
"""Instructions of operators on integers and on floats."""


def _emit_constant(value: int, bits: int) -> Any:
    wrapped = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return make_splat_constant(make_int_vector_type(bits), wrapped)


# --- primitives ------------------------------------------------------------------------------


def _shift_away(e: FormulaEmitter, bits: int, x: ast.expr, count: ast.expr) -> Any:
    def emit(b: IRBuilder, value: Value, shift: Value) -> Any:
        one = make_splat_constant(value.type, 1)
        mask = b.sub(b.shl(one, shift), one)
        is_negative = b.icmp_signed("<", value, make_zero_constant(value.type))
        most = b.add(b.ashr(mask, one), b.zext(is_negative, value.type))
        is_rounded_up = b.icmp_signed(">", b.and_(value, mask), most)
        return b.sub(b.ashr(value, shift), b.sext(is_rounded_up, value.type))

    return e.emit_exactly(bits, emit, x, count)


def _saturate(e: FormulaEmitter, bits: int, x: ast.expr, size: ast.expr) -> Any:
    limits = make_signed_interval(e.ranges.get_interval(size).low)
    emit_low, emit_high = (partial(_emit_constant, limit) for limit in limits)
    return _emit_limited(e, bits, x, (limits, limits), emit_low, emit_high)


def _limit(e: FormulaEmitter, bits: int, x: ast.expr, most: ast.expr) -> Any:
    known = e.ranges.get_interval(most)
    limits = Interval(-known.low, known.low), Interval(-known.high, known.high)

    def emit_low(width: int) -> Any:
        return e.builder.sub(_emit_constant(0, width), e.emit(most, width))

    return _emit_limited(e, bits, x, limits, emit_low, partial(e.emit, most))


def _emit_limited(
    e: FormulaEmitter,
    bits: int,
    x: ast.expr,
    limits: tuple[Interval, Interval],
    emit_low: Callable[[int], Any],
    emit_high: Callable[[int], Any],
) -> Any:
    """Return the low bits of ``x``, and add its limits unless the narrowest ones always hold.

    ``limits`` are the narrowest and the widest.
    """
    known = e.ranges.get_interval(x)

    def is_outside() -> Any:
        b, width = e.builder, max(map(get_width, (known, *limits)))
        value = e.emit(x, width)
        is_low = b.icmp_signed("<", value, emit_low(width))
        return b.or_(is_low, b.icmp_signed(">", value, emit_high(width)))

    if not contains(limits[0], known):
        e.add_limit(is_outside)
    return e.emit(x, bits)


def _convert(kind: str, e: FormulaEmitter, _: int, x: ast.expr) -> Any:
    """Return a value as floats of a type."""
    b, known, (vector, _) = e.builder, e.ranges.get_range(x), _FLOAT_TYPES[kind]
    if not isinstance(known, Interval):
        return (b.fptrunc if kind == FLOAT32 else b.fpext)(e.emit(x), vector)
    width = get_width(known)
    if width == 32 or _CONVERTS_INT64:
        return b.sitofp(e.emit(x, width), vector)
    if kind == FLOAT32:
        return b.fptrunc(_convert(FLOAT64, e, 0, x), vector)
    is_small = -(1 << 51) <= known.low <= known.high < 1 << 51
    require(is_small, "converts an integer that may exceed 52 bits", known, "an integer of 52 bits")
    value = e.emit(x, width)
    with_magic = b.bitcast(b.add(value, make_splat_constant(value.type, _MAGIC)), DOUBLES)
    return b.fsub(with_magic, make_splat_constant(DOUBLES, 1.5 * 2**52))


def _round(is_away: bool, e: FormulaEmitter, bits: int, x: ast.expr) -> Any:
    """Return rounded floats, halves away from zero or to even."""
    kind, dtype = _FLOAT_TYPES[str(e.ranges.get_range(x))]
    b, value, suffix = e.builder, e.emit(x), f"v{LANES}f{8 * np.dtype(dtype).itemsize}"

    def is_large() -> Any:
        magnitude = call_intrinsic(b, f"fabs.{suffix}", kind, value)
        return b.fcmp_unordered(">", magnitude, make_splat_constant(kind, MAX_ROUNDED))

    e.add_limit(is_large)
    if is_away:
        # Adding a little less than a half reaches the next integer from the half on.
        half = make_splat_constant(kind, float(np.nextafter(dtype(0.5), dtype(0))))
        rounded = b.fadd(value, call_intrinsic(b, f"copysign.{suffix}", kind, half, value))
    else:
        rounded = call_intrinsic(b, f"rint.{suffix}", kind, value)
    return b.fptosi(rounded, make_int_vector_type(bits))


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "saturate": _saturate,
    "limit": _limit,
    "hold": _limit,
    "within": lambda e, bits, x, _: e.emit(x, bits),
    "shift_away": _shift_away,
    "round_away": partial(_round, True),
    "round_even": partial(_round, False),
    "float32": partial(_convert, FLOAT32),
    "float64": partial(_convert, FLOAT64),
}
"""Functions that emit primitives of varying values: (emitter, bits, arguments)."""
