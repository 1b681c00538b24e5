"""Measurement of what limits a run: its cycles if one resource were free.

A program whose cycles do not depend on data is simulated again without computing values, once for
each resource, with the costs of the resource set to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.build_report import RunCycles, record_device_step, record_host_step
from nmpsim.core.engine import Engine
from nmpsim.core.engine_selection import AutoEngine, estimate_reference_seconds, make_engine
from nmpsim.core.limits import NO_LIMITS
from nmpsim.core.load import make_bundle_machine
from nmpsim.core.state import end_segment, start_cores
from nmpsim.report.savings import Savings
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.dram import MAX_BANKS, MAX_BUFFERED

UNLIMITED = 1 << 24
"""Bytes per cycle of a free DRAM and of free padding, so that no transfer takes a cycle."""
MAX_REFERENCE_SECONDS = 1.0
"""Estimated seconds of a run up to which the reference engine measures its savings."""
_FREE_ROWS = {
    "dram_row_miss_cycles": 0,
    "dram_precharge_cycles": 0,
    "dram_group_burst_cycles": 0,
    "dram_activate_cycles": 0,
    "dram_four_activates_cycles": 0,
    "dram_interleave_percent": 0,
    "dram_write_recovery_cycles": 0,
    "dram_write_read_cycles": 0,
    "dram_read_write_cycles": 0,
    "dram_refresh_interval_cycles": 0,
}
FREE_COSTS: Mapping[str, Mapping[str, int]] = {
    "dram": {"dram_bytes_per_cycle": UNLIMITED, **_FREE_ROWS},
    "row_misses": _FREE_ROWS,
    "channels": {},
    "latency": {
        "dram_latency_cycles": 0,
        "dram_write_latency_cycles": 0,
        "dma_startup_cycles": 0,
        "dma_fill_bytes_per_cycle": UNLIMITED,
    },
    "mac": {"is_mac_timed": 0},
    "vector": {"is_vector_timed": 0},
    "control": {
        "instruction_cycles": 0,
        **{name: 0 for name in Costs._fields if name.startswith("control_")},
    },
    "synchronization": {"sync_barrier_cycles": 0, "sync_semaphore_cycles": 0},
    "imbalance": {"is_imbalance_timed": 0},
}
"""Resource of the device (:data:`nmpsim.report.savings.LIMITERS`) -> its costs if it were free.

Those of ``channels`` depend on the device.
"""


def free_resource(costs: Costs, resource: str) -> Costs:
    """Return the costs of a device with a free resource of :data:`FREE_COSTS`."""
    if resource == "channels":
        return merge_channels(costs)
    return costs._replace(**FREE_COSTS[resource])


def merge_channels(costs: Costs) -> Costs:
    """Return the costs of a DRAM whose only channel has the banks and bandwidth of all channels."""
    channels = costs.dram_channels
    return costs._replace(
        dram_channels=1,
        dram_banks=min(costs.dram_banks * channels, MAX_BANKS),
        dram_write_buffer_bursts=min(costs.dram_write_buffer_bursts * channels, MAX_BUFFERED),
        dram_group_burst_cycles=costs.dram_group_burst_cycles // channels,
        dram_activate_cycles=costs.dram_activate_cycles // channels,
        dram_four_activates_cycles=costs.dram_four_activates_cycles // channels,
    )


@attrs.define(eq=False)
class SavingsMeter:
    """Meter of a run's savings, which measures when it is called and caches the result."""

    _bundle: Bundle
    _config: DeviceConfig
    _engine: str
    """Name of the engine of the run: ``compiled`` or ``reference``."""
    _cycles: Mapping[int, int]
    """Cycles of each layer of the run by index."""

    def __call__(self) -> Savings | None:
        """Return the savings of a run, or None if its cycles depend on data."""
        return self._savings

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickle as None: another process has no bundle."""
        return type(None), ()

    @cached_property
    def _savings(self) -> Savings | None:
        engine, costs = self._make_engine(), get_costs(self._config)
        if engine is None:
            return None
        run: dict[str, int] = {}
        layers: list[dict[str, int]] = [{} for _ in self._cycles]
        for resource in FREE_COSTS:
            moved = free_resource(costs, resource)
            cycles = simulate_layer_cycles(engine, self._bundle, self._config, moved)
            if cycles is None:
                return None
            run[resource] = sum(self._cycles.values()) - sum(cycles.values())
            for index, layer in enumerate(layers):
                layer[resource] = self._cycles[index] - cycles[index]
        for one in self._bundle.metadata.layers:
            layers[one.index]["host"] = self._cycles[one.index] if one.placement == "host" else 0
        run["host"] = sum(layer["host"] for layer in layers)
        return Savings(run, tuple(layers))

    def _make_engine(self) -> Engine | None:
        """Return an engine that simulates the program fast, or None if it must be compiled first.

        Small programs are simulated by the reference engine if it executed the run.
        """
        if self._engine == "compiled":
            return make_engine("compiled")
        engine = AutoEngine()
        engine.choose_engine(self._bundle, NO_LIMITS)
        is_slow = estimate_reference_seconds(self._bundle) > MAX_REFERENCE_SECONDS
        return None if engine.name == "reference" and is_slow else engine


def simulate_layer_cycles(
    engine: Engine, bundle: Bundle, config: DeviceConfig, costs: Costs
) -> Mapping[int, int] | None:
    """Simulate the cycles of each layer, by index; return None if the cycles depend on data.

    Values are not computed. The cycles are unknown if they depend on data.
    """
    machine = make_bundle_machine(bundle, config)
    layers = bundle.metadata.layers
    account = RunCycles.from_layers(layers)
    for step in bundle.metadata.steps:
        if step.kind != "device":
            record_host_step(account, step, None, config)
            continue
        start_cores(machine, step.entry or 0)
        if not engine.run_timing(machine, costs):
            return None
        end_segment(machine)
        record_device_step(account, machine, layers, step, True)
    return account.cycles
