"""How much a tensor instruction has to do, and how long its unit is at it, from its descriptor.

``kind`` is a descriptor's row in tables of descriptors. What is counted stands in the table
(:mod:`nmpsim.isa.layouts`), what a unit does in a cycle in :mod:`nmpsim.timing.compute`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.layouts import Pace
from nmpsim.isa.records import Descriptor
from nmpsim.isa.words import position
from nmpsim.timing import Costs
from nmpsim.timing.compute import conv_cycles, depthwise_cycles, transpose_cycles, vector_cycles

PRODUCT, DEPTHWISE = int(Pace.PRODUCT), int(Pace.DEPTHWISE)
LANES, ELEMENT = int(Pace.LANES), int(Pace.ELEMENT)
_PACES = np.array([int(d.work.pace) for d in DESCRIPTORS.values()], np.int64)
_ELEMENT_WORD = np.array(position("element"))


def _indices(number: str) -> Any:
    """[descriptors, factors] words whose product is one of the numbers of ``Work``; then -1."""
    factors = [getattr(descriptor.work, number) for descriptor in DESCRIPTORS.values()]
    table = np.full((len(factors), max(map(len, factors))), -1, np.int64)
    for kind, descriptor in enumerate(DESCRIPTORS.values()):
        names = [word.name for word in descriptor]
        for at, name in enumerate(factors[kind]):
            table[kind, at] = names.index(name)
    return table


_ROWS, _DEPTH, _COLUMNS, _GROUPS = (
    _indices(number) for number in ("rows", "depth", "columns", "groups")
)


def product(factors: Any, kind: int, d: Any) -> int:
    """What one of the tables of indices comes to."""
    result = 1
    for index in factors[kind]:
        if index < 0:
            break
        result *= d[index]
    return result


def unit_cycles(
    pace: int, rows: int, depth: int, columns: int, groups: int, wide: int, costs: Any
) -> int:
    """Cycles that work of some pace takes; 0 for a transfer."""
    if pace == PRODUCT:
        return conv_cycles(rows, 1, 1, depth, columns, groups, wide, costs)
    if pace == DEPTHWISE:
        return depthwise_cycles(rows, 1, columns, wide, costs)
    if pace == LANES:
        return vector_cycles(rows, columns, wide, costs)
    if pace == ELEMENT:
        return transpose_cycles(rows, costs)
    return 0


def macs(kind: int, d: Any) -> int:
    """Multiplications of the MAC array; 0 for another unit's instruction."""
    if _PACES[kind] not in (PRODUCT, DEPTHWISE):
        return 0
    return product(_ROWS, kind, d) * product(_DEPTH, kind, d) * product(_COLUMNS, kind, d)


def cycles(kind: int, d: Any, costs: Any) -> int:
    """Cycles that an instruction keeps its unit busy; 0 for a transfer."""
    return unit_cycles(
        _PACES[kind],
        product(_ROWS, kind, d),
        product(_DEPTH, kind, d),
        product(_COLUMNS, kind, d),
        product(_GROUPS, kind, d),
        d[_ELEMENT_WORD[kind]] if _ELEMENT_WORD[kind] >= 0 else 0,
        costs,
    )


def named_macs(descriptor: Descriptor, words: Mapping[str, int]) -> int:
    """As ``macs``, of words by their names."""
    work = descriptor.work
    if work.pace not in (Pace.PRODUCT, Pace.DEPTHWISE):
        return 0
    return math.prod(words[name] for name in (*work.rows, *work.depth, *work.columns))


def named_cycles(descriptor: Descriptor, words: Mapping[str, int], costs: Costs) -> int:
    """As ``cycles``, of words by their names; Int8 where none is ``element``."""
    work = descriptor.work
    rows, depth, columns, groups = (
        math.prod(words[name] for name in names)
        for names in (work.rows, work.depth, work.columns, work.groups)
    )
    return unit_cycles(work.pace, rows, depth, columns, groups, words.get("element", 0), costs)


FUNCTIONS = (product, unit_cycles, macs, cycles)
"""What the compiled engine compiles, callees first."""
