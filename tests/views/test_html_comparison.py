"""The HTML page of several runs: what has changed between them."""

import html

import attrs
import pytest
from report_samples import CUTS, layer, sample_report

from nmpsim.diagnostics import UserError
from nmpsim.views.html import make_html_page
from nmpsim.views.html.compare import (
    describe_changes,
    make_change_figure,
    make_layers_table,
    make_names_unique,
    make_settings_table,
    make_totals_table,
)


def test_several_runs_are_compared():
    first = sample_report()
    slower = attrs.evolve(first.layers[1], cycles=2999)
    other = sample_report(cycles=4000, layers=(first.layers[0], slower, layer(2, "new")))
    runs = {"old": first, "new": other, "same": first}
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in make_layers_table(runs).rows}
    assert rows["fc"] == ["2,499", "2,999", "2,499", "+500 (+20.0%)", "equal", "0", "0", "0"]
    assert rows["softmax"][:4] == ["1", "missing", "1", "-"]
    assert rows["new"][:4] == ["missing", "1,000", "missing", "-"]
    figure = make_change_figure(runs)
    assert [value["layer"] for value in figure.spec["data"]["values"]][:3] == ["new", "fc", "fc"]
    text = make_html_page(runs)
    assert "Largest changes" in text
    assert "+500 (+14.3%)" in html.unescape(text)


def test_common_settings_and_outputs_are_stated():
    first = sample_report()
    device = {**first.device, "dram_bytes_per_cycle": 8}
    wrong = {"prob": first.outputs["prob"] + 1}
    runs = {"old": first, "slow": sample_report(device=device), "new": sample_report(outputs=wrong)}
    ((setting, *values),) = make_settings_table(runs).rows
    assert setting.text == "dram.bytes_per_cycle"
    assert [cell.text for cell in values] == ["16", "8", "16"]
    titles = [heading.title for heading in make_totals_table(runs).headings]
    outputs = [row[titles.index("outputs")].text for row in make_totals_table(runs).rows]
    assert outputs == ["equal", "equal", "different"]
    assert "Settings of the devices that differ" in make_html_page(runs)
    assert make_settings_table({"a": first, "b": first}) is None


def test_a_comparison_begins_with_a_verdict():
    first = sample_report()
    slower = attrs.evolve(first.layers[1], cycles=2999, saturation=CUTS)
    wrong = {"prob": first.outputs["prob"] + 1}
    layers = (first.layers[0], slower, *first.layers[2:])
    bad = sample_report(cycles=4000, layers=layers, outputs=wrong)
    assert describe_changes({"old": first, "new": bad, "same": first}) == [
        "new against old: +500 (+14.3%) cycles, slower, most in fc (+500); the outputs differ;"
        " 7 more values saturate.",
        "same against old: the same number of cycles; the outputs are the same.",
    ]
    (better,) = describe_changes({"new": bad, "old": first})
    assert "-500 (-12.5%) cycles, faster, most in fc (-500)" in better
    assert "7 fewer values saturate" in better
    assert "slower, most in fc" in make_html_page({"old": first, "new": bad})


def test_equal_runs_have_no_figure_of_changes():
    assert make_change_figure({"a": sample_report(), "b": sample_report()}) is None


def test_runs_of_one_name_are_distinguished():
    assert make_names_unique(["a", "b", "a"]) == ["a", "b", "a (2)"]


def test_a_report_without_device_is_compared():
    with pytest.raises(UserError, match="DEV"):
        make_html_page({"run": sample_report(device={"name": "x", "cores_count": "many"})})
