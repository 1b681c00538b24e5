"""Find names, docstrings, messages and help texts that break docs/writing.md.

``python tests/architecture/plain_style.py`` prints each place; ``test_plain_style.py`` runs the
checks. ruff checks the form of docstrings.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from syntax_trees import list_nodes, parse_file

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nmpsim"
MODULE_NAMES = re.compile(
    r"account|again|ahead|ahead_process|alone|answers|apart|asked|bodies|children|choices"
    r"|collect|compiling|ended|exact|folded|here|kept|kept_weights|later|look|made|pick|real"
    r"|seen|several|shown|total|told|trapped|visible|whole"
)
"""Adverbs, participles and pronouns that were names of modules or folders."""
CLASS_NAMES = re.compile(
    r"Account|Again|Alone|Answers|Apart|AtHand|Awaited|Culprit|Doer|Draughtsman|Fate|Found"
    r"|Given|Held|Imported|Kept|Made|Nature|Noted|Numbers|OneRun|Places|Reached|Repeats|Rest"
    r"|Seen|Shown|Spent|Taker|Wanted|Wishes"
)
FUNCTION_NAMES = re.compile(
    r"_?(say|tell|told|note|put|take_back|way_of|room|room_words|alike|made|kept)(_\w+)?"
)
DOCSTRING_STARTS = re.compile(r"(What|Of|That|Those|Who|Whose|Where|It|As it)\b")
"""First words of fragments; a docstring begins with a verb or a noun."""
HELP_LENGTH = 100
"""Characters of an option's help, which is one line."""


EXPECTED_POSITION = {"Diagnostic": 5, "fail": 100}
"""Number of positional arguments that include ``expected``; ``fail`` takes it by keyword."""


def find_module_names() -> Iterator[str]:
    """Yield modules and folders whose names are banned."""
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*/")]):
        if MODULE_NAMES.fullmatch(path.stem) and "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT))


def find_definitions() -> Iterator[str]:
    """Yield classes and functions whose names are banned."""
    for path, node in _nodes():
        is_class = isinstance(node, ast.ClassDef)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (is_class and CLASS_NAMES.fullmatch(node.name.lstrip("_"))) or (
            is_function and FUNCTION_NAMES.fullmatch(node.name)
        ):
            yield f"{_place(path, node)} {node.name}"


def find_repeated_class_names() -> Iterator[str]:
    """Yield public classes of the same name in different modules; nested ones have a scope."""
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in parse_file(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(_place(path, node))
    for name, found in places.items():
        if len(found) > 1:
            yield f"{name}: {', '.join(found)}"


def find_docstrings() -> Iterator[str]:
    """Yield docstrings, also those of fields, that begin like a fragment."""
    for path, node in _nodes():
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        text = node.value.value if is_text else None
        if isinstance(text, str) and DOCSTRING_STARTS.match(text.lstrip()):
            yield f"{_place(path, node)} {text.strip().splitlines()[0]}"


def find_long_help() -> Iterator[str]:
    """Yield options of commands whose help is longer than a line."""
    from nmpsim.cli.app import COMMANDS, app

    for name in COMMANDS:
        for parameter in app.get_command(None, name).params:
            text = getattr(parameter, "help", None) or ""
            if len(text) > HELP_LENGTH:
                yield f"nmpsim {name} {parameter.opts[0]}: {len(text)} characters"


def find_messages_without_solution() -> Iterator[str]:
    """Yield errors for users that give neither an expected value nor a hint."""
    for path, node in _nodes():
        if lacks_solution(node):
            yield _place(path, node)


def lacks_solution(node: ast.AST) -> bool:
    """Return whether a node calls ``fail`` or ``Diagnostic`` without ``expected`` or ``hint``.

    Methods such as click's ``fail`` report a wrong usage, which click explains itself.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id not in ("fail", "Diagnostic"):
        return False
    is_positional = len(node.args) >= EXPECTED_POSITION[node.func.id]
    keywords = {keyword.arg for keyword in node.keywords}
    return not is_positional and not keywords & {"expected", "hint"}


CHECKS = {
    "banned names of modules": find_module_names,
    "banned names of classes and functions": find_definitions,
    "classes with the same name": find_repeated_class_names,
    "docstrings that are fragments": find_docstrings,
    "help longer than a line": find_long_help,
    "messages without an expected value or a hint": find_messages_without_solution,
}


@functools.cache
def _nodes() -> list[tuple[Path, ast.AST]]:
    kinds = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.Expr
    return [
        (path, node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in list_nodes(path)
        if isinstance(node, kinds)
    ]


def _place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def main() -> None:
    """Print all places and the number of places per check."""
    counts = {}
    for title, find in CHECKS.items():
        places = list(find())
        counts[title] = len(places)
        print(f"== {title}", *places, sep="\n")
    print(*(f"{count:5}  {title}" for title, count in counts.items()), sep="\n")


if __name__ == "__main__":
    main()
