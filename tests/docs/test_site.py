"""Test that the documentation site builds without warnings, is complete, and loads nothing."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import nmpsim
from nmpsim.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Elements whose address a browser loads; ``link`` depends on its purpose."""


class Links(HTMLParser):
    """Parser that collects links, loaded files and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.targets.append(values["href"])
        elif tag in FETCHED and values.get(FETCHED[tag]):
            self.fetched.append(values[FETCHED[tag]])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.fetched.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site and return its folder; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    found = sorted(site.rglob("*.html"))
    return {path: Links(path.read_text(encoding="utf-8")) for path in found}


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site, pages):
    sources = [p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")]
    assert {site / source.with_suffix(".html") for source in sources} <= set(pages)
    home = pages[site / "index.html"]
    named = {urlsplit(target).path for target in home.targets}
    assert {str(source.with_suffix(".html")) for source in sources} <= named


@pytest.mark.slow
def test_links_have_targets(site, pages):
    for page, links in pages.items():
        if page.name == "404.html":  # its links are absolute: it is shown in place of any page
            continue
        for target in [*links.targets, *links.fetched]:
            parts = urlsplit(target)
            if parts.scheme or target.startswith(("//", "/")):
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            assert path.is_file(), f"{page.name} leads to {target}"
            if parts.fragment and path in pages:
                assert unquote(parts.fragment) in pages[path].ids, f"{page.name}: {target}"


@pytest.mark.slow
def test_the_site_loads_no_foreign_files(site, pages):
    assert [one for links in pages.values() for one in links.fetched if "//" in one] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(@import|url\()[\s\"']*(https?:)?//", styles)


@pytest.mark.slow
def test_the_reference_has_every_command_and_every_public_name(site):
    commands = (site / "cli.html").read_text(encoding="utf-8")
    assert all(f"Usage: nmpsim {name} " in commands for name in COMMANDS)
    api = Links((site / "api.html").read_text(encoding="utf-8"))
    for name in nmpsim.__all__:
        if not name.startswith("_"):
            assert any(one.endswith(f".{name}") for one in api.ids), name


@pytest.mark.slow
def test_search_ranks_guides_before_settings(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    boosts = {entry["location"]: entry.get("boost", 1) for entry in index["docs"]}
    assert boosts["run.html"] > boosts["tiling.html"] > boosts["device-file.html"]


def test_files_of_guides_exist():
    for page in sorted((ROOT / "docs" / "howto").glob("add-*.md")):
        named = re.findall(r"`((?:nmpsim|tests)/[\w./]+)`", page.read_text(encoding="utf-8"))
        assert len(named) > 2, page.name
        missing = [name for name in named if not (ROOT / name).exists()]
        assert missing == [], page.name
