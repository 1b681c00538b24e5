"""A graph of tensors and what is done with them, integers or real numbers, as data.

Operators are named as in ONNX. The readers of all formats make such a graph, and one lowering makes
LIR of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.imported_model import NotConstantError, UnsupportedError

Array = npt.NDArray[Any]
Constants = Mapping[str, Array]
Shape = tuple[int, ...]
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}
"""Number of an element type in ``onnx.proto`` -> as NumPy calls it."""


LIMITS = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16", "int32")
}
"""Types of quantized tensors -> their smallest and largest integer."""
MOVED = {"uint8": 128, "uint16": 32768}
"""Unsigned types -> how much less the module holds of them."""


@attrs.frozen(eq=False)
class Quantized:
    """A tensor, and what its integers stand for."""

    name: str
    dtype: str
    """As NumPy calls it; empty if neither a zero point nor the values tell."""
    scales: npt.NDArray[np.float32]
    """[1], or one for each index of a dimension"""
    zero_points: npt.NDArray[np.int64]
    """As many as scales."""

    @property
    def scale(self) -> float:
        """The one scale."""
        self._has_one_scale()
        return float(self.scales[0])

    @property
    def zero_point(self) -> int:
        """The one zero point, as the file has it."""
        self._has_one_scale()
        return int(self.zero_points[0])

    def same_as(self, other: Quantized) -> bool:
        """Whether the same integer is the same number."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
        )

    def _has_one_scale(self) -> None:
        if self.scales.size != 1:
            raise UnsupportedError(f"{self.name} has {self.scales.size} scales")


@attrs.frozen(eq=False)
class Integers:
    """How a node is computed on integers, whatever form the file has it in."""

    kind: str
    """Of the operation, as ONNX calls it on real numbers: Conv."""
    sources: tuple[Quantized, ...]
    result: Quantized
    bias: str = ""
    """Name of a constant on the scale of the sum."""
    limits: tuple[float, float | None] | None = None
    """Of a ReLU or clip after it, real numbers; None above: no limit."""
    reals: tuple[Node, ...] = ()
    """Where ONNX Runtime computes it in float32: these nodes, from conversion to conversion."""


@attrs.frozen(eq=False)
class Node:
    """An operator of the graph."""

    index: int
    op: str
    """Its kind, after its domain where that is not ONNX's own: com.microsoft.QLinearAdd."""
    inputs: tuple[str, ...]
    """Names of tensors; empty where an optional one is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Numbers, text, lists of them, and arrays."""
    title: str = ""
    """What a reader is told instead of its label, of a node that no ONNX file has."""
    integers: Integers | None = None
    """How it is computed on integers; None on real numbers, or on elements of any type."""

    @property
    def kind(self) -> str:
        """The operation: ``op``, or what it is on integers."""
        return self.integers.kind if self.integers else self.op

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads; on integers without parameters and the bias."""
        if self.integers:
            return tuple(source.name for source in self.integers.sources)
        return tuple(name for name in self.inputs if name)

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        if self.integers:
            return (self.integers.result.name,)
        return tuple(name for name in self.outputs if name)

    @property
    def label(self) -> str:
        """For a reader: number, kind, and the tensor that it makes."""
        return self.title or f"{self.index} {self.op} {self.outputs[0]}"

    def input(self, place: int) -> str:
        """An input's name; empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""


@attrs.frozen(eq=False)
class Input:
    """An input of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    """A dimension that the file leaves open is 1; None if it leaves all open."""


@attrs.frozen(eq=False)
class Declared:
    """What a file says of a tensor."""

    kind: Quantized | str
    """What its integers stand for, or its element type as NumPy calls it."""
    shape: tuple[int, ...]


@attrs.frozen(eq=False)
class Graph:
    """The main graph, in the order in which it is computed."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    opset: int
    """Version of ONNX's own operators."""
    open_inputs: tuple[str, ...] = ()
    """Inputs with open dimensions besides the first one, which were taken as 1: name and an example
    of a shape, as ``--input-shape`` takes them."""
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, Quantized] = MappingProxyType({})
    """What the integers of tensors stand for."""
    declared: Mapping[str, Declared] = MappingProxyType({})
    """Tensors whose kind and shape the file gives, where it gives those of all."""
    layers: Mapping[str, str] = MappingProxyType({})
    """Tensor -> what the layers that make it are called, if not as it."""
    channels_last: bool = False
    """Whether images have their channels last, instead of second."""


def quantized(constants: Constants, name: str, scale: str, zero_point: str) -> Quantized:
    """A tensor by the names of its scale and zero point, which are constants."""
    given_scales = constant(constants, scale, "a scale")
    if given_scales.ndim > 1 and given_scales.size > 1:
        raise UnsupportedError(f"blocks of scales {list(given_scales.shape)}")
    scales = given_scales.reshape(-1)
    dtype = str(constant(constants, name).dtype) if name in constants else ""
    zeros = np.zeros(scales.size, np.int64)
    if zero_point:
        given = constant(constants, zero_point)
        dtype, zeros = str(given.dtype), given.reshape(-1)
    if dtype and dtype not in LIMITS:
        raise UnsupportedError(f"{name} is {dtype}")
    if scales.dtype != np.float32 or zeros.size not in (1, scales.size) or scales.size == 0:
        raise UnsupportedError(f"{scales.size} scales of {scales.dtype}, {zeros.size} zero points")
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise UnsupportedError(f"a scale of {name} that is not finite and above 0")
    wide = np.broadcast_to(zeros.astype(np.int64), scales.shape)
    return Quantized(name, dtype, scales.astype(np.float32), wide)


def plain_integers(name: str, dtype: str) -> Quantized:
    """Integers that stand for themselves."""
    return Quantized(name, dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def constant(constants: Constants, name: str, what: str = "an input") -> Array:
    """A tensor's values, which are known; ``what`` it is for a reader if it has no name."""
    if name not in constants:
        raise NotConstantError(name, what)
    values = constants[name]
    if values.dtype == object:
        raise UnsupportedError(f"{name} is {values.item()}")
    return values


MOVES = (
    *("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"),
    *("Flatten", "Expand", "Gather", "Resize", "Tile", "Split", "Concat", "Identity", "Dropout"),
    *("DepthToSpace", "GlobalMaxPool", "Pad", "SpaceToDepth", "Upsample"),
)
"""Operators whose results are of their first input's kind."""
