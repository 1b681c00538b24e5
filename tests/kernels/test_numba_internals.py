"""Test that one package uses Numba's private names and works without each of them."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba_without_names import (
    INTERNALS,
    MODULES,
    ROOT,
    is_private,
    list_private_names,
)

compiled_only = pytest.mark.skipif(
    numba.config.DISABLE_JIT, reason="without its compiler no name of Numba's matters"
)


def find_private_uses(path: Path) -> list[str]:
    """Return the undocumented names of Numba that a module imports or accesses."""
    found: list[str] = []
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "numba" in text else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            inside = node.module == "numba" and [n for n in names if is_hidden(n)]
            found += names if is_private(node.module) else inside or []
        elif isinstance(node, ast.Attribute) and is_hidden(ast.unparse(node)):
            found.append(ast.unparse(node))
    return found


def is_hidden(name: str) -> bool:
    """Return whether a name is in ``numba.core`` or begins with a single underscore."""
    return re.match(r"numba\.(core\b|_(?!_))", name) is not None


def test_one_package_has_all_private_names() -> None:
    found = {path: find_private_uses(path) for path in (ROOT / "nmpsim").rglob("*.py")}
    assert {path.parent for path, names in found.items() if names} == {INTERNALS}


@pytest.mark.parametrize(
    "line",
    [
        "import numba.core.types",
        "from numba.core import types",
        "from numba import core",
        "from numba import _dynfunc",
        "numba.core.types.Type",
    ],
)
def test_a_private_use_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(line)
    assert find_private_uses(path)


def test_this_numba_has_every_name() -> None:
    from nmpsim.kernels.numba_internals import MISSING

    assert MISSING == []


def run_child(*words: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EACH = """
from numba_without_names import *
for module in MODULES:
    for name in list_private_names(module):
        with without(*name):
            missing = import_again().MISSING
        assert module in missing, name
assert import_again().MISSING == []
"""


def test_a_missing_name_is_noticed_when_it_would_be_imported(tmp_path: Path) -> None:
    assert len([name for module in MODULES for name in list_private_names(module)]) > 30
    run_child("-c", EACH, cache=tmp_path)


@functools.cache
def run_without_modules(cache: Path, *modules: str) -> str:
    return run_child("numba_without_names.py", *modules, cache=cache)


@pytest.mark.slow
@compiled_only
@pytest.mark.parametrize("missing", [*((module,) for module in MODULES), MODULES], ids="-".join)
def test_kernels_give_the_same_without_private_names(
    missing: tuple[str, ...], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    usual = run_without_modules(tmp_path_factory.getbasetemp())
    assert run_without_modules(tmp_path, *missing) == usual
    assert bool(list(tmp_path.rglob("*.kernel"))) == ("object_files" not in missing)
