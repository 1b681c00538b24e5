"""Bounds that the network clips results to, on a tensor's grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from nmpsim.compiler.numerics import get_profile
from nmpsim.compiler.operations import Operation, View
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.lir.opcode import Kind
from nmpsim.lir.opcodes import OPCODES


def input_range(op: Operation) -> tuple[int, int]:
    """Range that an activation that only clips clamps its input to."""
    return limits_on(op, op.operands[1])


def limits_on(op: Operation, grid: View) -> tuple[int, int]:
    """Return the range that an operation clips to, on a tensor's grid and within its type."""
    low, high = bounds_on(op, grid)
    lowest, highest = grid.limits
    return lowest if low is None else grid.held(low), highest if high is None else grid.held(high)


def bounds_on(op: Operation, grid: View) -> tuple[int | None, int | None]:
    """Return the bounds that an operation clips to, quantized but not limited to the type.

    They are those of a fused activation or of an opcode that clips; None where it has no bound.
    """
    attributes = op.instruction.attributes
    limits: Sequence[object | None] = OPCODES[op.instruction.opcode].limits or (None, None)
    fused = attributes.get("FusedActivation")
    if fused == "RELU":
        limits = 0.0, None
    elif fused == "CLIP":
        limits = cast("tuple[float, float]", attributes["FusedActivationArgs"])
    reals = (attributes[one] if isinstance(one, str) else one for one in limits)
    quantized = get_profile(op).quantized
    low, high = (None if one is None else quantized(float(str(one)), grid) for one in reals)
    return low, high


def clipped_sides(op: Operation, grid: View) -> int:
    """Return the sides on which an operation clips to a bound that the type holds.

    The bits are those of ``clip_wanted``. A bound may be the end of the type: what lies beyond it
    is clipped by the network, not saturated by the type.
    """
    low, high = bounds_on(op, grid)
    lowest, highest = grid.limits
    below = WANTED_LOW if low is not None and low >= lowest else 0
    above = WANTED_HIGH if high is not None and high <= highest else 0
    return below | above


def clipped_ends(op: Operation, grid: View) -> int:
    """Return the sides on which an operation clips to the very end of the type."""
    low, high = bounds_on(op, grid)
    lowest, highest = grid.limits
    return (WANTED_LOW if low == lowest else 0) | (WANTED_HIGH if high == highest else 0)


def hidden_relu(op: Operation) -> int:
    """Return the lower side if the result's type begins at real zero: it stands for a ReLU."""
    is_hidden = op.output.offset == op.output.limits[0]
    return WANTED_LOW if is_hidden and op.kind is not Kind.CONVERSION else 0


def keeps_scale(op: Operation) -> bool:
    """Return whether an operation of one input leaves its scale and zero point as they are."""
    out, source = op.operands
    return (out.scale, out.offset) == (source.scale, source.offset)
