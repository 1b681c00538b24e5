"""The picture of the screen in the README is made by a script, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

from nmpsim.tui.key_bindings import KEY_COMMANDS
from nmpsim.tui.panes import PANES

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "debugger.svg"


REMAKE = f"the screen looks different now: python programs/tui_picture.py makes {PICTURE.name} anew"


def words(svg: str) -> set[str]:
    return set(re.findall(r"\w+", "".join(ElementTree.fromstring(svg).itertext())))


def stable_words(svg: str) -> set[str]:
    """Return words without addresses and counts, which depend on the compiler."""
    return {word for word in words(svg) if not re.search(r"\d", word)}


def test_the_script_draws_the_picture(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "programs" / "tui_picture.py"))
    script["main"](tmp_path / "made.svg")
    titles = {kind.title.split()[0] for _, kind in PANES}
    labels = {move.label for move in KEY_COMMANDS if move.label}
    for picture in (tmp_path / "made.svg", PICTURE):
        svg = picture.read_text(encoding="utf-8")
        assert titles | labels | {"conv2__2", "reference", "equal", "vector"} <= words(svg)
        assert stable_words(svg) == stable_words((tmp_path / "made.svg").read_text("utf-8")), REMAKE
        assert "url(http" not in svg and "@import" not in svg and "<script" not in svg


def test_the_readme_shows_it() -> None:
    assert f"({PICTURE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text()
