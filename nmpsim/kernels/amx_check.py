"""Check that AMX tiles compute correct sums: an emulated processor may get them wrong."""

from __future__ import annotations

import ctypes

import numpy as np
from llvmlite import binding, ir

from nmpsim.kernels.amx_tiles import (
    MAX_TILES,
    ROW_BYTES,
    SIDE,
    TILE_BYTES,
    emit_block,
    emit_tile_configuration,
    emit_tile_release,
)
from nmpsim.kernels.machine_code import compile_function
from nmpsim.kernels.vector_code import I64, make_int_constant

_ROWS = MAX_TILES * SIDE
"""Pixels, and channels, of a register block."""


def is_amx_code_correct(module: str) -> bool:
    """Return whether the AMX code of an LLVM module computes the same sums as NumPy."""
    values = np.random.default_rng(0).integers(-128, 128, 2 * MAX_TILES * TILE_BYTES, np.int8)
    values[:: ROW_BYTES + 1] = -128
    inputs, weights = values.reshape(2, -1)
    sums, configuration = np.zeros((_ROWS, _ROWS), np.int32), np.zeros(ROW_BYTES, np.uint8)
    cpu = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    block = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(compile_function(module, "block", *cpu))
    block(*(array.ctypes.data for array in (inputs, weights, sums, configuration)))
    lanes = weights.reshape(MAX_TILES, SIDE, SIDE, 4).transpose(0, 2, 1, 3).reshape(_ROWS, -1)
    expected = inputs.reshape(_ROWS, -1).astype(np.int32) @ lanes.T.astype(np.int32)
    return np.array_equal(sums, expected)


def make_check_module() -> str:
    """Return the LLVM IR of a function ``block`` that multiplies one AMX register block.

    Its arguments are the addresses of inputs, weights, sums, and 64 bytes for the configuration.
    """
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 4), "block")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    inputs, weights, sums, configuration = function.args
    row, sums_row = make_int_constant(ROW_BYTES), make_int_constant(4 * _ROWS)
    read = (
        inputs,
        row,
        make_int_constant(TILE_BYTES),
        make_int_constant(1),
        weights,
        make_int_constant(TILE_BYTES),
    )
    no_tail = (make_int_constant(0), weights)
    emit_tile_configuration(b, configuration, make_int_constant(SIDE))
    emit_block(
        b,
        MAX_TILES,
        MAX_TILES,
        *read,
        *no_tail,
        sums,
        sums_row,
        make_int_constant(4 * _ROWS * SIDE),
    )
    emit_tile_release(b, configuration)
    b.ret_void()
    return str(module)
