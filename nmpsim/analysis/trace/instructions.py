"""Traced tensor instructions, the cycles in which they end, and the selection of a trace."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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


class InstructionCache:
    """Cache of the decoded tensor instructions of a program."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._known: dict[tuple[int, int], TracedInstruction] = {}

    def get(self, pc: int, descriptor: int) -> TracedInstruction:
        """Return the decoded instruction at an address with the descriptor at another address."""
        key = (pc, descriptor)
        if key not in self._known:
            self._known[key] = self._read(pc, descriptor)
        return self._known[key]

    def _read(self, pc: int, descriptor: int) -> TracedInstruction:
        found = decode_tensor_instruction(self._bundle, pc, descriptor)
        if found is None:
            return TracedInstruction("")
        mnemonic = found.instruction.mnemonic.removeprefix("nmp.")
        if not found.words:
            return TracedInstruction(mnemonic)
        if found.name == "load":
            return TracedInstruction(mnemonic, filled=_filled(found.words))
        addresses = (w.name for w in DESCRIPTORS[found.name] if w.address)
        return TracedInstruction(
            mnemonic, tuple(found.words[w] for w in addresses if w not in _RESULTS)
        )


def _filled(words: Mapping[str, int]) -> tuple[int, int]:
    high = words["pad_y_before"] + words["count_y"] + words["pad_y_after"]
    wide = words["pad_x_before"] + words["count_x"] + words["pad_x_after"]
    extent = count_spanned_bytes(
        high, words["spm_stride_y"], wide, words["spm_stride_x"], words["run_bytes"]
    )
    return words["spm"], words["spm"] + extent


@attrs.frozen
class Finish:
    """Cycle in which an instruction ended, and the core that executed it."""

    cycle: int
    core: int


class FinishTimes:
    """Record of the cycle in which each instruction of each layer first ended."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._ends: dict[int, dict[tuple[int, int], Finish]] = defaultdict(dict)

    def record(self, layer: int, pc: int, descriptor: int, finish: Finish) -> None:
        """Record the end of an instruction of the MAC array or the vector unit."""
        self._ends[layer].setdefault((pc, descriptor), finish)

    def find(self, layer: int, shape: Sequence[int], at: Sequence[int]) -> Finish | None:
        """Find when an element of a layer's result was computed; return None if unknown.

        Parameters
        ----------
        layer
            Index of the layer.
        shape
            Shape of its result.
        at
            Coordinates; () if they are not known.
        """
        if len(at) != len(shape) or not math.prod(shape):
            return None
        element = int(np.ravel_multi_index(tuple(at), tuple(shape)))
        ends = [
            finish
            for (pc, descriptor), finish in self._ends[layer].items()
            if (found := decode_tensor_instruction(self._bundle, pc, descriptor)) is not None
            and found.find_offset(element) is not None
        ]
        return min(ends, key=lambda finish: finish.cycle, default=None)


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
