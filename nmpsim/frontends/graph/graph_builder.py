"""Base of the readers that build a graph from a file with declared tensor kinds and shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    OPSET,
    UNSIGNED_OFFSETS,
    Array,
    Graph,
    GraphInput,
    IntegerOperation,
    Kind,
    Limits,
    Node,
    QuantizedTensor,
    Shape,
    TensorDeclaration,
)
from nmpsim.frontends.graph.operation import INSTRUCTION
from nmpsim.frontends.graph.problems import Problems
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.module_builder import UniqueNames

_REFUSED = "nmpsim.Refused"
"""Operator of the node that stands for an operator that is not supported."""


class GraphBuilder(UniqueNames, ABC):
    """Base class of graph builders; each file format has a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Node] = []
        self.constants: dict[str, Array] = {}
        self._declarations: dict[str, TensorDeclaration] = {}
        self._layers: dict[str, str] = {}
        self._first_step = self._index = 0
        self._title = ""

    def build_graph(self, inputs: Mapping[str, tuple[str, Shape]], outputs: Sequence[str]) -> Graph:
        """Return the graph of all nodes added so far.

        Parameters
        ----------
        inputs : mapping of str to tuple
            Input name -> element type and shape.
        outputs : sequence of str
            Output names.
        """
        kinds = {name: one.kind for name, one in self._declarations.items()}
        return Graph(
            tuple(self.steps),
            self.constants,
            tuple(GraphInput(name, dtype, shape) for name, (dtype, shape) in inputs.items()),
            tuple(outputs),
            OPSET,
            quantization={name: k for name, k in kinds.items() if isinstance(k, QuantizedTensor)},
            declarations=self._declarations,
            layers=self._layers,
        )

    def begin_operator(self, index: int, title: str) -> None:
        """Set number and label of the operator whose nodes are added next."""
        self._index, self._title, self._first_step = index, title, len(self.steps)

    def try_translate(self, translate: Callable[[], None], problems: Problems) -> None:
        """Translate the current operator; record a problem and add a placeholder if that fails.

        With the placeholder for its results, operators that read them are checked too.
        """
        try:
            translate()
        except UnsupportedError as error:
            problems.add(self._index, self._title, error)
            del self.steps[self._first_step :]
            names: list[str] = []
            with suppress(UnsupportedError):
                names.extend(self.outputs())
            self.steps.append(Node(self._index, _REFUSED, (), tuple(names), {}, self._title))

    @abstractmethod
    def get_name(self, tensor: Any) -> str:
        """Return the graph name of a tensor of the file; declare the tensor at its first use."""

    @abstractmethod
    def outputs(self) -> Iterator[str]:
        """Declare the current operator's results and yield their names."""

    def get_first_output(self) -> str:
        """Return the name of the current operator's first result."""
        return next(self.outputs())

    # --- tensors -----------------------------------------------------------------------------

    def name_layer(self, name: str, layer: str) -> None:
        """Set the layer name of the instructions that compute a tensor."""
        if layer != name:
            self._layers[name] = layer

    def declare(self, name: str, kind: Kind, shape: Shape) -> str:
        """Declare kind and shape of a tensor, and return its name."""
        own = attrs.evolve(kind, name=name) if isinstance(kind, QuantizedTensor) else kind
        self._declarations[name] = TensorDeclaration(own, shape)
        return name

    def is_declared(self, name: str) -> bool:
        """Return whether a tensor is declared."""
        return name in self._declarations

    def get_kind(self, name: str) -> Kind:
        """Return the declared quantization or element type of a tensor."""
        return self._declarations[name].kind

    def get_quantization(self, name: str) -> QuantizedTensor:
        """Return the declared quantization of a tensor."""
        kind = self.get_kind(name)
        if isinstance(kind, str):
            raise UnsupportedError(f"{name} is {kind}")
        return kind

    def add_constant(self, name: str, values: Array, kind: Kind = "") -> str:
        """Add a constant under a unique name and return the name."""
        name = self.unique_name(name)
        self.constants[name] = values
        if kind:
            self.declare(name, kind, values.shape)
        return name

    # --- nodes -------------------------------------------------------------------------------

    def add_node(self, op: str, inputs: Sequence[Any], *outputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its first output.

        Inputs are tensors of the file or names. An attribute that is None is left out.
        """
        names = tuple(one if isinstance(one, str) else self.get_name(one) for one in inputs)
        given = {name: value for name, value in attributes.items() if value is not None}
        outputs = outputs or (self.get_first_output(),)
        self.steps.append(Node(self._index, op, names, outputs, given, self._title))
        return outputs[0]

    def add_instruction(
        self, opcode: str, inputs: Sequence[Any], *output: str, **attributes: Any
    ) -> str:
        """Add a node that stands for one LIR instruction, and return the name of its output.

        Keyword arguments in lower case are arguments of
        :func:`~nmpsim.frontends.graph.operation.lower_instruction`, others are attributes of the
        instruction.
        """
        own = {key: attributes.pop(key) for key in list(attributes) if key.islower()}
        return self.add_node(
            INSTRUCTION, inputs, *output, opcode=opcode, attributes=attributes, **own
        )

    def add_integer_operation(
        self,
        kind: str,
        sources: Sequence[str],
        *output: str,
        bias: str = "",
        limits: Limits | None = None,
        **attributes: Any,
    ) -> None:
        """Add a node for an ONNX operator that is computed on integers."""
        result = self.get_quantization(self.add_node(kind, sources, *output, **attributes))
        quantized = tuple(map(self.get_quantization, sources))
        integers = IntegerOperation(kind, quantized, result, bias, limits)
        self.steps[-1] = attrs.evolve(self.steps[-1], integers=integers)

    def add_table(self, source: str, results: Array, *outputs: str) -> str:
        """Add a look-up table, and return the name of its output.

        Parameters
        ----------
        source : str
            Tensor whose integers are looked up.
        results : ndarray
            Result as a stored integer for each stored integer of the source, the lowest first: 256
            for int8, 65536 for int16.
        *outputs : str
            Name of the output; by default the operator's first result.
        """
        output, *_ = outputs or (self.get_first_output(),)
        kind = self.get_quantization(output)
        dtype = "int8" if results.size == 256 else "int16"
        zeros = kind.zero_points - UNSIGNED_OFFSETS.get(kind.dtype, 0)
        table = np.clip(results, *INTEGER_RANGES[dtype]).astype(dtype)
        own = attrs.evolve(kind, dtype=dtype, zero_points=zeros)
        mapping = self.add_constant(f"{self._layers.get(output, output)}_table", table, own)
        return self.add_instruction("intlookuptable", [source, mapping], output)
