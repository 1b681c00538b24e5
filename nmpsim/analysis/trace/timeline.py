"""A trace for Perfetto and Chrome: a track for each unit of each core, the DRAM and the layers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import IO, Any

import attrs

from nmpsim.analysis.trace.events import EventStream
from nmpsim.analysis.trace.finished import Finish, Finished
from nmpsim.analysis.trace.instructions import Instructions, Traced
from nmpsim.analysis.trace.selection import Selection
from nmpsim.bundle.read import Bundle
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import next_address
from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.visible import visible_line

DEFAULT_LIMIT = 100 << 20
"""Bytes of a trace unless something else is asked for; Perfetto's page takes some hundred MB."""
LAYERS, DRAM, CORES = 1, 2, 10
"""Process numbers: of the layers, of the DRAM, and of core 0; core 1 is the next."""
LAYER_TRACK, SATURATION_TRACK, DRAM_TRACK = 11, 12, 21
_TRACKS = 10
"""Thread numbers of a process, so that each is used once."""
_UNIT_NAMES = {
    Unit.LOAD: "load DMA",
    Unit.STORE: "store DMA",
    Unit.MAC: "MAC array",
    Unit.VECTOR: "vector unit",
}
_MAX_UNUSED = 64
"""Loads of a core that may wait for their first use."""
_MAX_CHANNELS = 16
"""Channels that an instant of saturation names."""


@attrs.frozen
class _Load:
    """A load that nothing has used yet."""

    number: int
    begin: int
    filled: tuple[int, int]


