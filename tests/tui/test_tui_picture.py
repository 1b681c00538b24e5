"""The picture of the screen in the README is made by a script, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "debugger.svg"


def words(svg: str) -> set[str]:
    return set(re.findall(r"[a-z]\w+", "".join(ElementTree.fromstring(svg).itertext())))


def test_the_script_makes_the_picture(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "programs" / "tui_picture.py"))
    script["main"](tmp_path / "made.svg")
    made, kept = (path.read_text(encoding="utf-8") for path in (tmp_path / "made.svg", PICTURE))
    assert {"conv2__2", "convolution", "equal", "vector"} <= words(made)
    assert words(made) == words(kept)
    assert "url(http" not in kept and "@import" not in kept and "<script" not in kept


def test_the_readme_shows_it() -> None:
    assert f"({PICTURE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text()
