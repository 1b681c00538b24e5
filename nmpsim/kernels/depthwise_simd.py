"""Sums of a depthwise window for a block of channels, as vector instructions of the host."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.vector_code import I64, LANES, constant, load, store, sum_up, vector

_FACTORS, _WIDE_SUMS = vector(32), vector(64)


def _emit(
    builder: ir.IRBuilder,
    bits: int,
    corner: ir.Value,
    taps: ir.Value,
    count: ir.Value,
    factors: ir.Value,
    stride: ir.Value,
    sums: ir.Value,
) -> None:
    """Sum up the taps of LANES channels, and add them to what is there.

    32 bits hold the sums of Int8, as far as they are not to be checked.
    """
    kind, total_kind = vector(bits), vector(4 * bits)

    def terms(index: ir.Value) -> list[Any]:
        at = builder.add(taps, builder.mul(index, constant(8)))
        values = load(builder, builder.add(corner, load(builder, at, I64, 8)), kind, bits // 8)
        row = builder.add(factors, builder.mul(index, stride))
        of_tap = load(builder, row, _FACTORS, 4)
        if bits == 16:
            of_tap = builder.sext(of_tap, total_kind)
        return [builder.mul(builder.sext(values, total_kind), of_tap)]

    (total,) = sum_up(builder, count, total_kind, 1, terms)
    if bits == 8:
        total = builder.sext(total, _WIDE_SUMS)
    store(builder, builder.add(total, load(builder, sums, _WIDE_SUMS, 8)), sums, 8)


def _tap_sums_of(bits: int) -> Any:
    """Addresses of corner, taps, factors, sums; ``count`` taps, at least one, ``stride`` apart."""

    def type_of_sums(
        typing_context: object,
        corner: numba.types.Type,
        taps: numba.types.Type,
        count: numba.types.Type,
        factors: numba.types.Type,
        stride: numba.types.Type,
        sums: numba.types.Type,
    ) -> Any:
        def generate(
            _: object, builder: ir.IRBuilder, __: object, arguments: list[ir.Value]
        ) -> Any:
            _emit(builder, bits, *arguments)
            return constant(0)

        return numba.intp(*[numba.intp] * 6), generate

    return intrinsic(type_of_sums)


_taps8: Any = _tap_sums_of(8)
_taps16: Any = _tap_sums_of(16)


def _add_taps_int8_compiled(
    values: Int8s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for block in range(0, factors.shape[1], LANES):
        _taps8(
            values.ctypes.data + corner + block,
            taps.ctypes.data,
            taps.size,
            factors.ctypes.data + 4 * block,
            4 * factors.shape[1],
            sums.ctypes.data + 8 * block,
        )


def _add_taps_int16_compiled(
    values: Int16s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for block in range(0, factors.shape[1], LANES):
        _taps16(
            values.ctypes.data + corner + 2 * block,
            taps.ctypes.data,
            taps.size,
            factors.ctypes.data + 4 * block,
            4 * factors.shape[1],
            sums.ctypes.data + 8 * block,
        )


def _add_taps_in_numpy(
    values: Int8s | Int16s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for tap, offset in enumerate(taps):
        start = (corner + offset) // values.itemsize
        sums += factors[tap].astype(np.int64) * values[start : start + sums.size]


_is_plain = numba.config.DISABLE_JIT
add_taps_int8: Any = _add_taps_in_numpy if _is_plain else jit(_add_taps_int8_compiled)
"""``add_taps_int8(values, corner, taps, factors, sums)``: to each sum a value of every tap times
its factor.

values int8; ``corner`` and taps int64 [T] are bytes: a tap's values begin at their sum. factors
int32 [T, C], sums int64 [C]; C is a multiple of sixteen, and C values are read. 32 bits must hold
what is added.
"""
add_taps_int16: Any = _add_taps_in_numpy if _is_plain else jit(_add_taps_int16_compiled)
"""The same for values int16; 64 bits must hold what is added."""
