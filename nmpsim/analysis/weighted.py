"""Constants, scales and zero points of convolutions and fully connected layers, as arrays."""

from __future__ import annotations

import numpy as np

from nmpsim.arrays import Array
from nmpsim.compiler.numerics import WeightedLayerScales
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.resolve import get_instruction_place
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import WEIGHTED


def read_constant(module: Module, view: BufferView) -> Array | None:
    """Read the values of a constant in the shape of a view; return None if they are unknown."""
    is_known = view.buffer.name in module.constants
    return view.get_constant_values(module.constants) if is_known else None


def read_weighted_scales(module: Module, op: Operation) -> WeightedLayerScales | None:
    """Read a layer's scales and bias; return None unless it is quantized and has weights.

    Returns
    -------
    WeightedLayerScales or None
        A bias whose values are not known is 0. None for other operations, for a layer that is not
        quantized, and for scales that are constants whose values are not known.
    """
    if op.kind not in WEIGHTED or any(view.type.quant is None for view in op.operands[:3]):
        return None
    bias, constants = op.operands[3], module.constants
    if bias.buffer.name not in constants:
        size = bias.buffer.nbytes // bias.type.dtype.itemsize
        constants = {**constants, bias.buffer.name: np.zeros(size, bias.type.dtype)}
    place = get_instruction_place(op.instruction, module.file)
    try:
        return WeightedLayerScales.from_operation(op, constants, place)
    except KeyError:
        return None


def read_weight_rows(module: Module, op: Operation) -> Array | None:
    """Read a layer's weights as rows [outputs, inputs per output]; None if not constant."""
    values = read_constant(module, op.operands[2])
    if values is None:
        return None
    if op.instruction.opcode == "fullyconnected":
        return values.T
    return values.reshape(values.shape[0], -1)
