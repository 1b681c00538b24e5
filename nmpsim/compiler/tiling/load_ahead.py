"""Loads ahead of barriers: a layer's first constants are loaded while the layer before computes.

The buffers of a layer move to the start or to the end of the scratchpads, so that its constants lie
beside the buffers of the layer before. A load that moves ahead of the barrier counts for the layer
before, which waits for it at its end. At each barrier, the simulation decides which loads move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from nmpsim.bundle.layout import RW_BASE
from nmpsim.compiler.tiling.compiled.items import ARGUMENT, BARRIER, KIND, WAIT
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.grid import Integers, compute_offsets, compute_sizes
from nmpsim.compiler.tiling.plan import (
    ALIGNMENT,
    LOAD,
    InstructionSequence,
    UnitInstructions,
    get_word_offsets,
)
from nmpsim.compiler.tiling.simulate import simulate, simulate_fully
from nmpsim.isa.codec import BY_MNEMONIC
from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit

MOST_LOADS = 1, 2, 8
"""Most loads of each core that are tried."""
_WORDS = get_word_offsets(LOAD)
_BOX = "dram", "spm", "run_bytes", "count_x", "count_y"


def load_ahead(
    sequences: Sequence[InstructionSequence],
    layers: Sequence[int],
    model: DramModel,
    capacity: int,
) -> list[InstructionSequence]:
    """Move loads ahead of the barriers between sequences, where that saves cycles.

    Parameters
    ----------
    sequences : sequence of InstructionSequence
        Instructions between two barriers each.
    layers : sequence of int
        Index of the last layer of each sequence.
    model : DramModel
        Costs of the device.
    capacity : int
        Size of a scratchpad in bytes.
    """
    done = list(sequences)
    known = [simulate_fully(sequence, model).cycles for sequence in sequences]
    for at, layer in enumerate(layers[:-1]):
        best, fewest = done[at : at + 2], known[at] + known[at + 1]
        for before, after in _list_trials(done[at], done[at + 1], layer, capacity):
            first = simulate(before, model, fewest - 1)
            second = first and simulate(after, model, fewest - 1 - first.cycles)
            if first and second:
                best, known[at + 1] = [before, after], second.cycles
                fewest = first.cycles + second.cycles
        done[at : at + 2] = best
    return done


def _list_trials(
    before: InstructionSequence, after: InstructionSequence, layer: int, capacity: int
) -> Iterator[tuple[InstructionSequence, InstructionSequence]]:
    """Yield both sequences with more and more loads of the second moved to the first."""
    distance = (SCRATCHPAD_BASE + capacity - after.scratchpad[1]) // ALIGNMENT * ALIGNMENT
    placed = [(one, _find_loads(before, one)) for one in (after, _move_buffers(after, distance))]
    after, rows = max(placed, key=lambda pair: _count_bytes(*pair))
    core = np.searchsorted(after.first[:, Unit.LOAD], rows, "right") - 1
    rank = np.arange(rows.size) - np.searchsorted(core, core)
    counts = [int((rank < most).sum()) for most in MOST_LOADS]
    for most, count, fewer in zip(MOST_LOADS, counts, [0, *counts], strict=False):
        if count > fewer:
            which = rank < most
            words = after.units[Unit.LOAD].words[rows[which]]
            words[:, _WORDS["layer"]] = layer
            yield _insert_loads(before, words, core[which]), _remove_loads(after, rows[which])


def _count_bytes(sequence: InstructionSequence, rows: Integers) -> int:
    """Return the bytes of DRAM that loads of single runs read."""
    return int(sequence.units[Unit.LOAD].words[rows, _WORDS["run_bytes"]].sum())


def _move_buffers(sequence: InstructionSequence, distance: int) -> InstructionSequence:
    """Move all scratchpad buffers to addresses that are higher by ``distance``."""
    units = []
    for one in sequence.units:
        words = one.words.copy()
        for index, mnemonic in enumerate(one.mnemonics):
            offsets = get_word_offsets(mnemonic)
            operands = DESCRIPTORS[str(BY_MNEMONIC[mnemonic].descriptor)].operands
            columns = [offsets[word.name] for word in operands if word.name != "dram"]
            at = np.ix_(one.which == index, columns)
            words[at] += distance * (words[at] >= SCRATCHPAD_BASE)
        units.append(attrs.evolve(one, words=words))
    begin, end = sequence.scratchpad
    span = begin + distance, end + distance
    return attrs.evolve(sequence, units=tuple(units), scratchpad=span)


def _find_loads(before: InstructionSequence, after: InstructionSequence) -> Integers:
    """Return the row numbers of loads of ``after`` that can move ahead of the barrier.

    Such a load reads one contiguous range of constants, precedes all computations, and writes to
    scratchpad memory that ``before`` does not use.
    """
    kinds = after.items[:, KIND]
    is_load, is_other = kinds == Unit.LOAD, (kinds < WAIT) | (kinds == BARRIER)
    others = np.append(np.flatnonzero(is_other & ~is_load), kinds.size)
    first_other = others[np.searchsorted(others, after.begins[:-1])]
    is_first = np.arange(kinds.size) < np.repeat(first_other, compute_sizes(after.begins))
    rows: Integers = after.items[is_load & is_first, ARGUMENT]
    if rows.size:
        words = after.units[Unit.LOAD].words[rows]
        dram, spm, run, *counts = (words[:, _WORDS[name]] for name in _BOX)
        begin, end = before.scratchpad
        is_free = (spm + run <= begin) | (spm >= end)
        is_single = np.all(np.equal(counts, 1), axis=0)
        rows = rows[is_free & is_single & (dram < RW_BASE)]
    return rows


def _insert_loads(
    sequence: InstructionSequence, words: Integers, core: Integers
) -> InstructionSequence:
    """Insert loads on cores, in order, and a wait for them at the end of each of these cores."""
    items, begins, loads = sequence.items.copy(), sequence.begins, sequence.units[Unit.LOAD]
    own = sequence.first[:, Unit.LOAD]
    more = compute_offsets(np.bincount(core, minlength=begins.size - 1))
    is_load = items[:, KIND] == Unit.LOAD
    items[is_load, ARGUMENT] += np.repeat(more[:-1], compute_sizes(own))
    spots = np.append(np.flatnonzero(np.isin(items[:, KIND], (WAIT + Unit.LOAD, BARRIER))), -1)
    last = spots[np.searchsorted(spots[:-1], begins[1:]) - 1] + 1
    waiting = np.unique(core)
    at = np.concatenate([np.maximum(last, begins[:-1])[core], begins[waiting + 1]])
    new = np.zeros((at.size, 2), np.int64)
    new[: core.size, ARGUMENT] = own[core + 1] + np.arange(core.size)
    new[core.size :, KIND] = WAIT + Unit.LOAD
    order = np.argsort(np.concatenate([core, waiting]), kind="stable")
    old = loads.words if loads.mnemonics else np.zeros((0, len(_WORDS)), np.int64)
    return _replace_loads(
        sequence,
        np.insert(items, at[order], new[order], axis=0),
        begins + more + compute_offsets(np.isin(np.arange(begins.size - 1), core)),
        np.insert(old, own[core + 1], words, axis=0),
        own + more,
    )


def _remove_loads(sequence: InstructionSequence, rows: Integers) -> InstructionSequence:
    """Remove loads; waits for the others count only these."""
    items, loads = sequence.items.copy(), sequence.units[Unit.LOAD]
    is_kept = np.ones(loads.which.size, np.bool_)
    is_kept[rows] = False
    kept = compute_offsets(is_kept)
    is_load, is_wait = items[:, KIND] == Unit.LOAD, items[:, KIND] == WAIT + Unit.LOAD
    issued = compute_offsets(is_load)[:-1][is_wait]
    items[is_wait, ARGUMENT] = kept[issued] - kept[np.maximum(issued - items[is_wait, ARGUMENT], 0)]
    stays = ~is_load
    stays[is_load] = is_kept
    items[is_load, ARGUMENT] = kept[items[is_load, ARGUMENT]]
    return _replace_loads(
        sequence,
        items[stays],
        compute_offsets(stays)[sequence.begins],
        loads.words[is_kept],
        kept[sequence.first[:, Unit.LOAD]],
    )


def _replace_loads(
    sequence: InstructionSequence,
    items: Integers,
    begins: Integers,
    words: Integers,
    first_loads: Integers,
) -> InstructionSequence:
    """Return a sequence with other items and loads."""
    first = sequence.first.copy()
    first[:, Unit.LOAD] = first_loads
    loads = UnitInstructions((LOAD,), np.zeros(words.shape[0], np.int64), words)
    units = (loads, *sequence.units[1:])
    return attrs.evolve(sequence, items=items, begins=begins, units=units, first=first)
