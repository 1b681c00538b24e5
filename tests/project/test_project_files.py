"""Test that configuration files of tools are valid and agree with pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import nmpsim

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
CLASSIFIED = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "schema"),
    [(".github/workflows/ci.yml", "github-workflows"), ("CITATION.cff", "citation-file-format")],
)
def test_a_file_is_valid_by_its_schema(name: str, schema: str) -> None:
    words = ("-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(ROOT / name))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflow_runs_all_checks_on_every_python() -> None:
    job = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]["all"]
    matrix = job["strategy"]["matrix"]
    assert matrix["python"] == CLASSIFIED
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_the_workflow_tests_the_oldest_and_the_newest_numba() -> None:
    job = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]["numba"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        ".ci/numba ${{ matrix.numba }}"
    ]
    tested = [one["numba"] for one in job["strategy"]["matrix"]["include"]]
    assert re.findall(r"^\.ci/numba (\S+)$", read("CONTRIBUTING.md"), re.M) == tested
    oldest, newest = (tuple(map(int, version.split("."))) for version in tested)
    beyond = f"{newest[0]}.{newest[1] + 1}"
    assert f"numba>={oldest[0]}.{oldest[1]},<{beyond}" in PROJECT["dependencies"]


def test_the_oldest_python_is_the_same_everywhere() -> None:
    assert PROJECT["requires-python"] == f">={CLASSIFIED[0]}"
    assert SETTINGS["tool"]["mypy"]["python_version"] == CLASSIFIED[0]
    assert SETTINGS["tool"]["ruff"]["target-version"] == f"py{CLASSIFIED[0].replace('.', '')}"


def test_the_version_is_the_same_everywhere() -> None:
    """The package's own module has it; test_package.py looks into what is built."""
    assert PROJECT["dynamic"] == ["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == nmpsim.__version__


def test_the_licence_is_the_same_everywhere() -> None:
    text = read("LICENSE").split()
    assert text[:4] == ["Apache", "License", "Version", "2.0,"]
    assert yaml.safe_load(read("CITATION.cff"))["license"] == PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]


def test_hooks_are_the_linters_of_the_ci() -> None:
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    hooks = [hook["entry"].replace(" --force-exclude", "") for hook in repository["hooks"]]
    lines = re.findall(r'^"\$commands"/(ruff .*|mypy|lint-imports)$', read(".ci/run"), re.M)
    assert hooks == [line.removesuffix(" .") for line in lines]
    assert all(hook["language"] == "system" for hook in repository["hooks"])
    installed = " ".join(PROJECT["optional-dependencies"]["lint"])
    assert all(tool in installed for tool in ("ruff", "mypy", "import-linter"))


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", read(name))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_commands_of_contributing_exist() -> None:
    page = read("CONTRIBUTING.md")
    modules = set(re.findall(r"python -m (tests\.\w+)", page))
    named = ("campaign", "full", "fuzz", "mutation", "touched")
    assert modules == {f"tests.{name}" for name in named}
    assert all((ROOT / module.replace(".", "/") / "__main__.py").exists() for module in modules)
    paths = re.findall(r"(?:tests|benchmarks|docs|nmpsim|\.ci)/[\w./-]+", page)
    assert len(paths) > 10
    assert [name for name in paths if not (ROOT / name).exists()] == []
    extras = {name for group in re.findall(r"'\.\[([\w,]+)\]'", page) for name in group.split(",")}
    assert extras == {"test", "lint", "fuzz", "mutation", "bench"}
    assert extras <= set(PROJECT["optional-dependencies"])
