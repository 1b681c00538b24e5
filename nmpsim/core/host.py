"""Host operations: what the device has no unit for, done between device segments in DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import HostOperand, ProgramStep, Tensor
from nmpsim.core.state import Machine
from nmpsim.diagnostics import fail
from nmpsim.kernels.hostops import HostTensor, HostValueError, prepared
from nmpsim.lir.nodes import ELEM_DTYPES, QUANTIZED_ELEMS

IMPOSSIBLE = (ValueError, LookupError, TypeError, ArithmeticError)
"""What NumPy and the host operations raise when operands and attributes do not fit each other.

They stand in the bundle's metadata, which anyone may have written.
"""

_WHENCE = "the value is one of an input, or made by an operation before this one"


@attrs.frozen(eq=False)
class HostClip:
    """Values that a host operation clipped: integers before the clip, and the range."""

    unclipped: npt.NDArray[np.int64]
    low: int
    high: int
    low_stage: str
    """What a clip at the lower side is: input (quantization), result or activation."""
    high_stage: str


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


def run_host_step(machine: Machine, step: ProgramStep) -> HostClip | None:
    """Do a host operation in the machine's DRAM; what it clipped, if it quantizes."""
    return prepared_step(machine, step)()


def prepared_step(machine: Machine, step: ProgramStep) -> Callable[[], HostClip | None]:
    """A host operation in the machine's DRAM, to be done as often as it is called."""
    with _explained(step):
        operands = [_operand(machine, operand) for operand in step.operands]
        execute = prepared(step.opcode or "", operands, step.attributes, step.numerics)

    def run() -> HostClip | None:
        with _explained(step):
            result = execute()
            for index, values in result.outputs.items():
                operands[index].values[...] = values
        return _clip_of(step, result.unclipped) if result.unclipped else None

    return run


@contextmanager
def _explained(step: ProgramStep) -> Iterator[None]:
    """What the operation raises is the user's error: HOST001 or BUN001."""
    try:
        yield
    except HostValueError as error:
        name = step.operands[0].tensor.name
        raise fail("HOST001", f"%{name} cannot be calculated", found=error, hint=_WHENCE) from error
    except IMPOSSIBLE as error:
        raise fail(
            "BUN001",
            f"the bundle asks the host for what it cannot do: {step.opcode}",
            found=error,
            hint="compile the program again",
        ) from error


def _clip_of(step: ProgramStep, unclipped: Mapping[int, npt.NDArray[Any]]) -> HostClip:
    """What the operation clipped of its result; a type that begins at real zero hides a ReLU."""
    index = min(unclipped)
    tensor = step.operands[index].tensor
    limits = np.iinfo(ELEM_DTYPES[tensor.elem])
    low, high = int(limits.min), int(limits.max)
    stage = "input" if step.opcode == "quantize" else "result"
    hides_relu = stage == "result" and tensor.offset == low
    return HostClip(unclipped[index], low, high, "activation" if hides_relu else stage, stage)


def _operand(machine: Machine, operand: HostOperand) -> HostTensor:
    tensor = operand.tensor
    return HostTensor(
        read_tensor(machine, tensor),
        scale=1.0 if tensor.scale is None else tensor.scale,
        offset=tensor.offset or 0,
        quantized=tensor.elem in QUANTIZED_ELEMS and tensor.scale is not None,
    )
