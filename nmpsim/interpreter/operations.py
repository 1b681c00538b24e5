"""One LIR instruction in real arithmetic, and what its operands stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.interpreter import normalization, products
from nmpsim.interpreter.arithmetic import REAL, Arithmetic, RealArray
from nmpsim.interpreter.call import Call
from nmpsim.isa.total import check_total
from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.table import OPERATIONS
from nmpsim.lir.nodes import ELEM_DTYPES, QUANTIZED_ELEMS, Instruction, TensorType
from nmpsim.lir.opcode import SATURATES_ANYWHERE
from nmpsim.lir.opcodes import IN, NO_WORK, OPCODES, OUT, Kind, Role, opcodes_of

_Operation = Callable[[Call], RealArray | tuple[RealArray, ...]]


def _by_formula(call: Call) -> RealArray:
    """The formula of the opcode's row, of the operands that are read and the attributes."""
    row = OPCODES[call.instruction.opcode]
    assert row.formula is not None
    sources = (call[role.name] for role in row.operands if role.kind == IN)
    numbers = (
        call.instruction.attributes[attribute.name]
        for attribute in row.attributes
        if not attribute.is_extension  # these say how integers are rounded
    )
    result: RealArray = row.formula(*sources, *numbers)
    return result


def _by_host(call: Call) -> tuple[RealArray, ...]:
    """What the host calculates or moves in the dtype of its operands."""
    opcode = call.instruction.opcode
    roles = OPCODES[opcode].operands
    outs = [index for index, role in enumerate(roles) if is_result(role)]
    tensors = [
        HostTensor(
            np.zeros(call.site.shape(role.name), storage_dtype(type_, call.arithmetic))
            if role.kind == OUT
            else call[role.name]
        )
        for role, type_ in ((role, call.site.types[role.name]) for role in roles)
    ]
    result = OPERATIONS[opcode].run(tensors, call.instruction.attributes)
    return tuple(result.outputs[index] for index in outs)


def _look_up(call: Call) -> RealArray:
    """Mapping's entry for the integer that Src's nearest quantized value has."""
    src = call.site.types["Src"]
    limits = np.iinfo(ELEM_DTYPES[src.elem])
    scale, offset = (src.quant.scale, src.quant.offset) if src.quant else (1.0, 0)
    integers = np.rint(call["Src"] / scale) + offset
    places = np.clip(integers, limits.min, limits.max).astype(np.int64) - int(limits.min)
    entries: RealArray = call["Mapping"].reshape(-1)[places]
    return entries


def is_result(role: Role) -> bool:
    """Whether an operand is written with something that means anything."""
    return role.kind != IN and not role.is_scratch


_IN_ANY_DTYPE = (
    *("batchedadd", "batchedreduceadd", "maxpool", "maxpoolwithargmax", "avgpool", "splat"),
    *("transpose", "inserttensor", "extracttensor", "resizenearest"),
)
"""What the host computes in float64 as it does in float32."""
_OPERATIONS: Mapping[str, _Operation] = {
    **dict.fromkeys((*opcodes_of(Kind.HOST), *_IN_ANY_DTYPE), _by_host),
    **{name: _by_formula for name, row in OPCODES.items() if row.formula},
    "convolution": products.convolution,
    "channelwisequantizedconvolution": products.convolution,
    "fullyconnected": products.fully_connected,
    "rowwisequantizedfullyconnected": products.rowwise_fully_connected,
    "matmul": products.matmul,
    "intlookuptable": _look_up,
    "softmax": normalization.softmax,
    "localresponsenormalization": normalization.local_response_normalization,
}
"""Every opcode that computes -> the results for its written operands, in print order."""
check_total("the interpreter", _OPERATIONS, OPCODES.keys() - NO_WORK)

_MAY_HIDE_A_RELU = opcodes_of(*SATURATES_ANYWHERE) | {
    "batchedreduceadd",
    "elementdiv",
    "rescalequantized",
}
"""Operations whose result type a quantizer may give the range of the ReLU after them."""


