"""A trace for Perfetto and Chrome with tracks for units, the DRAM and layers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import IO, Any

import attrs
import numpy as np

from nmpsim.analysis.tensor_instructions import TensorInstruction, decode_tensor_instruction
from nmpsim.analysis.trace.events import (
    TRANSFERS,
    UNITS,
    ActivityCounters,
    EventStream,
    format_compact_json,
)
from nmpsim.analysis.trace.selection import Selection
from nmpsim.bundle.read import Bundle
from nmpsim.escape import escape_line
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import get_next_address
from nmpsim.report.data import LayerReport, RunReport, Saturation

DEFAULT_LIMIT = 100 << 20
"""Default size limit in bytes; Perfetto reads a few hundred MB."""
LAYERS, DRAM, CORES = 1, 2, 10
"""Process numbers of the layers, the DRAM and core 0; core 1 is the next."""
LAYER_TRACK, SATURATION_TRACK, DRAM_TRACK = 11, 12, 21
_TRACKS = 10
"""Thread numbers of a process."""
_UNIT_NAMES = {
    Unit.LOAD: "load DMA",
    Unit.STORE: "store DMA",
    Unit.MAC: "MAC array",
    Unit.VECTOR: "vector unit",
}
_FUNCTIONS = len(Unit)
"""Number of the track of functions, after those of the units."""
_UNIT_WORDS = [unit.name.lower() for unit in Unit]
_SCRATCHPAD = "scratchpad bytes of one core"
_FIELDS = (
    *("core", "unit", "is_grant", "pc", "descriptor"),
    *("layer", "begin", "end", "done", "bytes"),
)
"""Fields of WORK, except the cursor, which only a grant has."""
_MOVING = (Unit.LOAD, Unit.STORE)
_MAX_UNUSED = 64
"""Largest number of a core's loads that wait for their first use."""
_MAX_CHANNELS = 16
"""Largest number of channels in a saturation event."""


_GRANTS = f'"pid":{DRAM},"tid":{DRAM_TRACK}'


@attrs.frozen
class _Load:
    """A load that no instruction has used yet."""

    number: int
    begin: int
    filled: tuple[int, int]


