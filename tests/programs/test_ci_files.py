"""The files of programs/ci/ in a user's repository, as far as a machine without GitHub runs them.

The steps of the workflow that are shell lines are run as GitHub runs them; the one that installs
nmpsim is left out, for it is there.
"""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from junitparser import JUnitXml

import nmpsim
from nmpsim.bundle.patch import save_patch
from nmpsim.checking.new_suite import format_workflow
from nmpsim.debugger import Debugger
from nmpsim.debugger.changes import ProgramEditor
from nmpsim.debugger.edits import build_patch

ROOT = Path(__file__).parents[2]
CI = ROOT / "programs" / "ci"
DIGITS = ROOT / "programs" / "digits"
INSTALL = "Install nmpsim"


class Repository:
    """User's repository with the files that the page describes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a repository"
        shutil.copytree(DIGITS / "images", self.folder / "images")
        for name in ("digits.lir.txt", "digits.npz", "digits.tensors.json"):
            shutil.copy(DIGITS / name, self.folder)
        for name in ("check.sh", "suite.toml", "board.toml"):
            shutil.copy(CI / name, self.folder)
        for name, target in (
            ("nmpsim.yml", ".github/workflows/nmpsim.yml"),
            ("pre-commit-config.yaml", ".pre-commit-config.yaml"),
            ("test_network.py", "tests/test_network.py"),
        ):
            (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CI / name, self.folder / target)
        (self.folder / ".gitignore").write_text("digits.bin\n")
        self.environment = _environment(folder)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def write_baselines(self) -> None:
        for line in _indented_lines((CI / "README.md").read_text()):
            if not line.startswith("git"):
                done = self.run("bash", "-e", "-c", line)
                assert done.returncode == 0, done.stdout + done.stderr

    def change_a_weight(self) -> None:
        with np.load(self.folder / "digits.npz") as file:
            arrays = dict(file)
        arrays["conv1_weights__1"][3, 1, 1, 0] += 40
        np.savez(self.folder / "digits.npz", **arrays)


def _indented_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def _environment(folder: Path) -> dict[str, str]:
    """Return environment variables with commands on PATH that start this Python."""
    commands = folder / "commands"
    commands.mkdir()
    plugin = "-p nmpsim.pytest_plugin"
    for name, words in (
        ("nmpsim", f'"{sys.executable}" -m nmpsim "$@"'),
        ("python", f'PYTEST_ADDOPTS="{plugin}" exec "{sys.executable}" "$@"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{words}\n")
        (commands / name).chmod(0o755)
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT")},
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(folder / "step-summary.md"),
        "PRE_COMMIT_HOME": str(folder / "pre-commit"),
    }


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("user"))
    made.write_baselines()
    return made


def steps():
    """Yield name, condition, variables and shell line of each step that runs a command."""
    for step in _all_steps():
        if "run" in step and step["name"] != INSTALL:
            yield step["name"], step.get("if"), _variables(step), step["run"]


def _all_steps():
    return yaml.safe_load((CI / "action.yml").read_text())["runs"]["steps"]


def _variables(step):
    """Return a step's variables from the workflow and the action's defaults."""
    action = yaml.safe_load((CI / "action.yml").read_text())
    (use,) = [step for step in _workflow_steps() if "programs/ci" in step["uses"]]
    inputs = {name: one["default"] for name, one in action["inputs"].items()} | use["with"]
    return {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, text in step.get("env", {}).items()
    }


def _workflow_steps():
    return yaml.safe_load((CI / "nmpsim.yml").read_text())["jobs"]["check"]["steps"]


def run_workflow(repository):
    """Return exit code and output of each step; only conditional ones follow a failure."""
    results = {}
    for name, condition, variables, line in steps():
        if condition is None and any(code for code, _ in results.values()):
            continue
        variables["GITHUB_ACTIONS"] = "true"
        done = repository.run("bash", "-e", "-c", line, **variables)
        results[name] = done.returncode, done.stdout + done.stderr
    return results


@pytest.mark.parametrize(
    ("name", "schema"), [("nmpsim.yml", "github-workflows"), ("action.yml", "github-actions")]
)
def test_a_file_is_valid_by_its_schema(name, schema):
    words = ("-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    done = subprocess.run([sys.executable, *words, str(CI / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_action_installs_the_sources_that_it_comes_with():
    (line,) = [step["run"] for step in _all_steps() if step.get("name") == INSTALL]
    folder, _, rest = line.removeprefix("python -m pip install ").partition("[$EXTRAS]")
    assert rest == '" pytest'
    assert (CI / folder.removeprefix('"$GITHUB_ACTION_PATH/') / "pyproject.toml").is_file()


def test_uploaded_files_are_written_by_earlier_steps():
    written = {word for *_, line in steps() for word in line.split() if "." in word}
    for step in _all_steps():
        named = step.get("with", {})
        for name in str(named.get("sarif_file", "")).split() + (
            named["path"].split() if "upload-artifact" in step.get("uses", "") else []
        ):
            assert name in written


@pytest.mark.slow  # the tutorial on a red build, which tests run, has the same steps
def test_a_build_passes_and_then_fails(repository):
    green = run_workflow(repository)
    assert {name: code for name, (code, _) in green.items()} == {
        "Check": 0,
        "Test": 0,
        "Summarize": 0,
    }, green
    summary = Path(repository.environment["GITHUB_STEP_SUMMARY"])
    assert "2 passed" in summary.read_text()

    before = (repository.folder / "digits.npz").read_bytes()
    repository.change_a_weight()
    red = run_workflow(repository)
    (repository.folder / "digits.npz").write_bytes(before)
    assert [code for code, _ in red.values()] == [1, 1, 0], red
    assert (
        "::error file=digits.lir.txt,line=20,title=three%3A outputs::layer conv1__2"
        in (red["Check"][1])
    )
    assert "conv1__2, line 20" in red["Test"][1]
    assert "2 wrong output" in summary.read_text()
    for name in ("junit.xml", "nmpsim.sarif", "summary.md", "nmpsim.cores/three.core"):
        assert (repository.folder / name).stat().st_size


def change_rescale_integer(folder):
    """Change a layer's rescale multiplier by a patch, and nothing else."""
    bundle = nmpsim.load(folder / "digits.bin")
    debugger = Debugger(bundle, {"data": np.load(folder / "images" / "7.npy")})
    changes = ProgramEditor(debugger)
    (layer,) = [one for one in debugger.layers if one.name == "fc__1"]
    (conv,) = [one for one in changes.trace_layer(layer) if one.instruction.mnemonic == "nmp.conv"]
    changes.set_word(layer, "out_mul", conv.words["out_mul"] + 1)
    save_patch(folder / "one.json", build_patch(debugger.bundle, debugger.edits))
    compile_with(folder, "--patch one.json")


