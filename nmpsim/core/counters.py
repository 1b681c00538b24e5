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
from nmpsim.core.host_steps import HostClipping
from nmpsim.core.state import Count, Machine, PathCause
from nmpsim.kernels.saturation_stages import ACTIVATION, SIDE_NAMES, STAGE_NAMES
from nmpsim.records import frozen
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

Array = npt.NDArray[np.int64]
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


@frozen(eq=False)
class ValueCounters:
    """What a machine counted of values, as it stood then; read when somebody asks."""

    _layers: Mapping[str, npt.NDArray[np.int64]]
    """Copies of the fields of LAYER that runs on other values may change."""
    _begins: Sequence[int]
    _ends: Sequence[int]
    """[layers] where each layer's channels are in ``_channels``."""
    _channels: Mapping[tuple[int, int], npt.NDArray[np.int64]]
    """Stage and side -> [channels of all layers], where anything saturated."""

    @classmethod
    def of(cls, machine: Machine) -> ValueCounters:
        """Those of a machine: one copy of each of its arrays, whatever the number of layers."""
        layers = machine.layers.view(np.ndarray)
        fields = {name: layers[name].copy() for name in _VALUE_FIELDS}
        begins = layers["channel_base"]
        channels = {
            (stage, side): machine.channel_saturated[stage, side].copy()
            for stage, side in np.argwhere(fields["saturated"].any(axis=0)).tolist()
        }
        return cls(fields, begins.tolist(), (begins + layers["channels"]).tolist(), channels)

    @cached_property
    def elements(self) -> Sequence[int]:
        """[layers] results written"""
        elements: list[int] = self._layers["elements"].tolist()
        return elements

    @cached_property
    def unwanted(self) -> Sequence[int]:
        """[layers] values saturated that nobody asked for"""
        wanted = self._layers["saturated"][:, ACTIVATION]
        counts: list[int] = (self._layers["saturated"].sum(axis=1) - wanted).sum(axis=1).tolist()
        return counts

    @cached_property
    def saturation(self) -> Mapping[int, Sequence[SaturationCount]]:
        """Layer -> what saturated there."""
        counts, worst, first = (self._layers[name] for name in ("saturated", "worst", "first"))
        places = np.nonzero(counts)
        columns = [of.tolist() for of in (*places, counts[places], worst[places], first[places])]
        found: dict[int, list[SaturationCount]] = {}
        for layer, stage, side, count, most, index in zip(*columns, strict=True):
            channels = self._channels[stage, side][self._begins[layer] : self._ends[layer]]
            one = SaturationCount(stage, side, count, most, index, channels)
            found.setdefault(layer, []).append(one)
        return found


_VALUE_FIELDS = ("elements", "saturated", "worst", "first")


@frozen
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
    values: ValueCounters


def read_counters(machine: Machine, config: DeviceConfig) -> Counters:
    """Read a machine's counters at once: its records are slow to read one by one."""
    layers = machine.layers.view(np.ndarray)
    lists = {name: layers[name].tolist() for name in ("counts", "spent", "worked")}
    return Counters(config, costs_of(config), **lists, values=ValueCounters.of(machine))


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


@frozen
class HostCounts:
    """What a host operation that clips did."""

    elements: int
    saturation: tuple[Saturation, ...]

    @property
    def unwanted(self) -> int:
        """Values saturated that nobody asked for."""
        return sum(one.count for one in self.saturation if not one.wanted)

    def plus(self, more: HostCounts) -> HostCounts:
        """Of several runs."""
        return HostCounts(self.elements + more.elements, self.saturation + more.saturation)


def count_host_clipping(clip: HostClipping) -> HostCounts:
    """How many values there were, and which of them were clipped."""
    return HostCounts(clip.elements, host_saturation(clip))


@frozen(eq=False, repr=False)
class LayerReports(Sequence[LayerReport]):
    """The reports of a run's layers.

    They are made when somebody reads the first one: of many runs only answers are asked.
    """

    _layers: Sequence[Layer]
    _counted: Counters
    _cycles: Mapping[int, int]
    _paths: Mapping[int, PathPart]
    _values: ValueCounters
    _host: Mapping[int, HostCounts]
    _like: LayerReports | None = None
    """Those of a run that differs in values alone."""

    def with_values(self, values: ValueCounters, host: Mapping[int, HostCounts]) -> LayerReports:
        """Those of a run that has computed other values in the same time."""
        like = self._like or self
        return LayerReports(
            self._layers, self._counted, self._cycles, self._paths, values, host, like
        )

    @cached_property
    def _made(self) -> tuple[LayerReport, ...]:
        same = (self._like or self)._same
        return tuple(
            LayerReport(**known, **self._of_values(layer))
            for layer, known in zip(self._layers, same, strict=True)
        )

    @cached_property
    def _same(self) -> Sequence[Mapping[str, Any]]:
        """Of each report all that does not depend on values."""
        found = []
        for one in self._layers:
            cycles, path = self._cycles[one.index], self._paths.get(one.index)
            found.append(layer_fields(one, self._counted, cycles, path))
        return found

    def _of_values(self, layer: Layer) -> Mapping[str, Any]:
        """What depends on values of a layer's report."""
        host = self._host.get(layer.index)
        if host is not None:
            return {"elements": host.elements, "saturation": host.saturation}
        return {
            "elements": self._values.elements[layer.index],
            "saturation": device_saturation(layer, self._values),
        }

    def saturated(self) -> list[tuple[int, int]]:
        """Elements of each layer, and how many of them saturated: cheaper than its reports."""
        values = self._values
        found = list(zip(values.elements, values.unwanted, strict=True))[: len(self._layers)]
        for index, host in self._host.items():
            found[index] = host.elements, host.unwanted
        return found

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


