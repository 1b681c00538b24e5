"""Vector code of formulas, in the narrowest integers that hold every value.

A formula of ``isa/formulas.toml`` is evaluated with vectors in place of numbers. Each integer has a
range, which follows from the ranges of its operands. Limits (``saturate``, ``limit``, ``hold``, and
the magnitude of a float that is rounded) are assumed not to be met. Separate code decides whether a
value meets one. Every step of a formula is monotonic in the sum, so this code is needed for the
smallest and the largest sum only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels.cpu_features import FEATURES
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
    low, high
        Smallest and largest possible integer.
    emit
        ``emit(bits)`` emits the low 32 or 64 bits of each integer.
    """

    def __init__(
        self, trace: FormulaEmitter, low: int, high: int, emit: Callable[[int], Any]
    ) -> None:
        self.trace, self.low, self.high = trace, low, high
        self._emit = emit
        self._values: dict[int, Any] = {}

    @property
    def bits(self) -> int:
        """Size of the integer type that holds every value: 32 or 64 bits."""
        for bits in (32, 64):
            if -(1 << (bits - 1)) <= self.low and self.high < 1 << (bits - 1):
                return bits
        raise NotProvedError(f"64 bits do not hold {self.low} ... {self.high}")

    def get_bits(self, bits: int) -> Any:
        """Return an LLVM vector of the low ``bits`` bits, 32 or 64, of each integer."""
        if bits not in self._values:
            if bits == 64 and self.low >= -(1 << 31) and self.high < 1 << 31:
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

    def __rlshift__(self, value: int) -> IntegerVector:
        return _lift(self.trace, value) << self

    def __rrshift__(self, value: int) -> IntegerVector:
        return _lift(self.trace, value) >> self

    def __rsub__(self, value: int) -> IntegerVector:
        return _lift(self.trace, value) - self

    def __rfloordiv__(self, value: int) -> IntegerVector:
        return _compute(operator.floordiv, "sdiv", _lift(self.trace, value), self)

    def __abs__(self) -> IntegerVector:
        least = max(self.low, -self.high, 0)
        return IntegerVector(self.trace, least, max(-self.low, self.high), lambda bits: None)

    def __rshift__(self, count: Operand) -> IntegerVector:
        return _compute_exactly(operator.rshift, lambda b, x, n: b.ashr(x, n), self, count)


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
        """Return the LLVM vector."""
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
        value,
        value,
        lambda bits: make_splat_constant(make_int_vector_type(bits), _wrap(value, bits)),
    )


