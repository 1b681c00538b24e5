"""``nmpsim history``: what it keeps, what it says of the last entry, what it refuses."""

import base64
import gzip
import json
import re
import subprocess
from importlib.resources import files

import attrs
import jsonschema
import pytest
from report_samples import CUTS, TRAP, layer, sample_report

from nmpsim.diagnostics import UserError
from nmpsim.experiments.history import list_entries, make_series_names
from nmpsim.experiments.identity import compute_network_digest
from nmpsim.report.analyses import ErrorSize, ShadowLayer, ShadowReport
from nmpsim.report.json import format_json, to_json
from nmpsim.report.read import MAX_REPORT_BYTES
from nmpsim.views.html.history import make_history_figures

EVALUATION = {
    "schema": "nmpsim-eval-4",
    "program": "lenet",
    "network": compute_network_digest(
        [("prob", "float", (1, 6))], [("convolution", "i8", (1, 28, 28, 16))]
    ),
    "accuracy": {"1": 0.975, "5": 1.0},
    "errors": [],
    "cycles": {"min": 1, "mean": 3000.5, "max": 9},
    "layers": [{"name": "fc", "op": "x", "elements": 10, "saturated": 3}],
}


def shadow(sqnr_db):
    size = ErrorSize(sqnr_db, 0.1, 1.0)
    return ShadowReport(None, (), (), (ShadowLayer(0, 1, "a", rounding=size),))


def write(path, report):
    path.write_text(format_json(to_json(report)), encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path):
    """Write the reports of two runs; the second is slower, less exact, and saturates."""
    worse = sample_report(cycles=4000, layers=(layer(0, saturation=CUTS),), shadow=shadow(31.0))
    better = sample_report(layers=(layer(0),), shadow=shadow(40.0))
    first = write(tmp_path / "old run.json", better)
    return first, write(tmp_path / "new run.json", worse)


@pytest.fixture
def history(nmpsim_cli, runs, tmp_path):
    """Return a history of both runs and an evaluation."""
    folder = tmp_path / "my history"
    evaluation = tmp_path / "eval.json"
    evaluation.write_text(json.dumps(EVALUATION))
    for path, commit, date in (
        (runs[1], "beef", "2026-02-01T00:00:00+02:00"),
        (runs[0], "cafe", "2026-01-01"),
        (evaluation, "beef", "2026-02-01T00:00:00+02:00"),
    ):
        done = nmpsim_cli("history", folder, path, "--commit", commit, "--date", date)
        assert done.exit_code == 0, done.output
    return folder


def test_the_last_entry_is_compared(nmpsim_cli, history):
    done = nmpsim_cli("history", history)
    assert done.exit_code == 0
    head, _, _, _, *rows = done.stdout.splitlines()
    assert head == (
        "lenet, run: beef against cafe is worse: cycles 3,500 to 4,000 (+14.3%),"
        " saturated values 0 to 7, worst SQNR 40.0 dB to 31.0 dB"
    )
    assert [row.split()[:5] for row in rows] == [
        ["1", "2026-01-01", "cafe", "lenet", "run"],
        ["2", "2026-01-31", "beef", "lenet", "eval"],
        ["3", "2026-01-31", "beef", "lenet", "run"],
    ]
    assert rows[1].split()[-1] == "97.50%"


def test_the_json_fits_its_schema(nmpsim_cli, history):
    data = json.loads(nmpsim_cli("history", history, "--format", "json").stdout)
    folder = files("nmpsim") / "schemas"
    jsonschema.validate(data, json.loads((folder / "history.json").read_text()))
    assert [one["cycles"] for one in data["entries"]] == [3500, 3000.5, 4000]
    for path in history.iterdir():
        kept = json.loads(path.read_text())
        jsonschema.validate(kept, json.loads((folder / "history-entry.json").read_text()))


def test_a_document_survives_a_round_trip(nmpsim_cli, history, runs):
    done = nmpsim_cli("history", history, "--show", 1)
    assert done.stdout == runs[0].read_text()


def test_the_same_commit_is_replaced(nmpsim_cli, history, runs):
    again = ("history", history, runs[0], "--commit", "beef", "--date", "2026-02-01")
    assert nmpsim_cli(*again).exit_code == 0
    assert [(one.commit, one.cycles) for one in list_entries(history) if one.kind == "run"] == [
        ("cafe", 3500),
        ("beef", 3500),
    ]
    assert nmpsim_cli(*again, "--label", "small").exit_code == 0
    assert set(make_series_names(list_entries(history)).values()) == {"lenet", "lenet (small)"}


def test_layers_identify_a_network(nmpsim_cli, history, runs, tmp_path):
    def added(name, report, date):
        path = write(tmp_path / name, report)
        done = nmpsim_cli("history", history, path, "--commit", "f00d", "--date", date)
        assert done.exit_code == 0, done.output
        return nmpsim_cli("history", history).stdout

    renamed = sample_report(program="model2", layers=(layer(0),))
    assert "model2, run: f00d against beef is better" in added("a.json", renamed, "2026-03-01")
    larger = sample_report(program="model2", layers=(layer(0, shape=(1, 2)), layer(1)), cycles=9)
    found = added("b.json", larger, "2026-03-02")
    assert "against" not in found.replace("f00d against beef", ""), "a network of its own"
    assert len({one.series for one in list_entries(history) if one.kind == "run"}) == 2


def test_an_older_entry_is_identified_by_name(history):
    path = min(history.glob("*"), key=lambda one: json.loads(one.read_text())["entry"]["date"])
    data = {**json.loads(path.read_text()), "schema": "nmpsim-entry-1"}
    del data["entry"]["network"]
    path.write_text(json.dumps(data))
    assert len({one.series for one in list_entries(history) if one.kind == "run"}) == 1


