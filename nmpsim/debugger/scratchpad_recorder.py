"""Recorder of the contents of the scratchpads in each layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from nmpsim.analysis.tensor_instructions import decode_tensor_instruction
from nmpsim.bundle import Bundle
from nmpsim.core.state import Int64s
from nmpsim.debugger.instructions import list_accesses
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.report.analyses import BlockKind, ScratchpadBlock

_KINDS: dict[tuple[bool, bool], BlockKind] = {
    (True, False): "loaded",
    (False, True): "computed",
    (True, True): "both",
}
"""Whether something was loaded, and whether something was computed -> kind of the block."""
_ENTRY = ("layer", "core", "pc", "descriptor")


class ScratchpadRecorder:
    """Recorder of scratchpad contents, for ``device.run(bundle, inputs, work=recorder)``.

    Instructions and descriptors are read from the bundle; those that a program creates while it
    runs are not seen.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._get_ranges = cache(lambda pc, descriptor: list(self._list_written(pc, descriptor)))
        self._written = set[tuple[int, ...]]()
        """(layer, core, whether it is computed, first byte, byte after the last) of each write."""

    def __call__(self, work: Any) -> None:
        """Record an array of ``nmpsim.core.state.WORK``."""
        done = work[work.is_grant == 0]
        entries = np.stack([done[name] for name in _ENTRY], axis=1)
        for layer, core, pc, descriptor in np.unique(entries, axis=0).tolist():
            self._written |= {(layer, core, *one) for one in self._get_ranges(pc, descriptor)}

    def list_blocks(self, layers: int) -> tuple[ScratchpadBlock, ...]:
        """Return the scratchpad blocks of the first ``layers`` layers, by layer and address."""
        return tuple(
            block
            for layer, rows in groupby(sorted(self._written), itemgetter(0))
            if layer < layers
            for block in _list_layer_blocks(layer, np.array(list(rows)))
        )

    def _list_written(self, pc: int, descriptor: int) -> Iterator[tuple[bool, int, int]]:
        """Yield what an instruction writes into its scratchpad: is it computed, first byte, end."""
        found = decode_tensor_instruction(self._bundle, pc, descriptor)
        if found is None or not found.words:
            return
        for access in list_accesses(found.instruction, found.words, 0, 0):
            region = access.region
            if access.kind == "write" and region.space == "scratchpad":
                start, end = region.start - SCRATCHPAD_BASE, region.end - SCRATCHPAD_BASE
                yield found.name != "load", start, end


def _list_layer_blocks(layer: int, written: Int64s) -> Iterator[ScratchpadBlock]:
    """Yield the address ranges in which as many cores store the same kind of data."""
    bounds, cores = np.unique(written[:, 3:]), np.unique(written[:, 1])
    stored = np.zeros((2, cores.size, bounds.size), np.bool_)
    for _, core, is_computed, start, end in written.tolist():
        first, last = np.searchsorted(bounds, [start, end])
        stored[is_computed, np.searchsorted(cores, core), first:last] = True
    kinds: Any = stored.any(axis=1)
    counts = stored.any(axis=0).sum(axis=0)
    contents = list(zip(counts.tolist(), *kinds.tolist(), strict=True))
    for (count, is_loaded, is_computed), places in groupby(
        range(bounds.size), contents.__getitem__
    ):
        if count:
            run = list(places)
            kind, end = _KINDS[is_loaded, is_computed], int(bounds[run[-1] + 1])
            yield ScratchpadBlock(layer, kind, int(bounds[run[0]]), end, count)
