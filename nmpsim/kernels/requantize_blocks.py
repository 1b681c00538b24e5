"""Results of sums, sixteen channels at a time: scaled, clipped, and counted where limited.

Only results that 32 bits hold are computed here. If a sum is too large, or if the layer's first
limited result may be among the results, :mod:`~nmpsim.kernels.requantize` or single pixels do the
work instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.isa.words import INT8
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.formula_ranges import (
    FLOAT32,
    FLOAT64,
    Interval,
    ValueRange,
    find_parameter_ranges,
    make_signed_interval,
)
from nmpsim.kernels.formulas import Formula
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.lanes import FormulaEmitter
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.profiles import SUM_NUMBERS, SUMS
from nmpsim.kernels.result_table import ABOVE, BELOW, LEAST, MOST, SAVED
from nmpsim.kernels.vector_code import (
    DOUBLES,
    FLOATS,
    INT32S,
    LANES,
    EmittedLoop,
    add_offset,
    emit_any_lane,
    emit_count_if,
    emit_signed_max,
    emit_signed_min,
    emit_switch,
    load,
    make_int_constant,
    make_int_vector_type,
    make_splat_constant,
    make_zero_constant,
    splat,
    store,
)

_LONGS = make_int_vector_type(64)


class ChannelBlock(NamedTuple):
    """Block of 16 channels as arguments of vector code, with strides in bytes."""

    formula: Any
    """Number of a formula in ``SUMS``."""
    sums: Any
    sum_stride: Any
    pixels: Any
    parameters: Any
    """Address of int64 [PARAMETERS, LANES] (see ``result_table.py``)."""
    counts: Any
    """Address of int32 [COUNT_ROWS, LANES]."""
    low: Any
    high: Any
    results: Any
    result_stride: Any


def _load_counts(b: IRBuilder, counts: Value, rows: Iterable[int]) -> list[Any]:
    return [load(b, add_offset(b, counts, 4 * LANES * row), INT32S, 4) for row in rows]


def _store_counts(b: IRBuilder, counts: Value, first: int, values: list[Any]) -> None:
    for row, value in enumerate(values, first):
        store(b, value, add_offset(b, counts, 4 * LANES * row), 4)


def _saturate_to(b: IRBuilder, values: Value, kind: ir.VectorType) -> Any:
    """Return values in half as many bits, limited to what these hold: often one instruction."""
    most = (1 << kind.element.width - 1) - 1
    low, high = (make_splat_constant(values.type, limit) for limit in (-most - 1, most))
    return b.trunc(emit_signed_min(b, emit_signed_max(b, values, low), high), kind)


def _combine_flags(b: IRBuilder, *masks: Value) -> Any:
    """Return a number whose bit i is set if any lane of mask i is."""
    bits = [b.shl(emit_any_lane(b, mask), make_int_constant(i)) for i, mask in enumerate(masks)]
    return b.or_(b.or_(bits[0], bits[1]), bits[2])


class _Scale:
    """Code that scales sums without the initial sums of their channels.

    Parameters
    ----------
    b, formula, block
        Builder, formula, and arguments, whose parameters are loaded.
    element
        Element type of the results.
    """

    def __init__(self, b: IRBuilder, formula: Formula, element: int, block: ChannelBlock) -> None:
        self._b, self._formula = b, formula
        self._ranges = find_parameter_ranges(formula)
        rows = range(len(self._ranges) + 1)
        start, *words = (
            load(b, add_offset(b, block.parameters, 8 * LANES * row), _LONGS, 8) for row in rows
        )
        self._emitters = {
            name: partial(self._decode, word, known)
            for (name, known), word in zip(self._ranges.items(), words, strict=True)
        }
        sum_bits, range_bits = (32, 32) if element == INT8 else (64, 48)
        self._start = self._decode(start, Interval(0, 0), sum_bits)
        self._ranges["acc"] = make_signed_interval(range_bits)

    def _decode(self, word: Value, known: ValueRange, bits: int) -> Any:
        """Return the parameter that words of 64 bits hold, given its range or type."""
        if known == FLOAT64:
            return self._b.bitcast(word, DOUBLES)
        if known == FLOAT32 or bits == 32:
            word = self._b.trunc(word, INT32S)
        return self._b.bitcast(word, FLOATS) if known == FLOAT32 else word

    def evaluate(self, total: Value) -> FormulaEmitter:
        """Return the emitter of the results of sums."""
        acc = self._b.add(total, self._start)
        emitters = {**self._emitters, "acc": partial(self._decode, acc, self._ranges["acc"])}
        return FormulaEmitter(self._b, self._formula, self._ranges, emitters)


def _emit(formula: Formula, element: int, b: IRBuilder, block: ChannelBlock) -> Any:
    """Compute results of a block; the sums stay as they are.

    Int8 results are counted in 16 bits; one that these do not hold is outside any clip. Scaling is
    monotonic: the extremes of the results are those of the extreme sums, and if these two are not
    too large, no sum is.
    """
    scale = _Scale(b, formula, element, block)
    is_int8 = element == INT8
    kind = make_int_vector_type(16 if is_int8 else 32)
    result_kind, sum_kind = (
        (make_int_vector_type(8), INT32S) if is_int8 else (make_int_vector_type(16), _LONGS)
    )
    sum_bytes, result_bytes = sum_kind.element.width // 8, result_kind.element.width // 8
    counts = _load_counts(b, block.counts, range(SAVED))
    _store_counts(b, block.counts, SAVED, counts)
    low, high = (splat(b, b.trunc(limit, kind.element)) for limit in (block.low, block.high))
    none, first = make_zero_constant(kind), load(b, block.sums, sum_kind, sum_bytes)
    loop = EmittedLoop(b, block.pixels, [block.sums, block.results, none, none, first, first])
    at, to, below, above, lowest, highest = loop.values
    total = load(b, at, sum_kind, sum_bytes)
    value = scale.evaluate(total).emit_result()
    value = _saturate_to(b, value, kind) if is_int8 else value
    result = emit_signed_min(b, emit_signed_max(b, value, low), high)
    store(b, _saturate_to(b, result, result_kind), to, result_bytes)
    _, _, below, above, *extremes = loop.end(
        [
            b.add(at, block.sum_stride),
            b.add(to, block.result_stride),
            emit_count_if(b, below, "<", value, low),
            emit_count_if(b, above, ">", value, high),
            emit_signed_min(b, total, lowest),
            emit_signed_max(b, total, highest),
        ]
    )
    emitters = list(map(scale.evaluate, extremes))
    values = [emitter.emit_result() for emitter in emitters]
    below_count, above_count = (b.zext(n, INT32S) if is_int8 else n for n in (below, above))
    after = [
        b.add(counts[BELOW], below_count),
        b.add(counts[ABOVE], above_count),
        emit_signed_min(b, counts[LEAST], emit_signed_min(b, *values)),
        emit_signed_max(b, counts[MOST], emit_signed_max(b, *values)),
    ]
    _store_counts(b, block.counts, 0, after)
    limited = (b.icmp_signed("!=", count, none) for count in (below, above))
    return _combine_flags(b, *limited, b.or_(*(one.emit_limits() for one in emitters)))


def _emit_all(element: int, b: IRBuilder, block: ChannelBlock) -> Any:
    cases = {
        number: partial(_emit, formula, element, b, block)
        for number, formula in enumerate(SUMS)
        if number in SUM_NUMBERS[:, element]
    }
    return emit_switch(b, block.formula, cases)


_requantize_int8: Any = define_function("requantize_int8", partial(_emit_all, 0))
_requantize_int16: Any = define_function("requantize_int16", partial(_emit_all, 1))


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
) -> Any:
    """Requantize the sums of pixels in blocks of 16 channels; return bit flags of clipped sides.

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

    Returns
    -------
    Bit 0: a result was limited from below; bit 1: from above; TOO_LARGE: results and counts are
    invalid.
    """
    found, is_int16 = np.int64(0), results.itemsize == 2
    for i in range(counts.shape[0]):
        lanes = LANES * i
        block = ChannelBlock(
            formula,
            get_address(sums) + sums.itemsize * lanes,
            sums.itemsize * sums.shape[1],
            pixels,
            get_address(parameters) + parameters.itemsize * lanes * parameters.shape[1],
            get_address(counts) + counts.itemsize * lanes * counts.shape[1],
            clip.low,
            clip.high,
            get_address(results) + start + results.itemsize * lanes,
            step,
        )
        if is_int16:
            found |= _requantize_int16((block,))
        else:
            found |= _requantize_int8((block,))
    return found
