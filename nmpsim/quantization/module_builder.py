"""Builder of quantized modules."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.module_builder import BuilderTensor as Tensor
from nmpsim.frontends.module_builder import ModuleBuilder
from nmpsim.lir.nodes import Module, Span, TensorType
from nmpsim.quantization.graph import FloatGraph, FloatNode, FloatValue
from nmpsim.quantization.parameters import quantize
from nmpsim.quantization.scales import ValueScales, get_parameters


class QuantizedModuleBuilder(ModuleBuilder):
    """Builder of the quantized module of a float program."""

    reader: str
    """Name of the float instruction that is being rewritten."""

    def __init__(
        self, graph: FloatGraph, quantized: frozenset[FloatValue], scales: ValueScales
    ) -> None:
        super().__init__(graph.module.name, graph.module.file)
        self.graph = graph
        self.quantized = quantized
        self.scales = scales
        self._variables = [weight for weight in graph.module.weights if not weight.constant]
        self.variables = {
            one.name: Tensor(self.unique_name(one.name), one.type, one.name)
            for one in self._variables
        }
        """Inputs and outputs of the program."""
        self._tensors = {(one, one.type): self.variables[one.name] for one in graph.inputs}
        inputs = {value.name for value in graph.inputs}
        self.direct_outputs = {
            value: weight
            for weight, value in graph.outputs.items()
            if weight not in inputs
            and value in graph.producers
            and value not in quantized
            and value not in graph.views
            and value.type == self.variables[weight].type
        }
        """Float result -> name of the output that it is written to directly."""
        self._floats: dict[str, npt.NDArray[np.float32]] = {}
        """Constant of the program -> its values before quantization."""

    def _get_stem(self, name: str) -> str:
        """Return a name without the last suffix ``__N``, which a new one replaces."""
        stem, _, number = name.rpartition("__")
        return stem if number.isdigit() and stem else name

    def begin_instruction(self, name: str, span: Span) -> None:
        """Set the name and the source position of the float instruction to rewrite next."""
        self.reader, self.span = name, span

    def build_module(self) -> Module:
        """Return the verified module with the inputs and outputs of the float program."""
        return attrs.evolve(self.build(self._variables), floats=self._floats)

    def get_type(self, value: FloatValue) -> TensorType:
        """Return the type of a value in the quantized program."""
        return self.scales.get_type(value) if value in self.quantized else value.type

    def set_tensor(self, value: FloatValue, tensor: Tensor) -> None:
        """Set the tensor that holds a value in the type of the quantized program."""
        self._tensors[value, self.get_type(value)] = tensor

    def get_tensor(self, value: FloatValue, type_: TensorType) -> Tensor:
        """Return a tensor that holds a value in a given type; convert the value if necessary."""
        known = self._tensors.get((value, type_))
        if known is not None:
            return known
        array = self.graph.get_constant(value)
        if array is None:
            tensor = self._convert(value, type_)
        else:
            tensor = self.add_real_constant(value.name, array, type_)
            if type_.quant is not None:
                self.record_float_values(tensor, array)
        if len(self.graph.producers.get(value, ())) < 2:  # parts may change before the next use
            self._tensors[value, type_] = tensor
        return tensor

    def record_float_values(self, constant: Tensor, array: npt.NDArray[Any]) -> None:
        """Record the float values from which a constant was quantized."""
        if array.dtype == np.float32:
            self._floats[constant.name] = array

    def add_real_constant(self, name: str, array: npt.NDArray[Any], type_: TensorType) -> Tensor:
        """Add a constant from real values, which are quantized if its type is quantized."""
        if type_.quant is not None:
            array = quantize(array, get_parameters(type_), type_.elem)
        return self.add_constant(name, array, type_)

    def _convert(self, value: FloatValue, type_: TensorType) -> Tensor:
        own = self.get_type(value)
        if own.quant is None:
            opcode, name = "quantize", f"{self.reader}_quantize"
        elif type_.quant is None:
            opcode, name = "dequantize", f"{value.name}_dequantize"
        else:
            opcode, name = "rescalequantized", f"{self.reader}_rescale"
        buffer = self.allocate(f"{name}_res", type_)
        self.add_instruction(opcode, name, (buffer, self._tensors[value, own]))
        return buffer

    def get_result_tensor(self, node: FloatNode, value: FloatValue) -> Tensor:
        """Return the tensor for a node's result: a buffer, an output, or a view of a region."""
        type_, output = self.get_type(value), self.direct_outputs.get(value)
        if (value, type_) not in self._tensors:
            self._tensors[value, type_] = (
                self.variables[output] if output else self.allocate(f"{self.reader}_res", type_)
            )
        whole, part = self._tensors[value, type_], node.region
        if part is None or part.type.shape == value.type.shape:
            return whole
        offsets = np.unravel_index(part.start, value.type.shape) if value.type.shape else ()
        view = attrs.evolve(type_, shape=part.type.shape)
        return self.add_view(whole, view, tuple(map(int, offsets)), f"{whole.name}_part")
