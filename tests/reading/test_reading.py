"""The sample of public names for a reader's test."""

from __future__ import annotations

from nmpsim.isa.exhaustive import check_exhaustive
from tests.reading.__main__ import PACKAGE, sample


def test_a_seed_draws_the_same_names() -> None:
    folder = PACKAGE / "isa"
    first = sample(7, 80, folder)
    assert len(set(first)) == 80
    assert sample(7, 80, folder) == first
    assert sample(8, 80, folder) != first


def test_a_name_comes_with_its_signature_and_docstring() -> None:
    (only,) = (
        text for text in sample(0, 10**6, PACKAGE / "isa") if "def check_exhaustive(" in text
    )
    summary = str(check_exhaustive.__doc__).splitlines()[0]
    assert only.splitlines() == [
        "nmpsim.isa.exhaustive",
        "    def check_exhaustive(place: str, given: Iterable[object],"
        " expected: Iterable[object]) -> None",
        f"    {summary}",
    ]
