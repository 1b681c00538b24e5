"""Tables that fit their width, whatever it is: no number is ever cut."""

from __future__ import annotations

import attrs
import pytest

from nmpsim.views.console import print_table, render_text
from nmpsim.views.measures import NumberColumn, TableCell, TableColumn


@attrs.frozen
class Row:
    part: object


ROWS = [
    {
        "factor": "outPre 3, outPost 15, outScale 434",
        "stands for": "0.00165557861",
        "of": "0.00165668724",
        "which is": "S_in * S_weights / S_out",
    },
    {"factor": "biasPre 0", "stands for": "1", "of": "1", "which is": "S_bias"},
]
MEASURES = (
    TableColumn("factor"),
    NumberColumn("stands for", lambda row: row["stands for"]),
    NumberColumn("of"),
    TableColumn("which is", lambda row: row["which is"]),
)


def shown(width: int) -> str:
    return render_text(lambda console: print_table(console, ROWS, *MEASURES), width=width)


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120])
def test_every_cell_is_there_at_every_width(width: int) -> None:
    words = shown(width).split()
    for row in ROWS:
        for cell in row.values():
            assert set(cell.split()) <= {word.rstrip(",") for word in words} | set(words)


def test_rows_become_lines() -> None:
    assert shown(60).splitlines()[:3] == [
        "outPre 3, outPost 15, outScale 434",
        "    stands for 0.00165557861, of 0.00165668724,",
        "    which is S_in * S_weights / S_out",
    ]
    assert max(map(len, shown(60).splitlines())) <= 60


def test_names_are_shortened_first() -> None:
    rows = [{"name": "a" * 40, "cycles": 1234567}]
    measures = TableColumn("name", least=8), NumberColumn("cycles")
    text = render_text(lambda console: print_table(console, rows, *measures), width=30)
    assert "1,234,567" in text
    assert "..." in text


def test_measure_reads_and_writes_a_value() -> None:
    row = {"cycles": 1234, "of": Row(None), "scale": float("inf"), "name": "a\nb"}
    assert NumberColumn("cycles").make_cell(row) == TableCell("1,234", 1234)
    assert NumberColumn("SQNR", "of.part.size").make_cell(row) == TableCell("-", -1)
    assert NumberColumn("scale", format=".1f").make_cell(row) == TableCell("inf", 1e308)
    assert TableColumn("name").make_cell(row) == TableCell("a\\nb", "a\\nb")
    assert NumberColumn("twice", lambda one: 2 * one["cycles"], str).make_cell(row).text == "2468"


def test_the_table_of_measures_is_complete() -> None:
    rows = [{"name": "conv", "cycles": 1234}, {"name": "fc", "cycles": None}]
    text = render_text(
        lambda console: print_table(console, rows, TableColumn("name"), NumberColumn("cycles"))
    )
    assert text.splitlines()[0::2] == ["name  cycles", "conv   1,234"]
    assert text.splitlines()[3] == "fc         -"
