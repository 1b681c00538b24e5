"""Glow profiles: reading them, and finding the range of each value of a program.

The file is YAML in three documents: the version of Glow's tools, a hash of the graph, and a list
with ``NodeOutputName`` (``NAME:RESULT``), ``Min``, ``Max`` and ``Histogram`` of each result. The
short form of it is text with a line ``NAME:RESULT <tab> MIN <tab> MAX`` for each.
"""

from __future__ import annotations

import math
import reprlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.extras import require_extra
from nmpsim.input_files import read_text
from nmpsim.kernels.hostops.convolution import apply_fused_activation
from nmpsim.lir.names import strip_numeric_suffix
from nmpsim.lir.opcodes import OpcodeKind
from nmpsim.quantization.graph import FloatGraph, FloatNode, FloatValue

MAX_BYTES = 1 << 26
"""Largest file; a thousand results with large histograms take a tenth of it."""
_DEPTH = 3
"""Nesting depth: histograms, in entries, in the list."""
_LINE = "NAME:RESULT, minimum and maximum, separated by tabs; or YAML of -dump-profile"
_ENTRY = "a list of entries with NodeOutputName, Min, Max and Histogram, as -dump-profile writes it"


@attrs.frozen
class ValueRange:
    """Range of a tensor's values: the smallest and the largest, both exact in float32."""

    low: float
    high: float

    @classmethod
    def from_values(cls, values: Array) -> ValueRange:
        """Return the range from the smallest to the largest element of an array."""
        return cls(float(values.min()), float(values.max()))

    def union(self, other: ValueRange) -> ValueRange:
        """Return the smallest range that contains this range and ``other``."""
        return ValueRange(min(self.low, other.low), max(self.high, other.high))


def check_finite(
    array: Array,
    code: str,
    message: str,
    place: Place | None = None,
    hint: str | None = None,
) -> None:
    """Raise UserError with ``code`` and ``message`` if an array contains NaN or an infinity."""
    if not_finite := array.size - np.count_nonzero(np.isfinite(array)):
        found = f"{not_finite} of {array.size} values are not finite"
        raise fail(code, message, place=place, found=found, expected="finite values", hint=hint)


