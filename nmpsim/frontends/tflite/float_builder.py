"""Builder of the ONNX operators that float TFLite operators are converted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from nmpsim.frontends.graph.node_builder import NodeBuilder
from nmpsim.frontends.graph.nodes import Array
from nmpsim.frontends.graph.problems import INVALID_NODE_ERRORS
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.graph import to_snake_case
from nmpsim.frontends.tflite.model_data import TFLiteOperator, TFLiteTensor

MAX_ELEMENTS = 1 << 28
"""Limit for the elements of all constants of a model that DEQUANTIZE computes."""
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations from channels last to channels second, and back."""
Names: TypeAlias = str | Sequence[str]
"""Name of the only result of an operator, or the names of all results."""
Converter: TypeAlias = Callable[["FloatGraphBuilder", TFLiteOperator], Names]
"""Adds the nodes of an operator, and returns the names of its results."""
_FUSED_BOUNDS = {2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Fused activation -> its bounds."""


class FloatGraphBuilder(NodeBuilder):
    """Builder of the nodes and constants that TFLite operators are converted to."""

    def __init__(
        self,
        names: Mapping[int, str],
        constants: dict[str, Array],
        converters: Mapping[str, Converter],
    ) -> None:
        super().__init__(constants)
        self._names = names
        self._converters = converters
        self._elements = 0
        self._operator: TFLiteOperator

    def add_operator(self, operator: TFLiteOperator) -> None:
        """Add the nodes of an operator; one that cannot be converted keeps its name."""
        self._operator = operator
        names, count = [self._names[one.index] for one in operator.outputs], len(self.nodes)
        self.begin_operator(
            operator.index, f"{operator.index} {operator.name} {names[0]}", names[0]
        )
        try:
            results = self._convert(operator)
        except (UnsupportedError, *INVALID_NODE_ERRORS) as error:
            del self.nodes[count:]
            self.append_node(f"{operator.name} with {error}", self.get_inputs(), *names)
            return
        if results is None:
            self.append_node(operator.name, self.get_inputs(), *names)
            return
        for name, result in zip(names, results, strict=True):
            if result in self.constants:
                self.constants[name] = self.constants[result]
            self.append_node("Identity", [result], name)

    def _convert(self, operator: TFLiteOperator) -> list[str] | None:
        """Return the results of an operator's nodes; None if it has no conversion."""
        if operator.name not in self._converters:
            return None
        found = self._converters[operator.name](self, operator)
        results = [found] if isinstance(found, str) else found
        return [self._add_activation(one) for one in results]

    def add_image_operator(self, op: str, tensor: TFLiteTensor, *more: str, **words: Any) -> str:
        """Add an operator on an image with channels second, and convert its input and result."""
        image = self.add("Transpose", self.get_name(tensor), perm=FIRST)
        return self.add("Transpose", self.add(op, image, *more, **words), perm=LAST)

    def get_inputs(self) -> list[str]:
        """Return the names of the present operator's inputs, without omitted ones."""
        return [self.get_name(one) for one in self._operator.inputs if one is not None]

    def get_name(self, tensor: TFLiteTensor | None) -> str:
        """Return the name of a tensor in the graph."""
        assert tensor is not None
        return self._names[tensor.index]

    def get_values(self, tensor: TFLiteTensor | None) -> Array:
        """Return the values of a constant; raise UnsupportedError if it is not one."""
        name = "" if tensor is None else self.get_name(tensor)
        require(name in self.constants, f"{name or 'an input'} is not a constant", "a constant")
        return self.constants[name]

    def count_elements(self, count: int) -> None:
        """Count elements of constants that are computed; refuse more than MAX_ELEMENTS in all."""
        self._elements += count
        found = f"{self._elements:,} elements in all computed constants"
        require(self._elements <= MAX_ELEMENTS, found, f"at most {MAX_ELEMENTS:,} elements")

    def get_option(self, name: str, default: Any = None) -> Any:
        """Return an option of the present operator by its name in snake case."""
        return to_snake_case(self._operator.options).get(name, default)

    def _add_activation(self, name: str) -> str:
        """Add the fused activation of the present operator."""
        number = self.get_option("fused_activation_function", 0)
        if number == 1:
            return self.add("Relu", name)
        if number in _FUSED_BOUNDS:
            return self.add_clip(name, *_FUSED_BOUNDS[number])
        require(number == 0, f"fused activation number {number}", "NONE, RELU, RELU6, RELU_N1_TO_1")
        return name
