"""Test the direction of imports, and that imports have no side effects."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from syntax_trees import list_nodes, parse_file

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nmpsim"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})


def find_imports(path: Path) -> Iterator[str]:
    """Yield the modules of nmpsim that a module imports, also in functions and for types."""
    for node in list_nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name whole modules"
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [part if part in MODULES else str(node.module) for part in parts]
        else:
            continue
        yield from (name for name in names if name in MODULES)


def find_cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of at least two nodes (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        open_.append(node)
        for other in arrows[node]:
            if other not in order:
                visit(other)
            if other in open_:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            start = open_.index(node)
            group, open_[start:] = open_[start:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in arrows:
        if node not in order:
            visit(node)
    return found


def test_modules_import_each_other_in_one_direction() -> None:
    """``nmpsim`` itself stands apart: it imports all that it offers, when it is asked for it."""
    arrows = {
        name: {other for other in find_imports(path) if other != "nmpsim"} - {name}
        for name, path in MODULES.items()
        if name != "nmpsim"
    }
    assert find_cycles(arrows) == []


def test_import_cycles_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert find_cycles(arrows) == [["b", "c"]]


@pytest.mark.parametrize("name", ["core.engine", "experiments.pool", "debugger.commands.context"])
def test_interfaces_do_not_import_implementations(name: str) -> None:
    """So that one of them can be imported, and tested, alone."""
    module = f"nmpsim.{name}"
    family = module.rpartition(".")[0]
    behind = {
        other
        for other, path in MODULES.items()
        if other.startswith(family) and module in set(find_imports(path))
    }
    assert behind
    assert behind.isdisjoint(find_imports(MODULES[module]))


def test_every_folder_of_modules_is_a_package() -> None:
    """What import-linter does not see, it does not hold."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported."""
    for statement in body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.For | ast.While | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from top_level(getattr(statement, part, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from top_level(handler.body)


CHECKS = frozenset({"check_exhaustive", "check_profiles", "_check"})
"""Functions that compare two tables and either raise an error or do nothing."""


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module assigns at its top level."""
    made = set()
    for statement in top_level(tree.body):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        made |= {target.id for target in targets if isinstance(target, ast.Name)}
    return made


def find_effects(tree: ast.Module) -> Iterator[str]:
    """Yield the effects of importing a module on other modules."""
    own = own_names(tree)
    for statement in top_level(tree.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called = statement.value.func
            if not (isinstance(called, ast.Name) and called.id in CHECKS):
                yield f"line {statement.lineno}: calls {ast.unparse(called)}"
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                root = target.value
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                if not (isinstance(root, ast.Name) and root.id in own):
                    yield f"line {statement.lineno}: sets {ast.unparse(target)}"


FILLS = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


def find_registrars(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of a module that fill its tables."""
    own = own_names(tree)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            filled = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                filled = node.func.value if node.func.attr in FILLS else None
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                filled = node.value
            if isinstance(filled, ast.Name) and filled.id in own:
                yield function.name


def list_decorators(tree: ast.Module) -> set[str]:
    """Return the last names of all decorators of a module."""
    return {
        ast.unparse(decorator).partition("(")[0].rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for decorator in node.decorator_list
    }


def test_importing_a_module_changes_no_other() -> None:
    found = {name: list(find_effects(parse_file(path))) for name, path in MODULES.items()}
    assert {name: what for name, what in found.items() if what} == {}


def test_no_decorator_fills_a_table() -> None:
    used = set().union(*(list_decorators(parse_file(path)) for path in MODULES.values()))
    filling = {
        name: used.intersection(find_registrars(parse_file(path))) for name, path in MODULES.items()
    }
    assert {name: what for name, what in filling.items() if what} == {}


def test_no_import_has_side_effects() -> None:
    """But for what ``with require_extra`` asks: whether a package is there."""
    found = {}
    for name, path in MODULES.items():
        asked = {
            inner.lineno
            for node in list_nodes(path)
            if isinstance(node, ast.With) and "require_extra(" in ast.unparse(node.items[0])
            for inner in node.body
        }
        lines = path.read_text(encoding="utf-8").splitlines()
        unused = {n for n, line in enumerate(lines, 1) if "noqa: F401" in line} - asked
        if unused:
            found[name] = sorted(unused)
    assert found == {}


def test_table_filling_decorators_are_found() -> None:
    lines = (
        "T = {}",
        "T['a'] = 1",
        "os.environ['x'] = '1'",
        "other.add(f)",
        "def known(f):\n    T[f.__name__] = f",
        "@known\ndef f(): 0",
    )
    tree = ast.parse("\n".join(lines))
    found = [one.partition(": ")[2] for one in find_effects(tree)]
    assert found == ["sets os.environ['x']", "calls other.add"]
    assert list_decorators(tree).intersection(find_registrars(tree)) == {"known"}


def test_the_environment_is_read_in_cli_only() -> None:
    found = {
        name: sorted(
            node.lineno
            for node in list_nodes(path)
            if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
            or (isinstance(node, ast.alias) and node.name in ENVIRONMENT)
        )
        for name, path in MODULES.items()
        if not name.startswith("nmpsim.cli")
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
