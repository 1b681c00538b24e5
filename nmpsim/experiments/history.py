"""History of runs and evaluations over the commits of a repository: a folder of files."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs

from nmpsim.atomic import write_file
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.experiments.accuracy_result import SCHEMA as EVALUATION
from nmpsim.experiments.identity import compute_network_digest
from nmpsim.input_files import read_bytes
from nmpsim.report.json import format_json
from nmpsim.report.read import MAX_REPORT_BYTES, parse_report

SCHEMA: Final = "nmpsim-entry-3"
OLD_SCHEMAS: Final = ("nmpsim-entry-1", "nmpsim-entry-2")
"""Schemas of entries without ``network``, and of entries without ``energy_pj``."""
Kind = Literal["run", "eval"]
_SUFFIX = ".history.json"
_MAX_WORDS = 200
"""Longest commit or label, in characters."""
_NAMELESS = "main"
"""Name that Glow gives every network; the file's name says more."""


@attrs.frozen
class HistoryEntry:
    """Entry of a history: the commit, and the measures of a run or an evaluation."""

    commit: Annotated[str, "commit of the repository, or any text that names a version"]
    label: Annotated[str, "distinguishes entries of one commit; may be empty"]
    date: Annotated[str, "ISO 8601, UTC"]
    kind: Annotated[Kind, "`run` or `eval`"]
    program: Annotated[str, "name of the network, or of the file if it is called `main`"]
    cycles: Annotated[float, "cycles of the run; the mean for an evaluation"]
    saturated: Annotated[int, "saturated values of all layers (and samples)"]
    sqnr_db: Annotated[
        float | None, "lowest SQNR of a layer; null if it is unknown or no layer has an error"
    ] = None
    accuracy: Annotated[
        float | None, "share of the samples of an evaluation that are classified correctly"
    ] = None
    network: Annotated[
        str,
        "digest of outputs and layers, which identifies the network; if an older nmpsim wrote the"
        " entry, the digest of another entry with the same `program`, or empty",
    ] = ""
    energy_pj: Annotated[
        float | None, "best known energy of the run in picojoules; null if it is unknown"
    ] = None

    @property
    def series(self) -> tuple[str, str]:
        """Network and label; only entries with the same network and label are compared."""
        return self.network or self.program, self.label


class EntryDocument(TypedDict):
    """Document of one history file: an entry and the compressed JSON document."""

    schema: Literal["nmpsim-entry-3"]
    entry: HistoryEntry
    document: Annotated[str, "the JSON document, as gzip in base64"]


def add_entry(
    folder: Path, document: Path, commit: str, label: str, date: datetime
) -> HistoryEntry:
    """Add the JSON document of a run or an evaluation to a history; return the new entry.

    One of the same network, commit, label and kind is replaced.

    Raises
    ------
    UserError
        FILE001, FILE002; REPORT001 if the file is of neither kind, RESULT001 if it is damaged or
        did not reach its end; ARG001 for a commit or label that is no line of text.
    """
    for name, words in (("commit", commit), ("label", label)):
        if not words.isprintable() or len(words) > _MAX_WORDS:
            raise fail(
                "ARG001",
                f"--{name} is too long"
                if len(words) > _MAX_WORDS
                else f"--{name} contains control characters",
                found=f"{len(words)} characters: {words[:_MAX_WORDS]!r}",
                expected=f"at most {_MAX_WORDS} printable characters",
            )
    text = read_bytes(document, "document", MAX_REPORT_BYTES)
    when = date.astimezone(UTC).isoformat(timespec="seconds")
    of = (commit, label, when)
    entry = _evaluation(document, text, of) or _run(document, text, of)
    kept = {
        "schema": SCHEMA,
        "entry": attrs.asdict(entry),
        "document": base64.b64encode(gzip.compress(text, mtime=0)).decode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(
            "FILE002",
            f"cannot create the folder: {error.strerror}",
            place=folder,
            hint="Pass a folder that you can write.",
        ) from error
    write_file(folder / _name_of(entry), format_json(kept))
    return entry


def list_entries(folder: Path) -> list[HistoryEntry]:
    """Return all entries of a history, oldest first. Raises UserError (RESULT001) if damaged."""
    return [entry for entry, _ in _all(folder)]


def read_document(folder: Path, number: int) -> str:
    """Read the JSON document of entry ``number``, where the oldest entry has number 1."""
    found = _all(folder)
    if not 0 < number <= len(found):
        raise fail(
            "ARG001",
            f"the history has no entry {number}",
            place=folder,
            found=f"entry {number}",
            expected=f"an entry from 1 to {len(found)}" if found else "a history with entries",
            hint="List the entries with `nmpsim history FOLDER`.",
        )
    _, packed = found[number - 1]
    try:
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)  # as gzip packs
        text = inflate.decompress(base64.b64decode(packed, validate=True), MAX_REPORT_BYTES)
        if not inflate.eof:
            is_short = len(text) < MAX_REPORT_BYTES
            what = "is truncated" if is_short else f"has over {MAX_REPORT_BYTES:,} bytes"
            raise ValueError(f"the document {what}")
        return text.decode()
    except (binascii.Error, ValueError, zlib.error) as error:
        raise _damaged(folder, error) from error


