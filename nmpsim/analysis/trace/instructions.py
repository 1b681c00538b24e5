"""What the tensor instructions of a program are, by the addresses that a record of work has."""

from __future__ import annotations

import attrs

from nmpsim.bundle.read import Bundle
from nmpsim.isa.codec import decode, decode_descriptor
from nmpsim.isa.table import DESCRIPTORS
from nmpsim.memory.bounds import span

_RESULTS = frozenset({"output", "partial", "dram", "spm"})
"""Address words of a descriptor that name no source in the scratchpad."""


@attrs.frozen
class Traced:
    """A tensor instruction with its descriptor."""

    mnemonic: str
    """Without ``nmp.``; empty if code or descriptor do not lie in the program's image."""
    sources: tuple[int, ...] = ()
    """Scratchpad addresses where what it reads begins."""
    filled: tuple[int, int] = (0, 0)
    """Scratchpad addresses that a load fills: from the first up to the second."""


class Instructions:
    """Looks each up once."""

    def __init__(self, bundle: Bundle) -> None:
        self._image = bundle.image
        self._base = bundle.image_base
        self._known: dict[tuple[int, int], Traced] = {}

    def at(self, pc: int, descriptor: int) -> Traced:
        """The instruction at an address, with the descriptor at another."""
        key = (pc, descriptor)
        if key not in self._known:
            self._known[key] = self._read(pc, descriptor)
        return self._known[key]

    def _read(self, pc: int, descriptor: int) -> Traced:
        code = self._bytes(pc, 4)
        decoded = decode(int.from_bytes(code, "little")) if code else None
        if decoded is None or decoded.instruction.descriptor is None:
            return Traced("")
        name = decoded.instruction.descriptor
        mnemonic = decoded.instruction.mnemonic.removeprefix("nmp.")
        data = self._bytes(descriptor, DESCRIPTORS[name].nbytes)
        if not data:
            return Traced(mnemonic)
        words = decode_descriptor(name, data)
        if name == "load":
            return Traced(mnemonic, filled=_filled(words))
        sources = (w.name for w in DESCRIPTORS[name] if w.address and w.name not in _RESULTS)
        return Traced(mnemonic, tuple(words[word] for word in sources))

    def _bytes(self, address: int, count: int) -> bytes:
        start = address - self._base
        fits = start >= 0 and start + count <= self._image.size
        return self._image[start : start + count].tobytes() if fits else b""


def _filled(words: dict[str, int]) -> tuple[int, int]:
    high = words["pad_y_before"] + words["count_y"] + words["pad_y_after"]
    wide = words["pad_x_before"] + words["count_x"] + words["pad_x_after"]
    extent = span(high, words["spm_stride_y"], wide, words["spm_stride_x"], words["run_bytes"])
    return words["spm"], words["spm"] + extent
