"""Test that mutation settings and the list of equivalent mutants match the code."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def list_modules(group: dict[str, Any]) -> list[str]:
    """Return the modules and the tables of a group."""
    return [*group.get("modules", ()), *group.get("tables", ())]


def read_lines(module: str) -> list[str]:
    return [line.strip() for line in (ROOT / module).read_text(encoding="utf-8").splitlines()]


def test_modules_and_tests_exist() -> None:
    for group in read("settings.toml")["groups"].values():
        assert list_modules(group) and group["tests"]
        for path in (*list_modules(group), *group["tests"]):
            assert (ROOT / path).exists(), path


def test_a_table_has_expressions() -> None:
    for group in read("settings.toml")["groups"].values():
        for path, pattern in group.get("tables", {}).items():
            found = re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
            assert found and [ast.parse(one, mode="eval") for one in found]


@pytest.mark.parametrize("entry", read("equivalent.toml")["equivalent"])
def test_an_equivalent_mutant_refers_to_a_line_of_code(entry: dict[str, Any]) -> None:
    assert entry["reason"].endswith(".")
    assert entry["line"] in read_lines(entry["module"])
    assert entry["becomes"] and entry["line"] not in entry["becomes"]


def test_the_page_has_every_module() -> None:
    page = (ROOT / "docs" / "mutation.md").read_text(encoding="utf-8")
    for group in read("settings.toml")["groups"].values():
        for module in list_modules(group):
            assert f"| {module} |" in page
