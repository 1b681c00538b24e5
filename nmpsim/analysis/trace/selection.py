"""The selection of cores and layers that a trace includes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import Metadata
from nmpsim.diagnostics import fail
from nmpsim.lir.layers import find_layer

_CORES = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


@attrs.frozen
class Selection:
    """Selection of the cores and layers that a trace includes; None selects all."""

    cores: frozenset[int] | None = None
    layers: frozenset[int] | None = None
    """Layer indices."""

    def select_work(self, work: Any) -> Any:
        """Select the elements of a structured work array with a selected core and layer."""
        for field, wanted in (("core", self.cores), ("layer", self.layers)):
            if wanted is not None:
                work = work[np.isin(work[field], list(wanted))]
        return work


def parse_selection(
    metadata: Metadata, count: int, cores: str | None, layers: Iterable[str]
) -> Selection:
    """Parse the cores and layers that a trace includes.

    Parameters
    ----------
    metadata
        Metadata of the bundle.
    count
        Number of cores of the device.
    cores
        Numbers and ranges, such as ``0-3,8``; None for all.
    layers
        Names as in :func:`~nmpsim.lir.layers.find_layer`; empty for all.

    Raises
    ------
    UserError
        ARG001 for cores that do not exist, LAYER001 for layers.
    """
    wanted = frozenset(find_layer(metadata.layers, name).index for name in layers)
    return Selection(None if cores is None else _cores(cores, count), wanted or None)


def _cores(text: str, count: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _CORES.fullmatch(part.strip())
        first = int(match[1]) if match else count
        last = int(match[2] or match[1]) if match else count
        if not first <= last < count:
            raise fail(
                "ARG001",
                "the selection of cores for the trace is invalid",
                found=repr(part[:40]),
                expected=f"core numbers and ranges from 0 to {count - 1}, such as 0-3,8",
            )
        found.update(range(first, last + 1))
    return frozenset(found)
