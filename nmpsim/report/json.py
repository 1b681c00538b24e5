"""A run report as plain JSON data; :mod:`nmpsim.report.schema` says what it looks like.

Floats are exact: ``json`` writes the shortest text that reads back the same. JSON has no infinity
and no NaN, so these are the texts ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``, which Python's
``float()`` understands.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.atomic import write_file
from nmpsim.report.data import (
    SCHEMA,
    Bound,
    LayerReport,
    OutputReport,
    RunReport,
    Saturation,
    TrapReport,
)
from nmpsim.report.details import Timeline
from nmpsim.report.schema import report_schema
from nmpsim.report.sensitivity import SENSITIVITY_SCHEMA, SensitivityReport
from nmpsim.report.shadow import SHADOW_SCHEMA, ShadowReport
from nmpsim.visible import visible_json

__all__ = ["json_text", "report_schema", "to_json", "write_report"]


def to_json(report: RunReport) -> dict[str, Any]:
    """The report as dicts, lists, numbers and texts, ready for ``json.dumps``."""
    return {
        "schema": SCHEMA,
        "program": report.program,
        "numerics": report.numerics,
        "engine": report.engine,
        "cycles": int(report.cycles),
        "seconds": float(report.seconds),
        "host_seconds": float(report.host_seconds),
        "trap": None if report.trap is None else _trap(report.trap),
        "contract": _plain(report.contract),
        "notes": list(report.notes),
        "outputs": {output.name: _output(output) for output in report.output_reports},
        "layers": [_layer(layer) for layer in report.layers],
        "shadow": None if report.shadow is None else _shadow(report.shadow),
        "sensitivity": None if report.sensitivity is None else _sensitivity(report.sensitivity),
        "histograms": [_plain(one) for one in report.histograms],
        "memory": [_plain(one) for one in report.memory],
        "timeline": None if report.timeline is None else _timeline(report.timeline),
        "scratchpads": [_plain(one) for one in report.scratchpads],
        "device": dict(report.device),
        "sources": dict(report.sources),
    }


def write_report(report: RunReport, path: Path | str) -> None:
    """Write the report as ``nmpsim run --format json -o PATH`` does; FILE002 if that cannot be."""
    text = json_text(to_json(report)).encode()
    write_file(Path(path), lambda file: file.write(text))


def json_text(data: Any) -> str:
    """The data as one JSON document: objects indented, lists of plain values on one line."""
    return visible_json(_text(data, "\n")) + "\n"


def _text(data: Any, newline: str) -> str:
    deeper = newline + "  "
    if isinstance(data, dict) and data:
        items = [f"{json.dumps(key)}: {_text(value, deeper)}" for key, value in data.items()]
        return "{" + deeper + f",{deeper}".join(items) + newline + "}"
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return "[" + deeper + f",{deeper}".join(_text(one, deeper) for one in data) + newline + "]"
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_replace_special(data))


def _trap(trap: TrapReport) -> dict[str, Any]:
    return {
        "kind": trap.kind,
        "message": trap.message,
        "core": trap.core,
        "pc": trap.pc,
        "cause": trap.cause,
        "value": trap.value,
        "instruction": trap.instruction,
        "layer": trap.layer,
        "line": trap.line,
    }


def _output(output: OutputReport) -> dict[str, Any]:
    return {
        "elem": output.elem,
        "shape": list(output.values.shape),
        "scale": _number(output.scale),
        "offset": output.offset,
        "values": _values(output.values),
    }


def _values(values: npt.NDArray[Any]) -> Any:
    """Nested lists; a number for an array without dimensions."""
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return values.tolist()
    return _replace_special(values.tolist())


def _replace_special(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return [_replace_special(value) for value in values]
    return _number(values) if isinstance(values, float) else values


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return None if value is None else float(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _layer(layer: LayerReport) -> dict[str, Any]:
    return {
        "index": layer.index,
        "name": layer.name,
        "op": layer.op,
        "placement": layer.placement,
        "reason": layer.reason,
        "numerics": layer.numerics,
        "number": layer.number,
        "line": layer.line,
        "fused": list(layer.fused),
        "shape": list(layer.shape),
        "elem": layer.elem,
        "scale": _number(layer.scale),
        "offset": layer.offset,
        "cycles": int(layer.cycles),
        "macs": int(layer.macs),
        "utilization": float(layer.utilization),
        "bytes": {"read": int(layer.bytes_read), "written": int(layer.bytes_written)},
        "bursts": int(layer.bursts),
        "burst_efficiency": float(layer.burst_efficiency),
        "row_misses": int(layer.row_misses),
        "bound": _bound(layer.bound),
        "distance": layer.distance,
        "core_cycles": {name: int(cycles) for name, cycles in layer.core_cycles.items()},
        "stalls": {name: int(cycles) for name, cycles in layer.stalls.items()},
        "busy": {name: int(cycles) for name, cycles in layer.busy.items()},
        "elements": int(layer.elements),
        "saturation": [_saturation(one, layer.elements) for one in layer.saturation],
    }


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "kind": bound.kind,
        "cycles": int(bound.cycles),
        "formula": bound.formula,
        "mac": int(bound.mac),
        "vector": int(bound.vector),
        "memory": int(bound.memory),
    }


def _saturation(one: Saturation, elements: int) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "side": one.side,
        "count": int(one.count),
        "elements": int(elements),
        "worst": int(one.worst),
        "first": [int(index) for index in one.first],
        "channels": [[int(channel), int(count)] for channel, count in one.channels],
    }


def _shadow(shadow: ShadowReport) -> dict[str, Any]:
    return {"schema": SHADOW_SCHEMA, **_plain(shadow)}


def _sensitivity(sensitivity: SensitivityReport) -> dict[str, Any]:
    return {"schema": SENSITIVITY_SCHEMA, **_plain(sensitivity)}


def _timeline(timeline: Timeline) -> dict[str, Any]:
    spans = [list(attrs.astuple(span)) for span in timeline.spans]
    return {"resolution": timeline.resolution, "spans": spans}


def _plain(value: Any) -> Any:
    """Records as dicts by field, tuples as lists."""
    if attrs.has(type(value)):
        return {f.name: _plain(getattr(value, f.name)) for f in attrs.fields(type(value))}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _number(value) if isinstance(value, float) else value
