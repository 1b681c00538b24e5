"""Execution of a whole program and its memory, in real arithmetic or on its integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.diagnostics import Place, fail
from nmpsim.host_memory import PlannedAllocation, check_memory
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
from nmpsim.lir.line import quote
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.opcodes import NO_WORK

# The tensors of a program while it is interpreted: buffers and views into them.


@attrs.frozen
class TensorLocation:
    """Location of a tensor: buffer name, index of its first element there, and type."""

    storage: str
    start: int
    type: TensorType


def locate_tensors(module: Module) -> dict[str, TensorLocation]:
    """Return the location of each weight, buffer and view of a module, by name."""
    places = {w.name: TensorLocation(w.name, 0, w.type) for w in module.weights}
    for instruction in module.instructions:
        type_ = instruction.attributes.get("Ty")
        if not isinstance(type_, TensorType):
            continue
        if instruction.opcode == "allocactivation":
            places[instruction.name] = TensorLocation(instruction.name, 0, type_)
        else:
            source = places[instruction.operands[0].name]
            start = source.start + _flat_index(instruction.attributes["Offsets"], source.type.shape)
            places[instruction.name] = TensorLocation(source.storage, start, type_)
    return places


def _flat_index(offsets: Any, shape: Shape) -> int:
    return int(np.ravel_multi_index(offsets, shape)) if shape else 0


class TensorMemory:
    """Memory for the values of all tensors of a program, initialized with zeros."""

    def __init__(self, module: Module, dtype_of: Callable[[TensorType], np.dtype[Any]]) -> None:
        self._places = locate_tensors(module)
        owners = [place for name, place in self._places.items() if place.storage == name]
        check_memory("evaluating the program", _parts(owners, dtype_of), place=Place(module.file))
        self._buffers = {
            place.storage: np.zeros(place.type.elements, dtype_of(place.type)) for place in owners
        }

    def find_location(self, name: str) -> TensorLocation:
        """Return the buffer, start index and type of a tensor."""
        return self._places[name]

    def read(self, name: str) -> Array:
        """Return a writable view of the values of a tensor, with the shape of the tensor."""
        place = self._places[name]
        return view_tensor(self._buffers[place.storage], place)

    def write(self, name: str, values: Array) -> None:
        """Copy ``values`` to the memory of a tensor."""
        self.read(name)[...] = values


def _parts(
    owners: list[TensorLocation], dtype_of: Callable[[TensorType], np.dtype[Any]]
) -> Iterator[PlannedAllocation]:
    """Yield the memory needed for each buffer and for a copy of what is written into it."""
    for place in owners:
        nbytes = 2 * place.type.elements * dtype_of(place.type).itemsize
        yield PlannedAllocation(f"%{quote(place.storage)}", nbytes)


def view_tensor(values: Array, place: TensorLocation) -> Array:
    """Return a view of the buffer ``values`` with a tensor's elements, in the tensor's shape."""
    flat = values.reshape(-1)
    return flat[place.start : place.start + place.type.elements].reshape(place.type.shape)


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


def execute_real(
    module: Module,
    inputs: Arrays,
    constants: Arrays | None = None,
    *,
    hidden_relu: bool = True,
    real: RealType = REAL,
    sum_orders: Mapping[str, npt.NDArray[np.intp]] | None = None,
) -> ResultIterator:
    """Return an iterator that executes a program in real arithmetic, unrounded and unsaturated.

    Parameters
    ----------
    module
        A verified module with its constants.
    inputs
        Real values of each input, in its shape.
    constants
        Real values to use in place of the module's constants of these names, for example the
        weights before quantization.
    hidden_relu
        Whether to apply the ReLUs that result types hide.
    real
        float64, or float32 for the arithmetic of Glow's Interpreter.
    sum_orders
        For matrix products by instruction name: the order in which sums run over K.

    Returns
    -------
    ResultIterator
        An iterator over each instruction in order, with each operand that it writes and a copy of
        its contents. A buffer that is written in parts (``touch``, then ``inserttensor``) holds
        zeros between them.
    """
    given = constants or {}
    orders = sum_orders or {}
    memory = TensorMemory(module, lambda type_: get_storage_dtype(type_, real))
    for weight in module.weights:
        if weight.name in given:
            memory.write(weight.name, given[weight.name])
        elif weight.name in module.constants:
            memory.write(weight.name, dequantize(module.constants[weight.name], weight.type, real))
        elif weight.name in inputs:
            memory.write(weight.name, inputs[weight.name])

    def compute(instruction: Instruction) -> dict[int, RealArray]:
        places = [memory.find_location(operand.name) for operand in instruction.operands]
        values = [memory.read(operand.name) for operand in instruction.operands]
        for index, parameters in find_scale_operands(instruction).items():
            if places[index].storage not in given:
                used = [places[i] for i in (index, *parameters)]
                raw = [view_tensor(module.constants[place.storage], place) for place in used]
                values[index] = dequantize_rows(raw[0], raw[1], raw[2], real)
        types = [place.type for place in places]
        for index, scales in find_sums_operands(instruction, types).items():
            if places[index].storage not in given:
                used = [places[i] for i in (index, scales)]
                raw = [view_tensor(module.constants[place.storage], place) for place in used]
                values[index] = dequantize_sums(raw[0], types[1], raw[1], real)
        return evaluate_operation(
            instruction,
            types,
            values,
            hidden_relu=hidden_relu,
            real=real,
            sum_order=orders.get(instruction.name),
        )

    return ResultIterator(module, memory, compute)


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
        As of :func:`execute_real`, with the elements that the program stores.

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
