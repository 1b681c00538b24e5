"""The choice of cases for the README's test command."""

from itertools import combinations, product
from typing import Any

import pytest
import tiers
from tiers import each_value, examples, pairwise, program_parts

CASES = list(product("abcd", range(3), (True, False)))


def pairs(cases: list[tuple[Any, ...]]) -> set[Any]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}


def test_pairwise_keeps_every_pair_of_values() -> None:
    marked = pairwise(CASES)
    assert [case.values for case in marked] == CASES
    fast = [case.values for case in marked if not case.marks]
    assert pairs(fast) == pairs(CASES)
    assert 12 <= len(fast) <= 14
    assert {mark.name for case in marked for mark in case.marks} == {"slow"}
    assert pairwise(CASES) == marked


def test_each_value_keeps_every_part_of_a_path() -> None:
    names = [f"lir/{net}/{kind}/{part}.lir.txt" for net, kind, part in product("nm", "xyz", "p")]
    fast = [case.values[0] for case in each_value(names, program_parts) if not case.marks]
    assert len(fast) == 3
    assert {part for name in fast for part in program_parts(name)} == set("nmxyzp")


@pytest.mark.parametrize(("slow", "tried"), [(True, 10), (False, 3)])
def test_fewer_examples_run_without_slow_tests(
    slow: bool, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiers.run, "slow", slow)
    assert examples(10).max_examples == tried
    assert not examples(10, derandomize=False).derandomize
