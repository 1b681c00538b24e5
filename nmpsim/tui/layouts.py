"""Layouts of panes as data: rows of slots, each of which shows one of its panes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import attrs

from nmpsim.atomic import cannot_write, write_file
from nmpsim.diagnostics import Place, UserError, fail

PANE_IDS = ("layers", "source", "tensor", "satur", "code", "regs", "memory", "time", "log")
"""Panes in the order of the tabs."""
LEAST_COLUMNS, LEAST_ROWS = 12, 4
"""Minimum size of a slot; the border takes two columns and rows."""
SCREEN_COLUMNS, SCREEN_ROWS = 80, 24
"""Smallest screen on which nothing is cut off."""
Cells = tuple[int, int, int, int]
"""Column, row, width and height."""


@attrs.frozen
class Slot:
    """Part of a row that shows one of several panes."""

    width: int
    """Share of the row's columns."""
    panes: tuple[str, ...]
    """Panes of the slot; the first one is visible."""


@attrs.frozen
class Row:
    """Row of slots in a layout."""

    height: int
    """Share of the rows."""
    slots: tuple[Slot, ...]


@attrs.frozen
class PaneLayout:
    """Arrangement of all panes in rows of slots."""

    rows: tuple[Row, ...]

    @property
    def visible_panes(self) -> tuple[str, ...]:
        """Names of the visible panes, slot by slot."""
        return tuple(slot.panes[0] for row in self.rows for slot in row.slots)

    def compute_cells(self, columns: int, rows: int) -> dict[str, Cells]:
        """Return column, row, width and height of each visible pane on a screen of a given size."""
        found: dict[str, Cells] = {}
        tops = _edges([row.height for row in self.rows], rows)
        for row, (top, bottom) in zip(self.rows, pairwise(tops), strict=True):
            lefts = _edges([slot.width for slot in row.slots], columns)
            for slot, (left, right) in zip(row.slots, pairwise(lefts), strict=True):
                found[slot.panes[0]] = (left, top, right - left, bottom - top)
        return found

    def show(self, pane: str) -> PaneLayout:
        """Return the layout with a pane visible in its slot."""
        return self._with_slot(
            pane,
            lambda slot: [
                attrs.evolve(slot, panes=(pane, *(one for one in slot.panes if one != pane)))
            ],
        )

    def hide(self, pane: str) -> PaneLayout:
        """Return the layout without a pane: its slot shows another pane or is removed."""
        slot = self._slot(pane)
        if pane not in self.visible_panes:
            return self
        if len(slot.panes) > 1:
            return self.show(slot.panes[1])
        if len(self.visible_panes) == 1:
            return self
        less = self._with_slot(pane, lambda _: [])
        rows = tuple(row for row in less.rows if row.slots)
        at = self.visible_panes.index(pane)
        heir = self.visible_panes[at - 1 if at else 1]
        joined = PaneLayout(rows)
        return joined._with_slot(heir, lambda one: [attrs.evolve(one, panes=(*one.panes, pane))])

    def split(self, pane: str) -> PaneLayout:
        """Return the layout with a separate slot for a pane, beside its previous slot."""
        rows = []
        for row in self.rows:
            slots: list[Slot] = []
            for slot in row.slots:
                others = tuple(one for one in slot.panes if one != pane)
                if others and pane in slot.panes:
                    slots += [Slot(slot.width, others), Slot(slot.width, (pane,))]
                else:
                    slots.append(attrs.evolve(slot, width=2 * slot.width))
            rows.append(attrs.evolve(row, slots=tuple(slots)))
        return PaneLayout(tuple(rows))

    def resize(self, pane: str, columns: int, rows: int, size: tuple[int, int]) -> PaneLayout:
        """Return the layout with a pane enlarged by columns and rows taken from its neighbour."""
        places = self.compute_cells(*size)
        heights = [places[row.slots[0].panes[0]][3] for row in self.rows]
        at = next(i for i, row in enumerate(self.rows) if _slot_of(row, pane) is not None)
        heights = _moved(heights, at, rows, LEAST_ROWS)
        resized = []
        for index, row in enumerate(self.rows):
            widths = [places[slot.panes[0]][2] for slot in row.slots]
            if index == at:
                widths = _moved(widths, _slot_of(row, pane) or 0, columns, LEAST_COLUMNS)
            slots = zip(row.slots, widths, strict=True)
            wide = tuple(attrs.evolve(slot, width=max(width, 1)) for slot, width in slots)
            resized.append(Row(max(heights[index], 1), wide))
        return PaneLayout(tuple(resized))

    def _slot(self, pane: str) -> Slot:
        return next(slot for row in self.rows for slot in row.slots if pane in slot.panes)

    def _with_slot(self, pane: str, change: Callable[[Slot], Iterable[Slot]]) -> PaneLayout:
        """Return the layout with the slot of a pane replaced."""
        rows = []
        for row in self.rows:
            changed = [change(slot) if pane in slot.panes else [slot] for slot in row.slots]
            rows.append(attrs.evolve(row, slots=tuple(slot for part in changed for slot in part)))
        return PaneLayout(tuple(rows))


