"""Names of test modules: outside packages, modules are imported by their bare names.

Two of one name work or fail by which one was imported first, which under pytest-xdist is luck.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
EVERYWHERE = {"conftest", "__main__"}
"""Names that may repeat: pytest loads conftest by its path, Python runs __main__ by package."""


def bare_names() -> dict[str, list[str]]:
    """Return the files outside packages for each module name."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        if path.stem not in EVERYWHERE and not (path.parent / "__init__.py").exists():
            files[path.stem].append(path.relative_to(TESTS).as_posix())
    return files


def test_module_names_are_unique() -> None:
    assert "oracles" in bare_names(), "it looks where modules are"
    assert {name: files for name, files in bare_names().items() if len(files) > 1} == {}


def test_no_module_hides_another_module() -> None:
    assert set(bare_names()).isdisjoint({*sys.stdlib_module_names, "nmpsim", "tests"})