class TimelineTrace:
    """Trace of a run's work, layers and saturation as events, written during the run."""

    def __init__(
        self,
        file: IO[bytes],
        bundle: Bundle,
        cores: int,
        chosen: Selection,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        """Start a trace.

        Parameters
        ----------
        file
            Open binary file, written during the run.
        bundle
            The program.
        cores
            Number of cores of the device.
        chosen
            Cores and layers whose work is traced; all layers have a slice.
        limit
            Largest size of the units' events in bytes; further events are counted.
        """
        self._events = EventStream(file, limit)
        self._read = cache(partial(decode_tensor_instruction, bundle))
        self._finished: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
        """Layer -> addresses of an instruction and its descriptor -> first end, and its core."""
        self._names = [
            format_compact_json(escape_line(layer.display_name)) for layer in bundle.metadata.layers
        ]
        self._tracks = [
            [format_compact_json(_track(core, unit))[1:-1] for unit in Unit]
            for core in range(cores)
        ]
        self._counters = ActivityCounters()
        self._chosen = chosen
        self._unused: list[deque[_Load]] = [deque(maxlen=_MAX_UNUSED) for _ in range(cores)]
        self._flows = 0
        for event in _titles(chosen.cores or range(cores)):
            self._events.write_always(event)

    @property
    def dropped(self) -> int:
        """Number of events omitted because of the size limit."""
        return self._events.dropped

    def __call__(self, work: Any) -> None:
        """Write the trace events of a work log, an array of dtype ``nmpsim.core.state.WORK``."""
        self._record_ends(work)
        self._counters(work)
        work = self._chosen.select_work(work)
        cursors = iter(work["cursor"][work["is_grant"] != 0].tolist())
        columns = [work[name].tolist() for name in _FIELDS]
        for core, unit, is_grant, pc, descriptor, layer, begin, end, done, nbytes in zip(
            *columns, strict=True
        ):
            instruction = self._read(pc, descriptor)
            name = instruction.mnemonic if instruction else _UNIT_WORDS[unit]
            facts = f'"layer":{self._layer(layer)},"pc":"{pc:#x}"'
            if unit in _MOVING:
                facts += f',"bytes":{nbytes}'
            if is_grant:
                facts += f',"address":"{get_next_address(next(cursors)):#x}"'
                self._events.write_events(
                    _slice_text(f"{name}, core {core}", begin, end, facts, _GRANTS)
                )
                continue
            if done != end:
                facts += f',"done":{done}'
            track = self._tracks[core][unit]
            if (
                self._events.write_events(_slice_text(name, begin, end, facts, track))
                and instruction
            ):
                self._tie(core, unit, begin, instruction)

    def begin_functions(self, names: Sequence[str]) -> Callable[[int, int, int, int], None]:
        """Add a track for the functions of each core.

        Returns
        -------
        callable
            Writes a slice for a frame, given its core, the number of its function in ``names`` (or
            a negative number, for which nothing is written), and its first and last cycle.
        """
        cores = sorted(self._chosen.cores or range(len(self._tracks)))
        for core in cores:
            for event in _title_tracks(
                CORES + core, {_track(core, _FUNCTIONS)["tid"]: "functions"}
            ):
                self._events.write_always(event)
        tracks = {core: format_compact_json(_track(core, _FUNCTIONS))[1:-1] for core in cores}
        texts = [format_compact_json(escape_line(name))[1:-1] for name in names]

        def write_frame(core: int, function: int, begin: int, end: int) -> None:
            if function >= 0 and core in tracks:
                text = _slice_text(texts[function], begin, end, "", tracks[core])
                self._events.write_events(text)

        return write_frame

    def finish(self, report: RunReport) -> None:
        """Write the layer, saturation, counter and trap events of a report and close the trace."""
        begin = 0
        for layer in report.layers:
            self._events.write_always(_layer_slice(layer, begin))
            begin += layer.device_cycles
            for found in layer.saturation:
                if not found.is_requested:
                    done = self._find_end(layer, found.first)
                    self._events.write_always(_saturated(layer, found, begin, done))
        for event in self._counted(report):
            self._events.write_always(event)
        if report.trap is not None:
            self._events.write_always(
                _instant(report.trap.kind, report.device_cycles, {"message": report.trap.message})
            )
        self._events.close(
            {
                "program": escape_line(report.program),
                "cycles": report.device_cycles,
                "unit": "one microsecond of the trace is one cycle",
                "dropped_events": self.dropped,
            }
        )

    def _counted(self, report: RunReport) -> Iterator[dict[str, Any]]:
        """Write counters, including the scratchpads' if the report has them."""
        shown: dict[str, dict[str, float]] = {}
        for cycle, means in self._counters.compute_mean_activity(report.device_cycles):
            values = {
                "DRAM busy %": {"busy": round(100 * means["busy"], 1)},
                "DRAM queue: transfers": {name: means[name] for name in TRANSFERS.values()},
                "units at work": {name: means[name] for name in UNITS.values()},
            }
            for name, value in values.items():
                if shown.get(name) != value:
                    shown[name] = value
                    yield _counter(LAYERS if name == "units at work" else DRAM, name, cycle, value)
        used: Counter[int] = Counter()
        for block in report.scratchpads:
            used[block.layer] += block.end - block.begin
        begin = 0
        for layer in report.layers if used else ():
            if layer.device_cycles:
                yield _counter(LAYERS, _SCRATCHPAD, begin, {"used": used[layer.index]})
            begin += layer.device_cycles

    def _record_ends(self, work: Any) -> None:
        computed = work[(work["is_grant"] == 0) & (work["unit"] >= Unit.MAC)]
        fields = ("layer", "pc", "descriptor", "end", "core")
        columns = [computed[name].tolist() for name in fields]
        for layer, pc, descriptor, end, core in zip(*columns, strict=True):
            self._finished[layer].setdefault((pc, descriptor), (end, core))

    def _find_end(self, layer: LayerReport, at: Sequence[int]) -> tuple[int, int] | None:
        """Return when an element of a layer's result was computed, and the core; None if unknown.

        ``at`` has the coordinates of the element, or () if they are not known.
        """
        if len(at) != len(layer.shape) or not math.prod(layer.shape):
            return None
        element = int(np.ravel_multi_index(tuple(at), layer.shape))
        ends = [
            end
            for addresses, end in self._finished[layer.index].items()
            if (found := self._read(*addresses)) is not None
            and found.find_offset(element) is not None
        ]
        return min(ends, key=itemgetter(0), default=None)

    def _tie(self, core: int, unit: int, begin: int, instruction: TensorInstruction) -> None:
        """Record a load until its first use, and write flow events from loads to first uses."""
        unused = self._unused[core]
        if unit == Unit.LOAD:
            first, last = instruction.loaded_range
            for one in [one for one in unused if one.filled[0] < last and first < one.filled[1]]:
                unused.remove(one)  # overwritten before anything began to read there
            self._flows += 1
            unused.append(_Load(self._flows, begin, instruction.loaded_range))
            return
        for one in [one for one in unused if _uses(instruction, one)]:
            unused.remove(one)
            both = f'"cat":"use","name":"use","id":{one.number}'
            source, use = self._tracks[core][Unit.LOAD], self._tracks[core][unit]
            self._events.write_events(
                f'{{"ph":"s","ts":{one.begin},{both},{source}}}',
                f'{{"ph":"f","bp":"e","ts":{begin},{both},{use}}}',
            )

    def _layer(self, index: int) -> str:
        return self._names[index] if index < len(self._names) else "null"


def _uses(instruction: TensorInstruction, load: _Load) -> bool:
    first, last = load.filled
    return any(first <= source < last for source in instruction.source_addresses)


def _slice_text(name: str, begin: int, end: int, facts: str, place: str) -> str:
    """Return the JSON of a slice directly, which is faster for millions of events.

    ``name`` is escaped; ``facts`` and ``place`` are JSON without braces.
    """
    times = f'"ts":{begin},"dur":{end - begin}'
    return f'{{"ph":"X",{times},"name":"{name}","args":{{{facts}}},{place}}}'


def _counter(process: int, name: str, cycle: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": process, "ts": cycle, "name": name, "args": values}


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
    yield from _title_tracks(process, tracks)


def _title_tracks(process: int, tracks: dict[int, str]) -> Iterator[dict[str, Any]]:
    for thread, title in tracks.items():
        told = {"ph": "M", "pid": process, "tid": thread}
        yield {**told, "name": "thread_name", "args": {"name": title}}
        yield {**told, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _layer_slice(layer: LayerReport, begin: int) -> dict[str, Any]:
    facts = {
        "index": layer.index,
        "name": escape_line(layer.name),
        "op": layer.op,
        "operation": layer.operation,
        "placement": layer.placement,
        "line": layer.line,
        "macs": layer.macs,
        "utilization": round(layer.utilization, 6),
        "bytes_read": layer.bytes_read,
        "bytes_written": layer.bytes_written,
        "bound_cycles": layer.bound.cycles,
        "saturated": layer.saturated,
    }
    return {
        "ph": "X",
        "ts": begin,
        "dur": layer.device_cycles,
        "name": escape_line(layer.display_name),
        "args": facts,
        "pid": LAYERS,
        "tid": LAYER_TRACK,
    }


def _saturated(
    layer: LayerReport, found: Saturation, end: int, done: tuple[int, int] | None
) -> dict[str, Any]:
    """Return the event of a layer's first saturated value, at the layer's end if not known."""
    facts = {
        "layer": escape_line(layer.display_name),
        "count": found.count,
        "elements": layer.elements,
        "worst": found.worst,
        "first": list(found.first),
        "channels": [list(one) for one in found.channels[:_MAX_CHANNELS]],
    }
    if done is not None:
        end, facts["core"] = done
    return _instant(f"{found.stage} {found.side}", end, facts)


def _instant(name: str, cycle: int, facts: dict[str, Any]) -> dict[str, Any]:
    place = {"pid": LAYERS, "tid": SATURATION_TRACK, "s": "p"}
    return {"ph": "i", "ts": cycle, "name": name, "args": facts, **place}
