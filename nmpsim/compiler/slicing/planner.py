"""The planner of each operation."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.compiler.slicing.channelwise import plan_depthwise, plan_pool
from nmpsim.compiler.slicing.context import Context
from nmpsim.compiler.slicing.conv import plan_conv
from nmpsim.compiler.slicing.elementwise import (
    plan_batchedadd,
    plan_binary,
    plan_splat,
    plan_unary,
)
from nmpsim.compiler.slicing.matmul import plan_matmul
from nmpsim.compiler.slicing.movement import plan_move
from nmpsim.compiler.slicing.plan import LayerPlan
from nmpsim.compiler.slicing.weighted import read_weighted
from nmpsim.compiler.work import Operation


def _weighted(op: Operation, context: Context) -> LayerPlan:
    layer = read_weighted(op, context)
    if layer.groups > 1 and layer.groups == layer.channels == layer.out_channels:
        return plan_depthwise(layer, context)
    return plan_conv(layer, context)


def _matmul(op: Operation, context: Context) -> LayerPlan:
    """A constant right side is weights like any other."""
    return _weighted(op, context) if op.operands[2].buffer.constant else plan_matmul(op, context)


PLANNERS: dict[str, Callable[[Operation, Context], LayerPlan]] = {
    "convolution": _weighted,
    "channelwisequantizedconvolution": _weighted,
    "fullyconnected": _weighted,
    "rowwisequantizedfullyconnected": _weighted,
    "matmul": _matmul,
    "batchedadd": plan_batchedadd,
    "maxpool": plan_pool,
    "avgpool": plan_pool,
    "elementadd": plan_binary,
    "elementsub": plan_binary,
    "elementmul": plan_binary,
    "elementmax": plan_binary,
    "elementmin": plan_binary,
    "relu": plan_unary,
    "clip": plan_unary,
    "leakyrelu": plan_unary,
    "cpumaxsplat": plan_unary,
    "rescalequantized": plan_unary,
    "intlookuptable": plan_unary,
    "splat": plan_splat,
    "copy": plan_move,
    "transpose": plan_move,
    "inserttensor": plan_move,
    "extracttensor": plan_move,
}
"""Every opcode that the device has a unit for."""


def plan(op: Operation, context: Context) -> LayerPlan:
    """Cut an operation into tiles."""
    return PLANNERS[op.instruction.opcode](op, context)
