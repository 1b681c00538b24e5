"""What the device was doing in a run or a layer, as shares of its cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Protocol

import attrs

from nmpsim.report.fields import Share

MOSTLY = 0.7
"""Share of the cycles from which on a resource limits the run."""


@attrs.frozen
class DeviceUse:
    """Shares of cycles; those of the DRAM's three lines are parts of ``dram_busy``."""

    dram_busy: Annotated[Share, "the DRAM served loads or stores"] = 0.0
    row_misses: Annotated[Share, "a part of `dram_busy`: it did not transfer, but opened rows"] = (
        0.0
    )
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

    def limiter(self) -> str:
        """What limits the run, as a sentence."""
        dram, mac = round(100 * self.dram_busy), round(100 * self.mac_utilization)
        if self.dram_busy >= MOSTLY:
            return f"limited by DRAM bandwidth ({dram} % busy)"
        if self.mac_utilization >= MOSTLY:
            return f"limited by the MAC arrays ({mac} % utilization)"
        return f"limited by no resource alone (DRAM {dram} % busy, MAC utilization {mac} %)"


class Used(Protocol):
    """What shares are made of: see :class:`~nmpsim.report.data.LayerReport`."""

    @property
    def cycles(self) -> int: ...  # noqa: D102 - as there
    @property
    def busy(self) -> Mapping[str, int]: ...  # noqa: D102 - as there
    @property
    def burst_cycles(self) -> int: ...  # noqa: D102 - as there
    @property
    def burst_efficiency(self) -> float: ...  # noqa: D102 - as there
    @property
    def utilization(self) -> float: ...  # noqa: D102 - as there


def use_of(layers: Iterable[Used], cycles: int) -> DeviceUse:
    """What the device did for some layers, as shares of ``cycles``."""
    if not cycles:
        return DeviceUse()
    busy = bursts = 0
    wasted = multiplied = 0.0
    for layer in layers:
        busy += layer.busy.get("load", 0) + layer.busy.get("store", 0)
        bursts += layer.burst_cycles
        wasted += layer.burst_cycles * max(1 - layer.burst_efficiency, 0)
        multiplied += layer.utilization * layer.cycles
    return DeviceUse(
        busy / cycles, max(busy - bursts, 0) / cycles, wasted / cycles, multiplied / cycles
    )
