"""Vector code of formulas, in the narrowest integers that hold every value.

A formula of ``isa/formulas.toml`` is evaluated with vectors in place of numbers. The range of each
integer (see ``formula_ranges.py``) follows from the ranges of its operands. Limits (``saturate``,
``limit``, ``hold``, and the magnitude of a float that is rounded) are assumed not to be met.
Separate code decides whether a value meets one. Every step of a formula is monotonic in the sum, so
this code is needed for the smallest and the largest sum only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels import formula_ranges as ranges
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.formula_ranges import Interval, find_range
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


class NotProvedError(ValueError):
    """Exception for a term of a formula that may not fit 64 bits."""


class FormulaEmitter:
    """Code generation for a formula, with checks for values that the code does not support.

    Parameters
    ----------
    builder
        Builder of the code; None to compute ranges only.
    """

    def __init__(self, builder: IRBuilder | None = None) -> None:
        self.builder: Any = builder
        self.limits: list[Callable[[], Any]] = []
        """Functions that emit a mask of the lanes whose values exceed a limit."""


class IntegerVector:
    """Vector of integers whose range is known.

    Parameters
    ----------
    trace
        Evaluation that computes the vector.
    interval
        Range of the integers.
    emit
        ``emit(bits)`` emits the low 32 or 64 bits of each integer.
    """

    def __init__(
        self, trace: FormulaEmitter, interval: Interval, emit: Callable[[int], Any]
    ) -> None:
        self.trace, self.range = trace, interval
        self._emit = emit
        self._values: dict[int, Any] = {}

    @property
    def bits(self) -> int:
        """Size of the integer type that holds every value: 32 or 64 bits."""
        for bits in (32, 64):
            if -(1 << (bits - 1)) <= self.range.low and self.range.high < 1 << (bits - 1):
                return bits
        raise NotProvedError(f"64 bits do not hold {self.range}")

    def get_bits(self, bits: int) -> Any:
        """Return an LLVM vector of the low ``bits`` bits, 32 or 64, of each integer."""
        if bits not in self._values:
            if bits == 64 and self.range.low >= -(1 << 31) and self.range.high < 1 << 31:
                value = self.trace.builder.sext(self.get_bits(32), make_int_vector_type(64))
            else:
                value = self._emit(bits)
            self._values[bits] = value
        return self._values[bits]

    def __add__(self, other: Operand) -> IntegerVector:
        return _compute(operator.add, "add", self, other)

    def __sub__(self, other: Operand) -> IntegerVector:
        return _compute(operator.sub, "sub", self, other)

    def __mul__(self, other: Operand) -> IntegerVector:
        return _compute(operator.mul, "mul", self, other)

    def __lshift__(self, count: Operand) -> IntegerVector:
        return _compute(operator.lshift, "shl", self, count)

    def __rshift__(self, count: Operand) -> IntegerVector:
        return _compute_exactly(
            partial(find_range, operator.rshift), lambda b, x, n: b.ashr(x, n), self, count
        )


Operand: TypeAlias = IntegerVector | int


class FloatVector:
    """Vector of float32 or float64 numbers.

    Parameters
    ----------
    trace
        Evaluation that computes the vector.
    kind
        LLVM type, FLOATS or DOUBLES.
    emit
        ``emit()`` emits the vector.
    """

    def __init__(self, trace: FormulaEmitter, kind: ir.VectorType, emit: Callable[[], Any]) -> None:
        self.trace, self.kind, self._emit = trace, kind, emit
        self._value: Any = None

    def get_value(self) -> Any:
        """Return the LLVM value of the vector; its code is emitted at the first call."""
        if self._value is None:
            self._value = self._emit()
        return self._value

    def __add__(self, other: FloatVector) -> FloatVector:
        return self._compute("fadd", other)

    def __mul__(self, other: FloatVector) -> FloatVector:
        return self._compute("fmul", other)

    def _compute(self, name: str, other: FloatVector) -> FloatVector:
        return FloatVector(
            self.trace,
            self.kind,
            lambda: getattr(self.trace.builder, name)(self.get_value(), other.get_value()),
        )


def _lift(trace: FormulaEmitter, value: Operand) -> IntegerVector:
    if isinstance(value, IntegerVector):
        return value
    return IntegerVector(
        trace,
        Interval(value, value),
        lambda bits: make_splat_constant(make_int_vector_type(bits), _wrap(value, bits)),
    )


def _wrap(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _compute(
    function: Callable[..., int], name: str, x: IntegerVector, *others: Operand
) -> IntegerVector:
    """Return a value whose low bits follow from the low bits of the operands."""
    operands = [x, *(_lift(x.trace, other) for other in others)]
    return IntegerVector(
        x.trace,
        find_range(function, *(one.range for one in operands)),
        lambda bits: getattr(x.trace.builder, name)(*(one.get_bits(bits) for one in operands)),
    )


def _compute_exactly(
    find_rule: Callable[..., Interval], emit: Callable[..., Any], x: IntegerVector, *others: Operand
) -> IntegerVector:
    """Return a value that follows from all bits of the first operand."""
    operands = [x, *(_lift(x.trace, other) for other in others)]

    def emit_bits(bits: int) -> Any:
        builder, own = x.trace.builder, x.bits
        value = emit(builder, *(one.get_bits(own) for one in operands))
        return builder.trunc(value, make_int_vector_type(bits)) if bits < own else value

    found = find_rule(*(one.range for one in operands))
    return IntegerVector(x.trace, found, emit_bits)


# --- primitives ------------------------------------------------------------------------------


def _shift_away(x: IntegerVector, count: IntegerVector) -> IntegerVector:
    def emit(b: IRBuilder, value: Value, shift: Value) -> Any:
        one = make_splat_constant(value.type, 1)
        mask = b.sub(b.shl(one, shift), one)
        most = b.add(b.ashr(mask, one), b.zext(_is_negative(b, value), value.type))
        is_rounded_up = b.icmp_signed(">", b.and_(value, mask), most)
        return b.sub(b.ashr(value, shift), b.sext(is_rounded_up, value.type))

    return _compute_exactly(ranges.shift_away, emit, x, count)


def _is_negative(b: IRBuilder, value: Value) -> Any:
    return b.icmp_signed("<", value, make_zero_constant(value.type))


def _saturate(x: IntegerVector, bits: int) -> IntegerVector:
    low, high = ranges.make_signed_interval(bits)
    found = ranges.saturate(x.range, Interval(bits, bits))
    return _limit_range(x, _lift(x.trace, low), _lift(x.trace, high), found)


def _limit(x: IntegerVector, most: Operand) -> IntegerVector:
    largest = _lift(x.trace, most)
    least = _lift(x.trace, 0) - largest
    return _limit_range(x, least, largest, ranges.limit(x.range, largest.range))


def _limit_range(
    x: IntegerVector, low: IntegerVector, high: IntegerVector, found: Interval
) -> IntegerVector:
    if low.range.high <= x.range.low and x.range.high <= high.range.low:
        return x

    def is_outside() -> Any:
        b, bits = x.trace.builder, max(x.bits, low.bits, high.bits)
        value = x.get_bits(bits)
        is_low = b.icmp_signed("<", value, low.get_bits(bits))
        return b.or_(is_low, b.icmp_signed(">", value, high.get_bits(bits)))

    x.trace.limits.append(is_outside)
    return IntegerVector(x.trace, found, x.get_bits)


def _within(x: IntegerVector, most: int) -> IntegerVector:
    return IntegerVector(x.trace, ranges.limit(x.range, Interval(most, most)), x.get_bits)


def _float32(x: IntegerVector | FloatVector) -> FloatVector:
    if isinstance(x, FloatVector):
        return FloatVector(x.trace, FLOATS, lambda: x.trace.builder.fptrunc(x.get_value(), FLOATS))
    if x.bits == 32 or _CONVERTS_INT64:
        return FloatVector(
            x.trace, FLOATS, lambda: x.trace.builder.sitofp(x.get_bits(x.bits), FLOATS)
        )
    return _float32(_float64(x))


def _float64(x: IntegerVector | FloatVector) -> FloatVector:
    if isinstance(x, FloatVector):
        return FloatVector(x.trace, DOUBLES, lambda: x.trace.builder.fpext(x.get_value(), DOUBLES))

    def emit() -> Any:
        b, value = x.trace.builder, x.get_bits(x.bits)
        if x.bits == 32 or _CONVERTS_INT64:
            return b.sitofp(value, DOUBLES)
        if not -(1 << 51) <= x.range.low <= x.range.high < 1 << 51:
            raise NotProvedError(f"51 bits do not hold {x.range}")
        with_magic = b.bitcast(b.add(value, make_splat_constant(value.type, _MAGIC)), DOUBLES)
        return b.fsub(with_magic, make_splat_constant(DOUBLES, 1.5 * 2**52))

    return FloatVector(x.trace, DOUBLES, emit)


def _round(is_away: bool) -> Callable[[FloatVector], IntegerVector]:
    """Return a function that rounds floats, halves away from zero or to even."""

    def round_reals(x: FloatVector) -> IntegerVector:
        kind, dtype = x.kind, np.float32 if x.kind is FLOATS else np.float64
        suffix = f"v{LANES}f{8 * np.dtype(dtype).itemsize}"

        def is_large() -> Any:
            b = x.trace.builder
            magnitude = call_intrinsic(b, f"fabs.{suffix}", kind, x.get_value())
            return b.fcmp_unordered(">", magnitude, make_splat_constant(kind, MAX_ROUNDED))

        def emit(bits: int) -> Any:
            b, value = x.trace.builder, x.get_value()
            if is_away:
                # Adding a little less than a half reaches the next integer from the half on.
                half = make_splat_constant(kind, float(np.nextafter(dtype(0.5), dtype(0))))
                value = b.fadd(value, call_intrinsic(b, f"copysign.{suffix}", kind, half, value))
            else:
                value = call_intrinsic(b, f"rint.{suffix}", kind, value)
            return b.fptosi(value, make_int_vector_type(bits))

        x.trace.limits.append(is_large)
        return IntegerVector(x.trace, Interval(-MAX_ROUNDED, MAX_ROUNDED), emit)

    return round_reals


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "saturate": _saturate,
    "limit": _limit,
    "hold": _limit,
    "within": _within,
    "shift_away": _shift_away,
    "round_away": _round(True),
    "round_even": _round(False),
    "float32": _float32,
    "float64": _float64,
}
"""Primitives of varying values."""


# --- formulas --------------------------------------------------------------------------------


def evaluate_steps(formula: Formula, values: Mapping[str, Any]) -> IntegerVector:
    """Evaluate a formula for its parameters and a vector of sums; the result is an int32."""
    found = dict(values)
    for name, term in formula.steps:
        found[name] = eval(term, dict(PRIMITIVES), found)
    return _saturate(found[RESULT], 32)
