"""Results of formulas, sixteen channels at a time: computed, clipped, and counted where limited.

Vector code reads sums of products, or one or two Int8 or Int16 values. Only results that 32 bits
hold are computed here; if a result may be too large, 64-bit code does the work instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.formulas import ELEMENTS, RESULT, Formula
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.lanes import (
    FloatVector,
    IntegerVector,
    Trace,
    assume_magnitude,
    evaluate_steps,
    find_parameters,
)
from nmpsim.kernels.movement import ZERO
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.profiles import SUM_NUMBERS, SUMS, VECTOR_RESCALES, VECTOR_SUMS
from nmpsim.kernels.result_table import (
    ABOVE,
    BELOW,
    FIRST_ABOVE,
    FIRST_BELOW,
    LEAST,
    MOST,
    SAVED,
    TOO_LARGE,
    undo_counts,
)
from nmpsim.kernels.saturate import INT32_MAX, ONCE
from nmpsim.kernels.vector_code import (
    DOUBLES,
    FLOATS,
    I32,
    I64,
    INT32S,
    LANES,
    Loop,
    add_offset,
    count_if,
    emit_any_lane,
    emit_signed_max,
    emit_signed_min,
    load,
    make_int_constant,
    make_int_vector_type,
    make_splat_constant,
    make_zero_constant,
    splat,
    store,
    switch,
)
from nmpsim.kernels.workspace_size import COUNT_ROWS

_LONGS = make_int_vector_type(64)


class FormulaCase(NamedTuple):
    """Formula that vector code computes, with its inputs and operation."""

    formula: Formula
    inputs: tuple[str, ...] = ("acc",)
    """Names of the values that are read."""
    operation: int = 0

    @property
    def is_sum(self) -> bool:
        """Whether the input is a sum of products."""
        return self.inputs == ("acc",)


RESCALE = len(OPERATIONS)
"""Number of a rescale in VALUE_NUMBERS, after those of OPERATIONS."""
_VALUES = {key: FormulaCase(one, ("lhs", "rhs"), key[0]) for key, one in VECTOR_SUMS.items()}
_VALUES |= {(RESCALE, *key[1:]): FormulaCase(one, ("x",)) for key, one in VECTOR_RESCALES.items()}
VALUE_CASES = [
    FormulaCase(Formula((), ((RESULT, "x"),), (), ()), ("x",)),
    *dict.fromkeys(_VALUES.values()),
]
"""Cases of Int8 and Int16 values; the first one only clips."""
VALUE_NUMBERS = np.zeros((RESCALE + 1, len(PROFILES), len(ELEMENTS)), np.int64)
"""Number of a case [operation, profile, element], or 0."""
for _key, _case in _VALUES.items():
    VALUE_NUMBERS[_key] = VALUE_CASES.index(_case)
VALUE_PARAMETERS = 16
"""Parameters of a case of values, including the addends of its inputs."""
_MAX_OUT_OFFSET = 1 << 13
"""Largest zero point of a result of values, so that 16 bits hold more formulas."""


class BlockArguments(NamedTuple):
    """Arguments for a block of sixteen channels; strides are in bytes from pixel to pixel."""

    values: Any
    """Address of sums or values."""
    others: Any
    """Address of the right side's values."""
    stride: Any
    pixels: Any
    pixel: Any
    """Number of the first pixel."""
    parameters: Any
    """Address of an addend for each input and then the formula's parameters: int64 [rows, LANES],
    or int64 [rows] for values."""
    counts: Any
    """Address of int32 [COUNT_ROWS, LANES]."""
    low: Any
    high: Any
    results: Any
    result_stride: Any


def _load_rows(b: IRBuilder, address: Value, rows: int, kind: Any) -> list[Any]:
    """Load rows of vectors, or of words, one after the other."""
    width = getattr(kind, "element", kind).width // 8
    step = width * getattr(kind, "count", 1)
    return [load(b, add_offset(b, address, step * row), kind, width) for row in range(rows)]


