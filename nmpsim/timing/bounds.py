"""What no schedule of a layer's instructions can beat, in cycles.

Each of a layer's resources is busy for so long at least, however its instructions are ordered and
whatever they wait for: all MAC arrays with its multiplications, all vector units with their work,
the DRAM with its bursts. The largest of the three bounds the layer.
"""

from __future__ import annotations

from nmpsim.config import DeviceConfig
from nmpsim.timing.compute import ceil_div, cycles_of, lanes_of
from nmpsim.timing.costs import Costs


def macs_per_cycle(config: DeviceConfig, wide: int) -> int:
    """Multiplications of all MAC arrays in a cycle; ``wide`` is 1 for Int16, 0 for Int8."""
    return config.cores_count * config.mac_out_lanes * lanes_of(config.mac_in_lanes, wide)


def mac_bound(macs: int, wide: int, config: DeviceConfig) -> int:
    """Multiplications over those that all arrays can do in a cycle, rounded up."""
    return ceil_div(macs, macs_per_cycle(config, wide))


def vector_bound(busy_cycles: int, config: DeviceConfig) -> int:
    """Cycles of the vector units' instructions, spread over all cores, rounded up."""
    return ceil_div(busy_cycles, config.cores_count)


def memory_bound(bursts: int, costs: Costs) -> int:
    """Bytes of the bursts over those of a cycle, if every row were open; rounded up."""
    return cycles_of(bursts * costs.dram_burst_bytes, costs)


def burst_efficiency(bytes_moved: int, bursts: int, config: DeviceConfig) -> float:
    """Bytes moved over bytes of the bursts; 0 without bursts.

    Above 1 where a transfer reads bytes of a burst more than once.
    """
    return bytes_moved / (bursts * config.dram_burst_bytes) if bursts else 0.0
