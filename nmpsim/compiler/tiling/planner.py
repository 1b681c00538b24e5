"""The planner of each kind of operation."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE
from nmpsim.compiler.tiling.channelwise import depthwise_options, is_depthwise, pool_options
from nmpsim.compiler.tiling.context import Context, TilingOptions
from nmpsim.compiler.tiling.conv import conv_options
from nmpsim.compiler.tiling.elementwise import (
    batchedadd_options,
    binary_options,
    splat_options,
    unary_options,
)
from nmpsim.compiler.tiling.matmul import matmul_options
from nmpsim.compiler.tiling.movement import move_options
from nmpsim.compiler.tiling.weighted import read_weighted
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.lir.opcode import Kind


def _weighted(op: Operation, context: Context) -> TilingOptions:
    layer = read_weighted(op, context)
    if is_depthwise(op):
        return depthwise_options(op, layer, context)
    return conv_options(layer, context)


def _matmul(op: Operation, context: Context) -> TilingOptions:
    """Treat a constant right side as weights if no order of summation can saturate a sum.

    Sums with weights begin with a zero point term, those of activations do not, so that only exact
    sums are equal.
    """
    _, lhs, rhs = op.operands
    largest = lhs.shape[1] << 2 * lhs.type.dtype.itemsize * 8
    is_exact = largest <= 1 << (lhs.accumulator_bits - 1)
    if rhs.buffer.constant and is_exact:
        return _weighted(op, context)
    return matmul_options(op, context)


_BY_KIND: dict[Kind, Callable[[Operation, Context], TilingOptions]] = {
    Kind.CONVOLUTION: _weighted,
    Kind.FULLY_CONNECTED: _weighted,
    Kind.PRODUCT: _matmul,
    Kind.BATCHED_ADD: batchedadd_options,
    Kind.MAX_POOL: pool_options,
    Kind.AVERAGE_POOL: pool_options,
    Kind.PAIR: binary_options,
    Kind.CLIP: unary_options,
    Kind.RESCALE: unary_options,
    Kind.LOOK_UP: unary_options,
    Kind.FILL: splat_options,
    Kind.MOVE: move_options,
}
PLANNERS = exhaustive_table("the planners", _BY_KIND, KINDS_ON_THE_DEVICE)
"""Planner of each kind of operation that the device supports."""


def plan_options(op: Operation, context: Context) -> TilingOptions:
    """Return the tilings of an operation."""
    return PLANNERS[op.kind](op, context)
