"""Order of a core's instructions in a chain: early loads, and waits for operands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from nmpsim.compiler.tiling.compiled.items import BARRIER, MAX_OUTSTANDING, WAIT
from nmpsim.isa.table import Unit

Span: TypeAlias = tuple[int, int]
"""Scratchpad addresses [begin, end)."""
UNITS = tuple(map(int, Unit))


@attrs.frozen(eq=False)
class ChainInstruction:
    """Instruction of a chain with the scratchpad bytes that it reads and writes, or a barrier."""

    unit: Unit | None
    """None for a barrier of the chain's cores."""
    mnemonic: str
    words: Mapping[str, Any]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    can_move: bool = False
    """Whether a load depends on no earlier instruction but those that use its buffer."""
    place: int | None = None
    """Number of the place in DRAM, or in the layer's results, on which the words depend."""
    spans: tuple[Span, ...] = attrs.field(init=False)
    """All bytes that the instruction reads and writes."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "spans", self.reads + self.writes)


def _overlap(some: Iterable[Span], others: Sequence[Span]) -> bool:
    for a, b in some:
        for c, d in others:
            if a < d and c < b:
                return True
    return False


def hoist_loads(instructions: Sequence[ChainInstruction], most: int) -> list[ChainInstruction]:
    """Hoist loads to where their buffers are free; return the instructions in the new order.

    Loads keep their order. At most ``most`` loads stand before an instruction that they follow in
    ``instructions``.
    """
    loads = [at for at, one in enumerate(instructions) if one.can_move]
    others = [at for at, one in enumerate(instructions) if not one.can_move]
    earliest = [_find_earliest(instructions, at) for at in loads]
    found: list[ChainInstruction] = []
    done = 0
    for at in others:
        before = done
        while done < len(loads) and loads[done] < at:
            done += 1
        ahead = done - bisect_right(loads, at, 0, done)
        while done < len(loads) and ahead < most and earliest[done] <= at:
            done, ahead = done + 1, ahead + 1
        found += [instructions[load] for load in loads[before:done]]
        found.append(instructions[at])
    return found + [instructions[load] for load in loads[done:]]


def _find_earliest(instructions: Sequence[ChainInstruction], load: int) -> int:
    """Return the index of the first instruction before which the buffer of a load is free."""
    ((begin, end),) = instructions[load].writes
    for spot in range(load - 1, -1, -1):
        one = instructions[spot]
        if not one.can_move:
            for low, high in one.spans:
                if low < end and begin < high:
                    return spot + 1
    return 0


def write_items(
    instructions: Sequence[ChainInstruction], cores: int, first: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the schedule items of a core: instructions, and the waits for their operands.

    Parameters
    ----------
    instructions : sequence of ChainInstruction
        The core's instructions and barriers in order.
    cores : int
        Number of cores that meet at a barrier.
    first : sequence of int
        Number of each unit's instructions on earlier cores.
    """
    issued = [0] * len(Unit)
    unfinished: list[list[tuple[int, ChainInstruction]]] = [[] for _ in Unit]
    items: list[tuple[int, int]] = []

    def wait(unit: int, outstanding: int) -> None:
        outstanding = min(outstanding, MAX_OUTSTANDING)
        items.append((WAIT + unit, outstanding))
        done = issued[unit] - outstanding
        unfinished[unit] = [one for one in unfinished[unit] if one[0] > done]

    for one in instructions:
        if one.unit is None:
            if unfinished[Unit.STORE]:
                wait(Unit.STORE, 0)
            items.append((BARRIER, cores))
            continue
        for unit in UNITS:
            if unit == one.unit:
                continue
            for number, other in reversed(unfinished[unit]):
                if _overlap(one.writes, other.spans) or _overlap(one.reads, other.writes):
                    wait(unit, issued[unit] - number)
                    break
        items.append((one.unit, first[one.unit] + issued[one.unit]))
        issued[one.unit] += 1
        unfinished[one.unit].append((issued[one.unit], one))
    for unit in UNITS:
        if unfinished[unit]:
            wait(unit, 0)
    return items
