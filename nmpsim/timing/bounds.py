"""Lower bounds of a layer's cycles, whatever the schedule of its instructions.

Each resource is busy for at least so many cycles: the MAC arrays with multiplications, the vector
units with their work, the DRAM with bursts. The largest of the three is a bound of the layer.
"""

from __future__ import annotations

from nmpsim.config import DeviceConfig
from nmpsim.timing.compute import ceil_div, convert_to_cycles, count_lanes
from nmpsim.timing.costs import Costs


def count_macs_per_cycle(config: DeviceConfig, wide: int) -> int:
    """Return the number of multiply-accumulates that all MAC arrays compute per cycle."""
    return config.cores_count * config.mac_out_lanes * count_lanes(config.mac_in_lanes, wide)


def compute_mac_bound(macs: int, wide: int, config: DeviceConfig) -> int:
    """Compute the minimum number of cycles for ``macs`` multiply-accumulates on all MAC arrays."""
    return ceil_div(macs, count_macs_per_cycle(config, wide))


def compute_vector_bound(busy_cycles: int, config: DeviceConfig) -> int:
    """Compute the minimum number of cycles in which all vector units do ``busy_cycles`` of work."""
    return ceil_div(busy_cycles, config.cores_count)


def compute_memory_bound(bursts: int, costs: Costs) -> int:
    """Compute the minimum number of cycles in which the DRAM serves bursts without row misses."""
    return convert_to_cycles(bursts * costs.dram_burst_bytes, costs)


def compute_burst_efficiency(bytes_moved: int, bursts: int, config: DeviceConfig) -> float:
    """Return the burst efficiency: bytes moved per byte of all bursts, or 0 if there are no bursts.

    It exceeds 1 if a transfer reads bytes of a burst more than once.
    """
    return bytes_moved / (bursts * config.dram_burst_bytes) if bursts else 0.0
