"""Ranges of a program's values from Glow's profile of its network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from nmpsim.diagnostics import Place, fail
from nmpsim.kernels.hostops.convolution import apply_fused_activation
from nmpsim.lir.names import strip_numeric_suffix
from nmpsim.lir.opcodes import Kind
from nmpsim.quantization.graph import Graph, Node, Value
from nmpsim.quantization.profile import Range


class ProfileLookup:
    """Lookup of a profile's ranges by LIR names.

    Glow names what it makes after the profile was taken like what it replaces, with another
    ``__N``. So a name is known by itself; else by what is left of it without its ``__N``, if all
    that is called so has one range.
    """

    def __init__(self, profile: Mapping[str, Range]) -> None:
        self._profile = profile
        self._alike: dict[str, set[Range]] = defaultdict(set)
        for name, range_ in profile.items():
            self._alike[strip_numeric_suffix(name)].add(range_)

    def named(self, name: str) -> Range | None:
        """Return the range under exactly this name."""
        return self._profile.get(name)

    def find(self, name: str, but: Range | None = None) -> Range | None:
        """Return the range under a name or a unique similar name other than that of ``but``."""
        if name in self._profile:
            return self._profile[name]
        alike = self._alike.get(strip_numeric_suffix(name), set())
        left = alike if len(alike) == 1 else alike - {but}
        return next(iter(left)) if len(left) == 1 else None


def find_profile_ranges(graph: Graph, profile: Mapping[str, Range]) -> dict[Value, Range]:
    """Return the ranges of the float values that a profile knows.

    Raises QUANT005 if the profile has other ranges for the constants: it is another network's.
    """
    _refuse_foreign(graph, profile)
    recorded = ProfileLookup(profile)
    ranges: dict[Value, Range] = {}
    for value in graph.inputs:
        _set_range(ranges, value, recorded.find(value.name))
    for node in graph.nodes:
        if node.part is None:
            for number, value in enumerate(node.results):
                _set_range(ranges, value, _range_of(node, number, ranges, recorded))
    for value, producers in graph.producers().items():
        if any(node.part for node in producers):
            _set_range(ranges, value, recorded.find(value.name))
    return ranges


def _set_range(ranges: dict[Value, Range], value: Value, range_: Range | None) -> None:
    if range_ is not None and value.type.elem == "float":
        ranges[value] = range_


def _range_of(
    node: Node, number: int, ranges: Mapping[Value, Range], recorded: ProfileLookup
) -> Range | None:
    """Return the range of a node's result; a moved value may have that of its source."""
    name = node.instruction.name + (f":{number}" if number else "")
    if node.kind is Kind.FILL:
        return Range.from_values(np.array(node.instruction.attributes["Value"], np.float32))
    before = ranges.get(node.sources[0]) if node.sources else None
    if node.is_implicit or (node.keeps_scale and node.kind is not Kind.CLIP):
        return recorded.named(name) or before
    found = recorded.find(name, but=before)
    return found and _activated(node, found)


def _activated(node: Node, before: Range) -> Range:
    """Apply the activation fused into a node: Glow profiles the sums."""
    ends = [before.low, before.high, min(max(before.low, 0.0), before.high)]
    reals = np.array(ends, np.float32)
    return Range.from_values(apply_fused_activation(reals, node.instruction.attributes))


def _refuse_foreign(graph: Graph, profile: Mapping[str, Range]) -> None:
    recorded = ProfileLookup(profile)
    known = {
        name: (Range.from_values(array), range_)
        for name, array in graph.module.constants.items()
        if array.size and array.dtype == np.float32 and (range_ := recorded.find(name))
    }
    others = [name for name, (own, range_) in known.items() if own != range_]
    if 2 * len(others) <= len(known):
        return
    own, range_ = known[others[0]]
    raise fail(
        "QUANT005",
        "the profile belongs to another network or other weights",
        place=Place(graph.module.file),
        found=f"{len(others)} of {len(known)} constants with another range:"
        f" %{others[0]} from {own.low:.9g} to {own.high:.9g}",
        expected=f"as in the profile: {range_.low:.9g} to {range_.high:.9g}",
        hint="dump a profile of this network",
    )
