"""Cycles of the MAC array, of the vector unit and of the DRAM.

The array takes ``mac_in_lanes`` consecutive input values and ``mac_out_lanes`` output channels
in a cycle; a row of the window is contiguous (columns times channels), so only its end is padded.
Int16 values (``wide`` 1; Int8 is 0) are taken at half the rate: half the input values of the
array, half the lanes of the vector unit, half the channels of a depthwise convolution. Bank
conflicts of the scratchpad are not modelled.
"""

from __future__ import annotations

from typing import Any


def ceil_div(value: int, by: int) -> int:
    """``value / by`` rounded up, for positive integers."""
    return (value + by - 1) // by


def lanes_of(lanes: int, wide: int) -> int:
    """Lanes that are there for elements of ``1 << wide`` bytes; at least one."""
    return max(lanes >> wide, 1)


def conv_cycles(
    pixels: int,
    kernel_h: int,
    kernel_w: int,
    in_channels: int,
    out_channels: int,
    groups: int,
    wide: int,
    costs: Any,
) -> int:
    """Convolution of ``pixels`` results; ``in_channels`` are those of a group."""
    steps = kernel_h * ceil_div(kernel_w * in_channels, lanes_of(costs.mac_in_lanes, wide))
    blocks = groups * ceil_div(out_channels // groups, costs.mac_out_lanes)
    cycles: int = costs.mac_startup_cycles + pixels * steps * blocks
    return cycles


def depthwise_cycles(pixels: int, taps: int, channels: int, wide: int, costs: Any) -> int:
    """Depthwise convolution: one tap of ``mac_out_lanes`` channels in a cycle."""
    blocks = ceil_div(channels, lanes_of(costs.mac_out_lanes, wide))
    cycles: int = costs.mac_startup_cycles + pixels * taps * blocks
    return cycles


def gemm_cycles(rows: int, inner: int, columns: int, wide: int, costs: Any) -> int:
    """Product of two matrices."""
    steps = ceil_div(inner, lanes_of(costs.mac_in_lanes, wide))
    steps *= ceil_div(columns, costs.mac_out_lanes)
    cycles: int = costs.mac_startup_cycles + rows * steps
    return cycles


def vector_cycles(rows: int, columns: int, wide: int, costs: Any) -> int:
    """``rows`` times ``columns`` contiguous elements, ``vector_lanes`` a cycle."""
    steps = ceil_div(columns, lanes_of(costs.vector_lanes, wide))
    cycles: int = costs.vector_startup_cycles + rows * steps
    return cycles


def pool_cycles(pixels: int, taps: int, channels: int, wide: int, costs: Any) -> int:
    """One tap of ``vector_lanes`` channels in a cycle."""
    return vector_cycles(pixels * taps, channels, wide, costs)


def transpose_cycles(elements: int, costs: Any) -> int:
    """One element a cycle: each may come from anywhere."""
    return int(costs.vector_startup_cycles + elements)


def ticks_of(cycles: int, costs: Any) -> int:
    """Cycles in ticks of the DRAM; it moves a byte in a tick, so that no time is ever rounded."""
    return int(cycles * costs.dram_bytes_per_cycle)


def cycles_of(ticks: int, costs: Any) -> int:
    """Ticks of the DRAM in cycles, rounded up."""
    return ceil_div(ticks, costs.dram_bytes_per_cycle)


def grant_ticks(nbytes: int, costs: Any) -> int:
    """Ticks that a channel moves bytes; all channels together move one in a tick."""
    return int(nbytes * costs.dram_channels)


FUNCTIONS = (
    ceil_div,
    lanes_of,
    conv_cycles,
    depthwise_cycles,
    gemm_cycles,
    vector_cycles,
    pool_cycles,
    transpose_cycles,
    ticks_of,
    cycles_of,
    grant_ticks,
)
"""What the compiled engine compiles, callees first."""
