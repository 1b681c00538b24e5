"""Count the code of each package of nmpsim.

    python benchmarks/size.py [--format json] [FOLDER]

Prints code tokens, lines and files of each package below FOLDER (default: this checkout's nmpsim/).
A code token is a name, number, operator or string of Python's tokenizer. Comments, docstrings, line
breaks and indentation do not count, so joining or splitting lines changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

DEFAULT = Path(__file__).parents[1] / "nmpsim"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_tokens(text: str) -> int:
    """Return the number of code tokens of a Python source text."""
    docstrings = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    return sum(
        token.type not in LAYOUT
        and not (token.type == tokenize.STRING and token.start in docstrings)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def sizes(folder: Path) -> dict[str, Counter[str]]:
    """Return tokens, lines and files by package; modules outside a package count as ``.``."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        first, *inner = path.relative_to(folder).parts
        text = path.read_text(encoding="utf-8")
        counts = {"tokens": code_tokens(text), "lines": text.count("\n"), "files": 1}
        found.setdefault(first if inner else ".", Counter()).update(counts)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count the code of each package of nmpsim.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"no folder {given.folder}")
    found = sizes(given.folder)
    found["total"] = sum(found.values(), Counter())
    if given.format == "json":
        print(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    print(f"{'package':<{width}}  {'tokens':>9}  {'lines':>9}  {'files':>6}")
    for name, one in found.items():
        print(f"{name:<{width}}  {one['tokens']:>9,}  {one['lines']:>9,}  {one['files']:>6,}")


if __name__ == "__main__":
    main()
