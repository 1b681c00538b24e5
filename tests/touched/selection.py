"""Select the test files for a change by the imports of the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

MOST_ELSEWHERE = 12
"""Maximum number of test files of other packages for one changed module."""
FOLDERS = {
    "docs/": ("docs", "project"),
    "README.md": ("docs", "project"),
    "nmpsim/nmp.toml": ("config", "docs", "timing"),
    "nmpsim/schemas/": ("report", "docs"),
    "programs/": ("programs",),
}
"""Folders of tests/ by the first part of the path of other files."""


class Imports:
    """Import graph of the sources, with lazy imports and module names in strings."""

    def __init__(self, root: Path) -> None:
        sources = [path for top in ("nmpsim", "tests") for path in (root / top).rglob("*.py")]
        names = sorted(path.relative_to(root).as_posix() for path in sources)
        modules = {
            n.removesuffix(".py").removesuffix("/__init__").replace("/", "."): n for n in names
        }
        # Tests import helpers by their bare names.
        modules |= {PurePosixPath(n).stem: n for n in names if n.startswith("tests/")}
        self.tests = [n for n in names if PurePosixPath(n).name.startswith("test_")]
        self.imported = {
            name: {modules[found] for found in _names(ast.parse((root / name).read_text("utf-8")))
                   if found in modules} - {name}
            for name in names
        }  # fmt: skip

    def reach(self, first: str, through: str = "") -> set[str]:
        """Return files that a file imports directly or through files below ``through``."""
        found, pending = {first}, [first]
        while pending:
            new = self.imported.get(pending.pop(), set()) - found
            found |= new
            pending += [name for name in new if name.startswith(through)]
        return found

    def tests_in(self, folder: str) -> set[str]:
        return {test for test in self.tests if test.startswith(f"tests/{folder}/")}


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a source that may be modules."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        pending += ast.iter_child_nodes(node)


def select(changed: Iterable[str], root: Path) -> list[str]:
    """Return the test files for changed files; all are paths in the repository."""
    imports = Imports(root)
    return sorted({test for name in changed for test in _find_tests(name, imports)})


def _find_tests(name: str, imports: Imports) -> set[str]:
    top, _, inner = name.partition("/")
    if top == "nmpsim" and name in imports.imported:
        return _tests_of_module(name, imports)
    if top == "tests" and name in imports.imported and not name.endswith("/conftest.py"):
        return {test for test in imports.tests if name in imports.reach(test, "tests/")}
    for start, folders in FOLDERS.items():
        if name.startswith(start):
            return {test for folder in folders for test in imports.tests_in(folder)}
    if top in ("nmpsim", "tests") and "/" in inner:
        return _closest_tests(PurePosixPath(inner).parent, imports)
    return imports.tests_in("project")


def _tests_of_module(name: str, imports: Imports) -> set[str]:
    """Return the package's tests that reach the module, and the closest other tests."""
    package = _closest_tests(PurePosixPath(name).relative_to("nmpsim").with_suffix(""), imports)
    own = {test for test in package if name in imports.reach(test)} or package
    named = {test: imports.reach(test, "tests/") for test in imports.tests}
    elsewhere = [test for test in imports.tests if test not in own and name in named[test]]
    # A test that imports little is about what it imports.
    elsewhere.sort(key=lambda test: (len(named[test]), test))
    return own | set(elsewhere[:MOST_ELSEWHERE])


def _closest_tests(path: PurePosixPath, imports: Imports) -> set[str]:
    """Return the tests of the deepest tests/ folder that matches a path in nmpsim/."""
    folders = (imports.tests_in(folder.as_posix()) for folder in (path, *path.parents[:-1]))
    return next((tests for tests in folders if tests), set())
