"""Records behave as those that attrs makes."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest

from nmpsim.records import frozen


def made_by(decorate: Any) -> tuple[type, ...]:
    """Return classes of each kind, made by one decorator."""

    @decorate
    class Plain:
        one: Any
        other: Any = 2

    @decorate(kw_only=True)
    class Named:
        first: Any
        second: Any = attrs.field(default=(), eq=False)
        third: Any = attrs.field(default=0, repr=False)
        fourth: Any = attrs.field(default=1.5, repr=lambda value: f"{value:.3f}")
        fifth: Any = attrs.field(default=3, eq=lambda value: value % 10)

    @decorate
    class Derived(Plain):
        more: Any = None

    @decorate
    class Own:
        one: Any
        other: Any = 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and other.one == self.one

        def __hash__(self) -> int:
            return hash(self.one)

        def __repr__(self) -> str:
            return f"<{self.one}>"

    @decorate(eq=False)
    class Same:
        one: Any
        other: Any = 2

    @decorate
    class Nothing:
        pass

    return Plain, Named, Derived, Own, Same, Nothing


VALUES: list[list[dict[str, Any]]] = [
    [{"one": 1}, {"one": 1, "other": 2}, {"one": 1, "other": 3}, {"one": float("nan")}],
    [
        {"first": 1},
        {"first": 1, "second": 5},
        {"first": 1, "third": 7},
        {"first": 1, "fifth": 13},
        {"first": 1, "fifth": 14, "fourth": 2.25},
    ],
    [{"one": 1}, {"one": 1, "more": "x"}, {"one": "1"}],
    [{"one": 1}, {"one": 1, "other": 9}, {"one": 2}],
    [{"one": 1}, {"one": 1}],
    [{}, {}],
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_comparison_hash_and_repr_equal_attrs(number: int) -> None:
    ours, theirs = made_by(frozen)[number], made_by(attrs.frozen)[number]
    mine = [ours(**values) for values in VALUES[number]]
    others = [theirs(**values) for values in VALUES[number]]
    for i, j in ((i, j) for i in range(len(mine)) for j in range(len(mine))):
        assert (mine[i] == mine[j]) == (others[i] == others[j])
        assert (mine[i] != mine[j]) == (others[i] != others[j])
        assert (hash(mine[i]) == hash(mine[j])) == (hash(others[i]) == hash(others[j]))
    assert list(map(repr, mine)) == list(map(repr, others)) or ours.__name__ == "Same"
    assert mine[0] != others[0]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__


def test_a_derived_record_differs() -> None:
    plain, _, derived, *_ = made_by(frozen)
    assert plain(1) != derived(1)
    assert derived(1) != plain(1)


def test_records_are_frozen() -> None:
    record = made_by(frozen)[0](1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        record.one = 2
    assert attrs.evolve(record, one=3).one == 3


@frozen
class Kept:
    """Record class at module level, as pickle requires."""

    one: int
    other: tuple[str, ...] = ()


def test_records_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, ("a",)))) == Kept(1, ("a",))


def test_an_unhashable_record_raises_an_error() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Kept([]))  # type: ignore[arg-type]
