"""The graph of a recorded run under construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nmpsim.frontends.graph.graph_builder import GraphBuilder
from nmpsim.frontends.graph.nodes import Graph, QuantizedTensor, Shape
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.recording import Call, Packed, Recorded, Tensor


class TorchGraphBuilder(GraphBuilder):
    """That of PyTorch; layers are named after modules.

    Parameters
    ----------
    recorded : Recorded
        The run.
    is_float : bool
        Of a model in which nothing is quantized; its tensors are not declared.
    """

    call: Call
    """The operation at hand."""

    def __init__(self, recorded: Recorded, is_float: bool) -> None:
        super().__init__()
        self.recorded = recorded
        self._is_float = is_float
        self._names = {tensor.number: self.unique_name(name) for name, tensor in recorded.inputs}
        self.ends = tuple(self.unique_name(name) for name, _ in recorded.outputs)
        self._turned: dict[int, tuple[Tensor, tuple[int, ...]]] = {}
        """Number of a tensor -> what it is in another order of dimensions, as yet not made."""
        self._ends: dict[int, str] = {}
        """Number of a tensor -> the output that it is."""
        for (_, tensor), name in zip(recorded.outputs, self.ends, strict=True):
            self._ends.setdefault(tensor.number, name)

    def take(self, call: Call) -> None:
        """Draw an operation from here on."""
        self.call = call
        self.begin(call.number, call.node)
        for result in call.results:
            own = self.unique_name(call.name or call.operation.rpartition(".")[2])
            self._names[result.number] = self._ends.get(result.number, own)
            self.name_layer(self._names[result.number], own)

    def whole(self) -> Graph:
        """The graph of the run."""
        inputs = {
            self.name(tensor): (tensor.dtype.replace("quint8", "uint8"), tensor.shape)
            for _, tensor in self.recorded.inputs
        }
        number = 1 + max((call.number for call in self.recorded.calls), default=0)
        for (_, tensor), name in zip(self.recorded.outputs, self.ends, strict=True):
            if self.name(tensor) != name:  # an output as it is under another name
                self.begin(number, "output")
                self.add("Identity", [self.name(tensor)], self._declared_as(name, tensor))
                number += 1
        return self.build_graph(inputs, self.ends)

    def name(self, tensor: Tensor) -> str:
        """A tensor's name in the graph; of a constant, which is kept."""
        if tensor.number not in self._names:
            if tensor.values is None:
                raise UnsupportedError("a tensor whose memory another operation has changed")
            own = tensor.name or f"{self.call.name}.constant".strip(".")
            self._names[tensor.number] = self.unique_name(own)
            self.constants[self._names[tensor.number]] = np.asarray(tensor.values)
        name = self._declared_as(self._names[tensor.number], tensor)
        if tensor.number in self._turned:
            source, order = self._turned.pop(tensor.number)
            self.add("Transpose", [self.name(source)], name, perm=order)
        return name

    def turn(self, source: Tensor, order: tuple[int, ...]) -> None:
        """Dimensions in another order, made when something needs them so; an output at once."""
        if source.number in self._turned:
            source, own = self._turned[source.number]
            order = tuple(own[axis] for axis in order)
        result = self.call.results[0]
        self._turned[result.number] = source, order
        if result.number in self._ends:
            self.name(result)

    def names(self, *arguments: str) -> list[str]:
        """The names of quantized tensors that are given as these arguments."""
        return [self.name(self.tensor(one)) for one in arguments]

    def tensor(self, argument: str, *dtypes: str) -> Tensor:
        """An argument that is a tensor of one of these types; quint8 if none is given."""
        tensor = self.call.arguments.get(argument)
        if not isinstance(tensor, Tensor):
            raise UnsupportedError(f"{argument} is no tensor")
        if tensor.dtype not in (dtypes or ("quint8",)):
            raise UnsupportedError(f"{argument} is {tensor.dtype}")
        return tensor

    def source(self) -> Tensor:
        """The first argument, which is a tensor of any type."""
        source = next(iter(self.call.arguments.values()), None)
        if not isinstance(source, Tensor):
            raise UnsupportedError("no input")
        return source

    def outputs(self) -> Iterator[str]:
        """Their names."""
        return map(self.name, self.call.results)

    def temporary(self, what: str, kind: QuantizedTensor, shape: Shape) -> str:
        """A tensor between two steps."""
        name = self.unique_name(f"{self.call.name}_{what}")
        return self.declare(name, kind, shape)

    def integers(self, values: Sequence[int] | int) -> str:
        """A new constant that holds whole numbers."""
        return self.add_constant("numbers", np.array(values, np.int64))

    def _declared_as(self, name: str, tensor: Tensor) -> str:
        if not self._is_float and not self.is_declared(name):
            self.declare(name, kind_of(tensor), tensor.shape)
        return name


Draw = Callable[[TorchGraphBuilder], None]


def kind_of(tensor: Tensor) -> QuantizedTensor | str:
    """What the integers of a tensor stand for, or its element type."""
    is_quantized = tensor.dtype == "quint8"
    if tensor.dtype not in ("quint8", "float32") or is_quantized != (tensor.scale is not None):
        raise UnsupportedError(f"a tensor of {tensor.dtype}")
    if tensor.scale is None:
        return tensor.dtype
    scale = np.float32(tensor.scale)
    if not 0 < scale < math.inf:
        raise UnsupportedError(f"a scale of {tensor.scale:g}")
    return QuantizedTensor("", "uint8", np.array([scale]), np.array([tensor.zero_point]))


def weights_of(call: Call) -> Packed:
    """The weights of a layer."""
    packed = call.arguments.get("packed_weight", call.arguments.get("W_prepack"))
    if not isinstance(packed, Packed):
        raise UnsupportedError("weights of a kind that nmpsim does not know")
    return packed
