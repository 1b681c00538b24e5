"""Counters of a machine, and the layer reports made from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, overload

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Shape
from nmpsim.bundle.metadata import Layer, list_chains
from nmpsim.config import DeviceConfig
from nmpsim.core.critical_path import PathSection
from nmpsim.core.host_steps import HostClipping
from nmpsim.core.state import CountColumn, Machine, PathCause
from nmpsim.energy.compute import compute_energy
from nmpsim.energy.tables import EstimateTable
from nmpsim.kernels.saturation_stages import ACTIVATION, STAGE_NAMES
from nmpsim.records import frozen
from nmpsim.report.analyses import UNITS
from nmpsim.report.data import Bound, BytesMoved, ChannelCounts, LayerReport, Saturation
from nmpsim.report.device_use import ACTIVITIES, CAUSES, PATH_CAUSES, compute_device_use
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.bounds import (
    compute_burst_efficiency,
    compute_mac_bound,
    compute_memory_bound,
    compute_vector_bound,
    count_macs_per_cycle,
)

Array = npt.NDArray[np.int64]
ALL_CORES = (1 << 64) - 1
"""Mask that converts an int64 to its unsigned value."""
SIDES: tuple[Literal["low"], Literal["high"]] = "low", "high"
_VALUE_FIELDS = ("elements", "saturated", "worst", "first")
_LAYER_FIELDS = (
    *("index", "name", "display_name", "op", "operation", "number", "line"),
    *("placement", "reason", "numerics", "fused"),
)
"""Fields that a layer's report has from the layer."""


def count_channels(layer: Layer) -> int:
    """Return the number of channels of a layer's output, the size of its last dimension."""
    return max(layer.output.shape[-1], 1) if layer.output.shape else 1


@frozen(eq=False)
class ValueCounters:
    """Counters of elements and saturated values by layer, copied from a machine."""

    _layers: Mapping[str, npt.NDArray[np.int64]]
    """Copies of the fields of LAYER that later runs may change."""
    _begins: Sequence[int]
    _ends: Sequence[int]
    """[layers] range of each layer's channels in ``_channels``."""
    _channels: Mapping[tuple[int, int], npt.NDArray[np.int64]]
    """Stage and side -> [channels of all layers], where anything saturated."""

    @classmethod
    def from_machine(cls, machine: Machine) -> ValueCounters:
        """Return a copy of a machine's counters of elements and saturated values."""
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
        """Number of elements that each layer has written."""
        elements: list[int] = self._layers["elements"].tolist()
        return elements

    @cached_property
    def saturated(self) -> Sequence[int]:
        """Number of saturated values of each layer; clipped values are not counted."""
        wanted = self._layers["saturated"][:, ACTIVATION]
        counts: list[int] = (self._layers["saturated"].sum(axis=1) - wanted).sum(axis=1).tolist()
        return counts

    @cached_property
    def _saturated(self) -> Mapping[int, Sequence[tuple[int, ...]]]:
        """Layer -> stage, side, count, worst overshoot and first index of saturated values."""
        counts, worst, first = (self._layers[name] for name in ("saturated", "worst", "first"))
        at = np.nonzero(counts)
        columns = [of.tolist() for of in (*at, counts[at], worst[at], first[at])]
        found: dict[int, list[tuple[int, ...]]] = {}
        for layer, *row in zip(*columns, strict=True):
            found.setdefault(layer, []).append(tuple(row))
        return found

    def get_saturation(self, layer: Layer) -> tuple[Saturation, ...]:
        """Return a layer's saturated and clipped values, as one record per stage and side."""
        index = layer.index
        begin, end = self._begins[index], self._ends[index]
        return tuple(
            Saturation(
                stage=STAGE_NAMES[stage],
                side=SIDES[side],
                count=count,
                elements=self.elements[index],
                worst=worst,
                first=_coordinates(first, layer.output.shape),
                channels=ChannelCounts(self._channels[stage, side][begin:end]),
            )
            for stage, side, count, worst, first in self._saturated.get(index, ())
        )