def change_tile_size(folder):
    compile_with(folder, "--tiling simple")


def change_bandwidth(folder):
    (folder / "board.toml").write_text("[dram]\nbytes_per_cycle = 8\n")


def compile_with(folder, option):
    script = folder / "check.sh"
    script.write_text(script.read_text().replace(" -o digits.bin", f" {option} -o digits.bin"))


@pytest.mark.parametrize(
    ("change", "code", "checks", "words"),
    [
        (
            change_rescale_integer,
            1,
            ("outputs", "cycles"),  # a program with a patch has no chains
            "fc__1, line 33: its rescale values are not",
        ),
        pytest.param(change_tile_size, 4, ("cycles",), "layer conv2__2 (", marks=pytest.mark.slow),
        pytest.param(change_bandwidth, 4, ("cycles",), "layer conv2__2 (", marks=pytest.mark.slow),
    ],
)
def test_each_change_fails_its_checks(repository, tmp_path, change, code, checks, words):
    changed = copy.copy(repository)
    changed.folder = shutil.copytree(repository.folder, tmp_path / "changed")
    change(changed.folder)
    (step,) = [step for step in steps() if step[0] == "Check"]
    _, _, variables, line = step
    done = changed.run("bash", "-e", "-c", line, **variables)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout
    cases = [case for suite in JUnitXml.fromfile(changed.folder / "junit.xml") for case in suite]
    red = {(one.classname, one.name) for one in cases if one.result and "checks" in one.classname}
    assert red == {(f"{case}.checks", one) for case in ("three", "seven") for one in checks}


@pytest.mark.skipif(shutil.which("git") is None, reason="pre-commit needs git")
def test_the_hooks_run(repository):
    for line in ("git init -q", "git add -A"):
        assert repository.run(*line.split()).returncode == 0
    hooks = ("python", "-m", "pre_commit")
    config = repository.run(*hooks, "validate-config", ".pre-commit-config.yaml")
    assert config.returncode == 0, config.stdout

    before = (repository.folder / "digits.npz").read_bytes()
    repository.change_a_weight()
    repository.run("git", "add", "-A")
    bad = repository.run(*hooks, "run", "--all-files")
    (repository.folder / "digits.npz").write_bytes(before)
    assert bad.returncode == 1
    assert "nmpsim lint" in bad.stdout.partition("Passed")[0]
    assert "conv1__2, line 20" in bad.stdout.partition("Failed")[2]


def test_a_new_workflow_equals_the_example():
    workflow = yaml.safe_load(format_workflow())
    ours = yaml.safe_load((CI / "nmpsim.yml").read_text())
    step = workflow["jobs"]["check"]["steps"][1]
    inputs = yaml.safe_load((CI / "action.yml").read_text())["inputs"]
    assert set(step["with"]) <= set(inputs)
    step["with"] = ours["jobs"]["check"]["steps"][1]["with"]
    assert workflow == ours