def test_the_page_is_written(nmpsim_cli, history, tmp_path):
    page = tmp_path / "a page.html"
    assert nmpsim_cli("history", history, "--format", "html", "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "History of my history" in text
    assert "is worse: cycles 3,500 to 4,000" in text
    assert text.count('class="still"') == 4
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    figures = {
        one.title: one.spec["data"]["values"] for one in make_history_figures(list_entries(history))
    }
    assert [one["value"] for one in figures["Cycles"]] == [3500, 3000.5, 4000]
    assert [round(one["height"], 1) for one in figures["Cycles"]] == [100, 100, 114.3]
    assert [one["value"] for one in figures["Accuracy"]] == [97.5]
    assert [one["value"] for one in figures["Worst SQNR"]] == [40.0, 31.0]


def test_commit_and_date_come_from_git(nmpsim_cli, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    done = nmpsim_cli("history", "h", runs[0])
    assert done.exit_code == 2
    assert "--commit" in done.stderr
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-03-04T05:06:07+0100")
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *words], check=True)
    assert nmpsim_cli("history", "h", runs[0]).exit_code == 0
    (entry,) = list_entries(tmp_path / "h")
    assert len(entry.commit) == 40
    assert entry.date == "2026-03-04T04:06:07+00:00"
    assert nmpsim_cli("history", "h", runs[0], "--commit", "HEAD").exit_code == 0
    assert len(list_entries(tmp_path / "h")) == 1


def test_an_empty_history_is_printed(nmpsim_cli, tmp_path):
    (tmp_path / "h").mkdir()
    done = nmpsim_cli("history", tmp_path / "h")
    assert (done.exit_code, done.stdout) == (0, "no entries: name reports to add\n")
    assert "No entries" in nmpsim_cli("history", tmp_path / "h", "--format", "html").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/none"], "FILE001"),
        (["{run}"], "FILE001"),
        (["{run}", "{run}", "--commit", "a"], "FILE002"),
        (["{tmp}/h", "{tmp}/none.json"], "FILE001"),
        (["{tmp}/h", "{text}", "--commit", "a"], "REPORT001"),
        (["{tmp}/h", "{half}", "--commit", "a"], "RESULT001"),
        (["{tmp}/h", "{stopped}", "--commit", "a"], "RESULT001"),
        (["{tmp}/h", "{run}", "--commit", "a\nb"], "ARG001"),
        (["{tmp}/h", "{run}", "--commit", "a", "--date", "soon"], "ARG001"),
        (["{tmp}", "--label", "x"], "--label cannot be used without a report"),
        (["{tmp}", "--show", "1"], "has no entry 1"),
        (["{tmp}/h", "{run}", "--commit", "a", "-o", "{run}"], "is also an input"),
    ],
)
def test_unsuitable_documents_are_refused(nmpsim_cli, runs, tmp_path, words, said):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "half").write_text(json.dumps({**EVALUATION, "accuracy": {}}))
    write(tmp_path / "stopped", attrs.evolve(sample_report(), trap=TRAP))
    names = {one: tmp_path / one for one in ("text", "half", "stopped")}
    done = nmpsim_cli("history", *(w.format(tmp=tmp_path, run=runs[0], **names) for w in words))
    assert done.exit_code == 2
    assert said in done.stderr
    assert not list(tmp_path.glob("h/*"))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: "{",
        lambda data: json.dumps({**data, "schema": "x"}),
        lambda data: json.dumps({**data, "entry": {**data["entry"], "cycles": "many"}}),
        lambda data: json.dumps({**data, "entry": {**data["entry"], "date": "soon"}}),
        lambda data: json.dumps({**data, "entry": {**data["entry"], "kind": "other"}}),
        lambda data: json.dumps({**data, "entry": {**data["entry"], "more": 1}}),
        lambda data: json.dumps({"schema": data["schema"]}),
    ],
)
def test_a_damaged_entry_is_named(history, change):
    path = sorted(history.iterdir())[0]
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(UserError, match="RESULT001") as caught:
        list_entries(history)
    assert path.name in str(caught.value)


def test_a_long_name_is_shortened(nmpsim_cli, runs, tmp_path):
    report = json.loads(runs[0].read_text())
    runs[0].write_text(json.dumps(report | {"program": "n" * 100_000}))
    folder = tmp_path / "history"
    assert nmpsim_cli("history", folder, runs[0], "--commit", "cafe").exit_code == 0
    (name,) = make_series_names(list_entries(folder)).values()
    assert len(name) < 250
    assert name.startswith("nnn")


def test_a_decompression_bomb_is_refused(nmpsim_cli, history):
    path = min(history.iterdir())
    data = json.loads(path.read_text())
    packed = gzip.compress(bytes(MAX_REPORT_BYTES + 1))
    path.write_text(json.dumps(data | {"document": base64.b64encode(packed).decode()}))
    results = [nmpsim_cli("history", history, "--show", n) for n in (1, 2, 3)]
    (refused,) = [result for result in results if result.exit_code]
    assert "RESULT001" in refused.stderr
    assert f"over {MAX_REPORT_BYTES:,} bytes" in refused.stderr


def test_long_names_are_short_in_figures(history):
    entry = list_entries(history)[0]
    given = [letter * 50_000 + "x" * 50_000 for letter in "ab"]
    figures = make_history_figures(
        [attrs.evolve(entry, program=name, network=name) for name in given]
    )
    shown = {value["network"] for value in next(figures).spec["data"]["values"]}
    assert len(shown) == 2
    assert max(map(len, shown)) <= 100
