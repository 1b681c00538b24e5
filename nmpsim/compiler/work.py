"""What the passes hand to each other: buffers, operands, and the layers' work."""

from __future__ import annotations

import math

import attrs

from nmpsim.lir.nodes import Instruction, TensorType


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
    def is_int8(self) -> bool:
        """True for what the device's arithmetic works on."""
        return self.type.elem == "i8" and self.type.quant is not None

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
    host_reason: str = ""
    """Why the device cannot do it; empty if it can."""
    clip_low: int | None = None
    """Lower clip of activations that were fused into it."""
    clip_high: int | None = None
    fused: tuple[Operation, ...] = ()
    """The activations, in order; the output is the last one's."""

    @property
    def output(self) -> View:
        """Where the result goes."""
        last = self.fused[-1] if self.fused else self
        return last.outs()[0]

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
