"""Tables that fit their width, whatever it is: no number is ever cut."""

from __future__ import annotations

import attrs
import pytest

from nmpsim.views.console import Column, fit_table, print_table, render_text
from nmpsim.views.measures import Cell, Measure, Number


@attrs.frozen
class Row:
    part: object


COLUMNS = [
    Column("factor", ["outPre 3, outPost 15, outScale 434", "biasPre 0"]),
    Column("stands for", ["0.00165557861", "1"], right=True),
    Column("of", ["0.00165668724", "1"], right=True),
    Column("which is", ["S_in * S_weights / S_out", "S_bias"]),
]


def shown(width: int) -> str:
    return render_text(lambda console: console.print(fit_table(COLUMNS, console)), width=width)


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120])
def test_every_cell_is_there_at_every_width(width: int) -> None:
    words = shown(width).split()
    for column in COLUMNS:
        for cell in column.cells:
            assert set(cell.split()) <= {word.rstrip(",") for word in words} | set(words)


def test_rows_become_lines() -> None:
    assert shown(60).splitlines()[:3] == [
        "outPre 3, outPost 15, outScale 434",
        "    stands for 0.00165557861, of 0.00165668724,",
        "    which is S_in * S_weights / S_out",
    ]
    assert max(map(len, shown(60).splitlines())) <= 60


def test_names_are_shortened_first() -> None:
    columns = [Column("name", ["a" * 40], least=8), Column("cycles", ["1,234,567"], right=True)]
    text = render_text(lambda console: console.print(fit_table(columns, console)), width=30)
    assert "1,234,567" in text
    assert "..." in text


def test_measure_reads_and_writes_a_value() -> None:
    row = {"cycles": 1234, "of": Row(None), "scale": float("inf"), "name": "a\nb"}
    assert Number("cycles").cell(row) == Cell("1,234", 1234)
    assert Number("SQNR", "of.part.size").cell(row) == Cell("-", -1)
    assert Number("scale", format=".1f").cell(row) == Cell("inf", 1e308)
    assert Measure("name").cell(row) == Cell("a\\nb", "a\\nb")
    assert Number("twice", lambda one: 2 * one["cycles"], str).cell(row).text == "2468"


def test_the_table_of_measures_is_complete() -> None:
    rows = [{"name": "conv", "cycles": 1234}, {"name": "fc", "cycles": None}]
    text = render_text(
        lambda console: print_table(console, rows, Measure("name"), Number("cycles"))
    )
    assert text.splitlines()[0::2] == ["name  cycles", "conv   1,234"]
    assert text.splitlines()[3] == "fc         -"