def _saturate_to(b: IRBuilder, values: Value, kind: ir.VectorType) -> Any:
    """Return values in other bits, limited to what these hold: often one instruction."""
    if values.type.element.width <= kind.element.width:
        return values if values.type == kind else b.sext(values, kind)
    low, high = (
        make_splat_constant(values.type, limit) for limit in _range_of_bits(kind.element.width)
    )
    return b.trunc(emit_signed_min(b, emit_signed_max(b, values, low), high), kind)


class _Code:
    """Code of a case; inputs are given without their addends.

    Parameters
    ----------
    b, case, parameters
        Builder, case, and address of its parameters, which are loaded.
    element
        Element type of the results.
    """

    def __init__(self, b: IRBuilder, case: FormulaCase, element: int, parameters: Value) -> None:
        self._b, self._case = b, case
        self._parameters = find_parameters(case.formula)
        count = len(case.inputs) + len(self._parameters)
        if case.is_sum:
            self.input_kind = self.watched_kind = make_int_vector_type(32 << element)
            self._range = _range_of_bits(32 + 16 * element)
            self._words = _load_rows(b, parameters, count, _LONGS)
        else:
            self.input_kind = make_int_vector_type(16 << element)
            self._range = -(2 << (8 << element) - 1) + 1, (2 << (8 << element) - 1) - 1
            self._words = [splat(b, word) for word in _load_rows(b, parameters, count, I64)]
            result, _ = self.evaluate([make_zero_constant(self.input_kind)] * len(case.inputs))
            self.watched_kind = make_int_vector_type(result.bits)

    def _resize(self, word: Value, bits: int) -> Any:
        return (
            word
            if word.type == make_int_vector_type(bits)
            else self._b.trunc(word, make_int_vector_type(bits))
        )

    def evaluate(self, inputs: Iterable[Value]) -> tuple[IntegerVector, Trace]:
        """Evaluate the formula; the trace has the limits that are assumed not to be met."""
        b, trace, words = self._b, Trace(self._b), iter(self._words)
        values: dict[str, Any] = {"operation": self._case.operation}
        for name, value in zip(self._case.inputs, inputs, strict=True):
            total = b.add(value, self._resize(next(words), value.type.element.width))
            values[name] = IntegerVector(trace, *self._range, partial(self._resize, total))
        for (name, known), word in zip(self._parameters.items(), words, strict=True):
            if isinstance(known, IntegerVector):
                values[name] = IntegerVector(
                    trace, known.low, known.high, partial(self._resize, word)
                )
            elif known.kind is FLOATS:
                bits = self._resize(word, 32)
                values[name] = FloatVector(trace, FLOATS, partial(b.bitcast, bits, FLOATS))
            else:
                values[name] = FloatVector(trace, DOUBLES, partial(b.bitcast, word, DOUBLES))
        if not self._case.is_sum and "out_offset" in values:
            values["out_offset"] = assume_magnitude(values["out_offset"], _MAX_OUT_OFFSET)
        return evaluate_steps(self._case.formula, values), trace

    def compute(self, inputs: Iterable[Value]) -> Any:
        """Return results of sums in 32 bits, those of values in ``watched_kind``."""
        bits = 32 if self._case.is_sum else self.watched_kind.element.width
        return self.evaluate(inputs)[0].get_bits(bits)

    def is_limited(self, inputs: Iterable[Value]) -> Any:
        """Return the lanes whose results are invalid."""
        _, trace = self.evaluate(inputs)
        found = make_zero_constant(make_int_vector_type(1))
        for emit in trace.limits:
            found = self._b.or_(found, emit())
        return found


