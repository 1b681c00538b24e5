"""The machine's counters as a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.config import DeviceConfig
from nmpsim.core.critical_path import PathPart
from nmpsim.core.host import HostClip
from nmpsim.core.state import Count, Machine, PathCause
from nmpsim.kernels.saturation_stages import ACTIVATION, SIDE_NAMES, STAGE_NAMES
from nmpsim.report.causes import ACTIVITIES, CAUSES, PATH_CAUSES
from nmpsim.report.data import (
    Bound,
    BytesMoved,
    ChannelCounts,
    LayerReport,
    Saturation,
)
from nmpsim.report.details import UNITS
from nmpsim.report.use import use_of
from nmpsim.timing import Costs, costs_of
from nmpsim.timing.bounds import (
    burst_efficiency,
    mac_bound,
    macs_per_cycle,
    memory_bound,
    vector_bound,
)

ALL_CORES = (1 << 64) - 1
"""Bits of an int64 as a number that is not negative."""


def layer_channels(layer: Layer) -> int:
    """Channels of a layer's output: its last dimension."""
    return max(layer.output.shape[-1], 1) if layer.output.shape else 1


class SaturationCount(NamedTuple):
    """What saturated in a layer at one stage on one side, as ``LAYER`` of the machine has it."""

    stage: int
    side: int
    saturated: int
    worst: int
    first: int
    channels: npt.NDArray[np.int64]
    """[channels of the layer] values saturated"""


@attrs.frozen
class Counters:
    """What a machine counted, as plain numbers, layer by layer."""

    config: DeviceConfig
    costs: Costs
    counts: Sequence[Sequence[int]]
    """[layers][Count]"""
    spent: Sequence[Sequence[int]]
    """[layers][Spent]"""
    worked: Sequence[int]
    """[layers] bit n: core n had work."""
    elements: Sequence[int]
    saturation: Mapping[int, Sequence[SaturationCount]]
    """Layer -> what saturated there."""


def counters_of(machine: Machine, config: DeviceConfig) -> Counters:
    """Read a machine's counters at once: its records are slow to read one by one."""
    layers = machine.layers.view(np.ndarray)
    lists = {name: layers[name].tolist() for name in ("counts", "spent", "worked", "elements")}
    return Counters(config, costs_of(config), **lists, saturation=_saturation_of(machine))


def with_values(of: Counters, machine: Machine) -> Counters:
    """Those of a machine that has counted other values in the same time."""
    elements = machine.layers.view(np.ndarray)["elements"].tolist()
    return Counters(
        of.config, of.costs, of.counts, of.spent, of.worked, elements, _saturation_of(machine)
    )


def _saturation_of(machine: Machine) -> Mapping[int, Sequence[SaturationCount]]:
    layers = machine.layers.view(np.ndarray)
    begins = layers["channel_base"].tolist()
    ends = (layers["channel_base"] + layers["channels"]).tolist()
    counts, worst, first = (layers[name] for name in ("saturated", "worst", "first"))
    places = np.nonzero(counts)
    columns = [of.tolist() for of in (*places, counts[places], worst[places], first[places])]
    found: dict[int, list[SaturationCount]] = {}
    for layer, stage, side, count, most, index in zip(*columns, strict=True):
        channels = machine.channel_saturated[stage, side, begins[layer] : ends[layer]].copy()
        one = SaturationCount(stage, side, count, most, index, channels)
        found.setdefault(layer, []).append(one)
    return found


def layer_bound(layer: Layer, of: Counters) -> Bound:
    """What bounds a layer, and how that is computed."""
    counts, config, wide = of.counts[layer.index], of.config, is_wide(layer)
    macs, busy, bursts = (counts[i] for i in (Count.MACS, Count.BUSY_VECTOR, Count.BURSTS))
    mac, vector = mac_bound(macs, wide, config), vector_bound(busy, config)
    memory, cores = memory_bound(bursts, of.costs), config.cores_count
    largest = max(mac, vector, memory)
    if largest == 0:
        formula = ""
    elif mac == largest:
        rate = macs_per_cycle(config, wide) // cores
        formula = f"{macs} MACs / ({cores} cores x {rate} MACs a cycle)"
    elif vector == largest:
        formula = f"{busy} cycles of vector units / {cores} cores"
    else:
        each = Fraction(config.dram_burst_bytes, config.dram_bytes_per_cycle)
        formula = f"{bursts} bursts x {each} cycles"
    return Bound(formula, mac, vector, memory)


def is_wide(layer: Layer) -> int:
    """1 for a layer of Int16, which takes the MAC array twice as long; else 0."""
    return 1 if layer.output.elem == "i16" else 0


@attrs.frozen
class HostCounts:
    """What a host operation that clips did."""

    elements: int
    saturation: tuple[Saturation, ...]


def host_counts(clip: HostClip) -> HostCounts:
    """How many values there were, and which of them were clipped."""
    return HostCounts(clip.elements, host_saturation(clip))