@frozen(eq=False)
class Counters:
    """Counters of each layer, copied from a machine as Python integers."""

    config: DeviceConfig
    costs: Costs
    counts: Sequence[Sequence[int]]
    """[layers][Count]"""
    spent: Sequence[Sequence[int]]
    """[layers][CycleCause]"""
    worked: Sequence[int]
    """[layers] bit n: core n had work."""
    values: ValueCounters

    @cached_property
    def estimates(self) -> EstimateTable:
        """Energy and area estimates of the device by name."""
        return self.config.all_estimates


def read_counters(machine: Machine, config: DeviceConfig) -> Counters:
    """Read all counters of a machine as Python integers."""
    layers = machine.layers.view(np.ndarray)
    lists = {name: layers[name].tolist() for name in ("counts", "spent", "worked")}
    return Counters(config, get_costs(config), **lists, values=ValueCounters.from_machine(machine))


def compute_layer_bound(layer: Layer, counters: Counters) -> Bound:
    """Compute lower bounds for a layer's cycles from the MAC array, the vector unit and DRAM."""
    counts, config, wide = counters.counts[layer.index], counters.config, is_wide(layer)
    macs, busy, bursts = (
        counts[i] for i in (CountColumn.MACS, CountColumn.BUSY_VECTOR, CountColumn.BURSTS)
    )
    mac, vector = compute_mac_bound(macs, wide, config), compute_vector_bound(busy, config)
    memory, cores = compute_memory_bound(bursts, counters.costs), config.cores_count
    largest = max(mac, vector, memory)
    if largest == 0:
        formula = ""
    elif mac == largest:
        rate = count_macs_per_cycle(config, wide) // cores
        formula = f"{macs} MACs / ({cores} cores x {rate} MACs a cycle)"
    elif vector == largest:
        formula = f"{busy} cycles of vector units / {cores} cores"
    else:
        each = Fraction(config.dram_burst_bytes, config.dram_bytes_per_cycle)
        formula = f"{bursts} bursts x {each} cycles"
    return Bound(formula, mac, vector, memory)


def is_wide(layer: Layer) -> int:
    """Return 1 if a layer computes on Int16 values, else 0."""
    return 1 if layer.output.elem == "i16" else 0


@frozen
class HostCounts:
    """Counters of a host operation: elements and saturated values."""

    elements: int
    saturation: tuple[Saturation, ...]

    @property
    def saturated(self) -> int:
        """Number of saturated values; clipped values are not counted."""
        return sum(one.count for one in self.saturation if not one.is_requested)

    def add(self, more: HostCounts) -> HostCounts:
        """Return the combined counters of two runs of a host operation."""
        return HostCounts(self.elements + more.elements, self.saturation + more.saturation)


def count_host_clipping(clip: HostClipping) -> HostCounts:
    """Count the elements and the clipped values of a host operation."""
    return HostCounts(clip.elements, list_host_saturation(clip))


