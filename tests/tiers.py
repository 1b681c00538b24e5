"""Reduce matrices of cases and random examples for the README's test command.

This module imports nothing of nmpsim, because ``conftest.py`` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings

SHARE = 4
"""One of so many random examples is tried where slow tests are left out."""
FOLDER = "NMPSIM_TEST_CORPUS"
"""Environment variable with the session's folder of compiled programs."""
run = {"slow": False}
"""Whether slow tests run, too; ``conftest.py`` sets it before tests are collected."""

Factors = Callable[[Any], tuple[Hashable, ...]]


def pairwise(
    cases: Iterable[Any], factors: Factors = lambda case: case, *, together: int = 2
) -> list[ParameterSet]:
    """Return all cases for ``parametrize``; those that add no new pair of values are slow.

    A case is a tuple of arguments, or one argument that ``factors`` divides into its values.
    """
    cases = list(cases)
    covered = {
        place: set(combinations(enumerate(factors(case)), together))
        for place, case in enumerate(cases)
    }
    missing = set().union(*covered.values())
    chosen = set()
    while missing:
        # max() takes the first of equals, so the choice is the same each time.
        best = max(covered, key=lambda place: len(covered[place] & missing))
        chosen.add(best)
        missing -= covered[best]
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if place in chosen else pytest.mark.slow,
        )
        for place, case in enumerate(cases)
    ]


def each_value(cases: Iterable[Any], factors: Factors = lambda case: case) -> list[ParameterSet]:
    """Return all cases; those that add no new value are slow."""
    return pairwise(cases, factors, together=1)


def program_parts(name: str) -> tuple[str, ...]:
    """Return network, precision and flavour of a recorded program's path."""
    return tuple(name.removesuffix(".lir.txt").split("/")[-3:])


def program_and_networks_settings(case: tuple[Any, ...]) -> tuple[Hashable, ...]:
    """Return the program, and its network with the settings: of (program, setting, ...)."""
    name, *settings = case
    return name, (program_parts(name)[0], *settings)


def get_share(parts: int) -> int:
    """Return 1 where slow tests run, or else ``parts``: of so many cases one is tried."""
    return 1 if run["slow"] else parts


def examples(count: int, **more: Any) -> settings:
    """Return Hypothesis's settings for so many examples; see ``SHARE``."""
    return settings(
        max_examples=-(-count // get_share(SHARE)), suppress_health_check=list(HealthCheck), **more
    )


def tiling() -> dict[str, str]:
    """Return options of the compiler for tests of values: no search without slow tests.

    The search takes two thirds of the time of a compilation, and has tests of its own.
    """
    return {} if run["slow"] else {"tiling": "simple"}


def parts_and_settings(case: tuple[Any, ...]) -> tuple[Hashable, ...]:
    """Return the parts of the program's path, and its network with the settings."""
    return *program_parts(case[0]), program_and_networks_settings(case)[1]