@attrs.frozen(eq=False, repr=False)
class LayerReports(Sequence[LayerReport]):
    """The reports of a run's layers.

    They are made when somebody reads the first one: of many runs only answers are asked.
    """

    _layers: Sequence[Layer]
    _counted: Counters
    _cycles: Mapping[int, int]
    _paths: Mapping[int, PathPart]
    _host: Mapping[int, HostCounts]

    @cached_property
    def _made(self) -> tuple[LayerReport, ...]:
        return tuple(
            layer_report(
                one,
                self._counted,
                self._cycles[one.index],
                self._paths.get(one.index),
                self._host.get(one.index),
            )
            for one in self._layers
        )

    def saturated(self) -> list[tuple[int, int]]:
        """Elements of each layer, and how many of them saturated: cheaper than its reports."""
        return [self._saturated(one) for one in self._layers]

    def _saturated(self, layer: Layer) -> tuple[int, int]:
        host = self._host.get(layer.index)
        if host is not None:
            return host.elements, sum(one.count for one in host.saturation if not one.wanted)
        found = self._counted.saturation.get(layer.index, ())
        count = sum(one.saturated for one in found if one.stage != ACTIVATION)
        return self._counted.elements[layer.index], count

    def __repr__(self) -> str:
        return repr(self._made)

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self._made)

    @overload
    def __getitem__(self, index: int) -> LayerReport: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerReport, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._made[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == tuple(other)


def saturated_of(layers: Sequence[LayerReport]) -> list[tuple[int, int]]:
    """Elements of each layer of a run, and how many saturated."""
    if isinstance(layers, LayerReports):
        return layers.saturated()
    return [(one.elements, one.saturated) for one in layers]


def layer_report(
    layer: Layer, of: Counters, cycles: int, path: PathPart | None, host: HostCounts | None
) -> LayerReport:
    """What a layer did; ``host`` is what a host operation that clips did."""
    counts = of.counts[layer.index]
    waited_for = path.cycles() if path is not None else [0] * len(PathCause)
    macs, bursts = counts[Count.MACS], counts[Count.BURSTS]
    peak = cycles * macs_per_cycle(of.config, is_wide(layer))
    moved = BytesMoved(counts[Count.BYTES_READ], counts[Count.BYTES_WRITTEN])
    report = LayerReport(
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
        cores=(of.worked[layer.index] & ALL_CORES).bit_count(),
        macs=macs,
        utilization=macs / peak if peak else 0.0,
        bytes=moved,
        bursts=bursts,
        row_misses=counts[Count.ROW_MISSES],
        stalls=activities(counts),
        busy={u: counts[Count.BUSY_LOAD + i] for i, u in enumerate(UNITS)},
        elements=host.elements if host else of.elements[layer.index],
        saturation=host.saturation if host else device_saturation(layer, of),
        critical_path=dict(zip(PATH_CAUSES, waited_for, strict=False)),
        queueing=waited_for[PathCause.QUEUEING],
        core_cycles=dict(zip(CAUSES, of.spent[layer.index], strict=True)),
        bound=layer_bound(layer, of),
        burst_efficiency=burst_efficiency(moved.read + moved.written, bursts, of.config),
    )
    return attrs.evolve(report, use=use_of([report], report.cycles, of.config.dram_channels))


def activities(counts: Sequence[int]) -> Mapping[str, int]:
    """Core cycles by activity."""
    return dict(zip(ACTIVITIES, counts, strict=False))


def device_saturation(layer: Layer, of: Counters) -> tuple[Saturation, ...]:
    """Everything that the device saturated or clipped in a layer."""
    return tuple(
        Saturation(
            stage=STAGE_NAMES[one.stage],
            side=_side(SIDE_NAMES[one.side]),
            count=one.saturated,
            elements=of.elements[layer.index],
            worst=one.worst,
            first=_coordinates(one.first, layer.output.shape),
            channels=ChannelCounts(one.channels),
        )
        for one in of.saturation.get(layer.index, ())
    )


def host_saturation(clip: HostClip) -> tuple[Saturation, ...]:
    """What a host operation clipped or saturated."""
    if not clip.changed.places.size:
        return ()
    is_low = clip.changed.exact < clip.low
    last = clip.shape[-1] if clip.shape else 1
    found = []
    for side, stage, hit in (("low", clip.low_stage, is_low), ("high", clip.high_stage, ~is_low)):
        places, exact = clip.changed.places[hit], clip.changed.exact[hit]
        if not places.size:
            continue
        worst = clip.low - int(exact.min()) if side == "low" else int(exact.max()) - clip.high
        found.append(
            Saturation(
                stage=stage,
                side=_side(side),
                count=places.size,
                elements=clip.elements,
                worst=worst,
                first=_coordinates(int(places[0]), clip.shape),
                channels=ChannelCounts(np.bincount(places % last, minlength=last)),
            )
        )
    return tuple(found)


def _side(name: str) -> Literal["low", "high"]:
    return "low" if name == "low" else "high"


def _coordinates(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Coordinates of a row-major index; () if it lies outside."""
    if not 0 <= index < math.prod(shape):
        return ()
    coordinates = []
    for size in reversed(shape):
        index, coordinate = divmod(index, size)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))
