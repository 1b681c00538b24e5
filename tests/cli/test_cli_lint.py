"""``nmpsim lint`` within one process."""

import json
from pathlib import Path

import numpy as np
import pytest

import nmpsim

DIGITS = Path(__file__).parents[2] / "programs/digits"
LIR, WEIGHTS = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
FLOATS = DIGITS / "float_weights.npz"


@pytest.fixture
def wrong(tmp_path):
    """Return the digits program with a changed bias type."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    text = LIR.read_text().replace("i32[S:0.000039102 O:0]", "i32[S:0.013213338 O:0]", 1)
    (folder / "net.lir").write_text(text)
    return folder / "net.lir"


def parse_document(result):
    document = json.loads(result.stdout)
    assert document["schema"] == "nmpsim-lint-1"
    return document


def test_a_correct_program_has_no_findings(nmpsim_cli):
    result = nmpsim_cli("lint", LIR, "--weights", WEIGHTS)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "main: 3 notes"
    assert not result.stdout.startswith("\nerror: ")


@pytest.mark.parametrize(
    "more", [(), ("--float-weights", FLOATS), ("--original-weights", WEIGHTS)], ids=str
)
def test_a_changed_type_is_found(nmpsim_cli, wrong, more):
    result = nmpsim_cli("lint", wrong, "--weights", WEIGHTS, *more)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith(f"error: bias-payload (1)\n  {wrong}:3:3: ")
    assert "bias %conv1_bias" in result.stdout.splitlines()[1]
    assert "--rescale-bias" in result.stdout
    assert "1 error, " in result.stdout.splitlines()[-1]


def test_json_holds_the_findings(nmpsim_cli, wrong):
    result = nmpsim_cli("lint", wrong, "--weights", WEIGHTS, "--format", "json")
    assert result.exit_code == 1
    document = parse_document(result)
    assert document["counts"]["error"] == 1
    assert (document["file"], document["numerics"]) == (str(wrong), "glow-int")
    finding = document["findings"][0]
    assert finding["rule"] == "bias-payload"
    assert (finding["line"], finding["column"], finding["tensor"]) == (3, 3, "conv1_bias")
    assert (finding["layer"], finding["number"]) == ("conv1__2", 4)
    assert set(finding) == {
        "rule", "severity", "message", "file", "line", "column", "layer", "number", "tensor",
        "found", "expected", "hint", "facts",
    }  # fmt: skip
    assert len(document["rules"]) == 18
    assert document["skipped"] == []


def test_strict_counts_warnings(nmpsim_cli, tmp_path):
    (tmp_path / "net.lir").write_text(LIR.read_text())  # without its sidecar
    arguments = ("lint", tmp_path / "net.lir", "--weights", WEIGHTS)
    assert nmpsim_cli(*arguments).exit_code == 0
    strict = nmpsim_cli(*arguments, "--strict", "--format", "json")
    assert strict.exit_code == 1
    assert parse_document(strict)["counts"]["error"] == 0


def test_all_findings_are_printed_on_request(nmpsim_cli):
    arguments = ("lint", LIR, "--weights", WEIGHTS, "--numerics", "nmp")
    some, every = nmpsim_cli(*arguments), nmpsim_cli(*arguments, "--all")
    assert some.exit_code == every.exit_code == 1
    assert "more; --all shows them" in some.stdout
    assert "more; --all shows them" not in every.stdout
    assert every.stdout.count("is not a power of two") == 14


def test_a_bundle_is_checked(nmpsim_cli, tmp_path):
    nmpsim.save(nmpsim.compile(LIR, WEIGHTS), tmp_path / "net.bin")
    result = nmpsim_cli("lint", tmp_path / "net.bin", "--format", "json")
    assert result.exit_code == 0
    document = parse_document(result)
    assert document["counts"] == {"error": 0, "warning": 0, "note": 3}
    assert [one["rule"] for one in document["skipped"]] == ["scales-lost-in-print"]


def test_skipped_rules_are_listed(nmpsim_cli):
    result = nmpsim_cli("lint", LIR)
    assert result.exit_code == 0
    assert "no problems found" in result.stdout
    assert "not checked: bias-payload: the values of the constants are unknown" in result.stdout


def test_recorded_ranges_are_compared(nmpsim_cli, tmp_path):
    (tmp_path / "p.tsv").write_text("conv1__2:0\t0\t0.1\n")
    result = nmpsim_cli("lint", LIR, "--weights", WEIGHTS, "--ranges", tmp_path / "p.tsv")
    assert "warning: range-wasted (1)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("no.lir",), "FILE001"),
        ((LIR, "--weights", "no.npz"), "FILE001"),
        ((LIR, "--tensors", "no.json"), "FILE001"),
        ((LIR, "--weights", LIR), "CONST001"),
        ((LIR, "--weights", WEIGHTS, "--float-weights", "no.npz"), "FILE001"),
        ((LIR, "--weights", WEIGHTS, "--original-weights", LIR), "CONST001"),
        ((LIR, "--weights", WEIGHTS, "--ranges", WEIGHTS), "CONST001"),
        ((LIR, "--original-tensors", "t.json"), "ARG001"),
        ((LIR, "--numerics", "glow"), "COMP001"),
        ((), "ARG001"),
        ((".",), "FILE001"),
    ],
)
def test_unusable_files_are_refused(nmpsim_cli, arguments, code):
    result = nmpsim_cli("lint", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error[{code}]" in result.stderr


def test_missing_weights_are_reported(nmpsim_cli, tmp_path):
    np.savez(tmp_path / "w.npz", conv1_bias=np.zeros(16, np.int32))
    result = nmpsim_cli("lint", LIR, "--weights", tmp_path / "w.npz")
    assert result.exit_code == 2
    assert "error[CONST002]: there are no values for %conv2_bias" in result.stderr


def test_names_cannot_steer_the_terminal(nmpsim_cli, tmp_path):
    folder = tmp_path / "\x1b[31m"
    folder.mkdir()
    text = LIR.read_text().replace("i32[S:0.000039102 O:0]", "i32[S:0.013213338 O:0]", 1)
    (folder / "net.lir").write_text(text)
    result = nmpsim_cli("lint", folder / "net.lir", "--weights", WEIGHTS)
    assert "\x1b" not in result.stdout
