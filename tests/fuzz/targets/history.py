"""Entries of ``nmpsim history``."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator

import attrs

from nmpsim.experiments.history import (
    SCHEMA,
    HistoryEntry,
    find_latest_pairs,
    list_entries,
    make_series_names,
    read_document,
)

from ..mutate import mutate_json_bytes
from ..target import Target, allow_errors, get_folder


def run(data: bytes) -> None:
    """Read an entry as the only one of a history and unpack its document."""
    history = get_folder() / "history"
    history.mkdir(exist_ok=True)
    (history / "entry.history.json").write_bytes(data)
    with allow_errors("RESULT001", "FILE001"):
        found = list_entries(history)
        assert len(found) == 1
        make_series_names(found)
        find_latest_pairs(found)
        read_document(history, 1)


def seeds() -> Iterator[bytes]:
    """Yield the entry of a run."""
    entry = HistoryEntry(
        "c0ffee",
        "main",
        "2026-01-01T00:00:00+00:00",
        kind="run",
        program="net",
        cycles=1,
        saturated=0,
    )
    document = base64.b64encode(gzip.compress(b"{}", mtime=0)).decode()
    kept = {"schema": SCHEMA, "entry": attrs.asdict(entry), "document": document}
    yield json.dumps(kept).encode()


TARGET = Target(run, seeds, mutate_json_bytes, most_bytes=1 << 13)
