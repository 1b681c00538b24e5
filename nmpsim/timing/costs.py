"""The settings of a device that determine cycles, as a tuple of integers."""

from __future__ import annotations

from typing import NamedTuple

from nmpsim.config import DeviceConfig


class Costs(NamedTuple):
    """Cost settings of a device, with the names of the same settings in ``DeviceConfig``.

    The fields with defaults are no settings. They are 0 in simulations that measure how many
    cycles a run would save if a resource were free (:mod:`nmpsim.core.savings`).
    """

    control_taken_branch_cycles: int
    control_multiply_cycles: int
    control_divide_cycles: int
    control_scratchpad_access_cycles: int
    control_dram_access_cycles: int
    control_descriptor_cycles: int
    control_descriptor_fetch: int
    mac_out_lanes: int
    mac_in_lanes: int
    mac_startup_cycles: int
    vector_lanes: int
    vector_startup_cycles: int
    queues_depth: int
    dma_startup_cycles: int
    dma_fill_bytes_per_cycle: int
    dram_bytes_per_cycle: int
    dram_burst_bytes: int
    dram_latency_cycles: int
    dram_row_bytes: int
    dram_row_miss_cycles: int
    dram_channels: int
    dram_banks: int
    dram_bank_groups: int
    dram_group_burst_cycles: int
    dram_precharge_cycles: int
    dram_activate_cycles: int
    dram_four_activates_cycles: int
    dram_write_recovery_cycles: int
    dram_write_read_cycles: int
    dram_read_write_cycles: int
    dram_refresh_interval_cycles: int
    dram_refresh_cycles: int
    dram_lookahead_cycles: int
    dram_interleave_percent: int
    dram_write_buffer_bursts: int
    dram_write_latency_cycles: int
    dram_multicast: int
    sync_barrier_cycles: int
    sync_semaphore_cycles: int
    limits_cycles: int
    instruction_cycles: int = 1
    """Cycles of every instruction."""
    is_mac_timed: int = 1
    """0 if instructions of the MAC array take no cycles."""
    is_vector_timed: int = 1
    """0 if instructions of the vector unit take no cycles."""
    is_imbalance_timed: int = 1
    """0 if barriers release as if the cores had divided their work evenly."""


def get_costs(config: DeviceConfig) -> Costs:
    """Return the costs of a device: its settings that determine cycles, as integers."""
    names = (name for name in Costs._fields if name not in Costs._field_defaults)
    return Costs(*(int(getattr(config, name)) for name in names))
