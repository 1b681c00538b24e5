"""The compiler's representation of a program: buffers, views of them, and operations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.arrays import Array, Arrays, Shape
from nmpsim.lir.names import get_operation_name
from nmpsim.lir.nodes import Instruction, TensorType
from nmpsim.lir.opcodes import OPCODES, OpcodeKind

NARROW = ("i8", "i16")
"""Quantized element types of the device; the index is the descriptors' word ``element``."""
ACCUMULATOR_BITS = (32, 48)
"""Bits of the accumulator of each element type of ``NARROW``."""


@attrs.frozen
class Buffer:
    """Buffer in DRAM: a constant, an input, an output or an activation."""

    name: str
    nbytes: int
    constant: bool
    mutable_weight: bool = False


@attrs.frozen
class BufferView:
    """View of a buffer: a row-major tensor at a byte offset."""

    name: str
    buffer: Buffer
    byte_offset: int
    type: TensorType

    @property
    def shape(self) -> Shape:
        """Sizes of the tensor's dimensions."""
        return self.type.shape

    @property
    def is_narrow(self) -> bool:
        """Whether the tensor is quantized to Int8 or Int16, the types that the device supports."""
        return self.type.elem in NARROW and self.type.quant is not None

    @property
    def element(self) -> int:
        """Value of the descriptor word ``element``: 0 for Int8, 1 for Int16."""
        return NARROW.index(self.type.elem)

    @property
    def element_bytes(self) -> int:
        """Size of an element in bytes."""
        return int(self.type.dtype.itemsize)

    @property
    def accumulator_bits(self) -> int:
        """Width of the accumulator for the element type in bits."""
        return ACCUMULATOR_BITS[self.element]

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer of the element type."""
        info = np.iinfo(self.type.dtype)
        return int(info.min), int(info.max)

    @property
    def real_limits(self) -> tuple[float, float]:
        """Dequantized smallest and largest integer of the element type."""
        low, high = (self.scale * (limit - self.offset) for limit in self.limits)
        return low, high

    def clamp(self, value: int) -> int:
        """Clamp an integer to the range of the element type."""
        low, high = self.limits
        return max(low, min(high, value))

    @property
    def scale(self) -> float:
        """Scale of the tensor, or 1 if it is not quantized."""
        return self.type.quant.scale if self.type.quant else 1.0

    @property
    def offset(self) -> int:
        """Offset (zero point) of the tensor, or 0 if it is not quantized."""
        return self.type.quant.offset if self.type.quant else 0

    def get_constant_values(self, constants: Arrays) -> Array:
        """Return this constant's values from ``constants``, in the shape of the view."""
        whole = np.ascontiguousarray(constants[self.buffer.name]).reshape(-1)
        start = self.byte_offset // whole.itemsize
        return whole[start : start + self.type.elements].reshape(self.shape)

    def overlaps(self, other: BufferView) -> bool:
        """Return whether the byte ranges of two views overlap in one buffer."""
        return (
            self.buffer.name == other.buffer.name
            and self.byte_offset < other.byte_offset + other.type.nbytes
            and other.byte_offset < self.byte_offset + self.type.nbytes
        )


@attrs.frozen
class Operation:
    """Operation of the compiler: an LIR instruction, its operand views and fused activations."""

    instruction: Instruction
    operands: tuple[BufferView, ...]
    """In print order."""
    numerics: str = "glow-int"
    """Numerics profile, as named by ``--numerics``."""
    chosen: bool = False
    """Whether the profile was chosen for this operation by name."""
    factors: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict, eq=False)
    """Tables of factors of a formulas file, in place of those of the profile."""
    host_reason: str = ""
    """Why the operation runs on the host; empty if it runs on the device."""
    clip_low: int | None = None
    """Lower bound of the fused activations."""
    clip_high: int | None = None
    """Upper bound of the fused activations."""
    fused: tuple[Operation, ...] = ()
    """Activations fused into the operation, in order; the last one's output is the result."""
    clipped_sides: int = 0
    """Sides of the result that the network clips, as bits of the word ``clip_wanted``."""

    @property
    def kind(self) -> OpcodeKind:
        """Opcode kind, such as convolution or pool, on which the compilation depends."""
        return OPCODES[self.instruction.opcode].kind

    @property
    def operation_name(self) -> str:
        """Common name of the operation, such as ``conv1x1`` or ``fc``."""
        shape = self.operands[1].shape if len(self.operands) > 1 else ()
        channels = shape[-1] if shape else None
        return get_operation_name(self.instruction.opcode, self.instruction.attributes, channels)

    @property
    def output(self) -> BufferView:
        """View of the result, after fused activations."""
        return self.last_fused.list_outputs()[0]

    @property
    def last_fused(self) -> Operation:
        """Last fused activation, or the operation itself if no activation is fused."""
        return self.fused[-1] if self.fused else self

    @property
    def is_unsigned(self) -> bool:
        """Whether Int8 values represent uint8 values minus 128."""
        return bool(self.get_number("Unsigned"))

    def get_integers(self, name: str) -> tuple[int, ...]:
        """Return the value of an integer-list attribute, or () if it is missing."""
        values = self.instruction.attributes.get(name)
        return tuple(int(value) for value in values) if isinstance(values, tuple) else ()

    def get_number(self, name: str, default: float | None = None) -> Any:
        """Return the value of a number attribute, or ``default`` if it is missing."""
        return self.instruction.attributes.get(name, default)

    def list_outputs(self) -> tuple[BufferView, ...]:
        """Return the views of all written operands, excluding the results of fused activations."""
        return tuple(
            view
            for view, operand in zip(self.operands, self.instruction.operands, strict=True)
            if operand.kind != "@in"
        )

    def list_inputs(self) -> tuple[BufferView, ...]:
        """Return the views of all operands that the operation reads."""
        return tuple(
            view
            for view, operand in zip(self.operands, self.instruction.operands, strict=True)
            if operand.kind != "@out"
        )

    def list_buffers(self) -> frozenset[str]:
        """Return the names of all buffers that the operation and its fused activations use."""
        own = {view.buffer.name for view in self.operands}
        return frozenset(own.union(*(f.list_buffers() for f in self.fused)))


def compute_row_major_strides(shape: Shape) -> tuple[int, ...]:
    """Compute the strides of a row-major array, in elements."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
