"""Print a random sample of public names for a reader's test: ``python -m tests.reading --seed 1``.

A reader who does not know the code states for each name what it does and returns, and whether the
wording is clear, and then compares with the code. Each line has module, name, signature and the
first line of the docstring.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "nmpsim"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(body: list[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    """Yield the qualified names of public classes, functions and methods."""
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            for name, inner in public_definitions(node.body):
                yield f"{node.name}.{name}", inner


def signature(node: Definition) -> str:
    """Return a function's parameters and result as written, or a class's bases."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"({bases})" if bases else ""
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({ast.unparse(node.args)}){result}"


def describe(path: Path, name: str, node: Definition) -> str:
    """Return what a reader is shown of a definition."""
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    kind = "class" if isinstance(node, ast.ClassDef) else "def"
    summary = (ast.get_docstring(node) or "(no docstring)").splitlines()[0]
    return f"{module}\n    {kind} {name}{signature(node)}\n    {summary}"


def sample(seed: int, count: int, folder: Path = PACKAGE) -> list[str]:
    """Return ``count`` random descriptions of public names below ``folder``."""
    descriptions = [
        describe(path, name, node)
        for path in sorted(folder.rglob("*.py"))
        for name, node in public_definitions(ast.parse(path.read_text("utf-8")).body)
    ]
    return random.Random(seed).sample(descriptions, min(count, len(descriptions)))


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(prog="python -m tests.reading", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("folder", type=Path, nargs="?", default=PACKAGE)
    options = parser.parse_args()
    for number, text in enumerate(sample(options.seed, options.count, options.folder), 1):
        print(f"{number}. {text}")


if __name__ == "__main__":
    main()
