"""Execution of a whole program, in real arithmetic or on its integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Arrays
from nmpsim.diagnostics import fail
from nmpsim.interpreter.memory import TensorLocation, TensorMemory, view_tensor
from nmpsim.interpreter.operations import (
    REAL,
    RealArray,
    RealType,
    dequantize,
    dequantize_rows,
    dequantize_sums,
    evaluate_operation,
    find_scale_operands,
    find_sums_operands,
    get_storage_dtype,
)
from nmpsim.kernels.hostops import HostTensor, HostValueError, UnsupportedHostOp
from nmpsim.lir.host_execution import execute_operation
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcodes import NO_WORK

Written = tuple[Instruction, str, Array]
"""An instruction, an operand that it wrote, and a copy of the operand's contents."""


class ResultIterator(Iterator[Written]):
    """Iterator that executes a program and yields (instruction, name, contents) of each result."""

    def __init__(
        self,
        module: Module,
        memory: TensorMemory,
        compute: Callable[[Instruction], Mapping[int, Array]],
    ) -> None:
        self._memory = memory
        self._steps = _steps(module, memory, compute)

    def __next__(self) -> Written:
        return next(self._steps)

    def copy_values(self, name: str) -> Array:
        """Return a copy of a tensor's values, as of the last result that was yielded."""
        return np.array(self._memory.read(name))


def _steps(
    module: Module, memory: TensorMemory, compute: Callable[[Instruction], Mapping[int, Array]]
) -> Iterator[Written]:
    for instruction in module.instructions:
        names = [operand.name for operand in instruction.operands]
        if instruction.opcode == "touch":
            memory.read(names[0])[...] = 0
        if instruction.opcode in NO_WORK:
            continue
        with _report_errors(instruction, module.file):
            results = compute(instruction)
        for index, array in results.items():
            memory.write(names[index], array)
        for index in results:
            yield instruction, names[index], np.array(memory.read(names[index]))


@contextmanager
def _report_errors(instruction: Instruction, file: str | None) -> Iterator[None]:
    """Turn what an operation raises into a UserError: HOST001 for values, COMP001 for the rest."""
    place = instruction.span.place(file)
    try:
        yield
    except HostValueError as error:
        message = f"the values of %{instruction.name} cannot be computed"
        hint = "Change the values of the inputs or the constants."
        raise fail("HOST001", message, place=place, found=error, hint=hint) from None
    except UnsupportedHostOp as error:
        message = f"%{instruction.name} cannot be executed on the host"
        expected = "an operation of docs/operations.md, with the types listed there"
        raise fail("COMP001", message, place=place, found=error.reason, expected=expected) from None


class RealProgram:
    """Program with the real values of its constants, for any number of executions."""

    def __init__(
        self,
        module: Module,
        constants: Arrays | None = None,
        *,
        hidden_relu: bool = True,
        real: RealType = REAL,
        sum_orders: Mapping[str, npt.NDArray[np.intp]] | None = None,
    ) -> None:
        """Compute the real values of constants.

        Parameters
        ----------
        module
            A verified module with its constants.
        constants
            Real values to use in place of the module's constants of these names, for example the
            weights before quantization.
        hidden_relu
            Whether to apply the ReLUs that result types hide.
        real
            float64, or float32 for the arithmetic of Glow's Interpreter.
        sum_orders
            For matrix products by instruction name: the order in which sums run over K.
        """
        self._module, self._given = module, constants or {}
        self._hidden_relu, self._real, self._orders = hidden_relu, real, sum_orders or {}
        self._memory = memory = TensorMemory(module, lambda type_: get_storage_dtype(type_, real))
        for weight in module.weights:
            if weight.name in self._given:
                memory.write(weight.name, self._given[weight.name])
            elif weight.name in module.constants:
                values = dequantize(module.constants[weight.name], weight.type, real)
                memory.write(weight.name, values)
        self._scaled: dict[int, dict[int, RealArray]] = {}
        """Values of operands with separate scales, by operand and by number of the instruction."""

    def execute(self, inputs: Arrays) -> ResultIterator:
        """Return an iterator that executes the program in real arithmetic.

        Parameters
        ----------
        inputs
            Real values of each input, in its shape.

        Returns
        -------
        ResultIterator
            An iterator over each instruction in order, with each operand that it writes and a copy
            of its contents. A buffer that is written in parts (``touch``, then ``inserttensor``)
            holds zeros between them. The next execution invalidates it.
        """
        for weight in self._module.weights:
            if weight.name in inputs and weight.name not in self._given:
                self._memory.write(weight.name, inputs[weight.name])
        return ResultIterator(self._module, self._memory, self._compute)

    def _compute(self, instruction: Instruction) -> dict[int, RealArray]:
        places = [self._memory.find_location(operand.name) for operand in instruction.operands]
        values = [self._memory.read(operand.name) for operand in instruction.operands]
        if instruction.number not in self._scaled:
            self._scaled[instruction.number] = self._scale_constants(instruction, places)
        for index, scaled in self._scaled[instruction.number].items():
            values[index] = scaled
        return evaluate_operation(
            instruction,
            [place.type for place in places],
            values,
            hidden_relu=self._hidden_relu,
            real=self._real,
            sum_order=self._orders.get(instruction.name),
        )

    def _scale_constants(
        self, instruction: Instruction, places: Sequence[TensorLocation]
    ) -> dict[int, RealArray]:
        """Return the real values of the constants whose scales are operands, by operand index."""

        def read(*indices: int) -> list[Array]:
            used = [places[index] for index in indices]
            return [view_tensor(self._module.constants[place.storage], place) for place in used]

        found: dict[int, RealArray] = {}
        for index, parameters in find_scale_operands(instruction).items():
            if places[index].storage not in self._given:
                raw, scales, offsets = read(index, *parameters)
                found[index] = dequantize_rows(raw, scales, offsets, self._real)
        types = [place.type for place in places]
        for index, factors_index in find_sums_operands(instruction, types).items():
            if places[index].storage not in self._given:
                raw, factors = read(index, factors_index)
                found[index] = dequantize_sums(raw, types[1], factors, self._real)
        return found


def execute_real(
    module: Module, inputs: Arrays, constants: Arrays | None = None, **options: Any
) -> ResultIterator:
    """Execute a program once without rounding or saturation; see :class:`RealProgram`."""
    return RealProgram(module, constants, **options).execute(inputs)


def execute_exact(module: Module, inputs: Arrays) -> ResultIterator:
    """Return an iterator that executes a program bit-exactly in the profile ``glow-int``.

    Parameters
    ----------
    module
        A verified module with its constants.
    inputs
        Elements of each input as the program stores them, in its shape.

    Returns
    -------
    ResultIterator
        As of :meth:`RealProgram.execute`, with the elements that the program stores.

    Raises
    ------
    UserError
        COMP001, while iterating, for an operation that the profile does not define.
    """
    memory = TensorMemory(module, lambda type_: type_.dtype)
    for name, array in (*module.constants.items(), *inputs.items()):
        memory.write(name, array)

    def tensor(name: str) -> HostTensor:
        quant, values = memory.find_location(name).type.quant, memory.read(name)
        if quant is None:
            return HostTensor(values)
        return HostTensor(values, quant.scale, quant.offset, quantized=True)

    def compute(instruction: Instruction) -> Mapping[int, Array]:
        operands = [tensor(operand.name) for operand in instruction.operands]
        return execute_operation(
            instruction.opcode, operands, instruction.attributes, "glow-int"
        ).outputs

    return ResultIterator(module, memory, compute)
