"""The planner of each kind of operation."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE
from nmpsim.compiler.tiling.channelwise import is_depthwise, plan_depthwise, plan_pool
from nmpsim.compiler.tiling.context import PlanningContext, TilingOptions
from nmpsim.compiler.tiling.conv import plan_conv
from nmpsim.compiler.tiling.elementwise import (
    plan_batched_add,
    plan_binary,
    plan_splat,
    plan_unary,
)
from nmpsim.compiler.tiling.matmul import plan_matmul
from nmpsim.compiler.tiling.movement import plan_move
from nmpsim.compiler.tiling.weighted import make_weighted_layer
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.lir.opcode import OpcodeKind


def _weighted(op: Operation, context: PlanningContext) -> TilingOptions:
    layer = make_weighted_layer(op, context)
    if is_depthwise(op):
        return plan_depthwise(op, layer, context)
    return plan_conv(layer, context)


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
    return plan_matmul(op, context)


_BY_KIND: dict[OpcodeKind, Callable[[Operation, PlanningContext], TilingOptions]] = {
    OpcodeKind.CONVOLUTION: _weighted,
    OpcodeKind.FULLY_CONNECTED: _weighted,
    OpcodeKind.PRODUCT: _matmul,
    OpcodeKind.BATCHED_ADD: plan_batched_add,
    OpcodeKind.MAX_POOL: plan_pool,
    OpcodeKind.AVERAGE_POOL: plan_pool,
    OpcodeKind.PAIR: plan_binary,
    OpcodeKind.CLIP: plan_unary,
    OpcodeKind.RESCALE: plan_unary,
    OpcodeKind.LOOK_UP: plan_unary,
    OpcodeKind.FILL: plan_splat,
    OpcodeKind.MOVE: plan_move,
}
PLANNERS = make_exhaustive_table("the planners", _BY_KIND, KINDS_ON_THE_DEVICE)
"""Planner of each kind of operation that the device supports."""


def plan_operation(op: Operation, context: PlanningContext) -> TilingOptions:
    """Return the tiling options of an operation."""
    return PLANNERS[op.kind](op, context)
