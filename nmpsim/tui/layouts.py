"""Layouts of panes as data: rows of slots, each of which shows one of its panes.

``layouts.toml`` contains the standard layouts; a file of the user replaces some of them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import attrs

from nmpsim.atomic import make_write_error, write_file
from nmpsim.diagnostics import UserError, fail, list_alternatives

PANE_IDS = ("layers", "source", "tensor", "satur", "code", "regs", "memory", "time", "log")
"""Panes in the order of the tabs."""
LEAST_COLUMNS, LEAST_ROWS = 12, 4
"""Minimum size of a slot; the border takes two columns and rows."""
SCREEN_COLUMNS, SCREEN_ROWS = 80, 24
"""Smallest screen on which nothing is cut off."""
Cells = tuple[int, int, int, int]
"""Column, row, width and height."""


@attrs.frozen
class PaneLayout:
    """Layout that arranges all panes in rows of slots; each slot shows one of its panes."""

    heights: list[int]
    """Share of the screen's rows, for each row."""
    widths: list[list[int]]
    """Share of the row's columns, for each slot of each row."""
    panes: list[list[str]]
    """Names of the panes of each slot, separated by spaces; the first one is visible."""

    @property
    def visible_panes(self) -> tuple[str, ...]:
        """Names of the visible panes, slot by slot."""
        return tuple(slot.split()[0] for row in self.panes for slot in row)

    def compute_cells(self, columns: int, rows: int) -> dict[str, Cells]:
        """Compute column, row, width and height of each visible pane in cells, by pane name."""
        places = [
            (left, top, right - left, bottom - top)
            for widths, (top, bottom) in zip(
                self.widths, pairwise(_edges(self.heights, rows)), strict=True
            )
            for left, right in pairwise(_edges(widths, columns))
        ]
        return dict(zip(self.visible_panes, places, strict=True))

    def show_pane(self, pane: str) -> PaneLayout:
        """Return the layout with a pane visible in its slot."""
        row, slot, others = self._find(pane)
        shown = deepcopy(self)
        shown.panes[row][slot] = " ".join([pane, *others])
        return shown

    def hide_pane(self, pane: str) -> PaneLayout:
        """Return the layout with a pane hidden; the slot shows another pane or is removed."""
        row, slot, others = self._find(pane)
        if pane not in self.visible_panes:
            return self
        if others:
            return self.show_pane(others[0])
        if len(self.visible_panes) == 1:
            return self
        at = self.visible_panes.index(pane)
        heir = self.visible_panes[at - 1 if at else 1]
        less = deepcopy(self)
        del less.panes[row][slot], less.widths[row][slot]
        if not less.panes[row]:
            del less.panes[row], less.widths[row], less.heights[row]
        row, slot, _ = less._find(heir)
        less.panes[row][slot] += f" {pane}"
        return less

    def split_slot(self, pane: str) -> PaneLayout:
        """Return the layout with a pane moved out of a shared slot into a new slot beside it."""
        row, slot, others = self._find(pane)
        if not others:
            return self
        more = deepcopy(self)
        width = self.widths[row][slot]
        more.widths[row] = [2 * one for one in self.widths[row]]
        more.widths[row][slot : slot + 1] = [width, width]
        more.panes[row][slot : slot + 1] = [" ".join(others), pane]
        return more

    def resize_pane(self, pane: str, columns: int, rows: int, size: tuple[int, int]) -> PaneLayout:
        """Return the layout with a pane enlarged by columns and rows and its neighbours reduced."""
        places = self.compute_cells(*size)
        shown = [[places[slot.split()[0]] for slot in row] for row in self.panes]
        row, slot, _ = self._find(pane)
        widths = [[width for _, _, width, _ in cells] for cells in shown]
        widths[row] = _moved(widths[row], slot, columns, LEAST_COLUMNS)
        heights = _moved([cells[0][3] for cells in shown], row, rows, LEAST_ROWS)
        wide = [[max(width, 1) for width in row_widths] for row_widths in widths]
        return PaneLayout([max(height, 1) for height in heights], wide, self.panes)

    def _find(self, pane: str) -> tuple[int, int, list[str]]:
        """Return the row and the slot of a pane, and the other panes of the slot."""
        for number, row in enumerate(self.panes):
            for slot, words in enumerate(row):
                if pane in words.split():
                    return number, slot, [one for one in words.split() if one != pane]
        raise KeyError(pane)


