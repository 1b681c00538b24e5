"""Two runs of the suite do the same; ``python -m tests.campaign`` does something else each time."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from syntax_trees import list_nodes, parse_file

ROOT = Path(__file__).parents[2]
GENERATORS = ("default_rng", "Random", "RandomState", "SeedSequence")
CONFTEST = ("conftest.py", "shared_files.py", "tiers.py")
"""The conftest file and the modules that it imports."""
SEEDED = ("np.random.Generator", "random.SystemRandom")


def list_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def test_random_numbers_have_a_seed() -> None:
    for path in list_tests():
        nodes = list_nodes(path)
        imported = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            last, owner = get_last_name(call.func), get_last_name(getattr(call.func, "value", None))
            if last not in GENERATORS and owner != "random":
                continue
            name, where = ast.unparse(call.func), f"{path}:{call.lineno}"
            if last in GENERATORS:
                assert call.args or call.keywords, f"{where}: {name} has no seed"
            elif re.fullmatch(r"np\.random\.\w+", name) or (
                re.fullmatch(r"random\.\w+", name) and "random" in imported
            ):
                assert name in SEEDED, f"{where}: {name} is the generator of the whole process"


def get_last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name, or an empty string for other nodes."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def test_a_generator_of_a_module_is_named_rng() -> None:
    """As ``conftest.py`` lets only those begin anew with each test."""
    for path in list_tests():
        for statement in parse_file(path).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                made = ast.unparse(statement.value.func).rpartition(".")[2]
                name = ast.unparse(statement.targets[0])
                assert made not in GENERATORS or name == "RNG", f"{path}:{statement.lineno}"


def test_the_suite_is_derandomized() -> None:
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None


RECORDER = """
import json, sys
from hypothesis import given
from hypothesis import strategies as st
SEEN = []
@given(st.text(), st.integers(), st.floats())
def test_something(text, number, real):
    SEEN.append(repr((text, number, real)))
def test_tell(request):
    print("SEEN", json.dumps(SEEN))
"""


def list_recorded(folder: Path, *words: str, before: str = "", **variables: str) -> str:
    folder.mkdir()
    for name in CONFTEST:
        (folder / name).write_text((ROOT / "tests" / name).read_text())
    (folder / "test_recorder.py").write_text(before + RECORDER)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *words, str(folder)],
        capture_output=True, text=True, cwd=folder, env=os.environ | variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return next(line for line in done.stdout.splitlines() if "SEEN" in line).partition("SEEN")[2]


@pytest.mark.slow
def test_examples_do_not_depend_on_imports(tmp_path: Path) -> None:
    alone = list_recorded(tmp_path / "alone")
    imports = "import nmpsim.isa.table, nmpsim.lir, nmpsim.compiler.driver\n"
    assert list_recorded(tmp_path / "more", before=imports) == alone


@pytest.mark.slow
def test_a_seed_repeats_its_examples(tmp_path: Path) -> None:
    """Also on a machine of CI, where Hypothesis would take no seed of its own accord."""
    profile = "--hypothesis-profile=campaign"
    one, again, other = (
        list_recorded(tmp_path / f"run{n}", profile, f"--hypothesis-seed={seed}", CI="true")
        for n, seed in enumerate((5, 5, 6))
    )
    assert one == again != other


# --- the command ----------------------------------------------------------------------------


SUITE = """
from hypothesis import given, settings
from hypothesis import strategies as st

@given(st.integers())
def test_that_holds(n):
    assert n == n

@given(st.integers(0, 1000))
@settings(max_examples=40)
def test_that_breaks(n):
    assert n < 900

def test_plain():
    raise AssertionError("is not property-based")

@given(st.integers())
def test_that_crashes(n):
    import os
    os.abort()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with the same command and other tests."""
    tests = tmp_path / "tests"
    (tests / "campaign").mkdir(parents=True)
    for name in ("__init__", "__main__", "command", "repeat"):
        text = (ROOT / "tests" / "campaign" / f"{name}.py").read_text(encoding="utf-8")
        (tests / "campaign" / f"{name}.py").write_text(text, encoding="utf-8")
    for name in CONFTEST:
        (tests / name).write_text((ROOT / "tests" / name).read_text())
    (tests / "test_some.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    return tmp_path


def campaign(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.campaign", *words],
        capture_output=True, text=True, cwd=project,
    )  # fmt: skip


def test_passing_tests_are_counted(project: Path) -> None:
    log = project / "log.jsonl"
    words = ("--count", "3", "--only", "holds", "--seed", "1", "--log", str(log))
    done = campaign(project, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = log.read_text().splitlines()
    record = json.loads(line)
    assert list(record["tests"]) == ["tests/test_some.py::test_that_holds"]
    assert record["examples"] == record["tests"]["tests/test_some.py::test_that_holds"] > 100
    assert f"{record['examples']:,} examples in {record['runs']:,} runs" in done.stdout
    assert record["failures"] == []


@pytest.mark.slow
def test_a_failure_is_reported_with_its_command(project: Path) -> None:
    done = campaign(project, "--count", "3", "--only", "breaks", "--seed", "1", "--jobs", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_that_breaks" in done.stdout
    assert "n=900" in done.stdout
    assert "@reproduce_failure" in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  python -m"))
    words = command.replace("'", "").split()[1:]
    again = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=project)
    assert again.returncode == 1
    assert "n=900" in again.stdout


def test_a_crash_ends_one_process_not_the_campaign(project: Path) -> None:
    done = campaign(project, "--count", "3", "--only", "crashes or holds", "--seed", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED tests/test_some.py::test_that_crashes" in done.stdout
    assert "the process died" in done.stdout


def test_an_unknown_name_is_an_error(project: Path) -> None:
    done = campaign(project, "--count", "1", "--only", "nothing")
    assert done.returncode == 1
    assert "no property-based test of that name" in done.stdout


def test_ctrl_c_prints_the_summary_and_leaves_no_process(project: Path) -> None:
    words = [sys.executable, "-m", "tests.campaign", "--minutes", "5", "--only", "holds"]
    log = project / "log.jsonl"
    process = subprocess.Popen(
        [*words, "--log", str(log)], stdout=subprocess.PIPE, text=True, cwd=project,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "tests failed" in said
    assert json.loads(log.read_text())["failures"] == []
