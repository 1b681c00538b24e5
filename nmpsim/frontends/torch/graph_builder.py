"""Builder of a graph from the recorded run of a PyTorch model, and conversion of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.nodes import (
    OPSET,
    Array,
    Graph,
    GraphInput,
    Kind,
    Node,
    QuantizedTensor,
    Shape,
    TensorDeclaration,
)
from nmpsim.frontends.graph.operation import bind_attributes
from nmpsim.frontends.graph.problems import UnsupportedOperators
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.recording import (
    ModelRecording,
    QuantizedWeights,
    RecordedCall,
    RecordedTensor,
)
from nmpsim.lir.names import UniqueNames

_REFUSED = "nmpsim.Refused"
"""Operator of the node that stands for an operation that is not supported."""
_PARAMETERS = ("scale", "zero_point", "weight", "bias", "mean", "var")
"""Arguments that may be tensors, but are constants: of a quantization and a normalization."""


class TorchGraphBuilder(UniqueNames):
    """Builder of an ONNX-style graph from a recorded run, with layers named after modules.

    Parameters
    ----------
    recording : ModelRecording
        The run.
    is_float : bool
        Whether nothing in the model is quantized; its tensors are then not declared.
    """

    call: RecordedCall
    """The current operation."""
    arguments: Mapping[str, Any]
    """Arguments of the current operation, without those that are None."""

    def __init__(self, recording: ModelRecording, is_float: bool) -> None:
        super().__init__()
        self.recording = recording
        self.is_float = is_float
        self.steps: list[Node] = []
        self.constants: dict[str, Array] = {}
        self._declarations: dict[str, TensorDeclaration] = {}
        self._layers: dict[str, str] = {}
        """Tensor name -> layer name of the instructions that compute it, if different."""
        self._names = {tensor.number: self.make_unique(name) for name, tensor in recording.inputs}
        self._output_names = tuple(self.make_unique(name) for name, _ in recording.outputs)
        self._outputs: dict[int, str] = {}
        """Tensor number -> name of the model output."""
        for (_, tensor), name in zip(recording.outputs, self._output_names, strict=True):
            self._outputs.setdefault(tensor.number, name)

    def add_call(
        self, call: RecordedCall, operations: Mapping[str, Any], problems: UnsupportedOperators
    ) -> None:
        """Add nodes for a recorded call, or record in ``problems`` why it is not supported.

        For an operation that is not supported, a problem is recorded and a node is added that
        stands for it, so that operations that read its results are checked too.

        Parameters
        ----------
        call : RecordedCall
            The operation.
        operations : mapping
            Supported operations; those of a float model with their :data:`Translation`.
        problems : Problems
            Receives the problem.
        """
        self.call, before = call, len(self.steps)
        self.arguments = {name: one for name, one in call.arguments.items() if one is not None}
        for result in call.results:
            own = self.make_unique(call.name or call.operation.rpartition(".")[2])
            name = self._names[result.number] = self._outputs.get(result.number, own)
            if name != own:
                self._layers[name] = own
        try:
            is_known = call.operation in operations
            require(
                is_known or call.results,
                f"{call.operation}, which reads the values of a tensor in Python",
                "a model whose operations do not depend on the values",
            )
            require(
                is_known,
                f"operation {call.operation}",
                "an operation listed in docs/torch.md",
            )
            if self.is_float:
                translate = operations[call.operation]
                translate(self, **bind_attributes(translate, self.arguments))
            else:
                self._add_operation()
        except UnsupportedError as error:
            problems.add_error(call.number, call.label, error)
            del self.steps[before:]
            names: list[str] = []
            with suppress(UnsupportedError):
                names.extend(self.iterate_output_names())
            self.steps.append(Node(call.number, _REFUSED, (), tuple(names), {}, call.label))

    def build(self) -> Graph:
        """Build the graph of the recorded run from the nodes that were added."""
        inputs = tuple(
            GraphInput(
                self.resolve_name(tensor), tensor.dtype.replace("quint8", "uint8"), tensor.shape
            )
            for _, tensor in self.recording.inputs
        )
        number = 1 + max((call.number for call in self.recording.calls), default=0)
        for (_, tensor), name in zip(self.recording.outputs, self._output_names, strict=True):
            source = self.resolve_name(tensor)
            if source != name:  # the same tensor is also another output
                results = (self._declare_tensor(name, tensor),)
                self.steps.append(Node(number, "Identity", (source,), results, {}, "output"))
                number += 1
        kinds = {name: one.kind for name, one in self._declarations.items()}
        return Graph(
            tuple(self.steps),
            self.constants,
            inputs,
            self._output_names,
            OPSET,
            quantization={name: k for name, k in kinds.items() if isinstance(k, QuantizedTensor)},
            declarations=self._declarations,
            layers=self._layers,
        )

    # --- tensors -----------------------------------------------------------------------------

    def resolve_name(self, tensor: RecordedTensor) -> str:
        """Return a tensor's name in the graph; add a constant tensor at its first use."""
        if tensor.number not in self._names:
            if tensor.values is None:
                raise UnsupportedError(
                    f"tensor {tensor.name or tensor.number}, which was modified in place",
                    "a tensor that no operation modifies",
                )
            own = tensor.name or f"{self.call.name}.constant".strip(".")
            self._names[tensor.number] = self.add_constant(own, np.asarray(tensor.values))
        return self._declare_tensor(self._names[tensor.number], tensor)

    @property
    def result(self) -> RecordedTensor:
        """First result of the current operation."""
        return self.call.results[0]

    def get_first_tensor(self) -> RecordedTensor:
        """Return the first argument; raise UnsupportedError if it is not a tensor."""
        source = next(iter(self.arguments.values()), None)
        if not isinstance(source, RecordedTensor):
            raise UnsupportedError(f"the first argument {source}", "a tensor as the first argument")
        return source

    def iterate_output_names(self) -> Iterator[str]:
        """Yield the graph names of the current operation's results, or one unused name."""
        if not self.call.results:
            yield self.make_unique("nothing")
        yield from map(self.resolve_name, self.call.results)

    def get_first_output(self) -> str:
        """Return the graph name of the current operation's first result."""
        return next(self.iterate_output_names())

    def add_constant(self, name: str, values: Array, kind: Kind = "") -> str:
        """Add a constant under a unique name made from ``name``; return that name."""
        name = self.make_unique(name)
        self.constants[name] = values
        return self._declare(name, kind, values.shape) if kind else name

    def add_integer_constant(self, values: npt.ArrayLike) -> str:
        """Add an int64 constant with ``values``; return the constant's name."""
        return self.add_constant("numbers", np.array(values, np.int64))

    def _declare_tensor(self, name: str, tensor: RecordedTensor) -> str:
        if not self.is_float and name not in self._declarations:
            self._declare(name, get_tensor_kind(tensor), tensor.shape)
        return name

    def _declare(self, name: str, kind: Kind, shape: Shape) -> str:
        own = attrs.evolve(kind, name=name) if isinstance(kind, QuantizedTensor) else kind
        self._declarations[name] = TensorDeclaration(own, shape)
        return name

    # --- nodes -------------------------------------------------------------------------------

    def _add_operation(self) -> None:
        """Add a node of the current operation, with its weights and bias as constants."""
        call, inputs = self.call, []
        given: dict[str, Any] = {"engine": self.recording.engine, "tables": call.tables}
        for argument, value in self.arguments.items():
            given[argument] = value
            if isinstance(value, QuantizedWeights):
                kind = QuantizedTensor("", "int8", value.scales, value.zero_points)
                inputs.append(self.add_constant(f"{call.name}.weight", value.weights, kind))
                zeros = np.zeros(len(value.weights), np.float32)
                bias = zeros if value.bias is None else value.bias
                given["bias"] = self.add_constant(f"{call.name}.bias", bias)
                given["weights"] = value
            parts = [
                part
                for part in (value if isinstance(value, tuple) else (value,))
                if isinstance(part, RecordedTensor)
            ]
            if argument in _PARAMETERS:  # which also the result has
                for part in parts:
                    require(
                        part.values is not None, f"a computed {argument}", f"a constant {argument}"
                    )
                continue
            inputs += map(self.resolve_name, parts)
        outputs = tuple(self.iterate_output_names())
        self.steps.append(
            Node(call.number, call.operation, tuple(inputs), outputs, given, call.label)
        )

    def add_node(self, op: str, inputs: Sequence[Any], *outputs: str, **attributes: Any) -> str:
        """Add a node for the current operation; return the name of the node's first output.

        Inputs are recorded tensors or names. An attribute that is None is left out.
        """
        names = tuple(one if isinstance(one, str) else self.resolve_name(one) for one in inputs)
        given = {name: value for name, value in attributes.items() if value is not None}
        outputs = outputs or (self.get_first_output(),)
        self.steps.append(Node(self.call.number, op, names, outputs, given, self.call.label))
        return outputs[0]