def make_series_names(entries: Sequence[HistoryEntry]) -> dict[tuple[str, str], str]:
    """Return a unique name for each pair (network, label) in ``entries``.

    The name of a network whose name is shared or too long includes its digest.
    """
    programs = {entry.series: entry.program for entry in entries}
    names = {}
    for series, program in programs.items():
        network, label = series
        is_shared = any(one == program and key[0] != network for key, one in programs.items())
        shown = program[:_MAX_WORDS]
        name = f"{shown} {network[:6]}" if is_shared or shown != program else program
        names[series] = f"{name} ({label})" if label else name
    return names


def find_latest_pairs(entries: Sequence[HistoryEntry]) -> list[tuple[HistoryEntry, HistoryEntry]]:
    """Return the last two entries of each network, label and kind that has two or more."""
    series: dict[object, list[HistoryEntry]] = {}
    for entry in entries:
        series.setdefault((entry.series, entry.kind), []).append(entry)
    return [(every[-2], every[-1]) for every in series.values() if len(every) > 1]


def _run(path: Path, text: bytes, of: tuple[str, str, str]) -> HistoryEntry:
    report = parse_report(text, Place(str(path)))
    if report.trap is not None:
        raise fail(
            "RESULT001",
            "the run did not complete, so its cycles cannot be compared",
            place=path,
            found=report.trap.kind,
            hint="Add the report of a run that completed.",
        )
    worst = report.worst_sqnr
    return HistoryEntry(
        *of,
        kind="run",
        program=path.stem if report.program == _NAMELESS else report.program,
        cycles=report.cycles,
        saturated=report.saturated,
        sqnr_db=worst[1] if worst is not None and math.isfinite(worst[1]) else None,
        network=compute_network_digest(
            ((one.name, one.elem, one.shape) for one in report.output_reports),
            ((one.op, one.elem, one.shape) for one in report.layers),
        ),
        energy_pj=report.energy_pj,
    )


def _evaluation(path: Path, text: bytes, of: tuple[str, str, str]) -> HistoryEntry | None:
    """Return the entry of an evaluation, or None if the text is none."""
    try:
        data = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None  # as the reader of reports will say
    if not isinstance(data, dict) or data.get("schema") != EVALUATION:
        return None
    try:
        return HistoryEntry(
            *of,
            kind="eval",
            program=path.stem if data["program"] == _NAMELESS else str(data["program"]),
            cycles=_finite(data["cycles"]["mean"]),
            saturated=sum(int(layer["saturated"]) for layer in data["layers"]),
            sqnr_db=_find_lowest_sqnr(data["errors"]),
            accuracy=_finite(data["accuracy"]["1"]),
            network=str(data["network"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise fail(
            "RESULT001",
            "the evaluation cannot be added to the history",
            place=path,
            found=_describe(error),
            expected="the fields program, cycles.mean, layers, errors, accuracy.1 and network",
            hint="Write the evaluation again with `nmpsim eval --top 1`.",
        ) from error


def _find_lowest_sqnr(layers: Sequence[Any]) -> float | None:
    """Return the lowest SQNR of the outputs of layers; None if no layer has an error."""
    measured = [one["measures"] for one in layers if one["measures"] is not None]
    values = [float(one["sqnr_db"]["error"]) for one in measured]
    return min(filter(math.isfinite, values), default=None)


def _finite(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{number} is not finite")
    return number


def _name_of(entry: HistoryEntry) -> str:
    """Return a file name that is unique to a commit, label, kind and network."""
    key = "\0".join((entry.commit, entry.label, entry.kind, entry.network or entry.program))
    return f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}{_SUFFIX}"


def _all(folder: Path) -> list[tuple[HistoryEntry, str]]:
    if not folder.is_dir():
        raise fail(
            "FILE001",
            "the history does not exist",
            place=folder,
            expected="a folder with the entries",
            hint="Add runs with `nmpsim history FOLDER RUN.json`.",
        )
    found = [_read_entry(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
    networks = {entry.program: entry.network for entry, _ in found if entry.network}
    found = [
        (attrs.evolve(entry, network=entry.network or networks.get(entry.program, "")), document)
        for entry, document in found
    ]
    return sorted(found, key=lambda one: (one[0].date, one[0].program, one[0].label, one[0].kind))


def _read_entry(path: Path) -> tuple[HistoryEntry, str]:
    try:
        data = json.loads(read_bytes(path, "entry", MAX_REPORT_BYTES))
        if data["schema"] not in (SCHEMA, *OLD_SCHEMAS):
            raise ValueError(f"schema is {str(data['schema'])[:40]!r}, expected {SCHEMA!r}")
        entry = HistoryEntry(**data["entry"])
        datetime.fromisoformat(entry.date)
        optional = (entry.sqnr_db, entry.accuracy, entry.energy_pj)
        for number in (entry.cycles, entry.saturated, *optional):
            _finite(0 if number is None else number)
        if entry.kind not in ("run", "eval"):
            raise ValueError(f"kind is {entry.kind!r}, expected 'run' or 'eval'")
        for name in ("commit", "label", "program", "network"):
            _check_text(name, getattr(entry, name))
        _check_text("document", data["document"])
        return entry, data["document"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _damaged(path, error) from error


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {type(value).__name__}, expected text")


def _describe(error: Exception) -> str:
    """Return the text of an exception; a KeyError is the name of a missing field."""
    text = f"no field {error}" if isinstance(error, KeyError) else str(error)
    return text[:_MAX_WORDS]


def _damaged(path: Path, error: Exception) -> UserError:
    return fail(
        "RESULT001",
        "an entry of the history is damaged",
        place=path,
        found=_describe(error),
        expected=f"an entry with the schema {SCHEMA}",
        hint="Delete the file, then add the run again.",
    )
