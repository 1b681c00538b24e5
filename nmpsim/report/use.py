"""What the device was doing in a run or a layer, as shares of its cycles; and what the host was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from nmpsim.records import frozen
from nmpsim.report.fields import Count, Share

MOSTLY = 0.5
"""Share of the critical path from which on one thing alone limits a run."""
LIMITERS: Mapping[str, tuple[str, ...]] = {
    "DRAM bandwidth": ("dram_service", "row_miss"),
    "the MAC arrays": ("mac",),
    "the vector units": ("vector",),
    "the latency of transfers": ("latency", "dma_start"),
    "control code": ("control",),
    "synchronization": ("barrier", "semaphore"),
}
"""What can limit a run -> its causes of cycles on the critical path."""


HOST_COSTS = (
    "host_operation_cycles",
    "host_kilo_mac_cycles",
    "host_kilo_element_cycles",
    "host_kilo_function_cycles",
)
"""Settings of the device that give the host's layers cycles."""


@frozen
class HostWork:
    """What the host computes for the program."""

    layers: Annotated[Count, "layers that run there"]
    elements: Annotated[Count, "their results"]
    cycles: Annotated[
        Count | None,
        "cycles that they took, by `[host]` of the device file; null if that counts none",
    ]

    @property
    def text(self) -> str:
        """``3 host layers, 1,210 elements, not counted``"""
        if not self.layers:
            return "no host layers"
        cost = "not counted" if self.cycles is None else f"{self.cycles:,} cycles"
        layers = "layer" if self.layers == 1 else "layers"
        return f"{self.layers} host {layers}, {self.elements:,} elements, {cost}"


@frozen
class DeviceUse:
    """Shares of cycles; those of the DRAM's three lines are parts of ``dram_busy``."""

    dram_busy: Annotated[Share, "the DRAM served loads or stores; of several channels the mean"] = (
        0.0
    )
    row_misses: Annotated[
        Share,
        "a part of `dram_busy`: it transferred nothing; it opened rows, turned round or refreshed",
    ] = 0.0
    bursts_wasted: Annotated[
        Share, "another part: it transferred bytes of bursts that nobody asked for"
    ] = 0.0
    mac_utilization: Annotated[
        Share, "multiplications needed / those that all MAC arrays can do in these cycles"
    ] = 0.0

    def dram_words(self) -> str:
        """The three lines of the DRAM for reading."""
        return (
            f"busy {self.dram_busy:.1%} of cycles: {self.row_misses:.1%} opening rows,"
            f" {self.bursts_wasted:.1%} for bytes that nobody asked for"
        )


def use_of(layers: Iterable[Any], cycles: int, channels: int) -> DeviceUse:
    """What the device, whose DRAM has ``channels``, did for some layers; shares of ``cycles``.

    ``layers`` are each a :class:`~nmpsim.report.data.LayerReport`, which shows itself by this.
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


def limits(path: Mapping[str, int]) -> Mapping[str, float]:
    """What can limit a run -> its share of the critical path, the largest first; empty without."""
    total = sum(path.values())
    if not total:
        return {}
    shares = {
        name: sum(path.get(cause, 0) for cause in causes) / total
        for name, causes in LIMITERS.items()
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def limiter(path: Mapping[str, int], use: DeviceUse) -> str:
    """What limits a run, as a sentence; empty if its critical path is not known.

    Args:
        path: cycles by cause.
        use: of the device in these cycles.
    """
    shares = limits(path)
    if not shares:
        return ""
    first, second, *_ = shares
    told = f"{shares[first]:.0%} of the critical path".replace("%", " %")
    if shares[first] < MOSTLY:
        also = f"{shares[second]:.0%}".replace("%", " %")
        return f"limited by {first} ({told}) and {second} ({also})"
    if first == "DRAM bandwidth":
        told = f"{use.dram_busy:.0%} busy".replace("%", " %")
    return f"limited by {first} ({told})"