def _edges(shares: Sequence[int], cells: int) -> list[int]:
    """Return where parts begin, and where the last one ends."""
    total = sum(shares)
    return [cells * part // total for part in accumulate(shares, initial=0)]


def _moved(sizes: Sequence[int], at: int, cells: int, least: int) -> list[int]:
    """Return sizes after moving cells to one part from its neighbour."""
    other = at + 1 if at + 1 < len(sizes) else at - 1
    moved = list(sizes)
    if other >= 0 and sizes[at] + cells >= least and sizes[other] - cells >= least:
        moved[at] += cells
        moved[other] -= cells
    return moved


_DOCUMENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LEAST_SIZES: Mapping[str, tuple[int, int]] = {
    name: tuple(entry.pop("least")) for name, entry in _DOCUMENT.items()
}
"""Name of a standard layout -> minimum columns and rows of the screen."""
STANDARD: Mapping[str, PaneLayout] = {
    name: PaneLayout(**entry) for name, entry in _DOCUMENT.items()
}
"""Name of a standard layout -> layout."""


def choose_layout(columns: int, rows: int) -> str:
    """Return the name of the largest standard layout that fits a screen."""
    fitting = [name for name, (x, y) in LEAST_SIZES.items() if columns >= x and rows >= y]
    return fitting[-1]


def describe_size_problem(columns: int, rows: int) -> str:
    """Return a warning if a screen is too small, otherwise ""."""
    if columns >= SCREEN_COLUMNS and rows >= SCREEN_ROWS:
        return ""
    return f"{columns}x{rows} is too small: {SCREEN_COLUMNS}x{SCREEN_ROWS} needed"


# --- the file of the user ---------------------------------------------------------------------

HEADER = """\
# Layouts of the debugger's screen, by size: a height for each row, a width for each slot and
# its panes, of which the first is in sight. The key L writes this file.
"""


def save_layouts(path: Path, layouts: Mapping[str, PaneLayout]) -> None:
    """Save layouts in a TOML file; keys are names of the standard layouts that they replace.

    Raises :class:`~nmpsim.diagnostics.UserError` (FILE002).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_write_error(path, error.strerror or str(error), None) from error
    text = HEADER
    for name, layout in layouts.items():
        text += f'\n["{name}"]\n'
        for key, value in attrs.asdict(layout).items():
            text += f"{key} = {json.dumps(value)}\n"  # an array is the same in TOML and JSON
    write_file(path, text)


def load_layouts(path: Path) -> dict[str, PaneLayout]:
    """Read layouts from a file; return an empty dictionary if there is no file.

    Raises :class:`~nmpsim.diagnostics.UserError` (FILE001) for invalid layouts.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    return {name: _parse(path, name, entry) for name, entry in document.items()}


def _parse(path: Path, name: str, entry: Any) -> PaneLayout:
    """Return the layout of a section. Raises UserError (FILE001) if it is invalid."""
    section = f'section ["{name}"]'
    if name not in STANDARD:
        raise _unusable(path, section, f"a section {list_alternatives(STANDARD)}", section)
    try:
        layout = PaneLayout(**entry)
        shares = [*layout.heights, *(width for row in layout.widths for width in row)]
        slots = [slot.split() for row in layout.panes for slot in row]
        is_consistent = [list(map(len, layout.panes)), len(layout.heights)] == [
            list(map(len, layout.widths)),
            len(layout.panes),
        ]
    except (TypeError, AttributeError):
        is_consistent = False
    if not is_consistent:
        raise _unusable(path, str(entry), "as many heights and widths as panes", section)
    if not shares or any(type(one) is not int or not 0 < one <= 100_000 for one in shares):
        expected = "heights and widths from 1 to 100,000"
        raise _unusable(path, f"heights and widths {shares}", expected, section)
    is_complete = all(layout.panes) and all(slots)
    if not is_complete or sorted(pane for slot in slots for pane in slot) != sorted(PANE_IDS):
        expected = f"each pane once: {', '.join(PANE_IDS)}"
        raise _unusable(path, f"panes {layout.panes}", expected, section)
    return layout


def _unusable(
    path: Path, found: str, expected: str | None = None, section: str | None = None
) -> UserError:
    return fail(
        "FILE001",
        "the layout file is invalid" + (f" in {section}" if section else ""),
        place=path,
        found=found,
        expected=expected,
        hint="Delete the file, or press L to save the layouts again.",
    )