def real_operation(
    instruction: Instruction,
    types: Sequence[TensorType],
    values: Sequence[RealArray],
    *,
    hidden_relu: bool = True,
    arithmetic: Arithmetic = REAL,
) -> dict[int, RealArray]:
    """What one instruction gives in real arithmetic, with nothing rounded and nothing clipped.

    Args:
        instruction: of a verified module; any opcode but those of ``NO_WORK``.
        types: of all operands in print order.
        values: of all operands in print order, real numbers in the logical shapes (as
            ``real_operands`` gives them); that of an ``@out`` operand is ignored.
        hidden_relu: apply the ReLU that the result's type hides (``hides_relu``).
        arithmetic: float64, or Glow's float32.

    Returns:
        Index of each written operand, but room to work in, -> its new contents, in the logical
        shape; in the dtype of the arithmetic, but for bool and index operands, which have their
        own. The arrays may share memory with ``values``.
    """
    call = Call.of(instruction, types, values, arithmetic)
    with np.errstate(all="ignore"):  # IEEE results are meant: infinities, NaN
        result = _OPERATIONS[instruction.opcode](call)
    results = result if isinstance(result, tuple) else (result,)
    if hidden_relu and hides_relu(instruction, types[0]):
        results = (np.maximum(results[0], 0), *results[1:])
    roles = OPCODES[instruction.opcode].operands
    written = [index for index, role in enumerate(roles) if is_result(role)]
    return {
        index: np.asarray(array, dtype=storage_dtype(types[index], arithmetic))
        for index, array in zip(written, results, strict=True)
    }


def hides_relu(instruction: Instruction, dest: TensorType) -> bool:
    """Whether the type of a result hides a ReLU: its range starts at real zero.

    Glow drops a ReLU when the operation before it is given the ReLU's range; the offset is the
    lowest integer then, and the saturation at it is the ReLU.
    """
    return (
        instruction.opcode in _MAY_HIDE_A_RELU
        and dest.quant is not None
        and dest.quant.offset == np.iinfo(dest.dtype).min
    )


def storage_dtype(type_: TensorType, arithmetic: Arithmetic) -> np.dtype[Any]:
    """How a tensor's real values are kept: bool and index tensors as they are."""
    is_number = type_.elem in QUANTIZED_ELEMS or "float" in type_.elem
    return arithmetic.dtype if is_number else type_.dtype


def own_scales(instruction: Instruction) -> Mapping[int, tuple[int, int]]:
    """Operands whose scales and offsets are operands themselves: index -> indices of these.

    So are the filter and bias of a channelwise convolution and the weights of a row-wise fully
    connected layer; the scales in the types of such operands mean nothing.
    """
    roles = OPCODES[instruction.opcode].operands
    at = {role.name: index for index, role in enumerate(roles)}
    return {
        at[role.name]: (at[role.scales[0]], at[role.scales[1]]) for role in roles if role.scales
    }


def real_operands(
    instruction: Instruction,
    types: Sequence[TensorType],
    raw: Sequence[npt.NDArray[Any]],
    arithmetic: Arithmetic = REAL,
) -> list[RealArray]:
    """The real values that the operands of an instruction stand for.

    ``raw`` holds the operands in print order as the program stores them (integers where
    quantized), in their logical shapes.
    """
    reals = [dequantize(a, t, arithmetic) for a, t in zip(raw, types, strict=True)]
    for index, (scales, offsets) in own_scales(instruction).items():
        reals[index] = dequantize_rows(raw[index], raw[scales], raw[offsets], arithmetic)
    return reals


def dequantize(
    array: npt.NDArray[Any], type_: TensorType, arithmetic: Arithmetic = REAL
) -> RealArray:
    """``S * (q - O)``; what is not quantized stays as it is."""
    dtype = storage_dtype(type_, arithmetic)
    if type_.quant is None:
        return array.astype(dtype, copy=False)
    centered = array.astype(np.int64) - type_.quant.offset
    reals: RealArray = dtype.type(type_.quant.scale) * centered.astype(dtype)
    return reals


def dequantize_rows(
    array: npt.NDArray[Any],
    scales: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    arithmetic: Arithmetic = REAL,
) -> RealArray:
    """``S[i] * (q[i] - O[i])`` for each index of dimension 0."""
    column = (-1, *(1,) * (array.ndim - 1))
    centered = array.astype(np.int64) - offsets.astype(np.int64).reshape(column)
    factors = scales.astype(arithmetic.dtype).reshape(column)
    reals: RealArray = factors * centered.astype(arithmetic.dtype)
    return reals
