"""Host operations: what the device has no unit for, done between device segments in DRAM."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import HostOperand, Step, Tensor
from nmpsim.core.state import Machine
from nmpsim.diagnostics import fail
from nmpsim.kernels.hostops import HostTensor, UnsupportedHostOp, execute
from nmpsim.lir.nodes import ELEM_DTYPES, QUANTIZED_ELEMS


@attrs.frozen(eq=False)
class Cut:
    """Values that a host operation clipped: integers before the clip, and the range."""

    unclipped: npt.NDArray[np.int64]
    low: int
    high: int


def read_tensor(machine: Machine, tensor: Tensor) -> npt.NDArray[Any]:
    """A tensor's values in DRAM, without a copy."""
    dtype = ELEM_DTYPES[tensor.elem]
    nbytes = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    shared = machine.shared[0]
    memory, base = machine.ram, int(shared.ram_base)
    if not 0 <= tensor.address - base <= memory.size - nbytes:
        memory, base = machine.image, int(shared.image_base)
    start = tensor.address - base
    return memory[start : start + nbytes].view(dtype).reshape(tensor.shape)


def write_tensor(machine: Machine, tensor: Tensor, values: npt.NDArray[Any]) -> None:
    """Put values into DRAM; the shape must be the tensor's."""
    read_tensor(machine, tensor)[...] = values


def run_host_step(machine: Machine, step: Step) -> Cut | None:
    """Do a host operation in the machine's DRAM; what it clipped, if it quantizes."""
    operands = [_operand(machine, operand) for operand in step.operands]
    try:
        result = execute(step.opcode or "", operands, step.attributes)
    except UnsupportedHostOp as error:
        raise fail(
            "BUN001", "the bundle asks the host for what it cannot do", found=error
        ) from error
    for index, values in result.outputs.items():
        write_tensor(machine, step.operands[index].tensor, values)
    for unclipped in result.unclipped.values():
        limits = np.iinfo(ELEM_DTYPES[step.operands[0].tensor.elem])
        return Cut(unclipped, int(limits.min), int(limits.max))
    return None


def _operand(machine: Machine, operand: HostOperand) -> HostTensor:
    tensor = operand.tensor
    return HostTensor(
        read_tensor(machine, tensor),
        scale=1.0 if tensor.scale is None else tensor.scale,
        offset=tensor.offset or 0,
        quantized=tensor.elem in QUANTIZED_ELEMS and tensor.scale is not None,
    )
