"""Bounds to which the network clips results, quantized with a tensor's scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from nmpsim.compiler.numerics import get_profile
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.lir.opcodes import OPCODES


def get_input_range(op: Operation) -> tuple[int, int]:
    """Return the quantized range to which an activation clips its input."""
    return get_clip_range(op, op.operands[1])


def get_clip_range(op: Operation, grid: BufferView) -> tuple[int, int]:
    """Return the quantized range to which an operation clips, within the integer type."""
    low, high = get_clip_bounds(op, grid)
    lowest, highest = grid.limits
    return lowest if low is None else grid.clamp(low), highest if high is None else grid.clamp(high)


def get_clip_bounds(op: Operation, grid: BufferView) -> tuple[int | None, int | None]:
    """Return the quantized bounds to which an operation clips, with None for a missing bound.

    They come from a fused activation or from the opcode; None if there is no bound.
    """
    attributes = op.instruction.attributes
    limits: Sequence[object | None] = OPCODES[op.instruction.opcode].limits or (None, None)
    fused = attributes.get("FusedActivation")
    if fused == "RELU":
        limits = 0.0, None
    elif fused == "CLIP":
        limits = cast("tuple[float, float]", attributes["FusedActivationArgs"])
    reals = (attributes[one] if isinstance(one, str) else one for one in limits)
    quantize = get_profile(op).quantize
    low, high = (None if one is None else quantize(float(str(one)), grid) for one in reals)
    return low, high


def find_clipped_sides(op: Operation, grid: BufferView) -> int:
    """Return a bit mask of the sides on which an operation's bound is within the integer type.

    The bits are those of ``clip_wanted``. Where the bound is the limit of the type, values beyond
    it count as clipped by the network, not as saturated.
    """
    low, high = get_clip_bounds(op, grid)
    lowest, highest = grid.limits
    below = WANTED_LOW if low is not None and low >= lowest else 0
    above = WANTED_HIGH if high is not None and high <= highest else 0
    return below | above


def find_saturating_sides(op: Operation, grid: BufferView) -> int:
    """Return a bit mask of the sides on which an operation's bound equals the type's limit."""
    low, high = get_clip_bounds(op, grid)
    lowest, highest = grid.limits
    return (WANTED_LOW if low == lowest else 0) | (WANTED_HIGH if high == highest else 0)


def get_hidden_relu_side(op: Operation) -> int:
    """Return the low side's bit if the smallest integer represents zero (a ReLU), else 0."""
    is_hidden = op.output.offset == op.output.limits[0]
    return WANTED_LOW if is_hidden and op.kind is not OpcodeKind.CONVERSION else 0


def keeps_quantization(op: Operation) -> bool:
    """Return whether the result of an operation has the scale and offset of its input."""
    out, source = op.operands
    return (out.scale, out.offset) == (source.scale, source.offset)
