"""The pictures of the documentation's first page equal what their script draws."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
REMAKE = "pictures are outdated; run: python programs/gallery.py"


def stable_content(svg):
    """Return words without numbers and colours; fonts and versions change the rest."""
    tree = ElementTree.fromstring(svg)
    words = set(re.findall(r"\w+", " ".join(tree.itertext())))
    shades = {mark.get("fill") for mark in tree.iter() if mark.get("fill")}
    return {word for word in words if not re.search(r"\d", word)} | shades


def test_the_script_draws_the_pictures(tmp_path):
    script = runpy.run_path(str(ROOT / "programs" / "gallery.py"))
    script["main"](script["run_digits"](), tmp_path)
    for name in script["FIGURES"]:
        svg = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        drawn = (tmp_path / name).read_text(encoding="utf-8")
        assert stable_content(svg) == stable_content(drawn), REMAKE
        assert "url(http" not in svg and "<script" not in svg


def test_the_documentation_begins_with_them():
    head, _, _ = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("| you want")
    shown = re.findall(r"\]\((pictures/\w+\.svg)\)", head)
    assert shown == ["pictures/report.svg", "pictures/debugger.svg", "pictures/trace.svg"]
    assert all((ROOT / "docs" / name).is_file() for name in shown)
