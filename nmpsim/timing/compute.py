"""Cycles of the MAC array and of the vector unit.

The array takes ``mac_in_lanes`` consecutive input values and ``mac_out_lanes`` output channels
in a cycle; a row of the window is contiguous (columns times channels), so only its end is padded.
Bank conflicts of the scratchpad are not modelled.
"""

from __future__ import annotations

from typing import Any


def ceil_div(value: int, by: int) -> int:
    """``value / by`` rounded up, for positive integers."""
    return (value + by - 1) // by


def conv_cycles(
    pixels: int,
    kernel_h: int,
    kernel_w: int,
    in_channels: int,
    out_channels: int,
    groups: int,
    costs: Any,
) -> int:
    """Convolution of ``pixels`` results; ``in_channels`` are those of a group."""
    steps = kernel_h * ceil_div(kernel_w * in_channels, costs.mac_in_lanes)
    blocks = groups * ceil_div(out_channels // groups, costs.mac_out_lanes)
    return int(costs.mac_startup_cycles + pixels * steps * blocks)


def depthwise_cycles(pixels: int, taps: int, channels: int, costs: Any) -> int:
    """Depthwise convolution: one tap of ``mac_out_lanes`` channels in a cycle."""
    return int(costs.mac_startup_cycles + pixels * taps * ceil_div(channels, costs.mac_out_lanes))


def gemm_cycles(rows: int, inner: int, columns: int, costs: Any) -> int:
    """Product of two matrices."""
    steps = ceil_div(inner, costs.mac_in_lanes) * ceil_div(columns, costs.mac_out_lanes)
    return int(costs.mac_startup_cycles + rows * steps)


def vector_cycles(rows: int, columns: int, costs: Any) -> int:
    """``rows`` times ``columns`` contiguous elements, ``vector_lanes`` a cycle."""
    return int(costs.vector_startup_cycles + rows * ceil_div(columns, costs.vector_lanes))


def pool_cycles(pixels: int, taps: int, channels: int, costs: Any) -> int:
    """One tap of ``vector_lanes`` channels in a cycle."""
    return vector_cycles(pixels * taps, channels, costs)


def transpose_cycles(elements: int, costs: Any) -> int:
    """One element a cycle: each may come from anywhere."""
    return int(costs.vector_startup_cycles + elements)


FUNCTIONS = (
    ceil_div,
    conv_cycles,
    depthwise_cycles,
    gemm_cycles,
    vector_cycles,
    pool_cycles,
    transpose_cycles,
)
"""What the compiled engine compiles, callees first."""
