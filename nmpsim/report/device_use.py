"""Use of a run's cycles: causes, use of the device, host work and throughput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from nmpsim.records import frozen
from nmpsim.report.fields import Count, Share, WrittenBefore

ACTIVITIES = (
    "control",
    "wait_load",
    "wait_store",
    "wait_mac",
    "wait_vector",
    "barrier",
    "semaphore",
    "idle",
)
"""Activities of control cores; their cycles add up to cores times cycles."""

CAUSES = (
    "mac",
    "vector",
    "load",
    "store",
    "contention",
    "imbalance",
    "unused",
    "barrier",
    "semaphore",
    "idle",
    "control",
)
"""Causes of the cycles of cores; their cycles add up to cores times cycles."""

PATH_CAUSES = (
    "mac",
    "vector",
    "dram_service",
    "row_miss",
    "latency",
    "dma_start",
    "control",
    "barrier",
    "semaphore",
)
"""Causes on the critical path; their cycles add up to the cycles of the run."""

HOST_COSTS = (
    "host_operation_cycles",
    "host_kilo_mac_cycles",
    "host_kilo_element_cycles",
    "host_kilo_function_cycles",
)
"""Settings of the device that count cycles of host layers."""


@frozen
class HostWork:
    """Work of the host: number of layers, elements of their results, and cycles."""

    layers: Annotated[Count, "layers on the host"]
    elements: Annotated[Count, "elements of their results"]
    cycles: Annotated[
        Count | None,
        "their cycles by `[host]` of the device file; null if not counted",
    ]

    @property
    def text(self) -> str:
        """Text for reports, such as ``3 host layers, 1,210 elements, not counted``."""
        if not self.layers:
            return "no host layers"
        cost = "not counted" if self.cycles is None else f"{self.cycles:,} cycles"
        layers = "layer" if self.layers == 1 else "layers"
        return f"{self.layers} host {layers}, {self.elements:,} elements, {cost}"


@frozen
class DeviceUse:
    """Use of a device as shares of its cycles: DRAM, row misses, bursts, MAC arrays."""

    dram_busy: Annotated[Share, "the DRAM served loads or stores; mean of all channels"] = 0.0
    row_misses: Annotated[
        Share,
        "part of `dram_busy` without transfers: opening rows, turnaround, refresh",
    ] = 0.0
    bursts_wasted: Annotated[
        Share, "part of `dram_busy`: transferring bytes of bursts that were not requested"
    ] = 0.0
    mac_utilization: Annotated[
        Share, "multiplications / those that all MAC arrays can do in these cycles"
    ] = 0.0

    def describe_dram(self) -> str:
        """Describe the use of the DRAM in one line, as shares of the device's cycles."""
        return (
            f"busy {self.dram_busy:.1%} of cycles: {self.row_misses:.1%} opening rows,"
            f" {self.bursts_wasted:.1%} for unrequested bytes"
        )


def compute_device_use(layers: Iterable[Any], cycles: int, channels: int) -> DeviceUse:
    """Compute the utilization of a device from its layers, as shares of ``cycles``.

    ``layers`` are :class:`~nmpsim.report.data.LayerReport`.
    """
    if not cycles:
        return DeviceUse()
    busy = bursts = wasted = multiplied = 0.0
    for layer in layers:
        busy += (layer.busy.get("load", 0) + layer.busy.get("store", 0)) / channels
        bursts += layer.burst_cycles
        wasted += layer.burst_cycles * max(1 - layer.burst_efficiency, 0)
        multiplied += layer.utilization * layer.cycles
    return DeviceUse(
        busy / cycles, max(busy - bursts, 0) / cycles, wasted / cycles, multiplied / cycles
    )


@frozen
class Throughput:
    """Throughput of consecutive runs of a program: cycles of each run, batch size and clock."""

    batch: Annotated[
        Count,
        "inferences of one run: the first dimension, if it is the same in all inputs and outputs of"
        " two or more dimensions; otherwise 1",
    ]
    run_cycles: Annotated[
        tuple[Count, ...],
        "cycles of each consecutive run; the first one starts from rest, as `cycles` of the report",
    ]
    clock_mhz: Annotated[Share, "device clock in MHz"]

    @property
    def cycles_per_inference(
        self,
    ) -> Annotated[
        Share,
        "mean of all runs but the first, or of a single run, divided by `batch`",
        WrittenBefore("clock_mhz"),
    ]:
        """Mean cycles of an inference, without the first run if there are several."""
        later = self.run_cycles[1:] or self.run_cycles
        return sum(later) / len(later) / self.batch

    @property
    def inferences_per_second(
        self,
    ) -> Annotated[
        Share | None,
        "`clock_mhz` / `cycles_per_inference`; null if they take no cycles",
        WrittenBefore(""),
    ]:
        """Inferences per second at ``clock_mhz``, or None if an inference takes no cycles."""
        cycles = self.cycles_per_inference
        return self.clock_mhz * 1e6 / cycles if cycles else None


def find_batch_size(shapes: Sequence[Sequence[int]]) -> int:
    """Return the batch size that all inputs and outputs have in common, or 1 if there is none."""
    sizes = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return max(sizes.pop(), 1) if len(sizes) == 1 else 1
