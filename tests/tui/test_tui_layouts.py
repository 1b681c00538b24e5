"""Where panes are: on every screen, after they are moved, in a file and out of it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from screen import Start, User

from nmpsim.diagnostics import UserError
from nmpsim.tui.app import DebugApp
from nmpsim.tui.layouts import (
    PANE_IDS,
    STANDARD,
    PaneLayout,
    choose_layout,
    describe_size_problem,
    load_layouts,
    save_layouts,
)
from nmpsim.tui.panes import PANES
from nmpsim.tui.theme import UNICODE

SIZES = [(80, 24), (80, 50), (120, 40), (160, 24), (160, 50), (200, 50)]


def panes(layout: PaneLayout) -> list[str]:
    return sorted(pane for row in layout.panes for slot in row for pane in slot.split())


def test_layouts_name_the_panes() -> None:
    assert tuple(name.lower() for name, _ in PANES) == PANE_IDS
    for layout in STANDARD.values():
        assert panes(layout) == sorted(PANE_IDS)


@pytest.mark.parametrize(
    ("size", "name", "visible_panes"),
    [((80, 24), "80x24", 1), ((20, 5), "80x24", 1), ((80, 50), "80x40", 2),
     ((120, 40), "120x40", 3), ((160, 24), "160x24", 2),
     ((160, 50), "160x50", 9), ((200, 50), "200x50", 9)],
)  # fmt: skip
def test_each_size_has_a_layout(size: tuple[int, int], name: str, visible_panes: int) -> None:
    assert choose_layout(*size) == name
    assert len(STANDARD[name].visible_panes) == visible_panes


def list_cells(layout: PaneLayout, columns: int, rows: int) -> list[tuple[int, int]]:
    return sorted(
        (x, y)
        for left, top, width, height in layout.compute_cells(columns, rows).values()
        for x in range(left, left + width)
        for y in range(top, top + height)
    )


@pytest.mark.parametrize("size", SIZES)
def test_panes_fill_the_screen(size: tuple[int, int]) -> None:
    columns, rows = size
    everything = sorted((x, y) for x in range(columns) for y in range(rows))
    layout = STANDARD[choose_layout(*size)]
    for pane in PANE_IDS:
        for changed in (
            layout.show_pane(pane),
            layout.hide_pane(pane),
            layout.split_slot(pane),
            layout.resize_pane(pane, 4, -2, size),
            layout.hide_pane(pane).split_slot(pane).resize_pane(pane, -4, 2, size),
        ):
            assert panes(changed) == sorted(PANE_IDS)
            assert list_cells(changed, columns, rows) == everything
        assert pane in layout.split_slot(pane).visible_panes
        assert pane in layout.show_pane(pane).visible_panes
        assert pane not in layout.hide_pane(pane).visible_panes


def test_panes_are_resized_within_limits() -> None:
    layout, size = STANDARD["200x50"], (200, 46)
    before = layout.compute_cells(*size)["tensor"]
    wider = layout.resize_pane("tensor", 4, 2, size).compute_cells(*size)["tensor"]
    assert (wider[2], wider[3]) == (before[2] + 4, before[3] + 2)
    for _ in range(50):
        layout = layout.resize_pane("tensor", 4, 2, size)
    assert all(
        width >= 12 and height >= 4 for *_, width, height in layout.compute_cells(*size).values()
    )


def test_layouts_are_saved_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a folder" / "layout.toml"
    assert load_layouts(file) == {}
    layouts = {name: one.split_slot("log").hide_pane("time") for name, one in STANDARD.items()}
    save_layouts(file, layouts)
    assert load_layouts(file) == layouts


ONE = 'heights = [1]\nwidths = [[1]]\npanes = [["' + " ".join(PANE_IDS) + '"]]'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "at end of document"),
        ("\xff", "decode"),
        ('["90x90"]\n' + ONE, "section 80x24"),
        ('["80x24"]\n' + ONE.replace("log", "logs"), "each pane once"),
        ('["80x24"]\n' + ONE.replace("[1]", "[0]", 1), "from 1 to"),
        ('["80x24"]\n' + ONE.replace("[1]", "[true]", 1), "from 1 to"),
        ('["80x24"]\n' + ONE.replace("[1]", "[1, 2]", 1), "as many heights and widths as panes"),
        ('["80x24"]\nheights = 1', "as many heights and widths as panes"),
        ('"80x24" = 1', "as many heights and widths as panes"),
        ('["80x24"]\nheights = []\nwidths = []\npanes = []', "from 1 to"),
        ('["80x24"]\nheights = [1, 1]\nwidths = [[], [1]]\npanes = [[], [""]]', "each pane once"),
    ],
)
def test_an_unusable_file_is_reported(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "layout.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=words) as error:
        load_layouts(file)
    assert error.value.diagnostics[0].code == "FILE001"


def test_a_too_small_screen_shows_a_message() -> None:
    assert describe_size_problem(80, 24) == ""
    assert describe_size_problem(79, 24) == "79x24 is too small: 80x24 needed"


def drive_sizes(start: Start, file: Path) -> DebugApp:
    """Drive one app by keys on a screen whose size changes."""

    async def run() -> DebugApp:
        app = DebugApp(start(), UNICODE, file)
        async with app.run_test(size=(120, 40)) as pilot:
            user = User(app, pilot)
            await user.settle()
            await play(user)
        return app

    async def play(user: User) -> None:
        def visible_panes() -> list[str]:
            return [str(pane.id) for pane in user.app.panes if pane.display]

        assert any("the layout file is invalid" in one.plain for one in user.app.panes[-1].texts)
        assert visible_panes() == ["layers", "tensor", "time"]
        await user.press("4")
        assert visible_panes() == ["layers", "satur", "time"]
        await user.press("B")
        assert visible_panes() == ["layers", "tensor", "satur", "time"]
        before = user.app.active_pane.outer_size
        await user.press("left_curly_bracket", "right_parenthesis")
        assert user.app.active_pane.outer_size.width == before.width - 4
        await user.press("right_curly_bracket", "right_parenthesis")
        now = user.app.active_pane.outer_size
        assert now.height > before.height
        await user.press("H")
        assert visible_panes() == ["layers", "tensor", "time"]
        await user.press("1", "H")
        assert visible_panes() == ["tensor", "time"] and user.app.active_pane.display
        await user.press("L")
        for size in SIZES:
            await user.pilot.resize_terminal(*size)
            await user.press("n")
            assert user.app.active_pane.display and user.app.focused is user.app.active_pane
        assert len(visible_panes()) == len(PANES)
        await user.pilot.resize_terminal(70, 20)
        assert "70x20 is too small: 80x24 needed" in await user.press("1")
        await user.pilot.resize_terminal(120, 40)
        await user.press("0")
        assert "is too small" not in user.text() and len(visible_panes()) == 3

    return asyncio.run(run())


def test_panes_are_moved_by_keys(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "layout.toml"
    file.write_text("not TOML")
    drive_sizes(start, file)
    kept = load_layouts(file)
    assert list(kept) == ["120x40"] and "layers" not in kept["120x40"].visible_panes

    async def again() -> None:
        app = DebugApp(start(), UNICODE, file)
        async with app.run_test(size=(120, 40)):
            shown = {str(pane.id) for pane in app.panes if pane.display}
            assert shown == set(kept["120x40"].visible_panes) and app.active_pane.display

    asyncio.run(again())