def _wrap(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _find_range(function: Callable[..., int], *operands: IntegerVector) -> tuple[int, int]:
    """Return the range of a function that is monotonic in each operand."""
    corners = [function(*at) for at in product(*((one.low, one.high) for one in operands))]
    return min(corners), max(corners)


def _compute(
    function: Callable[..., int], name: str, x: IntegerVector, *others: Operand
) -> IntegerVector:
    """Return a value whose low bits follow from the low bits of the operands."""
    operands = [x, *(_lift(x.trace, other) for other in others)]
    return IntegerVector(
        x.trace,
        *_find_range(function, *operands),
        lambda bits: getattr(x.trace.builder, name)(*(one.get_bits(bits) for one in operands)),
    )


def _compute_exactly(
    function: Callable[..., int], emit: Callable[..., Any], x: IntegerVector, *others: Operand
) -> IntegerVector:
    """Return a value that follows from all bits of the first operand."""
    operands = [x, *(_lift(x.trace, other) for other in others)]

    def emit_bits(bits: int) -> Any:
        builder, own = x.trace.builder, x.bits
        value = emit(builder, *(one.get_bits(own) for one in operands))
        return builder.trunc(value, make_int_vector_type(bits)) if bits < own else value

    return IntegerVector(x.trace, *_find_range(function, *operands), emit_bits)


# --- primitives ------------------------------------------------------------------------------


def _shift_away(x: IntegerVector, count: IntegerVector) -> IntegerVector:
    def emit(b: IRBuilder, value: Value, shift: Value) -> Any:
        one = make_splat_constant(value.type, 1)
        mask = b.sub(b.shl(one, shift), one)
        most = b.add(b.ashr(mask, one), b.zext(_is_negative(b, value), value.type))
        is_rounded_up = b.icmp_signed(">", b.and_(value, mask), most)
        return b.sub(b.ashr(value, shift), b.sext(is_rounded_up, value.type))

    def divide(value: int, shift: int) -> int:
        size = abs(value) + (1 << shift >> 1) >> shift
        return size if value >= 0 else -size

    return _compute_exactly(divide, emit, x, count)


def _is_negative(b: IRBuilder, value: Value) -> Any:
    return b.icmp_signed("<", value, make_zero_constant(value.type))


def _saturate(x: IntegerVector, bits: int) -> IntegerVector:
    return _limit_range(x, _lift(x.trace, -(1 << bits - 1)), _lift(x.trace, (1 << bits - 1) - 1))


def _limit(x: IntegerVector, most: Operand) -> IntegerVector:
    largest = _lift(x.trace, most)
    return _limit_range(x, 0 - largest, largest)


def _limit_range(x: IntegerVector, low: IntegerVector, high: IntegerVector) -> IntegerVector:
    if low.high <= x.low and x.high <= high.low:
        return x

    def is_outside() -> Any:
        b, bits = x.trace.builder, max(x.bits, low.bits, high.bits)
        value = x.get_bits(bits)
        is_low = b.icmp_signed("<", value, low.get_bits(bits))
        return b.or_(is_low, b.icmp_signed(">", value, high.get_bits(bits)))

    x.trace.limits.append(is_outside)
    return IntegerVector(x.trace, max(x.low, low.low), min(x.high, high.high), x.get_bits)


def _within(x: IntegerVector, most: int) -> IntegerVector:
    return IntegerVector(x.trace, max(x.low, -most), min(x.high, most), x.get_bits)


def _extreme(function: Callable[..., int]) -> Callable[[IntegerVector, int], IntegerVector]:
    return lambda x, other: _compute(function, "", x, other)


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
        if not -(1 << 51) <= x.low <= x.high < 1 << 51:
            raise NotProvedError(f"51 bits do not hold {x.low} ... {x.high}")
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
        return IntegerVector(x.trace, -MAX_ROUNDED, MAX_ROUNDED, emit)

    return round_reals


def _make_real(kind: ir.VectorType) -> Callable[[IntegerVector], FloatVector]:
    """Return a function of a word; only its kind is known, because no vector code computes it."""
    return lambda word: FloatVector(word.trace, kind, lambda: None)


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
    "real": _make_real(FLOATS),
    "real64": _make_real(DOUBLES),
    "exp2": _make_real(DOUBLES),
    "min": _extreme(min),
    "max": _extreme(max),
    "abs": abs,
}


# --- formulas --------------------------------------------------------------------------------


def _find_word_range(name: str) -> tuple[int, int]:
    if name.endswith(("_pre", "_post")):
        return 0, 31
    if name == "element":
        return 0, 1
    bits = 64 if name == "bias" else 32
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def find_parameters(formula: Formula) -> dict[str, IntegerVector | FloatVector]:
    """Return the kind and the range of each parameter of a formula, by name."""
    trace = FormulaEmitter()
    values: dict[str, Any] = {
        word: IntegerVector(trace, *_find_word_range(word), lambda bits: None)
        for word in formula.words
    }
    values |= _evaluate(formula.constants, values)
    return {name: values[name] for name in formula.parameters}


def evaluate_steps(formula: Formula, values: Mapping[str, Any]) -> IntegerVector:
    """Evaluate a formula for its parameters and a vector of sums; the result is an int32."""
    result = _evaluate(formula.steps, values)[RESULT]
    return _saturate(result, 32)


def _evaluate(terms: Iterable[tuple[str, str]], values: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(values)
    for name, term in terms:
        found[name] = eval(term, dict(PRIMITIVES), found)
    return found
