"""Writer of the quantized program: its instructions, buffers, constants and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Module,
    Operand,
    Span,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import OPCODES
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.parameters import quantize
from nmpsim.quantization.scales import ValueScales, get_parameters


class ModuleWriter:
    """A module under construction; numbers and ends of buffers are added at the end."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._names = set(taken)
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._weights: list[WeightVar] = []
        self._instructions: list[Instruction] = []

    def name(self, wanted: str) -> str:
        """Return ``wanted``, with ``__N`` appended as in Glow if it is taken."""
        name, stem, count = wanted, wanted.rpartition("__"), 0
        base = stem[0] if stem[2].isdigit() and stem[0] else wanted
        while name in self._names:
            count += 1
            name = f"{base}__{count}"
        self._names.add(name)
        return name

    def constant(self, wanted: str, values: npt.NDArray[Any], type_: TensorType, span: Span) -> str:
        """Add a constant and return its name."""
        name = self.name(wanted)
        frozen = np.ascontiguousarray(values, type_.dtype)
        self._constants[name] = frozen
        self._weights.append(WeightVar(name, type_, True, span))
        return name

    def buffer(self, wanted: str, type_: TensorType, span: Span) -> str:
        """Add a buffer and return its name."""
        name = self.name(wanted)
        self._instructions.append(_defining(name, "allocactivation", (), {"Ty": type_}, span))
        return name

    def view(
        self, wanted: str, source: str, offsets: tuple[int, ...], type_: TensorType, span: Span
    ) -> str:
        """Add a view of a tensor and return its name."""
        name = self.name(wanted)
        attributes: dict[str, AttributeValue] = {"Ty": type_, "Offsets": offsets}
        operands = (Operand("@in", source, span),)
        self._instructions.append(_defining(name, "tensorview", operands, attributes, span))
        return name

    def emit(
        self,
        wanted: str,
        opcode: str,
        operands: Iterable[str],
        attributes: Mapping[str, AttributeValue],
        span: Span,
    ) -> str:
        """Add an instruction with operands in print order and return its name."""
        name = self.name(wanted)
        written = tuple(
            Operand(role.kind, operand, span)
            for role, operand in zip(OPCODES[opcode].operands, operands, strict=True)
        )
        self._instructions.append(_defining(name, opcode, written, attributes, span))
        return name

    def module(self, source: Module) -> Module:
        """Return the module, with the mutable weights and the file of ``source``."""
        mutable = (w for w in source.weights if not w.constant)
        instructions = self._with_ends()
        return attrs.evolve(
            source,
            weights=(*self._weights, *mutable),
            instructions=tuple(attrs.evolve(i, number=n) for n, i in enumerate(instructions)),
            constants=self._constants,
        )

    def _with_ends(self) -> list[Instruction]:
        """Return the instructions, with a ``deallocactivation`` after each buffer's last use."""
        ending: dict[int, list[str]] = {}
        for name, index in self._last_uses().items():
            ending.setdefault(index, []).append(name)
        result = []
        for index, instruction in enumerate(self._instructions):
            result.append(instruction)
            for name in ending.get(index, ()):
                end = self.name(f"dealloc_{name}")
                operand = (Operand("@out", name, instruction.span),)
                result.append(_defining(end, "deallocactivation", operand, {}, instruction.span))
        return result

    def _last_uses(self) -> dict[str, int]:
        storage: dict[str, str] = {}
        last: dict[str, int] = {}
        for index, instruction in enumerate(self._instructions):
            if instruction.opcode == "allocactivation":
                storage[instruction.name] = instruction.name
            used = [storage[o.name] for o in instruction.operands if o.name in storage]
            if instruction.opcode == "tensorview" and used:
                storage[instruction.name] = used[0]
            last.update(dict.fromkeys(used, index))
        return last


def _defining(
    name: str,
    opcode: str,
    operands: tuple[Operand, ...],
    attributes: Mapping[str, AttributeValue],
    span: Span,
) -> Instruction:
    return Instruction(0, name, opcode, operands, attributes, span)


