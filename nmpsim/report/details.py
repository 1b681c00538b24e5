"""What a run tells beyond its layers, where it was asked for: histograms, memory, units' work."""

from __future__ import annotations

from typing import Annotated, Literal

from nmpsim.records import frozen
from nmpsim.report.fields import AS_LISTS, Count, Finite, Share

Unit = Literal["load", "store", "mac", "vector"]
UNITS: tuple[Unit, ...] = ("load", "store", "mac", "vector")
"""Units of a core, as the device numbers them."""


@frozen
class Histogram:
    """How often the stored values of one layer's output occur, in bins of equal width."""

    index: Annotated[Count, "position in `layers` of the report"]
    name: Annotated[str, "name of the layer"]
    low: Annotated[Finite, "where the first bin begins"]
    width: Annotated[Share, "of each bin; it includes its start, the last one also its end"]
    counts: Annotated[tuple[Count, ...], "list: values in each bin"]
    not_finite: Annotated[Count, "infinities and NaN of a float output, which no bin can hold"] = 0


@frozen
class MemoryBlock:
    """A piece of DRAM and the layers for which it holds what its name says."""

    name: Annotated[
        str, "of the tensor in the LIR; of a part of the program, the section of the bundle"
    ]
    kind: Annotated[
        Literal["program", "input", "output", "activation"],
        "`program` (read-only: code, descriptors, constants), `input`, `output` or `activation`",
    ]
    address: Annotated[Count, "where it begins"]
    nbytes: Annotated[Count, "its size"]
    first: Annotated[Count, "index of the first layer that uses it"]
    last: Annotated[Count, "index of the last one; between the two, nothing else is stored there"]


BlockKind = Literal["loaded", "computed", "both"]
"""How something came into a scratchpad: by a load, by a computing unit, or by one and the other."""


@frozen
class ScratchpadBlock:
    """A piece of the scratchpads into which one layer put something."""

    layer: Annotated[Count, "index of the layer that put something there"]
    kind: Annotated[
        BlockKind,
        "`loaded` (by load DMA), `computed` (results and running sums), or `both`, one after the"
        " other or in different cores",
    ]
    begin: Annotated[Count, "first byte, from the start of the scratchpad"]
    end: Annotated[Count, "byte after the last"]
    cores: Annotated[Count, "how many cores' scratchpads hold it"]


@frozen
class WorkSpan:
    """When one unit of one core worked for a layer."""

    core: Count
    unit: Unit
    layer: Count | None
    """Index of the layer; None if the program named none."""
    begin: Count
    """First cycle."""
    end: Count
    """The cycle after the last."""
    busy: Count
    """Cycles in between in which the unit worked."""


@frozen
class Timeline:
    """What the units did when; neighbours are joined where there are too many to list."""

    resolution: Annotated[
        Count,
        "a span includes pauses of at most this many cycles; 0 if each work item has its own span",
    ]
    spans: Annotated[
        tuple[WorkSpan, ...],
        "list of `[core, unit, layer, begin, end, busy]`: the unit (`load`, `store`, `mac`,"
        " `vector`) of a core worked for a layer (its index, or null) from cycle `begin` until"
        " before `end`, and was busy for `busy` cycles of these",
        AS_LISTS,
    ]