def read_profile(path: Path) -> dict[str, ValueRange]:
    """Read a Glow profile (YAML or short text); return each result's range by name.

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
        raise fail(
            "CONST001",
            "the profile is empty",
            place=place,
            found="no lines with text",
            expected=_LINE,
        )
    is_short = "\t" in first or not first.startswith(("---", "- ", "#", "%", "Glow", "Graph"))
    ranges: dict[str, ValueRange] = {}
    for name, found, where in _lines(text, path) if is_short else _entries(text, place):
        key = name.removesuffix(":0")
        if ranges.setdefault(key, found) != found:
            raise fail(
                "CONST001",
                f"the profile has two ranges of {key!r}"[:120],
                place=where,
                found=f"{ranges[key].low:.9g} to {ranges[key].high:.9g},"
                f" {found.low:.9g} to {found.high:.9g}",
                expected="one range of each tensor",
            )
    return ranges


def _range(low: str, high: str) -> ValueRange | None:
    try:
        with np.errstate(over="ignore"):
            ends = float(np.float32(low)), float(np.float32(high))
    except (TypeError, ValueError):
        return None
    return ValueRange(*ends) if all(map(math.isfinite, ends)) and ends[0] <= ends[1] else None


def _lines(text: str, path: Path) -> Iterator[tuple[str, ValueRange, Place]]:
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


def _entries(text: str, place: Place) -> Iterator[tuple[str, ValueRange, Place]]:
    """Yield the entries of the YAML form."""
    lists = [document for document in _documents(text, place) if isinstance(document, list)]
    if len(lists) != 1:
        raise _no_profile(place, f"{len(lists)} lists")
    for entry in lists[0]:
        fields = entry if isinstance(entry, dict) else {}
        name, low, high = (fields.get(key) for key in ("NodeOutputName", "Min", "Max"))
        range_ = _range(low, high) if isinstance(low, str) and isinstance(high, str) else None
        if not isinstance(name, str) or range_ is None:
            old = "Dump the profile again with a version of Glow that writes Min and Max."
            raise _no_profile(place, reprlib.repr(entry), old if "scale" in fields else None)
        yield name, range_, place


def _documents(text: str, place: Place) -> list[Any]:
    """Return all documents; scalars stay text, so that no number loses a digit."""
    needed = "Glow's profile needs the package pyyaml"
    instead = "write lines of name, minimum and maximum"
    with require_extra("yaml", needed, place=place, instead=instead):
        import yaml
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth, too_deep = 0, "lists that are nested too deeply"
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
        raise _no_profile(where, problem[:80], "Check that the file is complete.") from None


def _no_profile(place: Place, found: str, hint: str | None = None) -> UserError:
    message = "the file is not a Glow profile"
    return fail("CONST001", message, place=place, found=found, expected=_ENTRY, hint=hint)


class ProfileLookup:
    """Lookup of a Glow profile's ranges by LIR name, with or without numeric suffix.

    Glow derives the names of results that it adds after the profile was recorded from the results
    they replace, with another suffix ``__N``. A name is therefore looked up exactly first, and
    without its suffix if all recorded names without their suffixes that equal it have one range.
    """

    def __init__(self, profile: Mapping[str, ValueRange]) -> None:
        self._profile = profile
        self._alike: dict[str, set[ValueRange]] = defaultdict(set)
        for name, range_ in profile.items():
            self._alike[strip_numeric_suffix(name)].add(range_)

    def get_range(self, name: str) -> ValueRange | None:
        """Return the range recorded under exactly this name, or None if there is none."""
        return self._profile.get(name)

    def find_range(self, name: str, excluded: ValueRange | None = None) -> ValueRange | None:
        """Return the range of a name, if necessary without ``__N``, or None if not unique."""
        if name in self._profile:
            return self._profile[name]
        alike = self._alike.get(strip_numeric_suffix(name), set())
        left = alike if len(alike) == 1 else alike - {excluded}
        return next(iter(left)) if len(left) == 1 else None


def find_profile_ranges(
    graph: FloatGraph, profile: Mapping[str, ValueRange]
) -> dict[FloatValue, ValueRange]:
    """Return the range of each float value that a profile contains.

    Raises QUANT005 if the profile has other ranges for the constants: it is another network's.
    """
    _refuse_foreign(graph, profile)
    recorded = ProfileLookup(profile)
    ranges: dict[FloatValue, ValueRange] = {}
    for value in graph.inputs:
        _set_range(ranges, value, recorded.find_range(value.name))
    for node in graph.nodes:
        if node.region is None:
            for number, value in enumerate(node.results):
                _set_range(ranges, value, _range_of(node, number, ranges, recorded))
    for value in graph.assembled_values:
        _set_range(ranges, value, recorded.find_range(value.name))
    return ranges


def _set_range(
    ranges: dict[FloatValue, ValueRange], value: FloatValue, range_: ValueRange | None
) -> None:
    if range_ is not None and value.type.elem == "float":
        ranges[value] = range_


def _range_of(
    node: FloatNode, number: int, ranges: Mapping[FloatValue, ValueRange], recorded: ProfileLookup
) -> ValueRange | None:
    """Return the range of a node's result; a moved value may have that of its source."""
    name = node.instruction.name + (f":{number}" if number else "")
    if node.kind is OpcodeKind.FILL:
        return ValueRange.from_values(np.array(node.instruction.attributes["Value"], np.float32))
    before = ranges.get(node.sources[0]) if node.sources else None
    if node.is_implicit or (node.keeps_scale and node.kind is not OpcodeKind.CLIP):
        return recorded.get_range(name) or before
    found = recorded.find_range(name, excluded=before)
    return found and _activated(node, found)


def _activated(node: FloatNode, before: ValueRange) -> ValueRange:
    """Apply the activation fused into a node: Glow profiles the sums."""
    ends = [before.low, before.high, min(max(before.low, 0.0), before.high)]
    reals = np.array(ends, np.float32)
    return ValueRange.from_values(apply_fused_activation(reals, node.instruction.attributes))


def _refuse_foreign(graph: FloatGraph, profile: Mapping[str, ValueRange]) -> None:
    recorded = ProfileLookup(profile)
    known = {
        name: (ValueRange.from_values(array), range_)
        for name, array in graph.module.constants.items()
        if array.size and array.dtype == np.float32 and (range_ := recorded.find_range(name))
    }
    others = [name for name, (own, range_) in known.items() if own != range_]
    if 2 * len(others) <= len(known):
        return
    own, range_ = known[others[0]]
    raise fail(
        "QUANT005",
        "the profile was recorded with another network or other weights",
        place=Place(graph.module.file),
        found=f"{len(others)} of {len(known)} constants with another range:"
        f" %{others[0]} from {own.low:.9g} to {own.high:.9g}",
        expected=f"the range in the profile: {range_.low:.9g} to {range_.high:.9g}",
        hint="Dump a profile of this network.",
    )
