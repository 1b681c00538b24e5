"""What a run tells beyond its layers, where it was asked for: histograms, memory, units' work."""

from __future__ import annotations

from typing import Literal

import attrs

Unit = Literal["load", "store", "mac", "vector"]
UNITS: tuple[Unit, ...] = ("load", "store", "mac", "vector")
"""Units of a core, as the device numbers them."""


@attrs.frozen
class Histogram:
    """How often the stored values of one layer's output occur, in bins of equal width."""

    index: int
    """Position of the layer in the report's list of layers."""
    name: str
    """Name of the layer."""
    low: float
    """Where the first bin begins."""
    width: float
    """Of each bin; a bin holds its beginning and not its end."""
    counts: tuple[int, ...]
    """Values in each bin."""
    not_finite: int = 0
    """Values that no bin can hold: infinities and NaN of a float output."""


@attrs.frozen
class MemoryBlock:
    """A piece of DRAM and the layers for which it holds what its name says."""

    name: str
    kind: Literal["program", "input", "output", "activation"]
    """``program`` is the read-only part: code, descriptors, constants."""
    address: int
    nbytes: int
    first: int
    """Index of the first layer that uses it."""
    last: int
    """Index of the last one."""


BlockKind = Literal["loaded", "computed", "both"]
"""How something came into a scratchpad: by a load, by a computing unit, or by one and the other."""


@attrs.frozen
class ScratchpadBlock:
    """A piece of the scratchpads into which one layer put something."""

    layer: int
    """Index of the layer."""
    kind: BlockKind
    begin: int
    """Its first byte, from the begin of the scratchpad."""
    end: int
    """The byte after its last."""
    cores: int
    """In the scratchpads of this many cores."""


@attrs.frozen
class WorkSpan:
    """When one unit of one core worked for a layer."""

    core: int
    unit: Unit
    layer: int | None
    """Index of the layer; None if the program named none."""
    begin: int
    """First cycle."""
    end: int
    """The cycle after the last."""
    busy: int
    """Cycles in between in which the unit worked."""


@attrs.frozen
class Timeline:
    """What the units did when; neighbours are joined where there are too many to list."""

    resolution: int
    """Pauses of at most this many cycles do not end a span; 0 if every work has its own."""
    spans: tuple[WorkSpan, ...]
