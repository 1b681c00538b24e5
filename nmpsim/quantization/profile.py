"""Glow's profile: the range of each result of a network, as ``-dump-profile`` writes it.

The file is YAML in three documents: the version of Glow's tools, a hash of the graph, and a list
with ``NodeOutputName`` (``NAME:RESULT``), ``Min``, ``Max`` and ``Histogram`` of each result. The
short form of it is text with a line ``NAME:RESULT <tab> MIN <tab> MAX`` for each.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import missing
from nmpsim.input_files import read_text

MAX_BYTES = 1 << 26
"""Largest file; a thousand results with large histograms take a tenth of it."""
_DEPTH = 3
"""Nesting depth: histograms, in entries, in the list."""
_LINE = "NAME:RESULT, a tab, the smallest value, a tab, the largest; or YAML of -dump-profile"
_ENTRY = "a list of NodeOutputName, Min, Max, Histogram, as -dump-profile writes it"


@attrs.frozen
class Range:
    """Smallest and largest value, exact in float32."""

    low: float
    high: float

    @classmethod
    def from_values(cls, values: npt.NDArray[Any]) -> Range:
        """Return the range of an array."""
        return cls(float(values.min()), float(values.max()))

    def union(self, other: Range) -> Range:
        """Return the smallest range that contains both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def read_profile(path: Path) -> dict[str, Range]:
    """Read ranges by node name, or ``NAME:RESULT`` for results other than the first.

    Histograms are not read: Glow looks at them only where it is told to calibrate by them.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, CONST001 if it is no profile or contradicts itself,
        PKG001 for YAML without the package pyyaml.
    """
    place = Place(str(path))
    text = read_text(path, "profile", MAX_BYTES, "CONST001")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise fail("CONST001", "the profile is empty", place=place, expected=_LINE)
    is_short = "\t" in first or not first.startswith(("---", "- ", "#", "%", "Glow", "Graph"))
    ranges: dict[str, Range] = {}
    for name, found, where in _lines(text, path) if is_short else _entries(text, place):
        key = name.removesuffix(":0")
        if ranges.setdefault(key, found) != found:
            raise fail(
                "CONST001",
                f"the profile has two ranges of {key!r}"[:120],
                place=where,
                found=f"{ranges[key].low:.9g} to {ranges[key].high:.9g},"
                f" {found.low:.9g} to {found.high:.9g}",
                expected="one",
            )
    return ranges


def _range(low: str, high: str) -> Range | None:
    try:
        with np.errstate(over="ignore"):
            ends = float(np.float32(low)), float(np.float32(high))
    except (TypeError, ValueError):
        return None
    return Range(*ends) if all(map(math.isfinite, ends)) and ends[0] <= ends[1] else None


def _lines(text: str, path: Path) -> Iterator[tuple[str, Range, Place]]:
    """Yield the entries of the short form."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, *ends = line.split("\t")
        range_ = _range(*ends) if name and len(ends) == 2 else None
        place = Place(str(path), number)
        if range_ is None:
            raise fail(
                "CONST001",
                "a line of the profile is invalid",
                place=place,
                found=repr(line[:80]),
                expected=_LINE,
            )
        yield name, range_, place


def _entries(text: str, place: Place) -> Iterator[tuple[str, Range, Place]]:
    """Yield the entries of the YAML form."""
    lists = [document for document in _documents(text, place) if isinstance(document, list)]
    if len(lists) != 1:
        raise _no_profile(place, f"{len(lists)} lists")
    for entry in lists[0]:
        fields = entry if isinstance(entry, dict) else {}
        name, low, high = (fields.get(key) for key in ("NodeOutputName", "Min", "Max"))
        range_ = _range(low, high) if isinstance(low, str) and isinstance(high, str) else None
        if not isinstance(name, str) or range_ is None:
            old = "it is of an old Glow; dump it again with one that writes Min and Max"
            raise _no_profile(place, reprlib.repr(entry), old if "scale" in fields else None)
        yield name, range_, place


def _documents(text: str, place: Place) -> list[Any]:
    """Return all documents; scalars stay text, so that no number loses a digit."""
    try:
        import yaml
    except ImportError as error:
        needed = "Glow's profile needs the package pyyaml"
        instead = "or write lines of name, minimum and maximum"
        raise missing(error, "yaml", needed, place=place, instead=instead) from error
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth, too_deep = 0, "lists in lists"
    try:
        for event in yaml.parse(text, loader):  # the loader itself trusts depth and aliases
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH or isinstance(event, yaml.AliasEvent):
                where = Place(place.file, event.start_mark.line + 1)
                raise _no_profile(where, too_deep if depth > _DEPTH else "an alias")
        return list(yaml.load_all(text, loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = place if mark is None else Place(place.file, mark.line + 1, mark.column + 1)
        problem = getattr(error, "problem", None) or str(error)
        if "nesting" in problem:  # newer versions of libyaml count levels themselves
            problem = too_deep
        raise _no_profile(where, problem[:80], "is the file whole?") from None


def _no_profile(place: Place, found: str, hint: str | None = None) -> UserError:
    message = "the file is not a profile of Glow"
    return fail("CONST001", message, place=place, found=found, expected=_ENTRY, hint=hint)
