"""The machine's counters as a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.config import DeviceConfig
from nmpsim.core.host import Cut
from nmpsim.core.state import Count, Machine
from nmpsim.kernels.stages import SIDE_NAMES, STAGE_NAMES
from nmpsim.report.data import ACTIVITIES, CAUSES, Bound, LayerReport, Saturation
from nmpsim.timing.bounds import (
    burst_efficiency,
    mac_bound,
    macs_per_cycle,
    memory_bound,
    vector_bound,
)

UNITS = ("load", "store", "mac", "vector")


def layer_channels(layer: Layer) -> int:
    """Channels of a layer's output: its last dimension."""
    return max(layer.output.shape[-1], 1) if layer.output.shape else 1


def layer_bound(layer: Layer, counts: npt.NDArray[np.int64], config: DeviceConfig) -> Bound:
    """What bounds a layer, and how that is computed."""
    wide = is_wide(layer)
    macs, busy, bursts = (int(counts[i]) for i in (Count.MACS, Count.BUSY_VECTOR, Count.BURSTS))
    mac, vector = mac_bound(macs, wide, config), vector_bound(busy, config)
    memory, cores = memory_bound(bursts, config), config.cores_count
    rate = macs_per_cycle(config, wide) // cores
    formulas = (
        (memory, f"{bursts} bursts x {memory_bound(1, config)} cycles"),
        (vector, f"{busy} cycles of vector units / {cores} cores"),
        (mac, f"{macs} MACs / ({cores} cores x {rate} MACs a cycle)"),
    )
    largest = max(mac, vector, memory)
    formula = [text for cycles, text in formulas if cycles == largest][-1] if largest else ""
    return Bound(mac, vector, memory, formula)


def is_wide(layer: Layer) -> int:
    """1 for a layer of Int16, which takes the MAC array twice as long; else 0."""
    return 1 if layer.output.elem == "i16" else 0


def layer_report(
    layer: Layer, machine: Machine, config: DeviceConfig, cycles: int, cut: Cut | None
) -> LayerReport:
    """What a layer did; ``cut`` is what a host operation clipped."""
    account = machine.layers[layer.index]
    counts = account.counts
    macs = int(counts[Count.MACS])
    peak = cycles * macs_per_cycle(config, is_wide(layer))
    bytes_read, bytes_written = int(counts[Count.BYTES_READ]), int(counts[Count.BYTES_WRITTEN])
    bursts = int(counts[Count.BURSTS])
    saturation = host_saturation(cut) if cut else device_saturation(layer, machine)
    return LayerReport(
        index=layer.index,
        name=layer.name,
        op=layer.op,
        number=layer.number,
        line=layer.line,
        placement=layer.placement,
        reason=layer.reason,
        numerics=layer.numerics,
        fused=layer.fused,
        shape=layer.output.shape,
        elem=layer.output.elem,
        scale=layer.output.scale,
        offset=layer.output.offset,
        cycles=cycles,
        macs=macs,
        utilization=macs / peak if peak else 0.0,
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        bursts=bursts,
        row_misses=int(counts[Count.ROW_MISSES]),
        stalls=activities(counts),
        busy={u: int(counts[Count.BUSY_LOAD + i]) for i, u in enumerate(UNITS)},
        elements=int(cut.unclipped.size if cut else account.elements),
        saturation=saturation,
        core_cycles={name: int(account.spent[i]) for i, name in enumerate(CAUSES)},
        bound=layer_bound(layer, counts, config),
        burst_efficiency=burst_efficiency(bytes_read + bytes_written, bursts, config),
    )


def activities(counts: npt.NDArray[np.int64]) -> Mapping[str, int]:
    """Core cycles by activity."""
    return {name: int(counts[i]) for i, name in enumerate(ACTIVITIES)}


def device_saturation(layer: Layer, machine: Machine) -> tuple[Saturation, ...]:
    """Everything that the device cut in a layer."""
    account = machine.layers[layer.index]
    base, count = int(account.channel_base), int(account.channels)
    by_channel = machine.channel_cut[:, :, base : base + count]
    found = []
    for stage, stage_name in enumerate(STAGE_NAMES):
        for side, side_name in enumerate(SIDE_NAMES):
            if account.cut[stage, side]:
                channels = by_channel[stage, side]
                found.append(
                    Saturation(
                        stage=stage_name,
                        side=_side(side_name),
                        count=int(account.cut[stage, side]),
                        worst=int(account.worst[stage, side]),
                        first=_coordinates(int(account.first[stage, side]), layer.output.shape),
                        channels=tuple((int(c), int(channels[c])) for c in np.nonzero(channels)[0]),
                    )
                )
    return tuple(found)


def host_saturation(cut: Cut) -> tuple[Saturation, ...]:
    """What a host operation cut."""
    found = []
    sides = (
        ("low", cut.low_stage, cut.low - cut.unclipped),
        ("high", cut.high_stage, cut.unclipped - cut.high),
    )
    for side, stage, over in sides:
        hit = over > 0
        if not hit.any():
            continue
        first = np.unravel_index(int(np.argmax(hit)), hit.shape) if hit.ndim else ()
        per_channel = hit.reshape(-1, hit.shape[-1] if hit.ndim else 1).sum(axis=0)
        found.append(
            Saturation(
                stage=stage,
                side=_side(side),
                count=int(hit.sum()),
                worst=int(over.max()),
                first=tuple(int(i) for i in first),
                channels=tuple((int(c), int(per_channel[c])) for c in np.nonzero(per_channel)[0]),
            )
        )
    return tuple(found)


def _side(name: str) -> Literal["low", "high"]:
    return "low" if name == "low" else "high"


def _coordinates(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Coordinates of a row-major index; () if it lies outside."""
    if not 0 <= index < np.prod(shape, dtype=np.int64):
        return ()
    return tuple(int(i) for i in np.unravel_index(index, shape))
