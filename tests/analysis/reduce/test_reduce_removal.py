"""Leaving out what a failure does not need."""

import pytest

from nmpsim.analysis.reduce.instruction import minimize_items


@pytest.mark.parametrize("needed", [{0}, {99}, {3, 4}, {0, 50, 99}, set(range(0, 100, 7))])
def test_unnecessary_instructions_are_removed(needed):
    asked = []

    def fails(kept):
        asked.append(kept)
        return needed <= set(kept)

    assert minimize_items(range(100), fails) == sorted(needed)
    assert len(asked) < 400


def test_necessary_instructions_are_kept():
    assert minimize_items(range(5), lambda kept: len(kept) == 5) == [0, 1, 2, 3, 4]
