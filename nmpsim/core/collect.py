"""The machine's counters as a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.config import DeviceConfig
from nmpsim.core.host import Cut
from nmpsim.core.state import Count, Machine
from nmpsim.kernels.stages import SIDE_NAMES, STAGE_NAMES
from nmpsim.report.data import (
    ACTIVITIES,
    CAUSES,
    Bound,
    ChannelCounts,
    LayerReport,
    Saturation,
)
from nmpsim.report.details import UNITS
from nmpsim.timing import Costs, costs_of
from nmpsim.timing.bounds import (
    burst_efficiency,
    mac_bound,
    macs_per_cycle,
    memory_bound,
    vector_bound,
)


def layer_channels(layer: Layer) -> int:
    """Channels of a layer's output: its last dimension."""
    return max(layer.output.shape[-1], 1) if layer.output.shape else 1


@attrs.frozen
class Counters:
    """What a machine counted, as plain numbers, layer by layer."""

    config: DeviceConfig
    costs: Costs
    counts: Sequence[Sequence[int]]
    """[layers][Count]"""
    spent: Sequence[Sequence[int]]
    """[layers][Spent]"""
    elements: Sequence[int]
    cut: npt.NDArray[np.int64]
    """[layers, stages, sides]; so the next two."""
    worst: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    channel_base: Sequence[int]
    channel_cut: npt.NDArray[np.int64]
    """[stages, sides, channels of all layers]; the machine's own."""


def counters_of(machine: Machine, config: DeviceConfig) -> Counters:
    """Read a machine's counters at once: its records are slow to read one by one."""
    lists = ("counts", "spent", "elements", "channel_base")
    return Counters(
        config,
        costs_of(config),
        **{name: machine.layers[name].tolist() for name in lists},
        **{name: machine.layers[name] for name in ("cut", "worst", "first")},
        channel_cut=machine.channel_cut,
    )


def layer_bound(layer: Layer, of: Counters) -> Bound:
    """What bounds a layer, and how that is computed."""
    counts, config, wide = of.counts[layer.index], of.config, is_wide(layer)
    macs, busy, bursts = (counts[i] for i in (Count.MACS, Count.BUSY_VECTOR, Count.BURSTS))
    mac, vector = mac_bound(macs, wide, config), vector_bound(busy, config)
    memory, cores = memory_bound(bursts, of.costs), config.cores_count
    rate = macs_per_cycle(config, wide) // cores
    formulas = (
        (memory, f"{bursts} bursts x {memory_bound(1, of.costs)} cycles"),
        (vector, f"{busy} cycles of vector units / {cores} cores"),
        (mac, f"{macs} MACs / ({cores} cores x {rate} MACs a cycle)"),
    )
    largest = max(mac, vector, memory)
    formula = [text for cycles, text in formulas if cycles == largest][-1] if largest else ""
    return Bound(mac, vector, memory, formula)


def is_wide(layer: Layer) -> int:
    """1 for a layer of Int16, which takes the MAC array twice as long; else 0."""
    return 1 if layer.output.elem == "i16" else 0


def layer_report(layer: Layer, of: Counters, cycles: int, cut: Cut | None) -> LayerReport:
    """What a layer did; ``cut`` is what a host operation clipped."""
    counts = of.counts[layer.index]
    macs, bursts = counts[Count.MACS], counts[Count.BURSTS]
    peak = cycles * macs_per_cycle(of.config, is_wide(layer))
    bytes_read, bytes_written = counts[Count.BYTES_READ], counts[Count.BYTES_WRITTEN]
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
        row_misses=counts[Count.ROW_MISSES],
        stalls=activities(counts),
        busy={u: counts[Count.BUSY_LOAD + i] for i, u in enumerate(UNITS)},
        elements=int(cut.unclipped.size) if cut else of.elements[layer.index],
        saturation=host_saturation(cut) if cut else device_saturation(layer, of),
        core_cycles=dict(zip(CAUSES, of.spent[layer.index], strict=True)),
        bound=layer_bound(layer, of),
        burst_efficiency=burst_efficiency(bytes_read + bytes_written, bursts, of.config),
    )


def activities(counts: Sequence[int]) -> Mapping[str, int]:
    """Core cycles by activity."""
    return dict(zip(ACTIVITIES, counts, strict=False))


def device_saturation(layer: Layer, of: Counters) -> tuple[Saturation, ...]:
    """Everything that the device cut in a layer."""
    cut, base = of.cut[layer.index], of.channel_base[layer.index]
    channels = slice(base, base + layer_channels(layer))
    return tuple(
        Saturation(
            stage=STAGE_NAMES[stage],
            side=_side(SIDE_NAMES[side]),
            count=int(cut[stage, side]),
            worst=int(of.worst[layer.index, stage, side]),
            first=_coordinates(int(of.first[layer.index, stage, side]), layer.output.shape),
            channels=ChannelCounts(of.channel_cut[stage, side, channels].copy()),
        )
        for stage, side in np.argwhere(cut).tolist()
    )


def host_saturation(cut: Cut) -> tuple[Saturation, ...]:
    """What a host operation cut."""
    found = []
    sides = (
        ("low", cut.low_stage, cut.low - int(cut.unclipped.min(initial=cut.low))),
        ("high", cut.high_stage, int(cut.unclipped.max(initial=cut.high)) - cut.high),
    )
    for side, stage, worst in sides:
        if worst <= 0:
            continue
        hit = cut.unclipped < cut.low if side == "low" else cut.unclipped > cut.high
        first = np.unravel_index(int(np.argmax(hit)), hit.shape) if hit.ndim else ()
        per_channel = hit.reshape(-1, hit.shape[-1] if hit.ndim else 1).sum(axis=0, dtype=np.int64)
        found.append(
            Saturation(
                stage=stage,
                side=_side(side),
                count=int(hit.sum()),
                worst=worst,
                first=tuple(int(i) for i in first),
                channels=ChannelCounts(per_channel),
            )
        )
    return tuple(found)


def _side(name: str) -> Literal["low", "high"]:
    return "low" if name == "low" else "high"


def _coordinates(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Coordinates of a row-major index; () if it lies outside."""
    if not 0 <= index < math.prod(shape):
        return ()
    return tuple(int(i) for i in np.unravel_index(index, shape))