Translation = Callable[..., None]
"""Adds the nodes of the current operation; takes a :class:`TorchGraphBuilder` and, by name, the
arguments in its signature."""


def get_tensor_kind(tensor: RecordedTensor) -> Kind:
    """Return the quantization of a tensor, or the name of its element type if it has none."""
    name = tensor.name or f"tensor {tensor.number}"
    expected = "a tensor of float32, or of quint8 with a scale"
    dtype = "float32" if tensor.scale is None else "quint8"
    require(tensor.dtype == dtype, f"{name} of type {tensor.dtype}", expected)
    if tensor.scale is None:
        return tensor.dtype
    scale = np.float32(tensor.scale)
    require(0 < scale < math.inf, f"scale {tensor.scale:g} of {name}", "a positive finite scale")
    return QuantizedTensor("", "uint8", np.array([scale]), np.array([tensor.zero_point]))


# Conversion of arguments of PyTorch operations to those of graph operators.


def make_pair(value: Any) -> tuple[int, int]:
    """Return (rows, columns) from a tuple, or from one number that applies to both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])


def find_adaptive_window(shape: Shape, result: Shape) -> Shape:
    """Return the window size of an adaptive pool; raise UnsupportedError if windows differ."""
    require(len(shape) == 4, f"an input of shape {list(shape)}", "an input with 4 dimensions")
    pairs = list(zip(shape[2:], result[2:], strict=True))
    require(
        all(size and own % size == 0 for own, size in pairs),
        f"pooling from {list(shape[2:])} to {list(result[2:])}",
        "an input size that is a multiple of the result size",
    )
    return tuple(own // size for own, size in pairs)


def find_permutation(rank: int, dims: Sequence[int] | None, dim0: int, dim1: int) -> Shape:
    """Return the dimension order of ``permute(dims)``, ``transpose(dim0, dim1)`` or ``t()``."""
    if dims is not None:
        return tuple(axis % rank for axis in dims)
    order = list(range(rank))
    if rank >= 2:
        order[dim0 % rank], order[dim1 % rank] = order[dim1 % rank], order[dim0 % rank]
    return tuple(order)


def find_paddings(rank: int, pad: Sequence[int]) -> tuple[list[int], list[int]]:
    """Convert PyTorch's argument ``pad`` to the paddings before and after each dimension."""
    before, after = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = map(int, pad[2 * index :][:2])
    return before, after
