"""Traced tensor instructions, the cycles in which they end, and the selection of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.analysis.tensor_instructions import decode_tensor_instruction
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.read import Bundle
from nmpsim.diagnostics import fail
from nmpsim.isa.table import DESCRIPTORS
from nmpsim.lir.layers import find_layer
from nmpsim.memory.bounds import count_spanned_bytes

_RESULTS = frozenset({"output", "partial", "dram", "spm"})
"""Address words of a descriptor that are not sources in the scratchpad."""


@attrs.frozen
class TracedInstruction:
    """A tensor instruction with the scratchpad addresses that it uses."""

    mnemonic: str
    """Mnemonic without ``nmp.``; empty if the code is not in the program's image."""
    sources: tuple[int, ...] = ()
    """Scratchpad addresses of its sources."""
    filled: tuple[int, int] = (0, 0)
    """Range of scratchpad addresses that a load writes: first, and one past the last."""


def decode_traced_instruction(bundle: Bundle, pc: int, descriptor: int) -> TracedInstruction:
    """Decode the instruction at an address with the descriptor at another address."""
    found = decode_tensor_instruction(bundle, pc, descriptor)
    if found is None:
        return TracedInstruction("")
    mnemonic = found.instruction.mnemonic.removeprefix("nmp.")
    if not found.words:
        return TracedInstruction(mnemonic)
    if found.name == "load":
        return TracedInstruction(mnemonic, filled=_filled(found.words))
    addresses = (w.name for w in DESCRIPTORS[found.name] if w.address)
    sources = tuple(found.words[w] for w in addresses if w not in _RESULTS)
    return TracedInstruction(mnemonic, sources)


def _filled(words: Mapping[str, int]) -> tuple[int, int]:
    high = words["pad_y_before"] + words["count_y"] + words["pad_y_after"]
    wide = words["pad_x_before"] + words["count_x"] + words["pad_x_after"]
    extent = count_spanned_bytes(
        high, words["spm_stride_y"], wide, words["spm_stride_x"], words["run_bytes"]
    )
    return words["spm"], words["spm"] + extent


_CORES = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


@attrs.frozen
class Selection:
    """Cores and layers that a trace includes; None includes all."""

    cores: frozenset[int] | None = None
    layers: frozenset[int] | None = None
    """Layer indices."""

    def select(self, work: Any) -> Any:
        """Return the selected entries of an array of ``nmpsim.core.state.WORK``."""
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
                "the device does not have these cores",
                found=repr(part[:40]),
                expected=f"numbers and ranges from 0 to {count - 1}, such as 0-3,8",
            )
        found.update(range(first, last + 1))
    return frozenset(found)
