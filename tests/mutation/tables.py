"""Mutants of the expressions in TOML tables: cosmic-ray itself mutates only Python files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult

Mutant = tuple[MutationSpec, str]
"""Mutation and the text of the mutated table."""


def find_mutants(path: str, source: str, pattern: str, left_out: re.Pattern[str]) -> list[Mutant]:
    """Return the mutants of a table, with one changed operator or number each.

    Parameters
    ----------
    path : str
        Path of the table in the repository.
    source : str
        Text of the table.
    pattern : str
        Regular expression whose first group is an expression.
    left_out : re.Pattern
        Pattern of the names of operators that are left out.
    """
    return [
        (MutationSpec(path, name, number, *positions), f"{source[:start]}{changed}{source[end:]}")
        for match in re.finditer(pattern, source, re.MULTILINE)
        for start, end in [match.span(1)]
        for positions in [(_get_position(source, start), _get_position(source, end))]
        for name in operator_names()
        if not left_out.match(name)
        for number, changed in enumerate(_mutate(match[1], name))
    ]


def _mutate(expression: str, name: str) -> Iterator[str]:
    """Yield the expression with each occurrence of an operator's target changed."""
    operator = get_operator(name)
    if not operator.arguments():  # others replace variables that settings must name
        changes = (mutate_code(expression, operator(), number) for number in count())
        yield from takewhile(lambda changed: changed is not None, changes)


def _get_position(source: str, at: int) -> tuple[int, int]:
    """Return the line, from 1, and the column of a character."""
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at) - 1


def run_mutants(
    mutants: Sequence[Mutant],
    copies: Sequence[Path],
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
) -> list[tuple[MutationSpec, WorkResult]]:
    """Run the tests for each mutant of tables, in the copies of the repository in parallel."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def run(mutant: Mutant) -> tuple[MutationSpec, WorkResult]:
        mutation, text = mutant
        copy = free.get()
        path = copy / mutation.module_path
        source = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        try:
            folder = {"PYTHONPATH": str(copy)}
            done = subprocess.run(
                command, cwd=copy, env={**environment, **folder}, capture_output=True,
                timeout=timeout, check=False,
            )  # fmt: skip
            outcome = TestOutcome.KILLED if done.returncode else TestOutcome.SURVIVED
        except subprocess.TimeoutExpired:
            outcome = TestOutcome.KILLED
        finally:
            path.write_text(source, encoding="utf-8")
            free.put(copy)
        lines = zip(source.split("\n"), text.split("\n"), strict=True)
        diff = "\n".join(f"-{before}\n+{after}" for before, after in lines if before != after)
        return mutation, WorkResult(WorkerOutcome.NORMAL, None, outcome, diff)

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(run, mutants))
