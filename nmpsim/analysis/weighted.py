"""Constants, scales and zero points of convolutions and fully connected layers, as arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.operations import Operation, View
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcode import WEIGHTED as KINDS
from nmpsim.lir.opcodes import find_opcodes

Array: TypeAlias = npt.NDArray[Any]

WEIGHTED = find_opcodes(*KINDS)
"""Opcodes with weights and a bias; their operands are result, source, weights, bias."""


@attrs.frozen(eq=False)
class LayerScales:
    """Scales and zero points of a layer; arrays have one entry, or one per channel."""

    source: float
    result: float
    weights: Array
    """float32"""
    weight_offsets: Array
    """int64"""
    bias: Array | None
    """float32; None for a bias that stayed float"""
    bias_offsets: Array
    """int64"""


def read_constant(module: Module, view: View) -> Array | None:
    """Return the values of a constant in the shape of a view, or None if they are unknown."""
    whole = module.constants.get(view.buffer.name)
    if whole is None:
        return None
    flat = np.ascontiguousarray(whole).reshape(-1)
    start = view.byte_offset // flat.itemsize
    return flat[start : start + view.type.elements].reshape(view.shape)


def read_layer_scales(module: Module, op: Operation) -> LayerScales | None:
    """Return the scales and zero points of a layer with weights, or None if unknown.

    None if the layer is not quantized, or its scales are constants with unknown values.
    """
    result, source, weights, bias = op.operands[:4]
    if any(view.type.quant is None for view in op.operands[:3]):
        return None
    tables = [read_constant(module, view) for view in op.operands[4:]]
    if any(table is None for table in tables):
        return None
    whole = [_one_scale(weights), _one_offset(weights), _one_scale(bias), _one_offset(bias)]
    own = [table for table in tables if table is not None]
    floats, integers = np.float32, np.int64
    kinds = (floats, integers, floats, integers)
    arrays = [
        np.asarray(array, kind)
        for array, kind in zip((*own, *whole[len(own) :]), kinds, strict=True)
    ]
    scales = LayerScales(source.scale, result.scale, *arrays)
    return scales if bias.type.quant else attrs.evolve(scales, bias=None)


def _one_scale(view: View) -> Array:
    return np.array([view.scale], np.float32)


def _one_offset(view: View) -> Array:
    return np.array([view.offset], np.int64)


def read_weight_rows(module: Module, op: Operation) -> Array | None:
    """Return the weights as an array [outputs, inputs per output], or None if unknown."""
    values = read_constant(module, op.operands[2])
    if values is None:
        return None
    if op.instruction.opcode == "fullyconnected":
        return values.T
    return values.reshape(values.shape[0], -1)


def read_bias_values(module: Module, op: Operation) -> Array | None:
    """Return the stored integers of a bias as int64 [outputs], or None if unknown."""
    values = read_constant(module, op.operands[3])
    return None if values is None else values.astype(np.int64).reshape(-1)
