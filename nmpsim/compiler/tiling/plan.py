"""The plan of a layer: tensor instructions and scratchpad buffers of all tiles and cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.tiling.grid import Integers, Numbers, TileGrid, compute_offsets, compute_sizes
from nmpsim.config import DeviceConfig
from nmpsim.isa.codec import BY_MNEMONIC, get_word_indices
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit

ALIGNMENT = 64
"""Bytes; scratchpad buffers begin at multiples of it."""
Words: TypeAlias = Mapping[str, Any]
"""Words of descriptors by name, each a number or an array; words that are not named are zero."""
LOAD, STORE = "nmp.load", "nmp.store"


@attrs.frozen(eq=False)
class TileInstructions:
    """Tensor instructions of one kind, for all tiles of a layer."""

    mnemonic: str
    words: Integers
    """[instructions, words of the descriptor]"""
    ends: Integers
    """[tiles + 1]: the instructions of tile t are ``ends[t]`` to ``ends[t + 1]``."""


@attrs.frozen(eq=False)
class LayerPlan:
    """Plan of a layer: its load, compute and store instructions for each core's tiles."""

    unit: Unit
    cores: Integers
    """[cores + 1]: the tiles of core c are ``cores[c]`` to ``cores[c + 1]``."""
    loads: TileInstructions
    computes: TileInstructions
    stores: TileInstructions
    end: int
    """Address after the scratchpad buffers."""
    macs: int = 0


@attrs.frozen(eq=False)
class UnitInstructions:
    """Instructions of one unit, in the order of their cores."""

    mnemonics: tuple[str, ...]
    """Mnemonics that occur."""
    which: Integers
    """[instructions] Index of each instruction's mnemonic."""
    words: Integers
    """[instructions, words of the longest descriptor]"""


NO_INSTRUCTIONS = UnitInstructions((), np.zeros(0, np.int64), np.zeros((0, 1), np.int64))
"""Instructions of an unused unit."""


@attrs.frozen(eq=False)
class InstructionSequence:
    """Sequence of instructions, waits and barriers of each core, without the final barrier."""

    items: Integers
    """[items, 2] Kinds and arguments (:mod:`nmpsim.compiler.tiling.compiled.items`)."""
    begins: Integers
    """[cores + 1] Offset of each core's first item."""
    units: tuple[UnitInstructions, ...]
    """The instructions of each unit, by its number."""
    first: Integers
    """[cores + 1, units] Offsets of each core's instructions."""
    scratchpad: tuple[int, int]
    """Begin and end of the scratchpad addresses of all buffers."""


class PlanBuilder:
    """Builder of a layer's plan: allocates scratchpad buffers and collects instructions."""

    def __init__(self, grid: TileGrid, unit: Unit, config: DeviceConfig, macs: int = 0) -> None:
        self.grid = grid
        self._unit, self._config, self._macs = unit, config, macs
        self._next: Any = SCRATCHPAD_BASE
        self._parts: dict[str, list[tuple[Integers, Words]]] = {}

    def allocate_buffer(self, nbytes: Numbers) -> Any:
        """Allocate a scratchpad buffer on each core; return its address, or one per core."""
        address = self._next
        self._next = address + align_size(nbytes)
        end = self._next if isinstance(self._next, int) else self._next.max()
        if end > SCRATCHPAD_BASE + self._config.scratchpad_bytes:
            raise RuntimeError("a tile was planned that does not fit the scratchpad")
        return address

    def allocate_buffers(
        self, nbytes: Numbers, copies: int = 2, changed: npt.NDArray[np.bool_] | None = None
    ) -> Integers:
        """Allocate ``copies`` buffers that tiles use in turn; return the address for each tile.

        Parameters
        ----------
        nbytes : int or [cores] array
            Size of one buffer.
        copies : int
            Number of buffers; 2 for double buffering.
        changed : [tiles] array of bool, optional
            Tiles that take the next buffer. By default all do.
        """
        taken = np.empty((copies, self.grid.ends.size - 1), np.int64)
        for copy in range(copies):
            taken[copy] = self.allocate_buffer(nbytes)
        turn = self.grid.number if changed is None else self.grid.count_changes(changed)
        return taken[turn % copies, self.grid.core]

    def add_instructions(
        self, mnemonic: str, words: Words, where: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Add one instruction for each tile, or for each tile in the mask ``where``.

        Arrays among the words have one element for each tile of the layer.
        """
        tiles = np.arange(self.grid.ends[-1])
        if where is not None:
            tiles = tiles[where]
            words = {
                name: value[tiles] if isinstance(value, np.ndarray) else value
                for name, value in words.items()
            }
        self.add_tile_instructions(mnemonic, words, tiles)

    def add_tile_instructions(self, mnemonic: str, words: Words, tiles: Integers) -> None:
        """Add one instruction to each tile in ``tiles``, which are in ascending order.

        Arrays among the words have one element for each of the commands.
        """
        self._parts.setdefault(mnemonic, []).append((tiles, words))

    def build(self) -> LayerPlan:
        """Build the plan of the layer from the added instructions."""
        computing = next((name for name in self._parts if name not in (LOAD, STORE)), "nmp.fill")
        counts = np.zeros(self._config.cores_count, np.int64)
        counts[: self.grid.ends.size - 1] = compute_sizes(self.grid.ends)
        loads, computes, stores = map(self._commands, (LOAD, computing, STORE))
        cores, end = compute_offsets(counts), int(np.max(self._next))
        return LayerPlan(self._unit, cores, loads, computes, stores, end, self._macs)

    def _commands(self, mnemonic: str) -> TileInstructions:
        offsets, parts = get_word_offsets(mnemonic), self._parts.get(mnemonic, [])
        tiles = np.concatenate([np.zeros(0, np.int64), *(tiles for tiles, _ in parts)])
        words = np.zeros((tiles.size, len(offsets)), np.int64)
        first = 0
        for at, named in parts:
            for name, value in named.items():
                words[first : first + at.size, offsets[name]] = value
            first += at.size
        if len(parts) > 1:
            words = words[np.argsort(tiles, kind="stable")]
        return TileInstructions(
            mnemonic, words, compute_offsets(np.bincount(tiles, minlength=self.grid.ends[-1]))
        )


def get_word_offsets(mnemonic: str) -> Mapping[str, int]:
    """Return the offset, in words, of each descriptor word of an instruction, by name."""
    return get_word_indices(str(BY_MNEMONIC[mnemonic].descriptor))


def make_box_words(
    dram: Numbers,
    spm: Numbers,
    run_bytes: Numbers,
    count_x: Numbers = 1,
    count_y: Numbers = 1,
    **strides: Numbers,
) -> dict[str, Numbers]:
    """Return the descriptor words for loading or storing a strided box of bytes.

    ``strides`` are in bytes, by their names in the descriptor such as ``dram_stride_x``.
    """
    words = {"dram": dram, "spm": spm, "run_bytes": run_bytes}
    return words | {"count_x": count_x, "count_y": count_y} | strides


def align_size(nbytes: Any) -> Any:
    """Round a size in bytes up to the alignment of scratchpad buffers."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
