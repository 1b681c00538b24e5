"""Reader of JSON reports, safe for untrusted files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import numpy as np

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.input_files import read_bytes
from nmpsim.report.analyses import MAX_CORES, WorkSpan
from nmpsim.report.data import SCHEMA, OutputReport, RunReport
from nmpsim.report.fields import BY_NAME, NOT_IN_JSON, get_annotations
from nmpsim.report.schema import make_report_schema

if TYPE_CHECKING:
    from cattrs import Converter
    from jsonschema.protocols import Validator

MAX_REPORT_BYTES = 64 << 20
"""Largest accepted file, which bounds the memory that a hostile file can use."""
_MAX_FOUND = 200
"""Longest description of a problem, in characters."""


def read_report(path: Path | str) -> RunReport:
    """Read a run report from a JSON file; raise UserError if the file is not a report.

    Outputs are int64, float64 or bool arrays; ``elem`` is the element type of the device.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, REPORT001 if it is not a report of this version.
    """
    path = Path(path)
    text = read_bytes(path, "report", MAX_REPORT_BYTES, "REPORT001")
    return parse_report(text, Place(str(path)))


def parse_report(text: bytes, place: Place) -> RunReport:
    """Parse the text of a JSON report; raise UserError (REPORT001) if it is not a report."""
    return decode_report(_parsed(text, place), place)


def decode_report(data: Any, place: Place | None = None) -> RunReport:
    """Convert parsed JSON to a report; raise UserError (REPORT001) if it is not a report."""
    found = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if found != SCHEMA:
        raise _unusable(place, _short(found), f"an object whose schema is {SCHEMA!r}")
    try:
        _check(data, place)
        report = _report(data)
    except RecursionError as error:
        raise _unusable(place, "lists nested too deeply", f"schema {SCHEMA}") from error
    except ValueError as error:
        raise _unusable(place, _short(error), "values with the shape in the report") from error
    _check_indices(report, place)
    return report


def _parsed(text: bytes, place: Place) -> Any:
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _unusable(place, _short(error), "one JSON object") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check(data: Any, place: Place | None) -> None:
    from jsonschema.exceptions import best_match

    first = next(_validator().iter_errors(data), None)
    if first is not None:
        problem = best_match([first]) or first
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.absolute_path
        )
        found = f"{where.lstrip('.')}: {problem.message}" if where else problem.message
        raise _unusable(place, _short(found), f"schema {SCHEMA} (docs/report.md)")


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(make_report_schema())


@cache
def _converter() -> Converter:
    from cattrs import Converter

    converter = Converter(detailed_validation=False)  # the schema has been checked
    converter.register_structure_hook(WorkSpan, lambda values, _: WorkSpan(*values))
    converter.register_structure_hook_func(
        lambda kind: NOT_IN_JSON in get_annotations(kind), lambda it, _: it
    )
    converter.register_structure_hook_func(lambda kind: BY_NAME in get_annotations(kind), _outputs)
    return converter


def _report(data: dict[str, Any]) -> RunReport:
    known = {**data, "outputs": {}, "output_reports": data["outputs"]}
    report = _converter().structure(known, RunReport)
    return attrs.evolve(report, outputs={one.name: one.values for one in report.output_reports})


def _outputs(data: Any, _: object) -> tuple[OutputReport, ...]:
    return tuple(_output(name, one) for name, one in data.items())


def _output(name: str, data: dict[str, Any]) -> OutputReport:
    scale = None if data["scale"] is None else float(data["scale"])
    values = np.array(_numbers(data["values"])).reshape(data["shape"])
    if values.dtype.kind not in "bif":
        raise ValueError(f"integers of output {name} that exceed 64 bits")
    return OutputReport(name, data["elem"], scale, data["offset"], values)


def _numbers(values: Any) -> Any:
    """Convert the strings for infinities and NaN to floats."""
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values


def _check_indices(report: RunReport, place: Place | None) -> None:
    """Raise UserError (REPORT001) for an index of a layer that does not exist."""
    count = len(report.layers)
    named = [layer.index for layer in report.layers]
    if named != list(range(count)):
        raise _unusable(
            place, "layers whose indices are not their positions", "the indices 0, 1, 2, ..."
        )
    indices = [one.index for one in report.histograms]
    indices += [one.layer for one in report.scratchpads]
    if report.timeline is not None:
        spans = report.timeline.spans
        indices += [span.layer for span in spans if span.layer is not None]
        if any(span.core >= MAX_CORES for span in spans):
            core = max(span.core for span in spans)
            raise _unusable(place, f"core {core} in the timeline", f"a core below {MAX_CORES}")
    indices += [reader for _, reader in report.edges]
    if any(index >= count for index in indices):
        raise _unusable(place, f"layer {max(indices)}", f"a layer index below {count}")
    if any(maker >= reader for maker, reader in report.edges):
        raise _unusable(place, "an edge to an earlier layer", "layers in the order of the run")


def _unusable(place: Place | None, found: str, expected: str) -> UserError:
    return fail(
        "REPORT001",
        "the report cannot be used",
        place=place,
        found=found,
        expected=expected,
        hint="Write a report with `nmpsim run NET.bin --format json -o RUN.json`.",
    )


def _short(what: object) -> str:
    text = str(what)
    return text if len(text) <= _MAX_FOUND else text[:_MAX_FOUND] + "..."
