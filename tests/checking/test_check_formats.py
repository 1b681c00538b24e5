"""Test that JUnit, SARIF, Markdown and annotations are complete and match their public schemas."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
import xmlschema
from bundle_edits import change_descriptor
from user_project import SUITE

import nmpsim
from nmpsim.checking import CaseResult, LayerOutcome
from nmpsim.extras import get_install_command
from nmpsim.report.data import Saturation
from nmpsim.views.sarif import make_check_sarif

SCHEMAS = Path(__file__).parent / "schemas"


@pytest.fixture(params=["good", "wrong", "slow", "broken"])
def outcome(request, project):
    """Return the kind of a check's outcome, and a project that has it."""
    if request.param == "wrong":
        change_descriptor(project.folder / "digits.bin", "conv", layer=1, field="out_mul", by=1)
    elif request.param == "slow":
        project.write("[dram]\nbytes_per_cycle = 4\n", "board.toml")
    elif request.param == "broken":
        (project.folder / "seven.json").write_text("{")
    return request.param, project


@pytest.fixture
def baseline_layers(project):
    """Return a function that returns the baseline's layers, and optionally replaces them."""
    path = project.folder / "seven.json"

    def layers(others=None):
        document = json.loads(path.read_text())
        if others is not None:
            path.write_text(json.dumps({**document, "layers": others}))
        return document["layers"]

    return layers


def test_junit_is_valid_and_has_a_case_a_layer(outcome):
    kind, project = outcome
    path = project.folder / "junit.xml"
    project.check("--junit", path)
    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(path)
    (suite,) = ElementTree.parse(path).getroot()
    assert suite.get("name") == "seven"
    assert suite.get("time") == suite[0].get("time")
    assert float(suite.get("time")) > 0 or kind == "broken"
    layers = [case for case in suite if case.get("classname") == "seven.layers"]
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    if kind == "broken":
        assert (suite.get("errors"), layers) == ("1", [])
        assert suite.find("testcase/error").get("type") == "BASE001"
        return
    assert len(layers) == 8
    assert layers[3].get("name") == "0003 conv2__2 (conv)"
    if kind == "good":
        assert failed == []
    if kind == "wrong":
        assert failed == ["outputs", "0001 conv1__2 (conv)"]
        details = suite.find("testcase[@name='outputs']/failure").text
        assert details.startswith("layer 1 conv1__2, line 20: ")
    if kind == "slow":
        assert failed[0] == "cycles"
        assert "0003 conv2__2 (conv)" in failed


def test_sarif_is_valid_and_points_at_lines(outcome):
    kind, project = outcome
    path = project.folder / "check.sarif"
    project.check("--sarif", path)
    document = json.loads(path.read_text())
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator(schema).validate(document)
    (run,) = document["runs"]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(ids) == len(set(ids))
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
    errors = {r["ruleId"] for r in run["results"] if r["level"] == "error"}
    assert (
        errors
        == {
            "good": set(),
            "wrong": {"check/outputs"},
            "slow": {"check/cycles"},
            "broken": set(),
        }[kind]
    )
    if kind == "wrong":
        (result,) = (r for r in run["results"] if r["level"] == "error")
        place = result["locations"][0]
        assert place["physicalLocation"] == {
            "artifactLocation": {"uri": "digits.lir.txt"},
            "region": {"startLine": 20},
        }
        assert place["logicalLocations"][0]["name"] == "conv1__2"


def test_sarif_of_passed_cases_is_empty(project, monkeypatch):
    """Not more than 0.1 % of a layer saturated, and what lint notes nobody asked for."""
    path = project.folder / "check.sarif"
    assert project.check("--sarif", path).exit_code == 0
    assert json.loads(path.read_text())["runs"][0]["results"] == []
    assert project.check("--sarif", path, "--lint").exit_code == 0
    assert json.loads(path.read_text())["runs"][0]["results"]


@pytest.mark.parametrize(("count", "results"), [(1, 0), (2, 1)])
def test_sarif_has_saturation_of_more_than_a_thousandth(count, results):
    cut = Saturation("result", "high", count, 1000, 1, (0,), ())
    layer = LayerOutcome(
        *(
            0,
            "a",
            "a",
            "convolution",
            "conv",
            3,
            "device",
            None,
            9,
            None,
            count,
            None,
            None,
            None,
            None,
        ),
        saturation=(cut,),
    )
    found = make_check_sarif([CaseResult("case", "net.lir", layers=(layer,))], [])
    assert len(found["runs"][0]["results"]) == results


def test_sarif_with_lint_has_all_findings(project, cli):
    image = np.load(project.folder / "images" / "7.npy")
    np.save(project.folder / "bright.npy", 10 * image)
    project.write(
        """
        [[case]]
        bundle = "digits.bin"
        input = "bright.npy"
        budget.saturation = 99999
        """
    )
    path = project.folder / "check.sarif"
    assert project.check("--sarif", path, "--lint").exit_code == 0
    results = json.loads(path.read_text())["runs"][0]["results"]
    cuts = [r for r in results if r["ruleId"].startswith("saturation/")]
    with_elements = (
        nmpsim.Device().run(nmpsim.load(project.folder / "digits.bin"), {"data": 10 * image}).layers
    )
    cut = {layer.name for layer in with_elements if layer.saturated > layer.elements / 1000}
    assert {r["locations"][0]["logicalLocations"][0]["name"] for r in cuts} == cut
    assert "conv1__6_quantize" in cut
    linted = cli("lint", project.folder / "digits.bin", "--format", "json")
    findings = json.loads(linted.stdout)["findings"]
    assert findings
    assert [r["ruleId"] for r in results[: -len(cuts)]] == [f["rule"] for f in findings]


