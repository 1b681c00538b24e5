"""A layer's work as instructions with their descriptors, tile by tile and core by core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.codec import BY_MNEMONIC, descriptor_offsets
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit

ALIGNMENT = 64
"""Bytes; scratchpad buffers begin at multiples of it."""

Integers = npt.NDArray[np.int64]
Numbers = int | Integers
"""One for all, or one for each."""


@attrs.frozen
class Command:
    """A tensor instruction and the words of its descriptor; words not named are zero."""

    mnemonic: str
    words: Mapping[str, Any]


@attrs.frozen
class TileStep:
    """What happens for one tile: its loads, then its computation, then its stores."""

    loads: tuple[Command, ...] = ()
    computes: tuple[Command, ...] = ()
    stores: tuple[Command, ...] = ()


@attrs.frozen(eq=False)
class Commands:
    """Tensor instructions of one kind, for all steps of a layer, in the order of the steps."""

    mnemonic: str
    words: Integers
    """[instructions, words of the descriptor]"""
    ends: Integers
    """[steps + 1] the instructions of step s are ``ends[s]`` to ``ends[s + 1]``."""


@attrs.frozen(eq=False)
class LayerPlan:
    """A layer's steps, core by core; all computation of a layer is done by one unit."""

    unit: Unit
    cores: Integers
    """[cores + 1] the steps of core c are ``cores[c]`` to ``cores[c + 1]``."""
    loads: Commands
    computes: Commands
    stores: Commands
    macs: int = 0


def plan_of(
    unit: Unit, cores: Sequence[Sequence[TileStep]], config: DeviceConfig, macs: int = 0
) -> LayerPlan:
    """The tables of steps that were planned one by one."""
    steps = [step for one in cores for step in one]
    computing = next((step.computes[0].mnemonic for step in steps if step.computes), "nmp.fill")
    return LayerPlan(
        unit,
        core_ends([len(one) for one in cores], config),
        _one_by_one("nmp.load", [step.loads for step in steps]),
        _one_by_one(computing, [step.computes for step in steps]),
        _one_by_one("nmp.store", [step.stores for step in steps]),
        macs,
    )


def _one_by_one(mnemonic: str, steps: Sequence[tuple[Command, ...]]) -> Commands:
    offsets = words_of(mnemonic)
    flat = [command.words for step in steps for command in step]
    words = np.zeros((len(flat), len(offsets)), np.int64)
    for row, named in zip(words, flat, strict=True):
        for name, value in named.items():
            row[offsets[name]] = value
    return Commands(mnemonic, words, ends_of([len(step) for step in steps]))


Part = tuple[Integers, Mapping[str, Any]]
"""The step of each of some instructions, ascending, and their words; words not named are zero."""


def commands(mnemonic: str, steps: int, *parts: Part) -> Commands:
    """A table of instructions; in a step those of the first part come first."""
    offsets = words_of(mnemonic)
    words = np.zeros((sum(at.size for at, _ in parts), len(offsets)), np.int64)
    first = 0
    for at, named in parts:
        for name, value in named.items():
            words[first : first + at.size, offsets[name]] = value
        first += at.size
    at = np.concatenate([at for at, _ in parts])
    if len(parts) > 1:
        words = words[np.argsort(at, kind="stable")]
    return Commands(mnemonic, words, ends_of(np.bincount(at, minlength=steps)))


def sizes_of(ends: Integers) -> Integers:
    """[n] of each of the groups whose ``ends_of`` these are."""
    return ends[1:] - ends[:-1]


def core_ends(steps: npt.ArrayLike, config: DeviceConfig) -> Integers:
    """[cores + 1] where each core's steps begin; cores beyond those that have some get none."""
    counts = np.zeros(config.cores_count, np.int64)
    counts[: np.size(steps)] = steps
    return ends_of(counts)


