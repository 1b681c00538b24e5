"""Test that rows of profiles agree with each other and with the documentation."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from nmpsim.isa.profiles import (
    NUMERICS,
    PROFILES,
    PROFILES_OF,
    ROWS,
    ScaleKind,
    compute_profile_mask,
    compute_real_factor,
    list_profiles_with_form,
)

PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"


def test_rows_stand_at_their_numbers() -> None:
    assert [row.number for row in ROWS] == list(range(len(ROWS)))
    assert len(set(PROFILES)) == len(ROWS)


def test_profiles_and_references_match() -> None:
    assert {name for row in NUMERICS for name in row.profiles} == set(PROFILES)
    assert all(row.profiles for row in NUMERICS)


def test_masks_and_forms_derive_from_the_rows() -> None:
    for descriptor, names in PROFILES_OF.items():
        numbers = {row.number for row in ROWS if row.name in names}
        assert compute_profile_mask(descriptor) == sum(1 << number for number in numbers)
        assert all(descriptor in ROWS[number].instructions for number in numbers)
    for row in ROWS:
        assert row.number in list_profiles_with_form(row.form)


def test_the_page_on_numerics_begins_with_the_references() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| `--numerics` ")[1].split("\n\n")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    said = {(name.strip(), whose.strip()) for name, whose, _ in cells}
    assert said == {(f"`{row.name}`", row.whose) for row in NUMERICS}


@pytest.mark.parametrize(
    ("kind", "words", "real"),
    [
        ("integers", (3, 322, 15), 322 / 2**18),
        ("fixed point", (2, 1 << 30, 1), 1.0),
        ("float64", (1, 3 << 51, 2), 0.375),
        ("float32", (0, struct.unpack("<i", struct.pack("<f", 0.75))[0], 0), 0.75),
        ("float32", (0, struct.unpack("<i", struct.pack("<f", -0.5))[0], 0), -0.5),
    ],
)
def test_words_give_their_factor(kind: ScaleKind, words: tuple[int, int, int], real: float) -> None:
    assert compute_real_factor(kind, *words) == real
