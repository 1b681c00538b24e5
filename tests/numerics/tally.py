"""Count compared values, and check the counts in the table of docs/numerics.md."""

import re

import numpy as np
from oracles import PAGE


class Tally:
    """Counter of compared cases and elements for each row of the page's table."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def assert_equal(self, row: str, result: object, expected: object, name: object = "") -> None:
        """Assert that a case has no differing element, and count it in a row of the table."""
        np.testing.assert_array_equal(result, expected, err_msg=f"{row} {name}")
        counts = self._counts.setdefault(row, [0, 0])
        counts[0] += 1
        counts[1] += np.size(expected)

    def assert_matches_page(self) -> None:
        """Assert that the page's table contains every counted row with its numbers."""
        table = read_page_counts()
        said = {row: table.get(row) for row in self._counts}
        assert said == {row: tuple(counts) for row, counts in self._counts.items()}


def read_page_counts() -> dict[str, tuple[int, int]]:
    """Return the cases and elements of each row of the page's table."""
    text = PAGE.read_text(encoding="utf-8").split("\n## What was compared\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| ([\d,]+) \| ([\d,]+) \|", text, re.M)
    return {row: (int(a.replace(",", "")), int(b.replace(",", ""))) for row, a, b in rows}