def _slot_of(row: Row, pane: str) -> int | None:
    return next((i for i, slot in enumerate(row.slots) if pane in slot.panes), None)


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


def _layout(heights: Sequence[int], widths: Sequence[Sequence[int]], panes: Any) -> PaneLayout:
    """Return a layout of row heights, slot widths, and pane names as words."""
    rows = []
    for height, row_widths, row_panes in zip(heights, widths, panes, strict=True):
        slots = zip(row_widths, row_panes, strict=True)
        rows.append(Row(height, tuple(Slot(width, tuple(ids.split())) for width, ids in slots)))
    return PaneLayout(tuple(rows))


STANDARD: Mapping[str, tuple[int, int, PaneLayout]] = {
    "80x24": (0, 0, _layout([1], [[1]], [[" ".join(PANE_IDS)]])),
    "80x40": (
        0, 36,
        _layout([2, 3], [[1], [1]],
                [["layers log source"], ["time tensor satur memory code regs"]]),
    ),
    "120x40": (
        110, 32,
        _layout([2, 3], [[1], [8, 7]],
                [["layers"], ["time source code memory", "tensor satur log regs"]]),
    ),
    "160x24": (
        150, 0,
        _layout([1], [[10, 6]], [["layers time source code memory", "tensor satur log regs"]]),
    ),
    "160x50": (
        150, 40,
        _layout([7, 7, 6], [[104, 56], [80, 40, 40], [44, 26, 46, 44]],
                [["layers", "tensor"], ["time", "source", "code"],
                 ["satur", "regs", "memory", "log"]]),
    ),
    "200x50": (
        190, 40,
        _layout([7, 7, 6], [[104, 46, 50], [104, 46, 50], [56, 52, 92]],
                [["layers", "source", "tensor"], ["time", "code", "log"],
                 ["satur", "regs", "memory"]]),
    ),
}  # fmt: skip
"""Name -> minimum columns and rows of the screen, and the layout."""


def choose_layout(columns: int, rows: int) -> str:
    """Return the name of the largest standard layout that fits a screen."""
    return [name for name, (least, low, _) in STANDARD.items() if columns >= least and rows >= low][
        -1
    ]


def describe_size_problem(columns: int, rows: int) -> str:
    """Return a warning if a screen is too small, otherwise an empty text."""
    if columns >= SCREEN_COLUMNS and rows >= SCREEN_ROWS:
        return ""
    return f"{columns}x{rows} is too small: {SCREEN_COLUMNS}x{SCREEN_ROWS} needed"


# --- the file ---------------------------------------------------------------------------------

HEADER = """\
# Layouts of the debugger's screen, by size: a height for each row, a width for each slot and
# its panes, of which the first is in sight. The key L writes this file.
"""


def save_layouts(path: Path, layouts: Mapping[str, PaneLayout]) -> None:
    """Write layouts to a file, by the names of the standard layouts that they replace.

    Raises :class:`~nmpsim.diagnostics.UserError` (FILE002).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error), None) from error
    text = HEADER + "".join(_section(name, layout) for name, layout in layouts.items())
    write_file(path, lambda file: file.write(text.encode()))


def _section(name: str, layout: PaneLayout) -> str:
    heights = [row.height for row in layout.rows]
    widths = [[slot.width for slot in row.slots] for row in layout.rows]
    panes = ",\n  ".join(
        "[" + ", ".join(f'"{" ".join(slot.panes)}"' for slot in row.slots) + "]"
        for row in layout.rows
    )
    return f'\n["{name}"]\nheights = {heights}\nwidths = {widths}\npanes = [\n  {panes},\n]\n'


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
    return {name: _checked(path, name, entry) for name, entry in document.items()}


def _checked(path: Path, name: str, entry: Any) -> PaneLayout:
    if name not in STANDARD:
        raise _unusable(path, f'["{name}"]', f"one of {', '.join(STANDARD)}")
    try:
        layout = _layout(entry["heights"], entry["widths"], entry["panes"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        expected = "equal numbers of heights, widths and panes"
        raise _unusable(path, f'["{name}"]', expected) from error
    shares = [row.height for row in layout.rows]
    shares += [slot.width for row in layout.rows for slot in row.slots]
    if not shares or any(type(one) is not int or not 0 < one <= 100_000 for one in shares):
        raise _unusable(path, f'["{name}"]', "heights and widths from 1 to 100,000")
    slots = [slot.panes for row in layout.rows for slot in row.slots]
    is_whole = all(row.slots for row in layout.rows) and all(slots)
    if not is_whole or sorted(pane for panes in slots for pane in panes) != sorted(PANE_IDS):
        raise _unusable(path, f'["{name}"]', f"each pane once: {', '.join(PANE_IDS)}")
    return layout


def _unusable(path: Path, found: str, expected: str | None = None) -> UserError:
    return fail(
        "FILE001", "the layout file is invalid", place=Place(str(path)), found=found,
        expected=expected, hint="Delete the file, or press L to save the layouts again.",
    )  # fmt: skip
