"""Alignment of two sequences: pairs that every best alignment contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

MAX_CELLS = 1_000_000
"""Largest number of scores; longer sequences are not aligned."""
Scores = npt.NDArray[np.int64]


def find_certain_pairs(scores: Scores) -> Iterator[tuple[int, int]]:
    """Yield the (row, column) pairs that every alignment with the highest total score contains.

    Parameters
    ----------
    scores
        Score of each pair as a matrix; 0 for a pair that does not fit.
    """
    if not scores.size:
        return
    before, after = _best_totals(scores), _best_totals(scores[::-1, ::-1])[::-1, ::-1]
    best = before[-1, -1]
    possible = (scores > 0) & (before[:-1, :-1] + scores + after[1:, 1:] == best)
    skipped = (before[:-1] + after[1:] == best).any(1)
    for row in np.flatnonzero(~skipped & (possible.sum(1) == 1)):
        yield int(row), int(np.flatnonzero(possible[row])[0])


def _best_totals(scores: Scores) -> Scores:
    """Return the best total score of the first rows and columns, for all their numbers."""
    rows, columns = scores.shape
    totals = np.zeros((rows + 1, columns + 1), np.int64)
    for row in range(rows):
        paired = np.where(scores[row] > 0, totals[row, :-1] + scores[row], 0)
        totals[row + 1, 1:] = np.maximum.accumulate(np.maximum(totals[row, 1:], paired))
    return totals


def find_ascending_indices(values: Sequence[int]) -> list[int]:
    """Return the indices of a longest strictly ascending subsequence."""
    from bisect import bisect_left

    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for index, value in enumerate(values):
        length = bisect_left(ends, value)
        previous.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(value)
            last.append(index)
        else:
            ends[length], last[length] = value, index
    found, index = [], last[-1] if last else -1
    while index >= 0:
        found.append(index)
        index = previous[index]
    return found[::-1]