def words_of(mnemonic: str) -> Mapping[str, int]:
    """Word name -> its index in the descriptor of an instruction."""
    return descriptor_offsets(str(BY_MNEMONIC[mnemonic].descriptor))


def ends_of(counts: npt.ArrayLike) -> Integers:
    """[n + 1] where each of n consecutive groups begins and the last one ends."""
    ends = np.zeros(np.size(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


@attrs.frozen
class StridedRuns:
    """Two strided dimensions of contiguous runs in DRAM, packed or strided in the scratchpad."""

    dram: Numbers
    spm: Numbers
    run: Numbers
    count_x: Numbers = 1
    count_y: Numbers = 1
    dram_stride_x: Numbers = 0
    dram_stride_y: Numbers = 0
    spm_stride_x: Numbers = 0
    spm_stride_y: Numbers = 0

    def words(self) -> dict[str, Numbers]:
        """Words of a load or store."""
        return {
            "dram": self.dram,
            "spm": self.spm,
            "run_bytes": self.run,
            "count_x": self.count_x,
            "count_y": self.count_y,
            "dram_stride_x": self.dram_stride_x,
            "dram_stride_y": self.dram_stride_y,
            "spm_stride_x": self.spm_stride_x,
            "spm_stride_y": self.spm_stride_y,
        }


def load(box: StridedRuns, **padding: int) -> Command:
    """``nmp.load`` of a box."""
    return Command("nmp.load", {**box.words(), **padding})


def store(box: StridedRuns) -> Command:
    """``nmp.store`` of a box."""
    return Command("nmp.store", box.words())


def align(nbytes: Any) -> Any:
    """``nbytes`` rounded up to the scratchpad's alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Arena:
    """Hands out scratchpad addresses, one after the other; arrays where cores differ."""

    def __init__(self, config: DeviceConfig) -> None:
        self._next: Any = SCRATCHPAD_BASE
        self._end = SCRATCHPAD_BASE + config.scratchpad_bytes

    def take(self, nbytes: Numbers) -> Any:
        """Address of ``nbytes``; the caller has made sure that they fit."""
        address = self._next
        self._next = self._next + align(nbytes)
        if (self._next if isinstance(self._next, int) else self._next.max()) > self._end:
            raise RuntimeError("a tile was planned that does not fit the scratchpad")
        return address

    def take_twice(self, nbytes: Numbers) -> tuple[Any, Any]:
        """Two buffers, for double buffering."""
        return self.take(nbytes), self.take(nbytes)


def split(total: int, parts: int) -> tuple[tuple[int, int], ...]:
    """``total`` things in ``parts`` consecutive ranges as even as can be; empty ones left out."""
    bounds = [total * i // parts for i in range(parts + 1)]
    return tuple((a, b) for a, b in pairwise(bounds) if a < b)


def chunks(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """The range in consecutive chunks of at most ``size``."""
    return [(a, min(a + size, end)) for a in range(begin, end, size)]


def counts(total: int, most: int) -> list[int]:
    """Numbers of parts, at most ``most``: for each size of the largest part the fewest."""
    return sorted({-(-total // -(-total // n)) for n in range(1, min(total, most) + 1)})


def divisions(size: int) -> list[int]:
    """The whole, a half, a third, a quarter, a sixth (rounded up), and all halvings."""
    sizes = {-(-size // n) for n in (1, 2, 3, 4, 6)}
    return sorted(sizes.union(halvings(size)), reverse=True)


def halvings(size: int) -> list[int]:
    """``size``, half of it (rounded up), ... down to 1."""
    sizes = [size]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def too_large(what: str, needs: int, config: DeviceConfig, place: Place) -> UserError:
    """The smallest tile does not fit."""
    return fail(
        "COMP002",
        f"the smallest tile of {what} does not fit a scratchpad",
        place=place,
        found=f"{needs} bytes",
        expected=f"at most {config.scratchpad_bytes} bytes",
        hint="a device file with a larger [scratchpad] bytes can run it",
    )