def saturation_totals(layers: Sequence[LayerReport]) -> list[tuple[int, int]]:
    """Elements of each layer of a run, and how many saturated."""
    if isinstance(layers, LayerReports):
        return layers.saturated()
    return [(one.elements, one.saturated) for one in layers]


def layer_fields(
    layer: Layer, of: Counters, cycles: int, path: PathPart | None
) -> Mapping[str, Any]:
    """All of a layer's report but what depends on values."""
    counts = of.counts[layer.index]
    waited_for = path.cycles() if path is not None else [0] * len(PathCause)
    macs, bursts = counts[Count.MACS], counts[Count.BURSTS]
    peak = cycles * macs_per_cycle(of.config, is_wide(layer))
    moved = BytesMoved(counts[Count.BYTES_READ], counts[Count.BYTES_WRITTEN])
    report = LayerReport(
        index=layer.index,
        name=layer.name,
        display_name=layer.display_name,
        op=layer.op,
        operation=layer.operation,
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
        elements=0,
        saturation=(),
        critical_path=dict(zip(PATH_CAUSES, waited_for, strict=False)),
        queueing=waited_for[PathCause.QUEUEING],
        core_cycles=dict(zip(CAUSES, of.spent[layer.index], strict=True)),
        bound=layer_bound(layer, of),
        burst_efficiency=burst_efficiency(moved.read + moved.written, bursts, of.config),
    )
    use = use_of([report], report.cycles, of.config.dram_channels)
    known = {name: getattr(report, name) for name in _LAYER_FIELDS}
    return {**known, "use": use}


_LAYER_FIELDS = tuple(
    field.name
    for field in attrs.fields(LayerReport)
    if field.name not in ("elements", "saturation")
)


def activities(counts: Sequence[int]) -> Mapping[str, int]:
    """Core cycles by activity."""
    return dict(zip(ACTIVITIES, counts, strict=False))


def device_saturation(layer: Layer, of: ValueCounters) -> tuple[Saturation, ...]:
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


def host_saturation(clip: HostClipping) -> tuple[Saturation, ...]:
    """Return what a host operation clipped or saturated, in the device's order of stages."""
    parts: dict[tuple[str, str], list[tuple[Array, Array]]] = {}

    def add(stage: str, side: str, places: Array, overshoot: Array) -> None:
        if places.size:
            parts.setdefault((stage, side), []).append((places, overshoot))

    for part in clip.overshoots:
        overshoot = _broadcast(part.overshoot, clip)
        for side, sign in (("low", -1), ("high", 1)):
            places = np.flatnonzero(sign * overshoot > 0)
            add(part.stage, side, places, sign * overshoot[places])
    is_low = clip.changed.exact < clip.low
    places, exact = clip.changed.indices, clip.changed.exact
    add(clip.low_stage, "low", places[is_low], clip.low - exact[is_low])
    add(clip.high_stage, "high", places[~is_low], exact[~is_low] - clip.high)
    last = clip.shape[-1] if clip.shape else 1
    found = []
    for stage, side in sorted(parts, key=_stage_order):
        places, overshoot = map(np.concatenate, zip(*parts[stage, side], strict=True))
        found.append(
            Saturation(
                stage=stage,
                side=_side(side),
                count=places.size,
                elements=clip.elements,
                worst=int(overshoot.max()),
                first=_coordinates(int(places.min()), clip.shape),
                channels=ChannelCounts(np.bincount(places % last, minlength=last)),
            )
        )
    return tuple(found)


def _broadcast(overshoot: Array, clip: HostClipping) -> Array:
    """One value for each element of the result; a bias has one for each channel."""
    if overshoot.size != clip.elements:
        overshoot = np.broadcast_to(overshoot, clip.shape)
    return overshoot.reshape(-1)


def _stage_order(key: tuple[str, str]) -> tuple[int, int]:
    stage, side = key
    is_device_stage = stage in STAGE_NAMES  # "input" is not, and comes first
    return STAGE_NAMES.index(stage) if is_device_stage else -1, SIDE_NAMES.index(side)


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
