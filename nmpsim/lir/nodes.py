"""Glow's low-level IR as data: types, weights, instructions, module.

A module is what the text says plus the constants' values. Everything is frozen; a pass makes a
new module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place
from nmpsim.records import frozen

ELEM_DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(np.uint16),  # raw bits: NumPy has no bfloat16
    "i8": np.dtype(np.int8),
    "ui8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "uindex8": np.dtype(np.uint8),
    "index32": np.dtype(np.int32),
    "index64": np.dtype(np.int64),
    "i64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
    "ui16": np.dtype(np.uint16),
}
"""LIR element name, or ui16, which only users have -> how its values lie in memory."""
MODULE_ELEMS = tuple(elem for elem in ELEM_DTYPES if elem != "ui16")

QUANTIZED_ELEMS = frozenset({"i8", "ui8", "i16", "i32"})
QUANTIZABLE_ELEMS = QUANTIZED_ELEMS | {"i64"}
"""Those that may have scale and offset; i64 is the bias of TFLite's Int16 layers."""


@frozen
class Span:
    """A place in the text: 1-based line and column of its first character; line 0 if it is none."""

    line: int
    column: int
    node: str = ""
    """The operation of a model's file that it was made for, where there is no text."""

    def place(self, file: str | None) -> Place:
        """The same for messages; ``file`` is what it is in."""
        return Place(file, self.line, self.column, node=self.node)


@frozen
class Quantization:
    """``real = scale * (q - offset)``; low and high are the real range as the dump prints it."""

    scale: float
    offset: int
    low: float
    high: float


@frozen
class TensorType:
    """Element kind, shape and, for a quantized tensor, scale and offset (Glow's zero point)."""

    elem: str
    shape: tuple[int, ...]
    quant: Quantization | None = None
    alignments: tuple[int, ...] = ()
    """The ``:n`` of padded dimensions, one a dimension (1 where not printed); () if none is."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """How one element lies in memory."""
        return ELEM_DTYPES[self.elem]

    @property
    def elements(self) -> int:
        """Number of elements; a scalar has one."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes without any padding."""
        return self.elements * self.dtype.itemsize


@frozen
class WeightVar:
    """A constant, or an input or output of the program (``mutable``)."""

    name: str
    type: TensorType
    constant: bool
    span: Span = attrs.field(eq=False)


@frozen
class Operand:
    """``@in``, ``@out`` or ``@inout`` and the name without ``%``."""

    kind: str
    name: str
    span: Span = attrs.field(eq=False)


AttributeValue = int | float | str | TensorType | tuple[int, ...] | tuple[float, ...]
"""What an attribute may hold: INT, FLOAT, WORD, type, or a list of numbers (a tuple here)."""


@frozen
class Instruction:
    """One line of ``code``."""

    number: int
    name: str
    opcode: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, AttributeValue]
    span: Span = attrs.field(eq=False)
    predicate: str | None = None
    attribute_spans: Mapping[str, Span] = attrs.field(factory=dict, eq=False)
    """Where each attribute's name is."""


@frozen
class Module:
    """A whole program; ``constants`` is empty until weights are attached."""

    name: str
    weights: tuple[WeightVar, ...]
    instructions: tuple[Instruction, ...]
    constants: Mapping[str, npt.NDArray[Any]] = attrs.field(factory=dict, eq=False)
    file: str | None = attrs.field(default=None, eq=False)
    """Where the text came from, for messages."""
    floats: Mapping[str, npt.NDArray[np.float32]] = attrs.field(factory=dict, eq=False)
    """What constants were before they were quantized, in their shapes, where that is known."""
