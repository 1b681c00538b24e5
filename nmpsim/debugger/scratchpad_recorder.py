"""Recorder of the contents of the scratchpads in each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.tensor_instructions import decode_tensor_instruction
from nmpsim.bundle import Bundle
from nmpsim.debugger.instructions import list_accesses
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.report.analyses import BlockKind, ScratchpadBlock

Kind = Literal["loaded", "computed"]
_Piece = tuple[Kind, int, int]
"""Kind, first byte, and byte after the last of a written piece."""
_ENTRY = ("core", "layer", "pc", "descriptor")


class ScratchpadRecorder:
    """Recorder of scratchpad contents, for ``device.run(bundle, inputs, work=recorder)``.

    Instructions and descriptors are read from the bundle; those that a program creates while it
    runs are not seen.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._get_pieces = cache(lambda pc, descriptor: list(self._written(pc, descriptor)))
        self._held: dict[int, dict[int, set[_Piece]]] = {}

    def __call__(self, work: Any) -> None:
        """Record an array of ``nmpsim.core.state.WORK``."""
        done = work[work.is_grant == 0]
        entries = np.stack([done[name] for name in _ENTRY], axis=1)
        for core, layer, pc, descriptor in np.unique(entries, axis=0).tolist():
            held = self._held.setdefault(layer, {}).setdefault(core, set())
            held.update(self._get_pieces(pc, descriptor))

    def list_blocks(self, layers: int) -> tuple[ScratchpadBlock, ...]:
        """Return the blocks of the first ``layers`` layers, ordered by layer and address."""
        known = sorted(layer for layer in self._held if layer < layers)
        return tuple(block for layer in known for block in _blocks(layer, self._held[layer]))

    def _written(self, pc: int, descriptor: int) -> Iterator[_Piece]:
        """Yield the pieces that an instruction writes into its scratchpad."""
        found = decode_tensor_instruction(self._bundle, pc, descriptor)
        if found is None or not found.words:
            return
        for access in list_accesses(found.instruction, found.words, 0, 0):
            if access.kind == "write" and access.region.space == "scratchpad":
                kind: Kind = "loaded" if found.name == "load" else "computed"
                yield (
                    kind,
                    access.region.start - SCRATCHPAD_BASE,
                    access.region.end - SCRATCHPAD_BASE,
                )


def _blocks(layer: int, held: Mapping[int, set[_Piece]]) -> Iterator[ScratchpadBlock]:
    """Yield the address ranges in which the same kind is stored on as many cores."""
    bounds = sorted({at for pieces in held.values() for _, *ends in pieces for at in ends})
    loaded, computed = (_cores_with(kind, held, bounds) for kind in ("loaded", "computed"))
    looks = [
        (int(both.sum()), bool(into.any()), bool(out.any()))
        for into, out, both in zip(loaded.T, computed.T, (loaded | computed).T, strict=True)
    ]
    for (cores, into, out), places in groupby(range(len(looks)), looks.__getitem__):
        if cores:
            run = list(places)
            kind: BlockKind = "both" if into and out else "loaded" if into else "computed"
            yield ScratchpadBlock(layer, kind, bounds[run[0]], bounds[run[-1] + 1], cores)


def _cores_with(
    kind: str, held: Mapping[int, set[_Piece]], bounds: list[int]
) -> npt.NDArray[np.bool_]:
    """Return where each core has data of a kind, [cores, pieces between bounds]."""
    found = np.zeros((len(held), max(len(bounds) - 1, 0)), bool)
    places = {at: place for place, at in enumerate(bounds)}
    for row, pieces in enumerate(held.values()):
        for what, low, high in pieces:
            if what == kind:
                found[row, places[low] : places[high]] = True
    return found
