"""What the tensor instructions of a program are, by the addresses that a record of work has."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nmpsim.analysis.described import described
from nmpsim.bundle.read import Bundle
from nmpsim.isa.table import DESCRIPTORS
from nmpsim.memory.bounds import span

_RESULTS = frozenset({"output", "partial", "dram", "spm"})
"""Address words of a descriptor that name no source in the scratchpad."""


@attrs.frozen
class Traced:
    """A tensor instruction with its descriptor."""

    mnemonic: str
    """Without ``nmp.``; empty if the code does not lie in the program's image."""
    sources: tuple[int, ...] = ()
    """Scratchpad addresses where what it reads begins."""
    filled: tuple[int, int] = (0, 0)
    """Scratchpad addresses that a load fills: from the first up to the second."""


class Instructions:
    """Looks each up once."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._known: dict[tuple[int, int], Traced] = {}

    def at(self, pc: int, descriptor: int) -> Traced:
        """The instruction at an address, with the descriptor at another."""
        key = (pc, descriptor)
        if key not in self._known:
            self._known[key] = self._read(pc, descriptor)
        return self._known[key]

    def _read(self, pc: int, descriptor: int) -> Traced:
        found = described(self._bundle, pc, descriptor)
        if found is None:
            return Traced("")
        mnemonic = found.instruction.mnemonic.removeprefix("nmp.")
        if not found.words:
            return Traced(mnemonic)
        if found.name == "load":
            return Traced(mnemonic, filled=_filled(found.words))
        addresses = (w.name for w in DESCRIPTORS[found.name] if w.address)
        return Traced(mnemonic, tuple(found.words[w] for w in addresses if w not in _RESULTS))


def _filled(words: Mapping[str, int]) -> tuple[int, int]:
    high = words["pad_y_before"] + words["count_y"] + words["pad_y_after"]
    wide = words["pad_x_before"] + words["count_x"] + words["pad_x_after"]
    extent = span(high, words["spm_stride_y"], wide, words["spm_stride_x"], words["run_bytes"])
    return words["spm"], words["spm"] + extent
