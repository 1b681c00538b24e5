"""The planner of each kind of operation."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE
from nmpsim.compiler.tiling.channelwise import (
    is_depthwise,
    make_depthwise_options,
    make_pool_options,
)
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.conv import make_conv_options
from nmpsim.compiler.tiling.elementwise import (
    make_batched_add_options,
    make_binary_options,
    make_splat_options,
    make_unary_options,
)
from nmpsim.compiler.tiling.matmul import make_matmul_options
from nmpsim.compiler.tiling.movement import make_move_options
from nmpsim.compiler.tiling.weighted import make_weighted_layer
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.lir.opcode import OpcodeKind


def _weighted(op: Operation, context: PlanningContext) -> TilingOptions:
    layer = make_weighted_layer(op, context)
    if is_depthwise(op):
        return make_depthwise_options(op, layer, context)
    return make_conv_options(layer, context)


def _matmul(op: Operation, context: PlanningContext) -> TilingOptions:
    """Treat a constant right side as weights if no order of summation can saturate a sum.

    Sums with weights begin with a zero point term, those of activations do not, so that only exact
    sums are equal.
    """
    _, lhs, rhs = op.operands
    largest = lhs.shape[1] << 2 * lhs.type.dtype.itemsize * 8
    is_exact = largest <= 1 << (lhs.accumulator_bits - 1)
    if rhs.buffer.constant and is_exact:
        return _weighted(op, context)
    return make_matmul_options(op, context)


_BY_KIND: dict[OpcodeKind, Callable[[Operation, PlanningContext], TilingOptions]] = {
    OpcodeKind.CONVOLUTION: _weighted,
    OpcodeKind.FULLY_CONNECTED: _weighted,
    OpcodeKind.PRODUCT: _matmul,
    OpcodeKind.BATCHED_ADD: make_batched_add_options,
    OpcodeKind.MAX_POOL: make_pool_options,
    OpcodeKind.AVERAGE_POOL: make_pool_options,
    OpcodeKind.PAIR: make_binary_options,
    OpcodeKind.CLIP: make_unary_options,
    OpcodeKind.RESCALE: make_unary_options,
    OpcodeKind.LOOK_UP: make_unary_options,
    OpcodeKind.FILL: make_splat_options,
    OpcodeKind.MOVE: make_move_options,
}
PLANNERS = make_exhaustive_table("the planners", _BY_KIND, KINDS_ON_THE_DEVICE)
"""Planner of each kind of operation that the device supports."""


def make_tiling_options(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an operation, according to its kind."""
    return PLANNERS[op.kind](op, context)
