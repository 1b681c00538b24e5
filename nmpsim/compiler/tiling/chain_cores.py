"""Instruction sequence of all cores of a chain, with equal programs of cores planned only once.

Most cores of a chain run the same instructions on other rows. Their programs differ only in DRAM
addresses and in positions in the results, so that the other cores take the instructions of one core
and add the distance to its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from nmpsim.compiler.tiling.chain_division import ChainDivision
from nmpsim.compiler.tiling.chain_schedule import ChainInstruction, Span, write_items
from nmpsim.compiler.tiling.compiled.items import ARGUMENT, KIND, WAIT
from nmpsim.compiler.tiling.grid import Integers, compute_offsets
from nmpsim.compiler.tiling.plan import (
    NO_INSTRUCTIONS,
    InstructionSequence,
    UnitInstructions,
    get_word_offsets,
)
from nmpsim.isa.table import Unit

PLACE_WORDS = ("dram", "event_origin")
"""Descriptor words, of transfers and of other instructions, that depend on a core's place."""


def make_row_keys(division: ChainDivision) -> list[Hashable]:
    """Return for each core a key of its rows; cores with equal keys have rows of equal geometry."""
    chain, tiling, rows = division.chain, division.tiling, division.rows
    columns: list[Integers] = []
    for own in rows.values():
        begin = own.held.begin
        columns += [own.held.size, own.above, own.below]
        for edges in (own.owned, own.computed):
            columns += [edge - begin for edge in edges or ()]
    for position, layer in enumerate(chain.layers):
        target = rows[layer.output]
        assert target.computed is not None
        for name in layer.inputs:
            begin = rows[name].held.begin
            if layer.axes is None:
                columns.append(target.computed.begin - begin)
            else:
                span = layer.axes[0].find_input_span(*target.computed)
                columns += [span.origin - begin, span.first - begin, span.count]
                columns += [span.before, span.after]
        if position in tiling.exchanged:
            columns += [edge - target.held.begin for edge in target.find_exchanged_rows()]
    table = np.stack(columns, axis=1)
    return [
        table[division.list_strips(core // tiling.across)].tobytes() for core in range(tiling.cores)
    ]


def compute_places(division: ChainDivision, groups: Sequence[Sequence[int]]) -> Integers:
    """Compute the places of the rows and constants of each core.

    Parameters
    ----------
    division : ChainDivision
        The chain.
    groups : sequence
        Address of each group of constants, for each range of channels.

    Returns
    -------
    places : [cores, places] array
        For each turn and tensor the first element that the core holds (see
        :meth:`ChainDivision.get_place`), then the same in bytes, then the addresses of groups.
    """
    chain, tiling = division.chain, division.tiling
    places = np.zeros((tiling.cores, division.count_places() + max(map(len, groups))), np.int64)
    cores = range(tiling.cores)
    for turn in range(tiling.turns):
        strips = np.array([division.list_strips(c // tiling.across)[turn] for c in cores])
        for name, tensor in chain.tensors.items():
            row = tensor.columns * tensor.channels
            first = np.array(
                [division.get_channels(name, core % tiling.across)[0] for core in cores]
            )
            elements = division.rows[name].held.begin[strips] * row + first
            places[:, division.get_place(name, turn)] = elements
            places[:, division.get_place(name, turn, in_bytes=True)] = (
                elements * tensor.element_bytes
            )
    for across, addresses in enumerate(groups):
        end = division.count_places() + len(addresses)
        places[across :: tiling.across, division.count_places() : end] = addresses
    return places


def make_sequence(
    programs: Sequence[Sequence[ChainInstruction]],
    numbers: Sequence[int],
    places: Integers,
    cores: int,
    scratchpad: Span,
) -> InstructionSequence:
    """Return the instructions of all cores with the waits that their operands need.

    Parameters
    ----------
    programs : sequence
        Instructions of cores that differ in more than places.
    numbers : sequence of int
        Number of the program of each core that has one.
    places : [cores, places] array
        Result of :func:`compute_places`.
    cores : int
        Number of cores of the device; the last ones may have no program.
    scratchpad : (int, int)
        Begin and end of the scratchpad addresses of all buffers.
    """
    used = len(numbers)
    schedules = [
        np.array(write_items(program, used, [0] * len(Unit)), np.int64).reshape(-1, 2)
        for program in programs
    ]
    planned = [numbers.index(number) for number in range(len(programs))]
    by_unit = [
        [[one for one in program if one.unit == unit] for program in programs] for unit in Unit
    ]
    counts = np.array([[len(own) for own in programs] for programs in by_unit]).T[list(numbers)]
    first = np.zeros((cores + 1, len(Unit)), np.int64)
    first[1 : used + 1] = np.cumsum(counts, axis=0)
    first[used + 1 :] = first[used]
    parts = []
    for core, number in enumerate(numbers):
        part = schedules[number].copy()
        kinds = part[:, KIND]
        is_started = kinds < WAIT
        part[is_started, ARGUMENT] += first[core, kinds[is_started]]
        parts.append(part)
    sizes = [*map(len, parts), *[0] * (cores - used)]
    units = tuple(_repeat_programs(own, numbers, planned, places) for own in by_unit)
    begins = compute_offsets(sizes)
    return InstructionSequence(np.concatenate(parts), begins, units, first, scratchpad)


def _repeat_programs(
    programs: Sequence[Sequence[ChainInstruction]],
    numbers: Sequence[int],
    planned: Sequence[int],
    places: Integers,
) -> UnitInstructions:
    """Return a unit's instructions of all cores from those of the ``planned`` cores."""
    instructions = [one for program in programs for one in program]
    if not instructions:
        return NO_INSTRUCTIONS
    mnemonics = tuple(dict.fromkeys(one.mnemonic for one in instructions))
    offsets = {name: get_word_offsets(name) for name in mnemonics}
    words = np.zeros((len(instructions), max(map(len, offsets.values()))), np.int64)
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for row, one in enumerate(instructions):
        alike.setdefault((one.mnemonic, tuple(one.words)), []).append(row)
    for (mnemonic, names), equal in alike.items():
        columns = [offsets[mnemonic][name] for name in names]
        values = [tuple(instructions[row].words.values()) for row in equal]
        words[np.array(equal)[:, None], columns] = values
    which = np.array([mnemonics.index(one.mnemonic) for one in instructions])
    moved = [-1 if one.place is None else one.place for one in instructions]
    place_words = [
        next((offsets[name][word] for word in PLACE_WORDS if word in offsets[name]), -1)
        for name in mnemonics
    ]
    target = np.where(np.array(moved) < 0, -1, np.array(place_words)[which])
    ends = compute_offsets([len(program) for program in programs])
    rows = np.concatenate([np.arange(ends[number], ends[number + 1]) for number in numbers])
    counts = np.diff(ends)[list(numbers)]
    core = np.repeat(np.arange(len(numbers)), counts)
    representative = np.repeat(np.array(planned)[list(numbers)], counts)
    found, place, column = words[rows], np.array(moved)[rows], target[rows]
    at = np.flatnonzero(column >= 0)
    distance = places[core[at], place[at]] - places[representative[at], place[at]]
    found[at, column[at]] += distance
    return UnitInstructions(mnemonics, which[rows], found)
