"""Test checks of one bundle that options describe, and refused options."""

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def check(project, cli, expected):
    """Return a function that runs ``nmpsim check`` on the project's bundle with options."""
    np.savez(project.folder / "answer.npz", **expected["outputs"])
    np.savez(project.folder / "layers.npz", **expected["layers"])

    def run(*words):
        placed = [project.folder / word if "." in str(word) else word for word in words]
        image = project.folder / "images" / "7.npy"
        return cli("check", project.folder / "digits.bin", "--input", f"data={image}", *placed)

    return run


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--expect", "answer.npz"), 0),
        (("--expect", "answer.npz", "--ulp", 1, "--sqnr", 40), 0),
        (("--expect-layers", "layers.npz"), 0),
        (("--expect-layers", "layers.npz", "--only", "conv*", "--only", "fc__1"), 0),
        (("--expect-layers", "layers.npz", "--only", "none"), 2),
        (("--top1", 7), 0),
        (("--top1", 6), 1),
        (("--top1", 10), 2),
        (("--cycles", 5202), 0),
        (("--cycles", 5201), 4),
        (("--cycles", 5201, "--top1", 6), 1),
        (("--saturation", "none"), 0),
        (("--memory", 100), 4),
        (("--baseline", "seven.json"), 0),
        (("--baseline", "seven.json", "--cycles-percent", 3, "--saturation", "baseline"), 0),
        (("--baseline", "seven.json", "--device", "board.toml"), 0),
        (("--baseline", "images/7.npy"), 2),
    ],
)
def test_one_bundle_is_checked(check, words, code):
    done = check(*words)
    assert done.exit_code == code, done.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "SUITE002"),
        (("--ulp", 3), "SUITE002"),
        (("--cycles-percent", 3), "SUITE001"),
        (("--baseline", "seven.json", "--cycles-percent", "nan"), "ARG001"),
        (("--baseline", "seven.json", "--cycles-percent", "inf"), "ARG001"),
        (("--baseline", "seven.json", "--sqnr=-inf"), "ARG001"),
        (("--saturation", "baseline"), "SUITE001"),
        (("--saturation", "some"), "ARG001"),
        (("--saturation", "-3"), "ARG001"),
        (("--top1", 7, "--case", "x"), "ARG001"),
        (("--top1", 7, "--update-baseline"), "ARG001"),
        (("--top1", 7, "--junit", "images/7.npy"), "ARG001"),
        (("--top1", 7, "--junit", "nowhere/j.xml"), "FILE002"),
        (("--top1", 7, "--junit", "a.xml", "--sarif", "a.xml"), "ARG001"),
        (("--baseline", "seven.json", "--markdown", "seven.json"), "ARG001"),
        (("--baseline", "digits.bin", "--update-baseline"), "ARG001"),
        (("--expect", "digits.npz"), "INPUT001"),
    ],
)
def test_wrong_arguments_are_refused(check, words, error):
    done = check(*words)
    assert done.exit_code == 2
    assert f"error[{error}]" in done.output


def test_options_of_a_bundle_do_not_go_with_a_suite(project):
    done = project.check("--cycles", 3)
    assert done.exit_code == 2
    assert "--cycles cannot be used with a suite" in done.stderr
    done = project.check("--input", "x.npy")
    assert "--input cannot be used with a suite" in done.stderr


def test_a_missing_bundle_is_an_error(project, cli):
    done = cli("check", project.folder / "none.bin", "--top1", 3)
    assert done.exit_code == 2
    assert "error[FILE001]" in done.stderr


def test_a_baseline_is_written_into_a_new_folder(check, project):
    path = project.folder / "more" / "baselines" / "b.json"
    assert check("--baseline", path, "--update-baseline").exit_code == 0
    assert check("--baseline", path).exit_code == 0
    assert json.loads(path.read_text())["cycles"] == 5202


def test_a_report_is_written_to_a_file(check, project):
    path = project.folder / "report.json"
    done = check("--top1", 6, "--format", "json", "-o", path)
    assert (done.exit_code, done.stdout) == (1, "")
    document = json.loads(path.read_text())
    assert document["exit_code"] == 1
    assert document["cases"][0]["name"] == "digits"


@pytest.fixture
def new_folder(project, monkeypatch):
    """Return a folder with only a bundle and an input, whose names contain spaces."""
    folder = project.folder / "a new folder"
    (folder / "my data").mkdir(parents=True)
    (project.folder / "digits.bin").rename(folder / "my net.bin")
    (project.folder / "images" / "7.npy").rename(folder / "my data" / "the 7.npy")
    monkeypatch.chdir(folder)
    return folder


def test_a_first_suite_passes_at_once(new_folder, cli):
    words = ("check", "--init", "my net.bin", "--input", "my data/the 7.npy", "--jobs", 1)
    done = cli(*words)
    assert done.exit_code == 0, done.output
    checked = cli("check", "suite.toml", "--jobs", 1)
    assert checked.exit_code == 0
    assert "my net: passed" in checked.stdout
    assert (new_folder / ".github" / "workflows" / "nmpsim.yml").is_file()

    Path("suite.toml").write_text("mine")
    done = cli(*words)
    assert done.exit_code == 2
    assert "suite.toml: error[FILE002]: the file already exists" in done.stderr
    assert Path("suite.toml").read_text() == "mine"
    assert cli(*words, "--force").exit_code == 0
    assert cli("check", "suite.toml", "--jobs", 1).exit_code == 0
    assert "outside of this folder" not in done.stderr
    by_name = (*words[:4], "data=my data/the 7.npy", "--force")
    assert cli(*by_name).exit_code == 0
    assert 'input = { "data" = "my data/the 7.npy" }' in Path("suite.toml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("my net.bin",), "INPUT001"),
        (("my net.bin", "--input", "my data"), "a suite requires a file for each input"),
        (("my net.bin", "--input", "my data/the 7.npy", "--top1", 3), "does not accept --top1"),
        (("my data/the 7.npy",), "--init accepts only a bundle or a model"),
    ],
)
def test_impossible_first_suites_are_refused(new_folder, cli, words, said):
    done = cli("check", "--init", *words, "--jobs", 1)
    assert done.exit_code == 2
    assert said in done.output
    assert not (new_folder / "suite.toml").exists()
