"""Builds the graph of a file that declares the kind and shape of its tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import (
    LIMITS,
    MOVED,
    Array,
    Declared,
    Graph,
    Input,
    Integers,
    Node,
    Quantized,
    Shape,
)
from nmpsim.frontends.graph.operation import INSTRUCTION
from nmpsim.frontends.graph.program import Problems
from nmpsim.frontends.imported_model import UnsupportedError

OPSET = 21
"""Of ONNX, whose operators the graph has."""
_REFUSED = "nmpsim.Refused"
"""Kind of the node that stands for an operation that could not be drawn."""


class Drawing(ABC):
    """Collects nodes, constants and declarations; a subclass for each format names its tensors."""

    def __init__(self) -> None:
        self.steps: list[Node] = []
        self.constants: dict[str, Array] = {}
        self._declared: dict[str, Declared] = {}
        self._layers: dict[str, str] = {}
        self._taken: set[str] = set()
        self._begin = self._index = 0
        self._title = ""

    def graph(self, inputs: Mapping[str, tuple[str, Shape]], outputs: Sequence[str]) -> Graph:
        """The finished graph; ``inputs`` gives the element type and shape of each."""
        kinds = {name: one.kind for name, one in self._declared.items()}
        return Graph(
            tuple(self.steps),
            self.constants,
            tuple(Input(name, dtype, shape) for name, (dtype, shape) in inputs.items()),
            tuple(outputs),
            OPSET,
            parameters={name: k for name, k in kinds.items() if isinstance(k, Quantized)},
            declared=self._declared,
            layers=self._layers,
        )

    def begin(self, index: int, title: str) -> None:
        """Begin an operation of the file: its number, and its label in messages and fates."""
        self._index, self._title, self._begin = index, title, len(self.steps)

    def attempt(self, draw: Callable[[], None], problems: Problems) -> None:
        """Draw the operation. If it is refused, note the problem and stand in for its results, so
        that operations that read them are checked too."""
        try:
            draw()
        except UnsupportedError as why:
            problems.add(self._index, self._title, why)
            del self.steps[self._begin :]
            names: list[str] = []
            with suppress(UnsupportedError):
                names.extend(self.outputs())
            self.steps.append(Node(self._index, _REFUSED, (), tuple(names), {}, self._title))

    @abstractmethod
    def outputs(self) -> Iterator[str]:
        """Names of the operation's results; each is declared when it is taken."""

    def first_output(self) -> str:
        """Name of the first result: the default output of a node."""
        return next(self.outputs())

    # --- tensors -----------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """A new unique name."""
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}__{count}"
        self._taken.add(found)
        return found

    def name_layer(self, name: str, layer: str) -> None:
        """Name the layers that compute a tensor, if not after the tensor."""
        if layer != name:
            self._layers[name] = layer

    def declare(self, name: str, kind: Quantized | str, shape: Shape) -> str:
        """Declare kind and shape of a tensor; return its name."""
        own = attrs.evolve(kind, name=name) if isinstance(kind, Quantized) else kind
        self._declared[name] = Declared(own, shape)
        return name

    def is_declared(self, name: str) -> bool:
        """Whether a tensor is declared."""
        return name in self._declared

    def kind(self, name: str) -> Quantized | str:
        """The declared kind of a tensor."""
        return self._declared[name].kind

    def quantized_kind(self, name: str) -> Quantized:
        """The declared quantization of a tensor, which must have one."""
        kind = self.kind(name)
        if isinstance(kind, str):
            raise UnsupportedError(f"{name} is {kind}")
        return kind

    def constant(self, name: str, values: Array, kind: Quantized | str = "") -> str:
        """Add a constant; return its name."""
        name = self.fresh(name)
        self.constants[name] = values
        if kind:
            self.declare(name, kind, values.shape)
        return name

    # --- steps -------------------------------------------------------------------------------

    def add(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its first output."""
        given = {name: value for name, value in attributes.items() if value is not None}
        outputs = outputs or (self.first_output(),)
        self.steps.append(Node(self._index, op, tuple(inputs), outputs, given, self._title))
        return outputs[0]

    def instruction(self, opcode: str, inputs: Sequence[str], *output: str, **words: Any) -> str:
        """Add a node for one LIR instruction; return the name of its output.

        Keyword arguments in lower case are attributes of the node, others of the instruction.
        """
        own = {key: words.pop(key) for key in list(words) if key.islower()}
        return self.add(INSTRUCTION, inputs, *output, opcode=opcode, words=words, **own)

    def end_with(self, output: str) -> None:
        """Rename the output of the last node."""
        self.steps[-1] = attrs.evolve(self.steps[-1], outputs=(output,))

    def computed(
        self,
        kind: str,
        sources: Sequence[str],
        *output: str,
        bias: str = "",
        limits: tuple[float, float | None] | None = None,
        **attributes: Any,
    ) -> None:
        """Add an integer operation of a kind that ONNX has."""
        result = self.quantized_kind(self.add(kind, sources, *output, **attributes))
        quantized = tuple(map(self.quantized_kind, sources))
        integers = Integers(kind, quantized, result, bias, limits)
        self.steps[-1] = attrs.evolve(self.steps[-1], integers=integers)

    def look_up(self, source: str, results: Array, *outputs: str) -> str:
        """Add a look-up table: ``results`` for every stored integer, the lowest first."""
        output, *_ = outputs or (self.first_output(),)
        kind = self.quantized_kind(output)
        dtype = "int8" if results.size == 256 else "int16"
        zeros = kind.zero_points - MOVED.get(kind.dtype, 0)
        table = np.clip(results, *LIMITS[dtype]).astype(dtype)
        held = attrs.evolve(kind, dtype=dtype, zero_points=zeros)
        mapping = self.constant(f"{self._layers.get(output, output)}_table", table, held)
        return self.instruction("intlookuptable", [source, mapping], output)
