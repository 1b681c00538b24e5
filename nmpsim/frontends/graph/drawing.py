"""A graph under construction, one operation of the file after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.operation import INSTRUCTION
from nmpsim.frontends.graph.program import Problems
from nmpsim.frontends.graph.steps import (
    LIMITS,
    MOVED,
    Array,
    Declared,
    Graph,
    Input,
    IntegerOperation,
    Node,
    Quantized,
    Shape,
    Step,
)
from nmpsim.frontends.imported import UnsupportedError

OPSET = 21
"""Of ONNX, whose operators the graph has."""
_REFUSED = "nmpsim.Refused"
"""Kind of the node that stands for an operation that could not be drawn."""


class Drawing(ABC):
    """Collects steps, and what is known of their tensors; those of a format know its operations."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}
        self._declared: dict[str, Declared] = {}
        self._layers: dict[str, str] = {}
        self._taken: set[str] = set()
        self._begin = self._index = 0
        self._title = ""

    def graph(self, inputs: Mapping[str, tuple[str, Shape]], outputs: Sequence[str]) -> Graph:
        """All that was drawn; inputs have an element type and a shape."""
        kinds = {name: one.kind for name, one in self._declared.items()}
        return Graph(
            tuple(step if isinstance(step, Node) else step.node for step in self.steps),
            self.constants,
            tuple(Input(name, dtype, shape) for name, (dtype, shape) in inputs.items()),
            tuple(outputs),
            OPSET,
            parameters={name: k for name, k in kinds.items() if isinstance(k, Quantized)},
            declared=self._declared,
            layers=self._layers,
        )

    def begin(self, index: int, title: str) -> None:
        """Draw an operation from here on; its number in the file, and what a reader is told."""
        self._index, self._title, self._begin = index, title, len(self.steps)

    def attempt(self, draw: Callable[[], None], problems: Problems) -> None:
        """Draw the operation; or leave it out, so that readers of its results are judged."""
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
        """What the operation makes, each declared when it is asked for."""

    def first_output(self) -> str:
        """The first of these, where a step is not told what it makes."""
        return next(self.outputs())

    # --- tensors -----------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """A name that no tensor has."""
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}__{count}"
        self._taken.add(found)
        return found

    def name_layer(self, name: str, layer: str) -> None:
        """Say what the layers are called that make a tensor, if not as it."""
        if layer != name:
            self._layers[name] = layer

    def declare(self, name: str, kind: Quantized | str, shape: Shape) -> str:
        """Say what a tensor is; its name."""
        own = attrs.evolve(kind, name=name) if isinstance(kind, Quantized) else kind
        self._declared[name] = Declared(own, shape)
        return name

    def is_declared(self, name: str) -> bool:
        """Whether it was said what a tensor is."""
        return name in self._declared

    def kind(self, name: str) -> Quantized | str:
        """What was said of a tensor."""
        return self._declared[name].kind

    def quantized_kind(self, name: str) -> Quantized:
        """The same of a quantized tensor."""
        kind = self.kind(name)
        if isinstance(kind, str):
            raise UnsupportedError(f"{name} is {kind}")
        return kind

    def constant(self, name: str, values: Array, kind: Quantized | str = "") -> str:
        """A constant that the file does not have in this form; its name."""
        name = self.fresh(name)
        self.constants[name] = values
        if kind:
            self.declare(name, kind, values.shape)
        return name

    # --- steps -------------------------------------------------------------------------------

    def add(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """One of ONNX's operators; the name of what it makes first."""
        given = {name: value for name, value in attributes.items() if value is not None}
        outputs = outputs or (self.first_output(),)
        self.steps.append(Node(self._index, op, tuple(inputs), outputs, given, self._title))
        return outputs[0]

    def instruction(self, opcode: str, inputs: Sequence[str], *output: str, **words: Any) -> str:
        """An instruction of LIR; words in small letters are what its node knows besides."""
        own = {key: words.pop(key) for key in list(words) if key.islower()}
        return self.add(INSTRUCTION, inputs, *output, opcode=opcode, words=words, **own)

    def end_with(self, output: str) -> None:
        """Let the last step make this tensor."""
        last = self.steps.pop()
        assert isinstance(last, Node)
        self.steps.append(attrs.evolve(last, outputs=(output,)))

    def computed(
        self,
        kind: str,
        sources: Sequence[str],
        *output: str,
        bias: str = "",
        limits: tuple[float, float | None] | None = None,
        **attributes: Any,
    ) -> None:
        """An operation on integers that ONNX has, too."""
        result = self.quantized_kind(self.add(kind, sources, *output, **attributes))
        node = self.steps.pop()
        assert isinstance(node, Node)
        quantized = tuple(map(self.quantized_kind, sources))
        self.steps.append(IntegerOperation(node, kind, quantized, result, bias, limits))

    def look_up(self, source: str, results: Array, *outputs: str) -> str:
        """A function of each integer, lowest first as they are held, by all of its results."""
        output, *_ = outputs or (self.first_output(),)
        kind = self.quantized_kind(output)
        dtype = "int8" if results.size == 256 else "int16"
        zeros = kind.zero_points - MOVED.get(kind.dtype, 0)
        table = np.clip(results, *LIMITS[dtype]).astype(dtype)
        held = attrs.evolve(kind, dtype=dtype, zero_points=zeros)
        mapping = self.constant(f"{self._layers.get(output, output)}_table", table, held)
        return self.instruction("intlookuptable", [source, mapping], output)
