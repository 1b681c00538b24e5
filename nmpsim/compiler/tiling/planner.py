"""The planner of each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nmpsim.compiler.tiling.channelwise import depthwise_options, pool_options
from nmpsim.compiler.tiling.channelwise_scheme import is_depthwise
from nmpsim.compiler.tiling.context import Context
from nmpsim.compiler.tiling.conv import conv_options
from nmpsim.compiler.tiling.elementwise import (
    batchedadd_options,
    binary_options,
    splat_options,
    unary_options,
)
from nmpsim.compiler.tiling.matmul import matmul_options
from nmpsim.compiler.tiling.movement import move_options
from nmpsim.compiler.tiling.options import Options
from nmpsim.compiler.tiling.weighted import read_weighted
from nmpsim.compiler.work import Operation


def _weighted(op: Operation, context: Context) -> Options[Any]:
    layer = read_weighted(op, context)
    if is_depthwise(op):
        return depthwise_options(op, layer, context)
    return conv_options(layer, context)


def _matmul(op: Operation, context: Context) -> Options[Any]:
    """A constant right side is weights, where no order of summing can saturate the sum.

    Sums of weights begin with a zero point term, those of activations do not: only exact ones are
    alike.
    """
    _, lhs, rhs = op.operands
    largest = lhs.shape[1] << 2 * lhs.type.dtype.itemsize * 8
    is_exact = largest <= 1 << (lhs.accumulator_bits - 1)
    if rhs.buffer.constant and is_exact:
        return _weighted(op, context)
    return matmul_options(op, context)


PLANNERS: dict[str, Callable[[Operation, Context], Options[Any]]] = {
    "convolution": _weighted,
    "channelwisequantizedconvolution": _weighted,
    "fullyconnected": _weighted,
    "rowwisequantizedfullyconnected": _weighted,
    "matmul": _matmul,
    "batchedadd": batchedadd_options,
    "maxpool": pool_options,
    "avgpool": pool_options,
    "elementadd": binary_options,
    "elementsub": binary_options,
    "elementmul": binary_options,
    "elementmax": binary_options,
    "elementmin": binary_options,
    "relu": unary_options,
    "clip": unary_options,
    "leakyrelu": unary_options,
    "cpumaxsplat": unary_options,
    "rescalequantized": unary_options,
    "intlookuptable": unary_options,
    "splat": splat_options,
    "copy": move_options,
    "transpose": move_options,
    "inserttensor": move_options,
    "extracttensor": move_options,
}
"""Every opcode that the device has a unit for."""


def options_of(op: Operation, context: Context) -> Options[Any]:
    """The tilings of an operation."""
    return PLANNERS[op.instruction.opcode](op, context)