def _range_of_bits(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _widen(b: IRBuilder, value: Value, extend: Callable[..., Any]) -> Any:
    return value if value.type == INT32S else extend(value, INT32S)


def _emit(case: FormulaCase, element: int, b: IRBuilder, block: BlockArguments) -> Any:
    """Compute results of a block; sums stay as they are.

    Int8 results are counted in 16 bits; one that these do not hold is outside any clip. Scaling is
    monotonic: the extremes of the results are those of the extreme sums, and if these two are not
    too large, no sum is.
    """
    code = _Code(b, case, element, block.parameters)
    kind, result_kind = make_int_vector_type(16 << element), make_int_vector_type(8 << element)
    low, high = (splat(b, b.trunc(limit, kind.element)) for limit in (block.low, block.high))
    none = make_zero_constant(kind)
    least, most = _range_of_bits(code.watched_kind.element.width)
    ends = [make_splat_constant(code.watched_kind, end) for end in (most, least)]
    moves = block.stride, block.stride, block.result_stride
    carried = block.values, block.others, block.results, *[none] * 4, *ends
    loop = Loop(b, block.pixels, carried, moves)
    at, other, to, below, above, before_low, before_high, lowest, highest = loop.values
    stored = code.input_kind if case.is_sum else result_kind
    inputs = [load(b, one, stored, stored.element.width // 8) for one in (at, other)]
    if not case.is_sum:
        inputs = [b.sext(one, code.input_kind) for one in inputs]
    inputs = inputs[: len(case.inputs)]
    result = code.compute(inputs)
    watched = inputs[0] if case.is_sum else result
    value = _saturate_to(b, result, kind)
    clipped = emit_signed_min(b, emit_signed_max(b, value, low), high)
    store(b, _saturate_to(b, clipped, result_kind), to, 1 << element)
    below = count_if(b, below, "<", value, low)
    above = count_if(b, above, ">", value, high)
    *_, below, above, before_low, before_high, lowest, highest = loop.end(
        [
            below,
            above,
            count_if(b, before_low, "==", below, none),
            count_if(b, before_high, "==", above, none),
            emit_signed_min(b, watched, lowest),
            emit_signed_max(b, watched, highest),
        ]
    )
    is_low, is_high = (b.icmp_signed("!=", count, none) for count in (below, above))
    extremes, is_too_large = [lowest, highest], make_int_constant(0)
    if case.is_sum:
        limited = b.or_(*(code.is_limited([end]) for end in extremes))
        extremes, is_too_large = (
            [code.compute([end]) for end in extremes],
            emit_any_lane(b, limited),
        )
    counts = _load_rows(b, block.counts, SAVED, INT32S)
    lowest, highest = (_widen(b, end, b.sext) for end in extremes)
    pixel, never = splat(b, b.trunc(block.pixel, I32)), make_splat_constant(INT32S, INT32_MAX)
    firsts = [
        b.select(mask, b.add(pixel, _widen(b, count, b.zext)), never)
        for mask, count in ((is_low, before_low), (is_high, before_high))
    ]
    after = dict(enumerate(counts, SAVED)) | {
        BELOW: b.add(counts[BELOW], _widen(b, below, b.zext)),
        ABOVE: b.add(counts[ABOVE], _widen(b, above, b.zext)),
        LEAST: emit_signed_min(b, counts[LEAST], emit_signed_min(b, lowest, highest)),
        MOST: emit_signed_max(b, counts[MOST], emit_signed_max(b, lowest, highest)),
        FIRST_BELOW: emit_signed_min(b, counts[FIRST_BELOW], firsts[0]),
        FIRST_ABOVE: emit_signed_min(b, counts[FIRST_ABOVE], firsts[1]),
    }
    for row, value in after.items():
        store(b, value, add_offset(b, block.counts, 4 * LANES * row), 4)
    return b.or_(
        emit_any_lane(b, b.or_(is_low, is_high)), b.mul(is_too_large, make_int_constant(TOO_LARGE))
    )


def _emit_check(case: FormulaCase, element: int, b: IRBuilder, parameters: Value) -> Any:
    """Return whether the results of some values may be invalid.

    Formulas are monotonic in each value: if results of the extreme values of the element type are
    valid, all are.
    """
    code = _Code(b, case, element, parameters)
    least, most = _range_of_bits(8 << element)
    corners = [least, most] * (LANES // 2), [least, least, most, most] * (LANES // 4)
    inputs = [Constant(code.input_kind, list(end)) for end in corners]
    return emit_any_lane(b, code.is_limited(inputs[: len(case.inputs)]))


def _define(
    name: str, element: int, cases: Iterable[FormulaCase], numbers: Any, emit: Callable[..., Any]
) -> Any:
    """Define a function of a case's number and further arguments for an element type."""
    used = {n: case for n, case in enumerate(cases) if n in numbers[..., element]}

    def emit_all(b: IRBuilder, number: Value, arguments: Any) -> Any:
        code = {n: partial(emit, case, element, b, arguments) for n, case in used.items()}
        return switch(b, number, code)

    return define_function(f"{name}_{ELEMENTS[element]}", emit_all)


_SUM_CASES = list(map(FormulaCase, SUMS))
_sums_int8: Any = _define("sums", 0, _SUM_CASES, SUM_NUMBERS, _emit)
_sums_int16: Any = _define("sums", 1, _SUM_CASES, SUM_NUMBERS, _emit)
_values_int8: Any = _define("values", 0, VALUE_CASES, VALUE_NUMBERS, _emit)
_values_int16: Any = _define("values", 1, VALUE_CASES, VALUE_NUMBERS, _emit)
_check_int8: Any = _define("check_values", 0, VALUE_CASES, VALUE_NUMBERS, _emit_check)
_check_int16: Any = _define("check_values", 1, VALUE_CASES, VALUE_NUMBERS, _emit_check)


@jit
def get_next_block(block: BlockArguments, width: Int, parameter_bytes: Int, element: Int) -> Any:
    """Return the arguments of the next sixteen channels.

    ``width`` is the number of bytes of an input, ``parameter_bytes`` that of a block's parameters.
    """
    return BlockArguments(
        block.values + LANES * width,
        block.others + LANES * width,
        block.stride,
        block.pixels,
        block.pixel,
        block.parameters + parameter_bytes,
        block.counts + 4 * COUNT_ROWS * LANES,
        block.low,
        block.high,
        block.results + (LANES << element),
        block.result_stride,
    )


@jit
def requantize_blocks(
    sums: Int32s | Int64s,
    pixels: Int,
    parameters: Int64s,
    counts: Int32s,
    formula: Int,
    clip: Clip,
    results: Int8s | Int16s,
    start: Int,
    step: Int,
    pixel: Int,
) -> Any:
    """Compute results of at most MAX_PIXELS pixels from sums and count those limited.

    Parameters
    ----------
    pixels, formula
        Number of pixels, and of the formula in ``SUMS``.
    clip
        Clip of the result.
    sums
        [pixels or more, blocks * 16], without their initial sums: int32 for Int8, int64 for Int16.
    parameters, counts
        Tables of the channels and of limited results (see ``result_table.py``).
    results, start, step
        int8 or int16: the first pixel's results are at byte ``start``, the next one's ``step``
        bytes later.
    pixel
        Number of the first pixel.

    Returns
    -------
    Bit 0: a result was limited; TOO_LARGE: results are invalid, and nothing is counted.
    """
    found, width, at = np.int64(0), sums.itemsize, get_address(sums)
    read = at, at, width * sums.shape[1], pixels, pixel, get_address(parameters)
    written = get_address(counts), clip.low, clip.high, get_address(results) + start, step
    block, parameter_bytes = BlockArguments(*read, *written), 8 * LANES * parameters.shape[1]
    for _ in range(counts.shape[0]):
        if width == 8:
            found |= _sums_int16((formula, block))
        else:
            found |= _sums_int8((formula, block))
        block = get_next_block(block, width, parameter_bytes, np.int64(width == 8))
    if found & TOO_LARGE:
        undo_counts(counts)
    return found


@jit
def compute_values(case: Int, block: BlockArguments, element: Int, blocks: Int) -> Any:
    """Compute results of Int8 or Int16 values and count those limited.

    The blocks follow the given one, and have the same parameters, which
    :func:`may_exceed_limits` must have accepted.
    """
    found = np.int64(0)
    for _ in range(blocks):
        if element:
            found |= _values_int16((case, block))
        else:
            found |= _values_int8((case, block))
        block = get_next_block(block, ONCE << element, ZERO, element)
    return found


@jit
def may_exceed_limits(case: Int, parameters: Int64s, element: Int) -> Any:
    """Return whether vector code may compute wrong results for some values.

    Zero points must be within the element type.
    """
    address = get_address(parameters)
    if element:
        return _check_int16((case, address)) != 0
    return _check_int8((case, address)) != 0
