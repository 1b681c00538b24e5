"""``nmpsim report``: files, messages, exit codes."""

import json
import sys

import pytest
from report_samples import sample_report

from nmpsim.extras import get_install_command
from nmpsim.report.json import format_json, to_json


@pytest.fixture
def run_json(tmp_path):
    path = tmp_path / "a run.json"
    path.write_text(format_json(to_json(sample_report())), encoding="utf-8")
    return path


def test_a_page_is_written(nmpsim_cli, run_json, tmp_path):
    page = tmp_path / "a page.html"
    result = nmpsim_cli("report", run_json, "-o", page)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "wrote" in result.stderr
    assert "MB" in result.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<h2>a run</h2>" in text


def test_two_runs_are_compared(nmpsim_cli, run_json, tmp_path):
    page = tmp_path / "page.html"
    assert nmpsim_cli("report", run_json, run_json, "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert '<section id="comparison">' in text
    assert "<h2>a run (2)</h2>" in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["report", "-o", "{tmp}/p.html"], 2, "Missing argument"),
        (["report", "{run}"], 2, "Missing option"),
        (["report", "{tmp}/none.json", "-o", "{tmp}/p.html"], 2, "FILE001"),
        (["report", "{tmp}", "-o", "{tmp}/p.html"], 2, "FILE001"),
        (["report", "{run}", "-o", "{tmp}/none/p.html"], 2, "FILE002"),
        (["report", "{run}", "-o", "{tmp}"], 2, "FILE002"),
        (["report", "{run}", "-o", "{run}"], 2, "is also an input"),
        (["report", "{empty}", "-o", "{tmp}/p.html"], 2, "REPORT001"),
        (["report", "{bundle}", "-o", "{tmp}/p.html"], 2, "REPORT001"),
    ],
)
def test_impossible_requests_are_refused(
    nmpsim_cli, run_json, one_input, tmp_path, words, code, said
):
    empty = tmp_path / "empty.json"
    empty.touch()
    files = {"tmp": tmp_path, "run": run_json, "empty": empty, "bundle": one_input}
    result = nmpsim_cli(*(word.format(**files) for word in words))
    assert result.exit_code == code
    assert said in result.stderr
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("library", ["pygraphviz", "vl_convert"])
def test_missing_libraries_are_named(nmpsim_cli, run_json, tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    result = nmpsim_cli("report", run_json, "-o", tmp_path / "p.html")
    assert result.exit_code == 2
    assert "PKG001" in result.stderr
    assert get_install_command("html") in result.stderr


def test_details_go_into_the_json_report_alone(nmpsim_cli, fake, one_input, tmp_path):
    for option in (["--timeline"], ["--savings"], ["--histogram", "fc"]):
        result = nmpsim_cli("run", one_input, "--input", tmp_path / "x.npy", *option)
        assert result.exit_code == 2
        assert "--format json" in result.stderr


def test_an_unknown_layer_is_refused_before_the_run(nmpsim_cli, fake, one_input, tmp_path):
    words = ["--input", tmp_path / "x.npy", "--format", "json", "--histogram", "nothing"]
    result = nmpsim_cli("run", one_input, *words)
    assert result.exit_code == 2
    assert "LAYER001" in result.stderr
    assert fake.calls == []


def test_the_json_report_contains_the_memory_map(nmpsim_cli, fake, one_input, tmp_path):
    import numpy as np

    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    result = nmpsim_cli("run", one_input, "--input", tmp_path / "x.npy", "--format", "json")
    names = [block["name"] for block in json.loads(result.stdout)["memory"]]
    assert {"data", "prob", "scores"} <= set(names)
