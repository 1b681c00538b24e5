"""Count the words of documentation pages that people write by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

GENERATED_PAGES = {"isa.md", "operations.md", "schemas.md"}
"""Pages that a command prints from the tables of the code."""
GENERATED_TABLES = {
    "report.md": ("| field | meaning |",),
    "device-file.md": ("| section | key | default | allowed | meaning |",),
    "errors.md": ("| code | meaning |",),
    "numerics.md": ("| `--numerics` |", "| vectors | cases | elements |", "| what differs |"),
    "gdb.md": ("| packet | effect |",),
    "mutation.md": ("| module | tried | equivalent | killed | survived |",),
}
"""Header rows, by page, of tables that tests compare with the code or recorded vectors."""
GENERATED_PARTS = (
    ("<!-- limits -->", "<!-- end of limits -->"),
    ("<!-- speed -->", "<!-- end of speed -->"),
)
"""Marks around other generated parts."""
FORMULA_PAGE = "numerics.md"
"""Page whose Python blocks are an oracle that tests run."""


def handwritten_text(page: Path) -> str:
    """Return the text of a page without its generated parts.

    Tables that tests compare with the code, and the formulas of ``numerics.md``, are left out.
    """
    if page.name in GENERATED_PAGES:
        return ""
    text = page.read_text(encoding="utf-8")
    if page.name == FORMULA_PAGE:
        text = re.sub(r"^```python\n.*?^```\n", "", text, flags=re.M | re.S)
    for begin, end in GENERATED_PARTS:
        text = re.sub(re.escape(begin) + ".*?" + re.escape(end), "", text, flags=re.S)
    headers = GENERATED_TABLES.get(page.name, ())
    return "".join(_without_tables(text, headers))


def count_words(text: str) -> int:
    """Return the number of words, not counting the marks of tables and headings."""
    return len(re.findall(r"\S*\w\S*", text))


def _without_tables(text: str, headers: tuple[str, ...]) -> Iterator[str]:
    is_inside = False
    for line in text.splitlines(keepends=True):
        is_inside = line.startswith("|") and (is_inside or line.startswith(headers))
        if not is_inside:
            yield line


if __name__ == "__main__":
    documentation = Path(__file__).parents[2] / "docs"
    counts = {
        page.relative_to(documentation): count_words(handwritten_text(page))
        for page in sorted(documentation.rglob("*.md"))
    }
    for name, words in counts.items():
        print(f"{words:6}  {name}")
    print(f"{sum(counts.values()):6}  all")
