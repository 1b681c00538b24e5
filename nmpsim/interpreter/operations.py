"""Evaluation of one LIR instruction in real arithmetic, and the real values of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Shape
from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.accumulators import multiply_real
from nmpsim.kernels.hostops.convolution import apply_fused_activation
from nmpsim.kernels.hostops.tensors import Attributes
from nmpsim.kernels.hostops.windows import SlidingWindow
from nmpsim.lir.host_execution import execute_unchecked
from nmpsim.lir.nodes import ELEM_DTYPES, QUANTIZED_ELEMS, Instruction, TensorType
from nmpsim.lir.opcode import SATURATES_ANYWHERE, Opcode
from nmpsim.lir.opcodes import IN, OPCODES, OUT, OpcodeKind, OperandRole, find_opcodes

# Convolution of real numbers by one matrix product for each group.


def convolve_real(
    src: Array, weights: Array, bias: Array, shape: Shape, attributes: Attributes
) -> Array:
    """Return a float 2-D convolution with zero padding, bias and fused activation.

    Parameters
    ----------
    src, weights, bias
        [N, H, W, C], [OC, KH, KW, C / Group] and [OC], all float64 or all float32.
    shape
        [N, OH, OW, OC] of the result.
    attributes
        Kernels, Strides, Pads, Dilation and Group of the instruction, and its fused activation.
    """
    window, groups = SlidingWindow.from_attributes(attributes), attributes["Group"]
    padded = window.pad(src, 0)
    views = [view for _, view in window.iterate_views(padded, shape[1:3])]
    if weights.shape[3] == 1:
        sums = _depthwise(views, weights, groups, shape)
    else:
        inner, outer = padded.shape[3] // groups, shape[3] // groups
        parts = [
            _dense(
                [view[..., g * inner : (g + 1) * inner] for view in views],
                weights[g * outer : (g + 1) * outer],
            )
            for g in range(groups)
        ]
        sums = np.concatenate(parts, axis=1).reshape(shape)
    return apply_fused_activation(sums + bias, attributes)


def _dense(views: list[Array], weights: Array) -> Array:
    """Return [N * OH * OW, OC] of one group: a view [N, OH, OW, C] for each tap."""
    windows = np.concatenate(views, axis=-1) if len(views) > 1 else views[0]
    columns = windows.reshape(-1, windows.shape[-1])
    return multiply_real(columns, weights.reshape(len(weights), -1).T)


def _depthwise(views: list[Array], weights: Array, groups: int, shape: Shape) -> Array:
    """Return the sums if each output reads one channel.

    Channel c makes the outputs c * OC / C to (c + 1) * OC / C - 1.
    """
    taps = weights.reshape(groups, -1, len(views))
    sums = np.zeros((*shape[:3], groups, taps.shape[1]), dtype=weights.dtype)
    for tap, view in enumerate(views):
        sums += view[..., None] * taps[:, :, tap]
    return sums.reshape(shape)


RealArray: TypeAlias = Array
"""Values in a ``RealType``; bool and index tensors keep their own dtype."""
RealType: TypeAlias = type[np.float64] | type[np.float32]
"""float64 for real arithmetic, or float32 for that of Glow's Interpreter."""
REAL: Final = np.float64

_MAY_HIDE_A_RELU = find_opcodes(*SATURATES_ANYWHERE) | {
    "batchedreduceadd",
    "elementdiv",
    "rescalequantized",
}
"""Operations whose result type a quantizer may give the range of the ReLU after them."""


def evaluate_operation(
    instruction: Instruction,
    types: Sequence[TensorType],
    values: Sequence[RealArray],
    *,
    hidden_relu: bool = True,
    real: RealType = REAL,
    sum_order: npt.NDArray[np.intp] | None = None,
) -> dict[int, RealArray]:
    """Evaluate an instruction in real arithmetic and return its results by operand index.

    Parameters
    ----------
    instruction
        An instruction of a verified module; any opcode but those of ``NO_WORK``.
    types
        Types of all operands in print order.
    values
        Real values of all operands in print order and in their logical shapes (as of
        ``dequantize_operands``); that of an ``@out`` operand is ignored.
    hidden_relu
        Whether to apply the ReLU that the result's type hides (``has_implied_relu``).
    real
        dtype to compute in.
    sum_order
        The order in which the sums of a matrix product run over K.

    Returns
    -------
    dict
        Index of each written operand except scratch -> its new contents in the logical shape, of
        dtype ``real`` unless it is a bool or index tensor. The arrays may share memory with
        ``values``.
    """
    row = OPCODES[instruction.opcode]
    with np.errstate(all="ignore"):  # IEEE results are meant: infinities, NaN
        results = _results(instruction, row, types, values, real, sum_order)
    if hidden_relu and has_implied_relu(instruction, types[0]):
        results[0] = np.maximum(results[0], 0)
    written = [index for index, role in enumerate(row.operands) if is_result(role)]
    return {
        index: np.asarray(array, dtype=get_storage_dtype(types[index], real))
        for index, array in zip(written, results, strict=True)
    }


