"""Test a report's line, table and data frame in a notebook."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import attrs
import pytest
from report_samples import layer, sample_report

import nmpsim
from nmpsim.report.notebook import make_columns


def two_layers() -> nmpsim.RunReport:
    layers = (layer(0, "blk.<conv>"), layer(1, cycles=2_500, scale=None, offset=None))
    return attrs.evolve(sample_report(), program="net", layers=layers, cycles=3_500)


def test_a_report_has_a_short_repr() -> None:
    run = two_layers()
    assert repr(run) == f"<RunReport net: 2 layers, 3,500 cycles; {run.limited_by}>"
    trapped = attrs.evolve(run, trap=report_trap(), layers=run.layers[:1])
    assert repr(trapped).startswith("<RunReport net: 1 layer, 3,500 cycles; deadlock: all wait")


def report_trap() -> object:
    from nmpsim.report.termination import TrapReport

    return TrapReport("deadlock", "all wait", None, None, None, None, None, None, None)


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1].append(data)


def test_a_table_with_names_as_text() -> None:
    parser = Cells()
    parser.feed(two_layers()._repr_html_())
    head, first, second = parser.rows
    assert head[:3] == ["index", "display name", "operation"]
    assert first[1] == "blk.<conv>"
    assert dict(zip(head, second, strict=True))["cycles"] == "2,500"
    empty = attrs.evolve(two_layers(), layers=())
    assert "<table>" not in empty._repr_html_()


def test_columns_have_one_value_a_layer() -> None:
    table = make_columns(two_layers().layers)
    assert {len(values) for values in table.values()} == {2}
    assert table["shape"] == ["1x28x28x16"] * 2
    assert table["scale"] == [0.1, None]
    assert table["bound_kind"] == ["compute"] * 2
    assert table["bytes_read"] == [1000, 1000]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_reports_convert_to_data_frames(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    frame = getattr(two_layers(), f"to_{library}")()
    assert frame.shape == (2, 23)
    assert frame["cycles"].sum() == 3_500
    assert list(frame["name"]) == ["blk.<conv>", "layer1"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(nmpsim.UserError, match=rf"pip install .*\[{library}\]") as error:
        getattr(two_layers(), f"to_{library}")()
    assert error.value.diagnostics[0].code == "PKG001"