@frozen(eq=False, repr=False)
class LayerReports(Sequence[LayerReport]):
    """Sequence of a run's layer reports, built when the first one is read."""

    _layers: Sequence[Layer]
    _counted: Counters
    _cycles: Mapping[int, int]
    _paths: Mapping[int, PathSection]
    _values: ValueCounters
    _host: Mapping[int, HostCounts]
    _like: LayerReports | None = None
    """Reports of a run that differs in values alone."""

    def with_values(self, values: ValueCounters, host: Mapping[int, HostCounts]) -> LayerReports:
        """Return copies of the reports for a run with equal cycles and different value counters."""
        like = self._like or self
        return LayerReports(
            self._layers, self._counted, self._cycles, self._paths, values, host, like
        )

    @cached_property
    def _reports(self) -> tuple[LayerReport, ...]:
        fields = (self._like or self)._fields
        return tuple(
            LayerReport(**{**known, **self._value_fields(layer)})
            for layer, known in zip(self._layers, fields, strict=True)
        )

    @cached_property
    def _fields(self) -> Sequence[dict[str, Any]]:
        """Fields of each report; those that depend on values are empty."""
        chains = {one.index: group[0].name for group in list_chains(self._layers) for one in group}
        return [
            make_layer_fields(
                one,
                self._counted,
                self._cycles[one.index],
                self._paths.get(one.index),
                chains.get(one.index, ""),
            )
            for one in self._layers
        ]

    def _value_fields(self, layer: Layer) -> dict[str, Any]:
        host = self._host.get(layer.index)
        if host is not None:
            return {"elements": host.elements, "saturation": host.saturation}
        values = self._values
        return {
            "elements": values.elements[layer.index],
            "saturation": values.get_saturation(layer),
        }

    def get_saturation_totals(self) -> list[tuple[int, int]]:
        """Return the number of elements and of saturated values of each layer."""
        values = self._values
        found = list(zip(values.elements, values.saturated, strict=True))[: len(self._layers)]
        for index, host in self._host.items():
            found[index] = host.elements, host.saturated
        return found

    def __repr__(self) -> str:
        return repr(self._reports)

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self._reports)

    @overload
    def __getitem__(self, index: int) -> LayerReport: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerReport, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._reports[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._reports == tuple(other)


def get_saturation_totals(layers: Sequence[LayerReport]) -> list[tuple[int, int]]:
    """Return the number of elements and of saturated values of each layer of a run."""
    if isinstance(layers, LayerReports):
        return layers.get_saturation_totals()
    return [(one.elements, one.saturated) for one in layers]


def make_layer_fields(
    layer: Layer, counters: Counters, cycles: int, path: PathSection | None, chain: str = ""
) -> dict[str, Any]:
    """Return the fields of a layer's report that do not depend on tensor values.

    ``chain`` is the name of the first layer of the layer's chain, or empty.
    """
    counts, output = counters.counts[layer.index], layer.output
    waited_for = path.sum_cycles() if path is not None else [0] * len(PathCause)
    executed, bursts = counts[CountColumn.MACS], counts[CountColumn.BURSTS]
    macs = min(executed, layer.macs) if chain else executed
    peak = cycles * count_macs_per_cycle(counters.config, is_wide(layer))
    moved = BytesMoved(counts[CountColumn.BYTES_READ], counts[CountColumn.BYTES_WRITTEN])
    known: dict[str, Any] = {name: getattr(layer, name) for name in _LAYER_FIELDS}
    actions = count_actions(layer, counters, cycles)
    report = LayerReport(
        **known,
        shape=output.shape,
        elem=output.elem,
        scale=output.scale,
        offset=output.offset,
        cycles=cycles,
        cores=(counters.worked[layer.index] & ALL_CORES).bit_count(),
        macs=macs,
        repeated_macs=executed - macs,
        chain=chain,
        utilization=macs / peak if peak else 0.0,
        bytes=moved,
        bursts=bursts,
        bursts_shared=counts[CountColumn.BURSTS_SHARED],
        row_misses=counts[CountColumn.ROW_MISSES],
        actions=actions,
        energy=compute_energy(actions, counters.estimates),
        stalls=get_activity_cycles(counts),
        busy={u: counts[CountColumn.BUSY_LOAD + i] for i, u in enumerate(UNITS)},
        elements=0,
        saturation=(),
        critical_path=dict(zip(PATH_CAUSES, waited_for, strict=False)),
        queueing=waited_for[PathCause.QUEUEING],
        core_cycles=dict(zip(CAUSES, counters.spent[layer.index], strict=True)),
        bound=compute_layer_bound(layer, counters),
        burst_efficiency=compute_burst_efficiency(
            moved.read + moved.written, bursts, counters.config
        ),
    )
    use = compute_device_use([report], report.cycles, counters.config.dram_channels)
    return attrs.asdict(report, recurse=False) | {"use": use}


def count_actions(layer: Layer, counters: Counters, cycles: int) -> Mapping[str, float]:
    """Count the actions of a layer that take energy, by their names in ``[energy]``.

    Refreshes are a fraction of those in the layer's cycles.
    """
    counts, config, wide = counters.counts[layer.index], counters.config, is_wide(layer)
    written, interval = counts[CountColumn.BURSTS_WRITTEN], config.dram_refresh_interval_cycles
    channel_cycles = cycles * config.dram_channels
    tensor_instructions = counts[CountColumn.TENSOR_INSTRUCTIONS]
    return {
        "mac_int8": 0 if wide else counts[CountColumn.MACS],
        "mac_int16": counts[CountColumn.MACS] if wide else 0,
        "vector_element": counts[CountColumn.VECTOR_ELEMENTS],
        "mac_scratchpad_byte": counts[CountColumn.SCRATCHPAD_MAC],
        "vector_scratchpad_byte": counts[CountColumn.SCRATCHPAD_VECTOR],
        "dma_scratchpad_byte": counts[CountColumn.SCRATCHPAD_DMA],
        "dram_read_byte": (counts[CountColumn.BURSTS] - written) * config.dram_burst_bytes,
        "dram_written_byte": written * config.dram_burst_bytes,
        "dram_activation": counts[CountColumn.ROW_MISSES],
        "dram_refresh": channel_cycles / interval if interval else 0,
        "dram_cycle": channel_cycles,
        "control_instruction": counts[CountColumn.INSTRUCTIONS] - tensor_instructions,
        "tensor_instruction": tensor_instructions,
        "core_cycle": cycles * config.cores_count,
    }


def get_activity_cycles(counts: Sequence[int]) -> Mapping[str, int]:
    """Return a layer's core cycles by activity."""
    return dict(zip(ACTIVITIES, counts, strict=False))


def list_host_saturation(clip: HostClipping) -> tuple[Saturation, ...]:
    """Return a host operation's saturated and clipped values, as one record per stage and side."""
    parts: dict[tuple[str, int], list[tuple[Array, Array]]] = {}

    def add(stage: str, side: int, places: Array, overshoot: Array) -> None:
        if places.size:
            parts.setdefault((stage, side), []).append((places, overshoot))

    for part in clip.overshoots:
        overshoot = part.overshoot
        if overshoot.size != clip.elements:  # a bias has one value for each channel
            overshoot = np.broadcast_to(overshoot, clip.shape)
        overshoot = overshoot.reshape(-1)
        for side, sign in enumerate((-1, 1)):
            places = np.flatnonzero(sign * overshoot > 0)
            add(part.stage, side, places, sign * overshoot[places])
    is_low = clip.changed.exact < clip.low
    places, exact = clip.changed.indices, clip.changed.exact
    add(clip.low_stage, 0, places[is_low], clip.low - exact[is_low])
    add(clip.high_stage, 1, places[~is_low], exact[~is_low] - clip.high)
    last = clip.shape[-1] if clip.shape else 1
    order = {stage: number for number, stage in enumerate(("input", *STAGE_NAMES))}
    found = []
    for stage, side in sorted(parts, key=lambda key: (order.get(key[0], 0), key[1])):
        places, overshoot = map(np.concatenate, zip(*parts[stage, side], strict=True))
        found.append(
            Saturation(
                stage=stage,
                side=SIDES[side],
                count=places.size,
                elements=clip.elements,
                worst=int(overshoot.max()),
                first=_coordinates(int(places.min()), clip.shape),
                channels=ChannelCounts(np.bincount(places % last, minlength=last)),
            )
        )
    return tuple(found)


def _coordinates(index: int, shape: Shape) -> tuple[int, ...]:
    """Return the coordinates of a row-major index; () if it lies outside."""
    if not 0 <= index < math.prod(shape):
        return ()
    coordinates = []
    for size in reversed(shape):
        index, coordinate = divmod(index, size)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))
