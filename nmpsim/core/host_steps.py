"""Host operations, executed in DRAM between device segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.bundle.metadata import HostOperand, ProgramStep, Tensor
from nmpsim.core.state import Machine
from nmpsim.diagnostics import UserError, fail
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.hostops import (
    HostResult,
    HostTensor,
    HostValueError,
    SaturatedValues,
    StageOvershoot,
    get_integer_limits,
)
from nmpsim.lir.host_execution import prepare_operation
from nmpsim.lir.nodes import ELEM_DTYPES, QUANTIZED_ELEMS
from nmpsim.records import frozen

IMPOSSIBLE = (ValueError, LookupError, TypeError, ArithmeticError)
"""Exceptions of NumPy and of host operations whose operands and attributes do not fit each other.

Operands and attributes come from the bundle's metadata, which anyone may have written.
"""

_WHENCE = "Check the inputs and the results of earlier operations for invalid values."


@frozen(eq=False)
class HostClipping:
    """Clipping by a host operation: the clipped values, and the limits of the result."""

    shape: Shape
    """Shape of the result."""
    changed: SaturatedValues
    low: int
    high: int
    low_stage: str
    """Kind of a clip at the lower side: input (quantization), result or activation."""
    high_stage: str
    overshoots: Sequence[StageOvershoot] = ()
    """Overshoots of the stages before the result."""

    @property
    def elements(self) -> int:
        """Number of elements of the result."""
        return math.prod(self.shape)

    def get_unclipped_value(self, index: int, stored: int) -> int:
        """Return the value at a flat index before clipping, or ``stored`` if it was not clipped."""
        found = np.flatnonzero(self.changed.indices == index)
        return int(self.changed.exact[found[0]]) if found.size else stored


def read_tensor(machine: Machine, tensor: Tensor) -> Array:
    """Return a view of a tensor's values in DRAM."""
    dtype = ELEM_DTYPES[tensor.elem]
    nbytes = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    shared = machine.shared[0]
    memory, base = machine.ram, int(shared.ram_base)
    if not 0 <= tensor.address - base <= memory.size - nbytes:
        memory, base = machine.image, int(shared.image_base)
    start = tensor.address - base
    return memory[start : start + nbytes].view(dtype).reshape(tensor.shape)


def write_tensor(machine: Machine, tensor: Tensor, values: Array) -> None:
    """Write an array of the tensor's shape to DRAM."""
    read_tensor(machine, tensor)[...] = values


def execute_host_step(machine: Machine, step: ProgramStep) -> HostClipping | None:
    """Execute a host operation on DRAM; return its clipped values, or None if there are none."""
    return prepare_host_step(machine, step)()


def prepare_host_step(machine: Machine, step: ProgramStep) -> Callable[[], HostClipping | None]:
    """Prepare a host operation: return a function that executes it and returns clipped values."""
    try:
        operands = [_operand(machine, operand) for operand in step.operands]
        execute = prepare_operation(step.opcode or "", operands, step.attributes, step.numerics)
    except IMPOSSIBLE as error:
        raise _explained(step, error) from error
    values = [operand.values for operand in operands]
    clip_of = _clips(step)

    def run() -> HostClipping | None:
        try:
            result = execute()
            for index, made in result.outputs.items():
                values[index][...] = made
        except IMPOSSIBLE as error:
            raise _explained(step, error) from error
        return clip_of(result) if result.clipped else None

    return run


def _explained(step: ProgramStep, error: Exception) -> UserError:
    """Convert an exception of a host operation to a UserError (HOST001 or BUN001)."""
    if isinstance(error, HostValueError):
        name = step.operands[0].tensor.name
        return fail(
            "HOST001", f"the values of %{name} cannot be computed", found=error, hint=_WHENCE
        )
    return fail(
        "BUN001",
        f"the bundle requires an unsupported host operation: {step.opcode}",
        found=error,
        hint="Compile the program again.",
    )


def _clips(step: ProgramStep) -> Callable[[HostResult], HostClipping]:
    """Return a function that collects what the operation clipped."""

    @cache
    def known(index: int) -> tuple[tuple[int, ...], tuple[int, int, str, str]]:
        tensor = step.operands[index].tensor
        low, high = get_integer_limits(ELEM_DTYPES[tensor.elem])
        stage = "input" if step.opcode == "quantize" else "result"
        low_stage = "activation" if step.clipped_sides & WANTED_LOW else stage
        high_stage = "activation" if step.clipped_sides & WANTED_HIGH else stage
        return tensor.shape, (low, high, low_stage, high_stage)

    def clip_of(result: HostResult) -> HostClipping:
        index = min(result.clipped)
        shape, limits = known(index)
        return HostClipping(shape, result.clipped[index], *limits, result.overshoots)

    return clip_of


def _operand(machine: Machine, operand: HostOperand) -> HostTensor:
    tensor = operand.tensor
    return HostTensor(
        read_tensor(machine, tensor),
        scale=1.0 if tensor.scale is None else tensor.scale,
        offset=tensor.offset or 0,
        quantized=tensor.elem in QUANTIZED_ELEMS and tensor.scale is not None,
    )
