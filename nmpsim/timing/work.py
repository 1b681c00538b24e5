"""Multiplications and cycles of a tensor instruction, derived from its descriptor.

``kind`` is the index of a descriptor in ``DESCRIPTORS``. The table has the amount of work
(:mod:`nmpsim.isa.layouts`), :mod:`nmpsim.timing.compute` the cycles for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.layouts import ThroughputKind
from nmpsim.isa.words import find_word_positions
from nmpsim.timing.compute import (
    count_conv_cycles,
    count_depthwise_cycles,
    count_transpose_cycles,
    count_vector_cycles,
)

PRODUCT, DEPTHWISE = int(ThroughputKind.PRODUCT), int(ThroughputKind.DEPTHWISE)
LANES, ELEMENT = int(ThroughputKind.LANES), int(ThroughputKind.ELEMENT)
_THROUGHPUTS = np.array([int(d.work.throughput) for d in DESCRIPTORS.values()], np.int64)
_ELEMENT_WORD = np.array(find_word_positions("element"))


def _indices(number: str) -> Any:
    """Return [descriptors, factors] indices of the words of an attribute of ``Work``, then -1."""
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


def multiply_words(factors: Any, kind: int, d: Any) -> int:
    """Return the product of the descriptor words with the indices ``factors[kind]``."""
    result = 1
    for index in factors[kind]:
        if index < 0:
            break
        result *= d[index]
    return result


def count_unit_cycles(
    throughput: int, rows: int, depth: int, columns: int, groups: int, wide: int, costs: Any
) -> int:
    """Return the cycles that a unit works, or 0 for a transfer of data between memories."""
    if throughput == PRODUCT:
        cycles = count_conv_cycles(rows, 1, 1, depth, columns, groups, wide, costs)
        return int(cycles * costs.is_mac_timed)
    if throughput == DEPTHWISE:
        return int(count_depthwise_cycles(rows, 1, columns, wide, costs) * costs.is_mac_timed)
    if throughput == LANES:
        return int(count_vector_cycles(rows, columns, wide, costs) * costs.is_vector_timed)
    if throughput == ELEMENT:
        return int(count_transpose_cycles(rows, costs) * costs.is_vector_timed)
    return 0


def count_macs(kind: int, d: Any) -> int:
    """Return the multiply-accumulates of a tensor instruction, or 0 if another unit executes it."""
    if _THROUGHPUTS[kind] not in (PRODUCT, DEPTHWISE):
        return 0
    return (
        multiply_words(_ROWS, kind, d)
        * multiply_words(_DEPTH, kind, d)
        * multiply_words(_COLUMNS, kind, d)
    )


def count_vector_elements(kind: int, d: Any) -> int:
    """Return the number of elements in the vector unit, or 0 for instructions of other units."""
    if _THROUGHPUTS[kind] not in (LANES, ELEMENT):
        return 0
    return multiply_words(_ROWS, kind, d) * multiply_words(_COLUMNS, kind, d)


def count_busy_cycles(kind: int, d: Any, costs: Any) -> int:
    """Return the cycles for which an instruction keeps its unit busy, or 0 for a transfer."""
    return count_unit_cycles(
        _THROUGHPUTS[kind],
        multiply_words(_ROWS, kind, d),
        multiply_words(_DEPTH, kind, d),
        multiply_words(_COLUMNS, kind, d),
        multiply_words(_GROUPS, kind, d),
        d[_ELEMENT_WORD[kind]] if _ELEMENT_WORD[kind] >= 0 else 0,
        costs,
    )
