"""Whether tiles of AMX compute what they should: an emulated processor may have them, and err."""

from __future__ import annotations

import ctypes

import numpy as np
from llvmlite import binding, ir

from nmpsim.kernels.amx_tiles import (
    MOST,
    ROW_BYTES,
    SIDE,
    TILE_BYTES,
    emit_block,
    emit_configure,
    emit_release,
)
from nmpsim.kernels.vector_code import I64, constant

_ROWS = MOST * SIDE
"""Pixels, and channels, of a register block."""


def is_right(code: str) -> bool:
    """True if a register block of extreme and other bytes has the sums that NumPy says.

    ``code`` is what ``block_code`` writes.
    """
    values = np.random.default_rng(0).integers(-128, 128, 2 * MOST * TILE_BYTES, np.int8)
    values[:: ROW_BYTES + 1] = -128
    inputs, weights = values.reshape(2, -1)
    sums, room = np.zeros((_ROWS, _ROWS), np.int32), np.zeros(ROW_BYTES, np.uint8)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten()
    )
    engine = binding.create_mcjit_compiler(binding.parse_assembly(code), machine)
    block = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(engine.get_function_address("block"))
    block(*(array.ctypes.data for array in (inputs, weights, sums, room)))
    lanes = weights.reshape(MOST, SIDE, SIDE, 4).transpose(0, 2, 1, 3).reshape(_ROWS, -1)
    expected = inputs.reshape(_ROWS, -1).astype(np.int32) @ lanes.T.astype(np.int32)
    return np.array_equal(sums, expected)


def block_code() -> str:
    """A function ``block`` of the addresses of inputs, weights, sums, and room to work in."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 4), "block")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    inputs, weights, sums, room = function.args
    row, sums_row = constant(ROW_BYTES), constant(4 * _ROWS)
    read = (inputs, row, constant(TILE_BYTES), constant(1), weights, constant(TILE_BYTES))
    no_tail = (constant(0), weights)
    emit_configure(b, room, constant(SIDE))
    emit_block(b, MOST, MOST, *read, *no_tail, sums, sums_row, constant(4 * _ROWS * SIDE))
    emit_release(b, room)
    b.ret_void()
    return str(module)
