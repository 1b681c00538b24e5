"""A whole program in real arithmetic, on buffers that are shared as the program says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from nmpsim.interpreter.arithmetic import REAL, Arithmetic, RealArray
from nmpsim.interpreter.memory import Execution, Memory, Written, stored, values_taken
from nmpsim.interpreter.operations import (
    dequantize,
    dequantize_rows,
    own_scales,
    real_operation,
    storage_dtype,
)
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcodes import NO_WORK


def execute_real(
    module: Module,
    inputs: Mapping[str, npt.NDArray[Any]],
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    hidden_relu: bool = True,
    arithmetic: Arithmetic = REAL,
    exceptions: Mapping[str, Arithmetic] | None = None,
) -> Execution:
    """Run a program, float or quantized, on real numbers; nothing is rounded or clipped.

    Args:
        module: verified, with its constants.
        inputs: for each input its real values, in its shape.
        constants: real values to use in place of the module's constants of these names, for
            example the weights before quantization; others stand for what their types say.
        hidden_relu: apply the ReLUs that types of results hide.
        arithmetic: float64, or Glow's float32.
        exceptions: other arithmetics of the same dtype, by names of instructions.

    Returns:
        An iterator over each instruction in order with each operand that it writes and a copy of
        its contents. A buffer that is written in parts (``touch``, then ``inserttensor``) holds
        zeros between them.
    """
    given = {} if constants is None else constants
    own = defaultdict(lambda: arithmetic, exceptions or {})
    memory = Memory(module, lambda type_: storage_dtype(type_, arithmetic))
    for weight in module.weights:
        if weight.name in given:
            memory.write(weight.name, given[weight.name])
        elif weight.name in module.constants:
            reals = dequantize(module.constants[weight.name], weight.type, arithmetic)
            memory.write(weight.name, reals)
        elif weight.name in inputs:
            memory.write(weight.name, inputs[weight.name])
    return Execution(_steps(module, memory, given, hidden_relu, own), memory)


def _steps(
    module: Module,
    memory: Memory,
    given: Mapping[str, npt.NDArray[Any]],
    hidden_relu: bool,
    arithmetics: Mapping[str, Arithmetic],
) -> Iterator[Written]:
    for instruction in module.instructions:
        if instruction.opcode == "touch":
            memory.read(instruction.operands[0].name)[...] = 0
        if instruction.opcode in NO_WORK:
            continue
        arithmetic = arithmetics[instruction.name]
        types = [memory.place(o.name).type for o in instruction.operands]
        values = _operands(instruction, module, memory, given, arithmetic)
        with values_taken(instruction, module.file):
            results = real_operation(
                instruction, types, values, hidden_relu=hidden_relu, arithmetic=arithmetic
            )
        for index, array in results.items():
            memory.write(instruction.operands[index].name, array)
        for index in results:
            name = instruction.operands[index].name
            yield instruction, name, memory.read(name).copy()


def _operands(
    instruction: Instruction,
    module: Module,
    memory: Memory,
    given: Mapping[str, npt.NDArray[Any]],
    arithmetic: Arithmetic,
) -> list[RealArray]:
    """Real values of all operands."""
    places = [memory.place(operand.name) for operand in instruction.operands]
    values = [memory.read(operand.name) for operand in instruction.operands]
    for index, parameters in own_scales(instruction).items():
        if places[index].storage not in given:
            array, scales, offsets = (
                stored(places[i], module.constants) for i in (index, *parameters)
            )
            values[index] = dequantize_rows(array, scales, offsets, arithmetic)
    return values
