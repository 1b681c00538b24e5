"""What the passes hand to each other: buffers, operands, and the layers' work."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.lir.display_names import operation_name
from nmpsim.lir.nodes import Instruction, TensorType
from nmpsim.lir.opcodes import OPCODES, Kind

NARROW = ("i8", "i16")
"""Elements that the units work on, in the order of the descriptors' word ``element``."""
ACCUMULATOR_BITS = (32, 48)


@attrs.frozen
class Buffer:
    """A piece of DRAM: a weight, an input, an output or an activation."""

    name: str
    nbytes: int
    constant: bool
    mutable_weight: bool = False


@attrs.frozen
class View:
    """A tensor in a buffer: contiguous, row-major, from ``byte_offset``."""

    name: str
    buffer: Buffer
    byte_offset: int
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.type.shape

    @property
    def is_narrow(self) -> bool:
        """True for what the device's arithmetic works on: quantized Int8 and Int16."""
        return self.type.elem in NARROW and self.type.quant is not None

    @property
    def element(self) -> int:
        """The element as a descriptor has it; also the log2 of its bytes."""
        return NARROW.index(self.type.elem)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return int(self.type.dtype.itemsize)

    @property
    def accumulator_bits(self) -> int:
        """Bits of the device's sums of products of such elements."""
        return ACCUMULATOR_BITS[self.element]

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer of the element."""
        info = np.iinfo(self.type.dtype)
        return int(info.min), int(info.max)

    def held(self, value: int) -> int:
        """``value`` clipped to the element."""
        low, high = self.limits
        return max(low, min(high, value))

    @property
    def scale(self) -> float:
        """Exact scale of a quantized tensor."""
        return self.type.quant.scale if self.type.quant else 1.0

    @property
    def offset(self) -> int:
        """Zero point of a quantized tensor."""
        return self.type.quant.offset if self.type.quant else 0

    def meets(self, other: View) -> bool:
        """True if both hold a byte of the same buffer."""
        return (
            self.buffer.name == other.buffer.name
            and self.byte_offset < other.byte_offset + other.type.nbytes
            and other.byte_offset < self.byte_offset + self.type.nbytes
        )


@attrs.frozen
class Operation:
    """An LIR instruction with its operands resolved; what a layer begins as."""

    instruction: Instruction
    operands: tuple[View, ...]
    """In print order."""
    numerics: str = "glow-int"
    """Whose arithmetic it follows, as ``--numerics`` has it."""
    chosen: bool = False
    """Whether its numerics were given for it by name."""
    host_reason: str = ""
    """Why the device cannot do it; empty if it can."""
    clip_low: int | None = None
    """Lower clip of activations that were fused into it."""
    clip_high: int | None = None
    fused: tuple[Operation, ...] = ()
    """The activations, in order; the output is the last one's."""
    clipped_sides: int = 0
    """Sides of the result that the network clips, as in the descriptor's ``clip_wanted``."""

    @property
    def kind(self) -> Kind:
        """What kind of operation it is."""
        return OPCODES[self.instruction.opcode].kind

    @property
    def operation_name(self) -> str:
        """Common name of the operation, such as ``conv1x1`` or ``fc``."""
        shape = self.operands[1].shape if len(self.operands) > 1 else ()
        channels = shape[-1] if shape else None
        return operation_name(self.instruction.opcode, self.instruction.attributes, channels)

    @property
    def output(self) -> View:
        """Where the result goes."""
        return self.last.outs()[0]

    @property
    def last(self) -> Operation:
        """The last of the operations that it consists of."""
        return self.fused[-1] if self.fused else self

    def outs(self) -> tuple[View, ...]:
        """Operands that are written."""
        return tuple(
            view
            for view, operand in zip(self.operands, self.instruction.operands, strict=True)
            if operand.kind != "@in"
        )

    def ins(self) -> tuple[View, ...]:
        """Operands that are read."""
        return tuple(
            view
            for view, operand in zip(self.operands, self.instruction.operands, strict=True)
            if operand.kind != "@out"
        )

    def buffers(self) -> frozenset[str]:
        """Names of all buffers that it touches, fused activations included."""
        own = {view.buffer.name for view in self.operands}
        return frozenset(own.union(*(f.buffers() for f in self.fused)))


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from index to index of each dimension."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
