"""Results that an instruction owns: its layer's counters include no others.

Several units of a chain may compute the same rows of a layer, and one of them owns each row. An
engine executes an instruction with rows of others in up to three parts, and only the part with the
owned rows counts elements and saturated values.

A row is a row of an image or of an elementwise operation; if that has only one row, an element. The
compiled engine compiles these functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.words import ELTWISE, KINDS, RHS_INT32, find_word_positions

if TYPE_CHECKING:
    from nmpsim.kernels.array_types import Int

LAYER, DESCRIPTOR, BEGIN, END = range(4)
"""Columns of ``Machine.owned``: a layer, the address of a descriptor, and the range of indices in
the layer's output that its instructions own from this descriptor on."""
OWNED_COLUMNS = 4
NOT_OWNED = -1
"""Stands for the layer whose counters include results that an instruction does not own."""
_ELTWISE = KINDS["eltwise"]
_PLACE = ("output", 1, "out_row_stride"), ("event_origin", 1, "event_stride_y")
_CONV = ("input", 1, "stride_h", "in_row_stride"), *_PLACE
_CHANGES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "conv": _CONV,
    "dwconv": _CONV,
    "avgpool": (("pad_top", -1, "stride_h"), *_PLACE),
    "eltwise": (
        ("lhs", 1, "lhs_stride"),
        ("rhs", 1, "rhs_stride"),
        ("output", 1, "out_stride"),
        ("event_origin", 1, "event_stride_y"),
    ),
}
"""Words that change from row to row: the word, a sign, and the words whose product is the step."""
_ORIGIN, _STEP = (
    np.array(find_word_positions(name)) for name in ("event_origin", "event_stride_y")
)


def _make_table() -> Any:
    """Return [descriptors, changes, 4] of word, sign and two factors; -1 for none."""
    table = np.full((len(DESCRIPTORS), max(map(len, _CHANGES.values())), 4), -1, np.int64)
    for name, changes in _CHANGES.items():
        words = [word.name for word in DESCRIPTORS[name]]
        for at, (word, sign, *factors) in enumerate(changes):
            found = [words.index(word), sign, *map(words.index, factors)]
            table[KINDS[name], at, : len(found)] = found
    return table


_TABLE = _make_table()
_ROWS = np.array(
    [
        max(first, second) if name in _CHANGES else -1
        for name, first, second in zip(
            DESCRIPTORS, find_word_positions("out_h"), find_word_positions("rows"), strict=True
        )
    ]
)
"""Word with the number of rows; -1 for an instruction that is not divided."""


def find_owned_range(owned: Any, layer: Int, descriptor: Int) -> int:
    """Return the row of ``Machine.owned`` for an instruction, or -1 if it owns all its results.

    The rows are sorted by layer, then by descriptor.
    """
    low, high = 0, owned.shape[0]
    while low < high:
        middle = (low + high) // 2
        if owned[middle, LAYER] > layer or (
            owned[middle, LAYER] == layer and owned[middle, DESCRIPTOR] > descriptor
        ):
            high = middle
        else:
            low = middle + 1
    return low - 1 if low > 0 and owned[low - 1, LAYER] == layer else -1


def has_elements_as_rows(kind: Int, d: Any) -> bool:
    """Return whether the elements of an instruction's only row are divided."""
    return bool(kind == _ELTWISE and d[ELTWISE.rows] == 1)


def count_rows(kind: Int, d: Any) -> int:
    """Return the number of rows of an instruction; 1 if it is not divided."""
    if has_elements_as_rows(kind, d):
        return int(d[ELTWISE.columns])
    return int(d[_ROWS[kind]]) if _ROWS[kind] >= 0 else 1


def find_owned_rows(kind: Int, d: Any, begin: Int, end: Int) -> tuple[int, int]:
    """Return the first owned row of an instruction, and the one after the last."""
    rows = count_rows(kind, d)
    step = 1 if has_elements_as_rows(kind, d) else d[_STEP[kind]]
    if _ROWS[kind] < 0 or step <= 0:
        return 0, rows
    before = begin - d[_ORIGIN[kind]]
    first = min(max((before + step - 1) // step, 0), rows)
    last = min((before + end - begin + step - 1) // step, rows)
    return int(first), int(max(first, last))


def select_rows(kind: Int, d: Any, first: Int, count: Int) -> None:
    """Change a descriptor in place so that it computes ``count`` rows from row ``first`` on."""
    if has_elements_as_rows(kind, d):
        size = 1 << d[ELTWISE.element]
        d[ELTWISE.columns] = count
        d[ELTWISE.lhs] += first * size
        d[ELTWISE.rhs] += first * (4 if d[ELTWISE.rhs_kind] == RHS_INT32 else size)
        d[ELTWISE.output] += first * size
        d[ELTWISE.event_origin] += first
        return
    if _ROWS[kind] < 0:
        return
    for at in range(_TABLE.shape[1]):
        word = _TABLE[kind, at, 0]
        if word >= 0:
            step = _TABLE[kind, at, 1] * d[_TABLE[kind, at, 2]]
            if _TABLE[kind, at, 3] >= 0:
                step *= d[_TABLE[kind, at, 3]]
            d[word] += first * step
    d[_ROWS[kind]] = count


def list_parts(
    kind: Int, words: Sequence[int], begin: Int, end: Int
) -> Iterator[tuple[list[int], bool]]:
    """Yield the descriptor of each part of an instruction, and whether the part owns its results.

    ``begin`` and ``end`` are the range of owned indices in the layer's output.
    """
    first, last = find_owned_rows(kind, words, begin, end)
    edges = 0, first, last, count_rows(kind, words)
    for (row, after), is_owned in zip(pairwise(edges), (False, True, False), strict=True):
        if row < after:
            part = list(words)
            select_rows(kind, part, row, after - row)
            yield part, is_owned
