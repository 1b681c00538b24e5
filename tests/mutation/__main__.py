"""Mutants of the code that both engines share: does a test notice each of them?

``python -m tests.mutation [--only GROUP] [--every N]``; docs/mutation.md has the figures.
cosmic-ray makes the mutants and runs the tests, in copies of the repository, one for each process.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import toml
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutation.tables import find_mutants, run_mutants

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SETTINGS = tomllib.loads((HERE / "settings.toml").read_text(encoding="utf-8"))
CONFIG, SESSION = "cosmic-ray.toml", "session.sqlite"
SKIPPED = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
GOAL = 0.97
"""Share of the mutants that must be killed, not counting equivalent ones."""

Change = tuple[str, str, str, str]
"""Module, function, original line and mutated line."""


def main() -> int:
    """Run the selected groups; return 1 if mutants survive or a listed reason is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", choices=SETTINGS["groups"], action="append", help="a group")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant of N")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    if asked.every < 1 or asked.processes < 1:
        parser.error("N and PROCESSES are 1 or more")
    known, wrong = equivalents(), 0
    modules: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="nmpsim-mutants-") as folder:
        copies = copies_of_repository(Path(folder), asked.processes)
        for group in asked.only or SETTINGS["groups"]:
            results = run_group(SETTINGS["groups"][group], copies, asked.every)
            wrong += judge(results, known, modules)
    share = report(modules)
    return 1 if wrong or share < GOAL else 0


def equivalents() -> dict[Change, str]:
    """Return the reason for each mutant that no test can kill."""
    data = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))
    return {
        (entry["module"], entry["function"], entry["line"], becomes): entry["reason"]
        for entry in data.get("equivalent", ())
        for becomes in entry["becomes"]
    }


def copies_of_repository(folder: Path, count: int) -> list[Path]:
    """Create copies to mutate, with only what the tests need, compiled to bytecode.

    The bytecode is older than any mutant, so Python uses it for all modules without a mutant.
    """
    first = folder / "0"
    for name in ("nmpsim", "tests", "docs"):
        shutil.copytree(ROOT / name, first / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / name, first)
    compileall.compile_dir(first, quiet=1)
    return [first, *(shutil.copytree(first, folder / str(n)) for n in range(1, count))]


def run_group(
    group: dict[str, Any], copies: list[Path], every: int
) -> list[tuple[MutationSpec, WorkResult]]:
    """Return the results of the group's mutants, distributed over the copies."""
    tests = [sys.executable, "-m", "pytest", *SETTINGS["pytest-options"], *group["tests"]]
    if "tables" in group:
        return run_tables(group["tables"], copies, every, tests)
    config = {
        "module-path": group["modules"],
        "timeout": SETTINGS["timeout"],
        "excluded-modules": [],
        "test-command": shlex.join(tests),
        "distributor": {"name": "local"},
    }
    for copy in copies:
        (copy / CONFIG).write_text(toml.dumps({"cosmic-ray": config}), encoding="utf-8")
    *others, last = copies
    wait_for(start(copies[0], "baseline", CONFIG), start(last, "init", "--force", CONFIG, SESSION))
    with use_db(last / SESSION) as session:
        skip_mutants(session, last, every)
    for copy in others:
        shutil.copy(last / SESSION, copy)
    for place, copy in enumerate(copies):
        with use_db(copy / SESSION) as session:
            pending = sorted(session.pending_work_items, key=get_place)
            skipped = [item.job_id for n, item in enumerate(pending) if n % len(copies) != place]
            session.set_multiple_results(skipped, SKIPPED)
    wait_for(*[start(copy, "exec", CONFIG, SESSION) for copy in copies])
    return [result for copy in copies for result in results_in(copy)]


def run_tables(
    tables: dict[str, str], copies: list[Path], every: int, tests: list[str]
) -> list[tuple[MutationSpec, WorkResult]]:
    """Return the results of the mutants of expressions in TOML tables."""
    copy, environment = copies[0], os.environ | make_environment(copies[0])
    subprocess.run(tests, cwd=copy, env=environment, stdout=subprocess.DEVNULL, check=True)
    left_out = re.compile("|".join(SETTINGS["exclude-operators"]))
    mutants = [
        mutant
        for path, pattern in tables.items()
        for mutant in find_mutants(path, (ROOT / path).read_text("utf-8"), pattern, left_out)
    ]
    return run_mutants(mutants[::every], copies, tests, environment, SETTINGS["timeout"])