def _results(
    instruction: Instruction,
    row: Opcode,
    types: Sequence[TensorType],
    values: Sequence[RealArray],
    real: RealType,
    sum_order: npt.NDArray[np.intp] | None,
) -> list[RealArray]:
    """Return the contents of the written operands, in print order."""
    # Attributes that are extensions say how integers are rounded.
    extensions = {a.name for a in row.attributes if a.is_extension}
    attributes = {n: v for n, v in instruction.attributes.items() if n not in extensions}
    if row.kind is OpcodeKind.CONVOLUTION:
        src, weights, bias = values[1:4]
        return [convolve_real(src, weights, bias, types[0].shape, attributes)]
    if row.kind is OpcodeKind.LOOK_UP:
        return [_look_up(types[1], values[1], values[2])]
    if row.kind is OpcodeKind.FULLY_CONNECTED:
        weights = values[2].T if row.name == "rowwisequantizedfullyconnected" else values[2]
        values, row = [*values[:2], weights, values[3]], OPCODES["fullyconnected"]
    if sum_order is not None:
        values = [values[0], values[1][:, sum_order], values[2][sum_order], *values[3:]]
    tensors = [
        HostTensor(
            np.zeros(type_.shape, get_storage_dtype(type_, real)) if role.kind == OUT else value
        )
        for role, type_, value in zip(row.operands, types, values, strict=False)
    ]
    outputs = execute_unchecked(row, tensors, attributes).outputs
    return [outputs[index] for index, role in enumerate(row.operands) if is_result(role)]


def _look_up(type_: TensorType, src: RealArray, mapping: RealArray) -> RealArray:
    """Return the table entries for the integers nearest to real values of a quantized type."""
    limits = np.iinfo(ELEM_DTYPES[type_.elem])
    scale, offset = (type_.quant.scale, type_.quant.offset) if type_.quant else (1.0, 0)
    integers = np.rint(src / scale) + offset
    places = np.clip(integers, limits.min, limits.max).astype(np.int64) - int(limits.min)
    entries: RealArray = mapping.reshape(-1)[places]
    return entries


def is_result(role: OperandRole) -> bool:
    """Return whether an operand is an output of the instruction and not scratch memory."""
    return role.kind != IN and not role.is_scratch


def has_implied_relu(instruction: Instruction, dest: TensorType) -> bool:
    """Return whether a result type implies a ReLU: its lowest integer stands for real zero.

    Glow drops a ReLU when the operation before it is given the ReLU's range; the offset is the
    lowest integer then, and the saturation at it is the ReLU.
    """
    return (
        instruction.opcode in _MAY_HIDE_A_RELU
        and dest.quant is not None
        and dest.quant.offset == np.iinfo(dest.dtype).min
    )


def get_storage_dtype(type_: TensorType, real: RealType) -> np.dtype[Any]:
    """Return ``real`` for a float or quantized tensor, else the tensor's own dtype."""
    is_number = type_.elem in QUANTIZED_ELEMS or "float" in type_.elem
    return np.dtype(real) if is_number else type_.dtype


def find_scale_operands(instruction: Instruction) -> Mapping[int, tuple[int, int]]:
    """Return a mapping from each operand with separate scales to its scales and offsets (indices).

    Such are the filter and bias of a channelwise convolution and the weights of a row-wise fully
    connected layer; the scales in the types of such operands mean nothing.
    """
    roles = OPCODES[instruction.opcode].operands
    at = {role.name: index for index, role in enumerate(roles)}
    return {
        at[role.name]: (at[role.scales[0]], at[role.scales[1]]) for role in roles if role.scales
    }


def dequantize_operands(
    instruction: Instruction,
    types: Sequence[TensorType],
    raw: Sequence[Array],
) -> list[RealArray]:
    """Return the real values of all operands of an instruction.

    ``raw`` holds the operands in print order as the program stores them (integers where
    quantized), in their logical shapes.
    """
    reals = [dequantize(a, t) for a, t in zip(raw, types, strict=True)]
    for index, (scales, offsets) in find_scale_operands(instruction).items():
        reals[index] = dequantize_rows(raw[index], raw[scales], raw[offsets])
    for index, scales in find_sums_operands(instruction, types).items():
        reals[index] = dequantize_sums(raw[index], types[1], raw[scales])
    return reals


def find_sums_operands(instruction: Instruction, types: Sequence[TensorType]) -> Mapping[int, int]:
    """Return the index of the weights' scales by the index of each bias on the scale of the sums.

    Such a bias has a scale of 0 in its type.
    """
    roles = OPCODES[instruction.opcode].operands
    at = {role.name: index for index, role in enumerate(roles)}
    return {
        at[role.name]: at["Scales"]
        for role, type_ in zip(roles, types, strict=False)
        if role.is_on_sums and type_.quant is not None and type_.quant.scale == 0
    }


def dequantize_sums(
    array: Array, source: TensorType, scales: Array, real: RealType = REAL
) -> RealArray:
    """Return the real values of a bias on the scale of the sums, input scale times weight scale."""
    input_scale = np.float32(source.quant.scale if source.quant else 1.0)
    products: RealArray = (input_scale * scales.astype(np.float32)).astype(real)
    return np.asarray(products * array.astype(real))


def dequantize(array: Array, type_: TensorType, real: RealType = REAL) -> RealArray:
    """Return ``scale * (array - offset)``, or the array if its type is not quantized."""
    dtype = get_storage_dtype(type_, real)
    if type_.quant is None:
        return array.astype(dtype, copy=False)
    centered = array.astype(np.int64) - type_.quant.offset
    reals: RealArray = dtype.type(type_.quant.scale) * centered.astype(dtype)
    return reals


def dequantize_rows(
    array: Array,
    scales: Array,
    offsets: Array,
    real: RealType = REAL,
) -> RealArray:
    """Return ``scales[i] * (q[i] - offsets[i])`` for each index i of dimension 0."""
    column = (-1, *(1,) * (array.ndim - 1))
    centered = array.astype(np.int64) - offsets.astype(np.int64).reshape(column)
    reals: RealArray = scales.astype(real).reshape(column) * centered.astype(real)
    return reals