def test_lint_writes_sarif_with_the_lines_of_the_text(project, cli):
    lir, path = project.folder / "digits.lir.txt", project.folder / "lint.sarif"
    words = ("lint", lir, "--weights", project.folder / "digits.npz")
    findings = json.loads(cli(*words, "--sarif", path, "--format", "json").stdout)["findings"]
    document = json.loads(path.read_text())
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator(schema).validate(document)
    results = document["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == [f["rule"] for f in findings]
    for result, finding in zip(results, findings, strict=True):
        region = result["locations"][0]["physicalLocation"].get("region", {})
        assert region.get("startLine") == finding["line"]


def test_markdown_summarizes_the_cases(outcome):
    kind, project = outcome
    path = project.folder / "summary.md"
    project.check("--markdown", path)
    text = path.read_text()
    words = {
        "good": "1 passed",
        "wrong": "1 wrong output",
        "slow": "1 over budget",
        "broken": "1 cannot be checked",
    }
    assert text.startswith(f"## nmpsim: 1 case: {words[kind]}\n")
    if kind == "slow":
        assert "regressed layers</summary>" in text
        assert "unchanged layers</summary>" in text
        regressed = text.split("regressed layers</summary>")[1].split("</details>")[0]
        grown = [int(n.replace(",", "")) for n in re.findall(r"\+([\d,]+) \(", regressed)]
        assert grown == sorted(grown, reverse=True)
        assert len(grown) >= 3
        assert "dram\\_bytes\\_per\\_cycle 16 -\\> 4" in text
    if kind == "wrong":
        assert "conv1\\_\\_2, line 20" in text
        changed = text.split(" changed layers</summary>")[1].split("</details>")[0]
        assert "| conv1\\_\\_2 | 20 |" in changed


@pytest.mark.parametrize(
    ("what", "cells"),
    [("constants", "| same | changed | same |"), ("rescale", "| same | same | changed |")],
)
def test_markdown_shows_changed_constants(project, baseline_layers, what, cells):
    layers = baseline_layers()
    layers[5][what] = "0"
    baseline_layers(layers)
    path = project.folder / "summary.md"
    project.check("--markdown", path)
    opened, hidden = path.read_text().split("<details><summary>7 unchanged layers")
    assert "<details open><summary>1 changed layer</summary>" in opened
    assert "| fc\\_\\_1 | 33 |" in opened
    assert cells in opened
    assert "changed |" not in hidden


def test_markdown_has_no_mentions_and_shortens_passed_cases(project, baseline_layers):
    layers = baseline_layers()
    layers[5].update(constants="0", cycles=layers[5]["cycles"] - 1)
    baseline_layers(layers)
    text = SUITE.replace('"seven"', '"@octocat =1+1"') + "expect.ulp = 1\nbudget.cycles_percent = 1"
    project.write(text)
    path = project.folder / "summary.md"
    assert project.check("--markdown", path).exit_code == 0
    written = path.read_text()
    assert "regressed layer</summary>" in written
    assert "<details open>" not in written
    assert "| @&#8203;octocat =1+1 |" in written
    assert "@octocat" not in written


def test_annotations_point_at_lines(outcome, monkeypatch):
    kind, project = outcome
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = project.check("--format", "json")
    json.loads(done.stdout)  # annotations do not disturb it
    lines = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert bool(lines) == (kind != "good")
    for line in lines:
        assert re.fullmatch(r"::error (file=[^,:]+,)?(line=\d+,)?title=[^:,]+::.+", line), line
    if kind == "wrong":
        (line,) = lines
        assert line.startswith("::error file=digits.lir.txt,line=20,title=seven%3A outputs::layer")
    assert "::" not in project.check("--no-github").stderr


def test_special_names_are_escaped(project):
    text = (project.folder / "suite.toml").read_text()
    project.write(text.replace('name = "seven"', r'name = "<b>|\u0007 &: ,%\n"'))
    project.write("[dram]\nbytes_per_cycle = 4\n", "board.toml")
    junit, markdown = project.folder / "junit.xml", project.folder / "summary.md"
    done = project.check("--junit", junit, "--markdown", markdown, "--github")
    assert done.exit_code == 4
    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(junit)
    assert "| \\<b\\>\\|" in markdown.read_text()
    assert "title=<b>|\\x07 &%3A %2C%25%0A" in done.stderr
    assert "\x07" not in done.output


def test_a_missing_junit_package_is_named(project, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "junitparser", None)
    done = project.check("--junit", project.folder / "junit.xml")
    assert done.exit_code == 2
    assert "PKG001" in done.stderr
    assert get_install_command("ci") in done.stderr
    assert done.stdout == ""  # nothing has run
