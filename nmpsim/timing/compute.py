"""Cycles of the MAC array, of the vector unit and of the DRAM.

In a cycle the array takes ``mac_in_lanes`` consecutive inputs and ``mac_out_lanes`` output
channels. A row of the window (columns times channels) is contiguous, so only its end is padded.
Int16 values (``wide`` 1; Int8 is 0) have half the rate: half the inputs of the array, half the
lanes of the vector unit, half the channels of a depthwise convolution. Bank conflicts of the
scratchpad are not modelled.
"""

from __future__ import annotations

from typing import Any


def ceil_div(value: int, by: int) -> int:
    """Return ``value / by`` rounded up, for positive integers."""
    return (value + by - 1) // by


def count_lanes(lanes: int, wide: int) -> int:
    """Return the number of lanes for elements of ``1 << wide`` bytes, at least one."""
    return max(lanes >> wide, 1)


def count_conv_cycles(
    pixels: int,
    kernel_h: int,
    kernel_w: int,
    in_channels: int,
    out_channels: int,
    groups: int,
    wide: int,
    costs: Any,
) -> int:
    """Return the MAC array's cycles for a convolution with ``in_channels`` channels per group."""
    steps = kernel_h * ceil_div(kernel_w * in_channels, count_lanes(costs.mac_in_lanes, wide))
    blocks = groups * ceil_div(out_channels // groups, costs.mac_out_lanes)
    cycles: int = costs.mac_startup_cycles + pixels * steps * blocks
    return cycles


def count_depthwise_cycles(pixels: int, taps: int, channels: int, wide: int, costs: Any) -> int:
    """Return the MAC array's cycles for a depthwise convolution."""
    blocks = ceil_div(channels, count_lanes(costs.mac_out_lanes, wide))
    cycles: int = costs.mac_startup_cycles + pixels * taps * blocks
    return cycles


def count_gemm_cycles(rows: int, inner: int, columns: int, wide: int, costs: Any) -> int:
    """Return the MAC array's cycles for a matrix product."""
    steps = ceil_div(inner, count_lanes(costs.mac_in_lanes, wide))
    steps *= ceil_div(columns, costs.mac_out_lanes)
    cycles: int = costs.mac_startup_cycles + rows * steps
    return cycles


def count_vector_cycles(rows: int, columns: int, wide: int, costs: Any) -> int:
    """Return the vector unit's cycles for rows of elements, ``vector_lanes`` elements per cycle."""
    steps = ceil_div(columns, count_lanes(costs.vector_lanes, wide))
    cycles: int = costs.vector_startup_cycles + rows * steps
    return cycles


def count_pool_cycles(pixels: int, taps: int, channels: int, wide: int, costs: Any) -> int:
    """Return the vector unit's cycles for a maximum or average pool."""
    return count_vector_cycles(pixels * taps, channels, wide, costs)


def count_transpose_cycles(elements: int, costs: Any) -> int:
    """Return the vector unit's cycles for a transpose: startup plus one per element."""
    return int(costs.vector_startup_cycles + elements)


def convert_to_ticks(cycles: int, costs: Any) -> int:
    """Convert cycles to DRAM ticks; the DRAM moves one byte per tick."""
    return int(cycles * costs.dram_bytes_per_cycle)


def convert_to_cycles(ticks: int, costs: Any) -> int:
    """Convert ticks of the DRAM to cycles, rounded up."""
    return ceil_div(ticks, costs.dram_bytes_per_cycle)


def count_grant_ticks(nbytes: int, costs: Any) -> int:
    """Return the number of DRAM ticks in which one channel transfers ``nbytes`` bytes."""
    return int(nbytes * costs.dram_channels)
