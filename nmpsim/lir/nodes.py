"""Glow's low-level IR as data: types, weights, instructions and modules.

A module is what the text says plus the constants' values. Everything is frozen; a pass makes a
new module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Arrays, Shape
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
"""Element type -> dtype in memory; ui16 exists for users only."""
MODULE_ELEMS = tuple(elem for elem in ELEM_DTYPES if elem != "ui16")

QUANTIZED_ELEMS = frozenset({"i8", "ui8", "i16", "i32"})
QUANTIZABLE_ELEMS = QUANTIZED_ELEMS | {"i64"}
"""Element types that may have scale and offset; i64 is a bias of TFLite's Int16 layers."""

MAX_RANK = 6
"""Glow's limit on the number of dimensions."""
MAX_ELEMENTS = 2**31 - 1
"""Largest number of elements of a tensor; the device addresses 32 bits."""
MAX_INTEGER = 2**31 - 1
"""Largest integer attribute, such as a size, step or index."""


INITIAL_SUFFIX = ".initial"
"""Suffix of the constant with the value that a state tensor has before the first run."""


@frozen
class SourcePosition:
    """Position in LIR text: 1-based line and column, or line 0 if there is no text."""

    line: int
    column: int
    node: str = ""
    """Operation of a model's file from which the instruction was made, if there is no text."""

    def place(self, file: str | None) -> Place:
        """Return this position in a file as a ``Place`` for error messages."""
        return Place(file, self.line, self.column, node=self.node)


@frozen
class Quantization:
    """Quantization ``real = scale * (q - offset)``: its scale, its offset and the real range."""

    scale: float
    offset: int
    low: float
    high: float


@frozen
class TensorType:
    """Type of a tensor: element type, shape, and scale and offset if it is quantized."""

    elem: str
    shape: Shape
    quant: Quantization | None = None
    alignments: tuple[int, ...] = ()
    """Alignment ``:n`` of each dimension (1 if not printed); () if no dimension has one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of an element in memory."""
        return ELEM_DTYPES[self.elem]

    @property
    def elements(self) -> int:
        """Number of elements of the tensor; a scalar has one element."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes without padding."""
        return self.elements * self.dtype.itemsize


def make_quantized_type(elem: str, shape: Shape, scale: float, zero_point: int) -> TensorType:
    """Make the type of a quantized tensor; compute its real range from scale and offset."""
    half = 1 << (int(elem[1:]) - 1)
    low, high = (scale * (limit - zero_point) for limit in (-half, half - 1))
    return TensorType(elem, shape, Quantization(scale, zero_point, low, high))


@frozen
class WeightVar:
    """Declaration of a constant, an input or an output of the program."""

    name: str
    type: TensorType
    constant: bool
    span: SourcePosition = attrs.field(eq=False)


@frozen
class Operand:
    """Operand of an instruction: access kind (``@in``, ``@out``, ``@inout``) and name."""

    kind: str
    name: str
    span: SourcePosition = attrs.field(eq=False)


AttributeValue = int | float | str | TensorType | tuple[int, ...] | tuple[float, ...]
"""Value of an attribute: INT, FLOAT, WORD, type, or a list of numbers (a tuple here)."""


@frozen
class Instruction:
    """Instruction of a program: one line of the section ``code``."""

    number: int
    name: str
    opcode: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, AttributeValue]
    span: SourcePosition = attrs.field(eq=False)
    predicate: str | None = None
    attribute_spans: Mapping[str, SourcePosition] = attrs.field(factory=dict, eq=False)
    """Position of each attribute's name."""


@frozen
class Module:
    """Module of LIR: declarations, instructions, and the values of constants if attached."""

    name: str
    weights: tuple[WeightVar, ...]
    instructions: tuple[Instruction, ...]
    constants: Arrays = attrs.field(factory=dict, eq=False)
    file: str | None = attrs.field(default=None, eq=False)
    """File of the text, for messages."""
    floats: Mapping[str, npt.NDArray[np.float32]] = attrs.field(factory=dict, eq=False)
    """Values of constants before quantization, as far as known."""

    @property
    def states(self) -> Mapping[str, str]:
        """State tensor -> constant with its initial value.

        A state tensor is a mutable weight for which there is a constant of the same type, with the
        suffix INITIAL_SUFFIX. A run reads and then writes it, and the next run begins with this.
        """
        types = {weight.name: weight.type for weight in self.weights if weight.constant}
        return {
            weight.name: weight.name + INITIAL_SUFFIX
            for weight in self.weights
            if not weight.constant and types.get(weight.name + INITIAL_SUFFIX) == weight.type
        }


def find_size_problem(shape: Sequence[int]) -> tuple[str, str] | None:
    """Return (found, expected) if the rank or size of a shape exceeds its limit, else None."""
    if len(shape) > MAX_RANK:
        return f"{len(shape)} dimensions", f"at most {MAX_RANK} dimensions"
    elements = math.prod(max(abs(dim), 1) for dim in shape)
    if elements > MAX_ELEMENTS:
        return f"{elements} elements", f"at most {MAX_ELEMENTS}"
    return None