class TensorMap:
    """Map from values and types to tensors; missing tensors are made by conversion."""

    def __init__(self, graph: Graph, quantized: frozenset[Value], scales: ValueScales) -> None:
        self.graph = graph
        self.quantized = quantized
        self.scales = scales
        self.producers = graph.producers()
        self.weights = {w.name: w.type for w in graph.module.weights if not w.constant}
        self.writer = ModuleWriter(self.weights)
        self._names: dict[tuple[Value, TensorType], str] = {
            (value, value.type): value.name for value in graph.inputs
        }
        self._outputs = self._direct_outputs()
        self.saturated: dict[Value, int] = {}
        """Result of an operation with a bias -> number of saturated elements of the bias."""
        self.floats: dict[str, npt.NDArray[np.float32]] = {}
        """Constant of the program -> its values before quantization."""

    def type_of(self, value: Value) -> TensorType:
        """Return the type in which the value is computed."""
        return self.scales.type_of(value) if value in self.quantized else value.type

    def output_of(self, value: Value) -> str | None:
        """Return the output in which a value lies from the start, or None."""
        return self._outputs.get(value)

    def _direct_outputs(self) -> dict[Value, str]:
        """Return the float results that can be written directly to an output."""
        inputs = {value.name for value in self.graph.inputs}
        return {
            value: weight
            for weight, value in self.graph.outputs.items()
            if weight not in inputs
            and value in self.producers
            and value not in self.quantized
            and value not in self.graph.views
            and value.type == self.weights[weight]
        }

    def set_tensor(self, value: Value, name: str) -> None:
        """Set the tensor that holds a value in its own type."""
        self._names[value, self.type_of(value)] = name

    def get(self, value: Value, type_: TensorType, reader: Instruction) -> str:
        """Return a tensor that holds a value with this type, made for ``reader`` if needed."""
        known = self._names.get((value, type_))
        if known is not None:
            return known
        array = self.graph.constant(value)
        if array is not None:
            name = self.constant(value.name, array, type_, reader)
            if type_.quant is not None:
                self.record_float(name, array)
        else:
            name = self._converted(value, type_, reader)
        if len(self.producers.get(value, ())) < 2:  # one in parts may change before the next use
            self._names[value, type_] = name
        return name

    def record_float(self, name: str, array: npt.NDArray[Any]) -> None:
        """Record the float values of a constant."""
        if array.dtype == np.float32:
            self.floats[name] = array

    def constant(
        self, name: str, array: npt.NDArray[Any], type_: TensorType, reader: Instruction
    ) -> str:
        """Add a constant that holds real values with this type."""
        if type_.quant is not None:
            array = quantize(array, get_parameters(type_), type_.elem)
        return self.writer.constant(name, array, type_, reader.span)

    def _converted(self, value: Value, type_: TensorType, reader: Instruction) -> str:
        own = self.type_of(value)
        if own.quant is None:
            opcode, name = "quantize", f"{reader.name}_quantize"
        elif type_.quant is None:
            opcode, name = "dequantize", f"{value.name}_dequantize"
        else:
            opcode, name = "rescalequantized", f"{reader.name}_rescale"
        buffer = self.writer.buffer(f"{name}_res", type_, reader.span)
        self.writer.emit(name, opcode, (buffer, self._names[value, own]), {}, reader.span)
        return buffer

    def target(self, node: Node, value: Value) -> str:
        """Return where a node writes a result: a buffer, an output, or a part of one."""
        type_, span = self.type_of(value), node.instruction.span
        if (value, type_) not in self._names:
            self._names[value, type_] = self.output_of(value) or self.writer.buffer(
                f"{node.instruction.name}_res", type_, span
            )
        whole, part = self._names[value, type_], node.part
        if part is None or part.type.shape == value.type.shape:
            return whole
        offsets = np.unravel_index(part.start, value.type.shape) if value.type.shape else ()
        view = attrs.evolve(type_, shape=part.type.shape)
        return self.writer.view(f"{whole}_part", whole, tuple(map(int, offsets)), view, span)
