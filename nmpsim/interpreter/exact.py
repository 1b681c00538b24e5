"""A whole program as it is stored: integers by the arithmetic of a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import fail
from nmpsim.interpreter.memory import Execution, Memory, Written, values_taken
from nmpsim.kernels.hostops import HostTensor, UnsupportedHostOp, execute
from nmpsim.lir.nodes import Module
from nmpsim.lir.opcodes import NO_WORK


def execute_exact(
    module: Module, inputs: Mapping[str, npt.NDArray[Any]], numerics: str = "glow-int"
) -> Execution:
    """Run a program, quantized or float, on what its tensors hold, to the bit of a reference.

    Args:
        module: verified, with its constants.
        inputs: for each input its elements as the program stores them, in its shape.
        numerics: whose arithmetic; ``glow-int`` is libjit's for Int8, the Interpreter's for Int16.

    Returns:
        As :func:`~nmpsim.interpreter.execute.execute_real`, but what the program stores.

    Raises:
        UserError: COMP001 for an operation without such arithmetic, while one iterates.
    """
    memory = Memory(module, lambda type_: type_.dtype)
    for name, array in (*module.constants.items(), *inputs.items()):
        memory.write(name, array)
    return Execution(_steps(module, memory, numerics), memory)


def _steps(module: Module, memory: Memory, numerics: str) -> Iterator[Written]:
    for instruction in module.instructions:
        if instruction.opcode == "touch":
            memory.read(instruction.operands[0].name)[...] = 0
        if instruction.opcode in NO_WORK:
            continue
        operands = [_tensor(operand.name, memory) for operand in instruction.operands]
        try:
            with values_taken(instruction, module.file):
                result = execute(instruction.opcode, operands, instruction.attributes, numerics)
        except UnsupportedHostOp as error:
            raise fail(
                "COMP001",
                f"%{instruction.name} cannot be evaluated",
                place=instruction.span.place(module.file),
                found=error.reason,
            ) from None
        for index, array in result.outputs.items():
            memory.write(instruction.operands[index].name, array)
        for index in result.outputs:
            name = instruction.operands[index].name
            yield instruction, name, np.array(memory.read(name))


def _tensor(name: str, memory: Memory) -> HostTensor:
    quant = memory.place(name).type.quant
    values = memory.read(name)
    if quant is None:
        return HostTensor(values)
    return HostTensor(values, quant.scale, quant.offset, quantized=True)
