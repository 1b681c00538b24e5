"""Builder of a graph from the recorded run of a PyTorch model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.graph_builder import GraphBuilder
from nmpsim.frontends.graph.nodes import Graph, Kind, QuantizedTensor, Shape
from nmpsim.frontends.graph.operation import bind_attributes
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.recording import ModelRecording, RecordedCall, RecordedTensor


class TorchGraphBuilder(GraphBuilder):
    """Builder of the graph of a recorded run; layers are named after modules.

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
        self._names = {tensor.number: self.unique_name(name) for name, tensor in recording.inputs}
        self._output_names = tuple(self.unique_name(name) for name, _ in recording.outputs)
        self._outputs: dict[int, str] = {}
        """Tensor number -> name of the model output."""
        for (_, tensor), name in zip(recording.outputs, self._output_names, strict=True):
            self._outputs.setdefault(tensor.number, name)
        self._permuted: dict[int, tuple[RecordedTensor, tuple[int, ...]]] = {}
        """Tensor number -> source and order of a permutation that is not added yet."""

    def begin_call(self, call: RecordedCall) -> None:
        """Select the PyTorch operation that the next nodes belong to, and name its results."""
        self.call = call
        self.arguments = {name: one for name, one in call.arguments.items() if one is not None}
        self.begin_operator(call.number, call.label)
        for result in call.results:
            own = self.unique_name(call.name or call.operation.rpartition(".")[2])
            self._names[result.number] = self._outputs.get(result.number, own)
            self.name_layer(self._names[result.number], own)

    def translate_call(self, operations: Mapping[str, Translation]) -> None:
        """Add the nodes of the current operation with the translation in a table."""
        require(
            self.call.operation in operations,
            "an unsupported operation"
            if self.call.results
            else "control flow or a number that depends on the values of a tensor",
        )
        translate = operations[self.call.operation]
        translate(self, **bind_attributes(translate, self.arguments))

    def build(self) -> Graph:
        """Return the graph of the recorded run."""
        inputs = {
            self.get_name(tensor): (tensor.dtype.replace("quint8", "uint8"), tensor.shape)
            for _, tensor in self.recording.inputs
        }
        number = 1 + max((call.number for call in self.recording.calls), default=0)
        for (_, tensor), name in zip(self.recording.outputs, self._output_names, strict=True):
            if self.get_name(tensor) != name:  # the same tensor is also another output
                self.begin_operator(number, "output")
                self.add_node("Identity", [self.get_name(tensor)], self._declared(name, tensor))
                number += 1
        return self.build_graph(inputs, self._output_names)

    def get_name(self, tensor: RecordedTensor) -> str:
        """Return the graph name of a tensor; add the tensor at its first use if it is constant."""
        if tensor.number not in self._names:
            if tensor.values is None:
                raise UnsupportedError("a tensor whose memory another operation has changed")
            own = tensor.name or f"{self.call.name}.constant".strip(".")
            self._names[tensor.number] = self.unique_name(own)
            self.constants[self._names[tensor.number]] = np.asarray(tensor.values)
        name = self._declared(self._names[tensor.number], tensor)
        if tensor.number in self._permuted:
            source, order = self._permuted.pop(tensor.number)
            self.add_node("Transpose", [self.get_name(source)], name, perm=order)
        return name

    def permute(self, source: RecordedTensor, order: tuple[int, ...]) -> None:
        """Record a permutation of dimensions; its node is added when the result is first used."""
        if source.number in self._permuted:
            source, own = self._permuted[source.number]
            order = tuple(own[axis] for axis in order)
        self._permuted[self.result.number] = source, order
        if self.result.number in self._outputs:
            self.get_name(self.result)

    @property
    def result(self) -> RecordedTensor:
        """First result of the current operation."""
        return self.call.results[0]

    def get_tensor(self, argument: str, *dtypes: str) -> RecordedTensor:
        """Return a tensor argument; raise UnsupportedError if its dtype is not in ``dtypes``."""
        tensor = self.arguments.get(argument)
        if not isinstance(tensor, RecordedTensor):
            raise UnsupportedError(f"{argument} is not a tensor")
        require(tensor.dtype in (dtypes or ("quint8",)), f"{argument} is {tensor.dtype}")
        return tensor

    def get_source(self) -> RecordedTensor:
        """Return the first argument, a tensor of any element type."""
        source = next(iter(self.arguments.values()), None)
        if not isinstance(source, RecordedTensor):
            raise UnsupportedError("an operation without an input tensor")
        return source

    def outputs(self) -> Iterator[str]:
        """Yield the names of the current operation's results, a new name if it has none."""
        if not self.call.results:
            yield self.unique_name("nothing")
        yield from map(self.get_name, self.call.results)

    def add_temporary(self, suffix: str, kind: QuantizedTensor, shape: Shape) -> str:
        """Declare an intermediate tensor and return its name."""
        return self.declare(self.unique_name(f"{self.call.name}_{suffix}"), kind, shape)

    def add_integers(self, values: npt.ArrayLike) -> str:
        """Add an int64 constant and return its name."""
        return self.add_constant("numbers", np.array(values, np.int64))

    def _declared(self, name: str, tensor: RecordedTensor) -> str:
        if not self.is_float and not self.is_declared(name):
            self.declare(name, get_tensor_kind(tensor), tensor.shape)
        return name


Translation = Callable[..., None]
"""Adds the nodes of the current operation; takes a :class:`TorchGraphBuilder` and, by name, the
arguments in its signature."""


def get_tensor_kind(tensor: RecordedTensor) -> Kind:
    """Return the quantization of a tensor, or the name of its element type if it has none."""
    require(
        tensor.dtype == ("float32" if tensor.scale is None else "quint8"),
        f"a tensor of {tensor.dtype}",
    )
    if tensor.scale is None:
        return tensor.dtype
    scale = np.float32(tensor.scale)
    require(0 < scale < math.inf, f"a scale of {tensor.scale:g}")
    return QuantizedTensor("", "uint8", np.array([scale]), np.array([tensor.zero_point]))
