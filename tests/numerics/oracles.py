"""Formulas of docs/numerics.md as functions that use NumPy but not the simulator.

The page is the one place where they stand; a traceback shows the page's own lines.
"""

import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"
_EXAMPLES = "\n## Worked examples\n"


def code_blocks(first: int, last: int) -> str:
    """Return the Python code of a part of the page with the page's line numbers."""
    text = PAGE.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        if first <= match.start() < last:
            number = text.count("\n", 0, match.start(1))
            block = match[1].splitlines()
            lines[number : number + len(block)] = block
    return "\n".join(lines)


def _formulas() -> ModuleType:
    module = ModuleType("formulas_of_the_page")
    source = code_blocks(0, examples_start())
    exec(compile(source, str(PAGE), "exec"), module.__dict__)
    return module


def examples_start() -> int:
    """Return the position where the worked examples begin."""
    return PAGE.read_text(encoding="utf-8").index(_EXAMPLES)


page = _formulas()
"""Namespace of all functions of the page."""
