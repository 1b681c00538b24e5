"""Random devices: every setting that costs cycles, from nothing to a lot."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st

from nmpsim.config import DeviceConfig, default_device

RANGES = {
    "control_taken_branch_cycles": (0, 5),
    "control_scratchpad_access_cycles": (0, 4),
    "control_dram_access_cycles": (0, 90),
    "control_descriptor_cycles": (0, 30),
    "mac_out_lanes": (1, 32),
    "mac_in_lanes": (1, 32),
    "mac_startup_cycles": (0, 40),
    "vector_lanes": (1, 64),
    "vector_startup_cycles": (0, 40),
    "queues_depth": (1, 8),
    "dma_startup_cycles": (0, 30),
    "dma_fill_bytes_per_cycle": (1, 64),
    "dram_bytes_per_cycle": (1, 128),
    "dram_latency_cycles": (0, 200),
    "dram_row_miss_cycles": (0, 90),
    "sync_barrier_cycles": (0, 60),
    "sync_semaphore_cycles": (0, 60),
}
"""Setting -> range."""


@st.composite
def device_files(draw: st.DrawFn, cores: int) -> DeviceConfig:
    """Draw a device with ``cores`` cores."""
    settings = {name: draw(st.integers(*limits)) for name, limits in RANGES.items()}
    burst = draw(st.sampled_from([16, 32, 64, 128]))
    row = draw(st.sampled_from([256, 1024, 2048]))
    return attrs.evolve(
        default_device(),
        cores_count=cores,
        dram_burst_bytes=burst,
        dram_row_bytes=row,
        **settings,
    )