class TimelineTrace:
    """Listens to a run's work and writes it; then takes the report for layers and saturation."""

    def __init__(
        self,
        file: IO[bytes],
        bundle: Bundle,
        cores: int,
        chosen: Selection,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        """Begin a trace.

        Args:
            file: what it is written to while the run goes on.
            bundle: what is run.
            cores: of the device.
            chosen: cores and layers whose work is told; all layers have a slice of their own.
            limit: bytes of the units' events; what comes after is left out and counted.
        """
        self._events = EventStream(file, limit)
        self._instructions = Instructions(bundle)
        self._finished = Finished(bundle)
        self._names = [visible_line(layer.name) for layer in bundle.metadata.layers]
        self._chosen = chosen
        self._unused: list[deque[_Load]] = [deque(maxlen=_MAX_UNUSED) for _ in range(cores)]
        self._flows = 0
        for event in _titles(chosen.cores or range(cores)):
            self._events.add_always(event)

    @property
    def dropped(self) -> int:
        """Events left out because of the limit."""
        return self._events.dropped

    def __call__(self, work: Any) -> None:
        """Write an array of WORK."""
        self._note_ends(work)
        for entry in self._chosen.of(work).tolist():
            core, unit, is_grant, pc, descriptor, layer, begin, end, done, nbytes, cursor = entry
            instruction = self._instructions.at(pc, descriptor)
            name = instruction.mnemonic or Unit(unit).name.lower()
            facts: dict[str, Any] = {"layer": self._layer(layer), "pc": f"{pc:#x}"}
            if unit in (Unit.LOAD, Unit.STORE):
                facts["bytes"] = nbytes
            if is_grant:
                facts["address"] = f"{next_address(cursor):#x}"
                track = {"pid": DRAM, "tid": DRAM_TRACK}
                self._events.add(_slice(f"{name}, core {core}", begin, end, facts) | track)
                continue
            if done != end:
                facts["done"] = done
            if self._events.add(_slice(name, begin, end, facts) | _track(core, unit)):
                self._tie(core, unit, begin, instruction)

    def finish(self, report: RunReport) -> None:
        """Write what only the report knows, and end the trace."""
        begin = 0
        for layer in report.layers:
            self._events.add_always(_layer_slice(layer, begin))
            begin += layer.device_cycles
            for found in layer.saturation:
                if not found.wanted:
                    done = self._finished.of(layer.index, layer.shape, found.first)
                    self._events.add_always(_saturated(layer, found, begin, done))
        if report.trap is not None:
            self._events.add_always(
                _instant(report.trap.kind, report.device_cycles, {"message": report.trap.message})
            )
        self._events.close(
            {
                "program": visible_line(report.program),
                "cycles": report.device_cycles,
                "unit": "one microsecond of the trace is one cycle",
                "dropped_events": self.dropped,
            }
        )

    def _note_ends(self, work: Any) -> None:
        computed = work[(work["is_grant"] == 0) & (work["unit"] >= Unit.MAC)]
        for entry in computed[["layer", "pc", "descriptor", "end", "core"]].tolist():
            layer, pc, descriptor, end, core = entry
            self._finished.note(layer, pc, descriptor, Finish(end, core))

    def _tie(self, core: int, unit: int, begin: int, instruction: Traced) -> None:
        """Keep a load for its first use; draw arrows from loads to what uses them first."""
        unused = self._unused[core]
        if unit == Unit.LOAD:
            first, last = instruction.filled
            for one in [one for one in unused if one.filled[0] < last and first < one.filled[1]]:
                unused.remove(one)  # overwritten before anything began to read there
            self._flows += 1
            unused.append(_Load(self._flows, begin, instruction.filled))
            return
        for one in [one for one in unused if _uses(instruction, one)]:
            unused.remove(one)
            self._events.add(*_flow(one, core, unit, begin))

    def _layer(self, index: int) -> str | None:
        return self._names[index] if index < len(self._names) else None


def _slice(name: str, begin: int, end: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "ts": begin, "dur": end - begin, "name": name, "args": facts}


def _uses(instruction: Traced, load: _Load) -> bool:
    first, last = load.filled
    return any(first <= source < last for source in instruction.sources)


def _flow(load: _Load, core: int, unit: int, begin: int) -> tuple[dict[str, Any], ...]:
    both = {"cat": "use", "name": "use", "id": load.number}
    return (
        {"ph": "s", "ts": load.begin, **both, **_track(core, Unit.LOAD)},
        {"ph": "f", "bp": "e", "ts": begin, **both, **_track(core, unit)},
    )


def _track(core: int, unit: int) -> dict[str, int]:
    process = CORES + core
    return {"pid": process, "tid": process * _TRACKS + unit}


def _titles(cores: Any) -> Iterator[dict[str, Any]]:
    yield from _title(LAYERS, "layers", {LAYER_TRACK: "layers", SATURATION_TRACK: "saturation"})
    yield from _title(DRAM, "DRAM", {DRAM_TRACK: "grants"})
    for core in sorted(cores):
        tracks = {_track(core, unit)["tid"]: name for unit, name in _UNIT_NAMES.items()}
        yield from _title(CORES + core, f"core {core}", tracks)


def _title(process: int, name: str, tracks: dict[int, str]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    order = {"sort_index": process}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": order}
    for thread, title in tracks.items():
        told = {"ph": "M", "pid": process, "tid": thread}
        yield {**told, "name": "thread_name", "args": {"name": title}}
        yield {**told, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _layer_slice(layer: LayerReport, begin: int) -> dict[str, Any]:
    facts = {
        "index": layer.index,
        "op": layer.op,
        "placement": layer.placement,
        "line": layer.line,
        "macs": layer.macs,
        "utilization": round(layer.utilization, 6),
        "bytes_read": layer.bytes_read,
        "bytes_written": layer.bytes_written,
        "bound_cycles": layer.bound.cycles,
        "saturated": layer.saturated,
    }
    track = {"pid": LAYERS, "tid": LAYER_TRACK}
    return _slice(visible_line(layer.name), begin, begin + layer.device_cycles, facts) | track


def _saturated(
    layer: LayerReport, found: Saturation, end: int, done: Finish | None
) -> dict[str, Any]:
    """When the first value that saturated was done, at the end of the layer if nothing tells."""
    facts = {
        "layer": visible_line(layer.name),
        "count": found.count,
        "elements": layer.elements,
        "worst": found.worst,
        "first": list(found.first),
        "channels": [list(one) for one in found.channels[:_MAX_CHANNELS]],
    }
    if done is not None:
        facts["core"] = done.core
    return _instant(f"{found.stage} {found.side}", end if done is None else done.cycle, facts)


def _instant(name: str, cycle: int, facts: dict[str, Any]) -> dict[str, Any]:
    place = {"pid": LAYERS, "tid": SATURATION_TRACK, "s": "p"}
    return {"ph": "i", "ts": cycle, "name": name, "args": facts, **place}