def results_in(copy: Path) -> list[tuple[MutationSpec, WorkResult]]:
    """Return the results of the mutants that were tested in a copy."""
    with use_db(copy / SESSION) as session:
        return [
            (item.mutations[0], result)
            for item, result in session.completed_work_items
            if result.worker_outcome != WorkerOutcome.SKIPPED
        ]


def wait_for(*running: subprocess.Popen[bytes]) -> None:
    """Wait for all processes, and exit if one failed (for instance a test without a mutant)."""
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit("cosmic-ray failed: see above")


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start cosmic-ray in a copy without Numba's compiler and pytest's plugins."""
    command = [sys.executable, "-m", "cosmic_ray.cli", *arguments]
    return subprocess.Popen(command, cwd=folder, env=os.environ | make_environment(folder))


def make_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of tests in a copy of the repository."""
    return {
        "NUMBA_DISABLE_JIT": "1",
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(folder),
    }


def get_place(item: WorkItem) -> tuple[str, tuple[int, int], str, int]:
    """Return the sort key of a work item."""
    m = item.mutations[0]
    return str(m.module_path), m.start_pos, m.operator_name, m.occurrence


def skip_mutants(session: WorkDB, folder: Path, every: int) -> None:
    """Skip excluded and idle mutants, and all but one of ``every`` others."""
    left_out = re.compile("|".join(SETTINGS["exclude-operators"]))
    idle = {
        path: idle_positions((folder / path).read_text(encoding="utf-8"))
        for path in {item.mutations[0].module_path for item in session.work_items}
    }
    chosen = 0
    skipped = []
    for item in sorted(session.pending_work_items, key=get_place):
        mutation = item.mutations[0]
        if (
            left_out.match(mutation.operator_name)
            or mutation.start_pos in idle[mutation.module_path]
        ):
            skipped.append(item.job_id)
            continue
        if chosen % every:
            skipped.append(item.job_id)
        chosen += 1
    session.set_multiple_results(skipped, SKIPPED)


def idle_positions(source: str) -> set[tuple[int, int]]:
    """Return the positions of annotations and of decorators without effect."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        for decorator in getattr(node, "decorator_list", ()):
            if ast.unparse(decorator).split("(")[0] in SETTINGS["idle-decorators"]:
                found.add((decorator.lineno, decorator.col_offset - 1))
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            for inner in ast.walk(note) if note else ():
                if isinstance(inner, ast.expr):
                    columns = range(inner.col_offset, inner.end_col_offset or 0)
                    found |= {(inner.lineno, column) for column in columns}
    return found


def judge(
    results: list[tuple[MutationSpec, WorkResult]],
    known: dict[Change, str],
    modules: dict[str, list[int]],
) -> int:
    """Count mutants by module and outcome; return the number of wrong reasons."""
    wrong = 0
    for mutation, result in sorted(results, key=lambda r: (str(r[0].module_path), r[0].start_pos)):
        module, function = str(mutation.module_path), mutation.definition_name or ""
        before, after = changed_line(result.diff or "")
        is_known = (module, function, before, after) in known
        is_killed = result.test_outcome == TestOutcome.KILLED
        counts = modules.setdefault(module, [0, 0, 0])
        counts[0 if is_killed else 1 if is_known else 2] += 1
        if is_killed != is_known:
            continue
        wrong += is_known
        say = "is no equivalent: a test kills it" if is_known else "survives"
        print(f"{module}:{mutation.start_pos[0]} {function}: {say}\n  - {before}\n  + {after}")
    return wrong


def changed_line(diff: str) -> tuple[str, str]:
    """Return the removed and the added lines of a diff."""
    lines: dict[str, list[str]] = defaultdict(list)
    for line in diff.split("\n"):
        if not line.startswith(("---", "+++")):
            lines[line[:1]].append(line[1:].strip())
    return " ".join(lines["-"]).strip(), " ".join(lines["+"]).strip()


def report(modules: dict[str, list[int]]) -> float:
    """Print the table of results; return the share of killed among non-equivalent mutants."""
    share = 0.0
    rows = sorted(modules.items())
    rows.append(("all", [sum(counts) for counts in zip(*modules.values(), strict=True)]))
    print("\n| module | mutants | equivalent | killed | survived | share killed |")
    print("| --- | --- | --- | --- | --- | --- |")
    for module, (killed, equivalent, survived) in rows:
        share = killed / max(killed + survived, 1)
        mutants = killed + equivalent + survived
        print(f"| {module} | {mutants} | {equivalent} | {killed} | {survived} | {share:.1%} |")
    return share


if __name__ == "__main__":
    sys.exit(main())
