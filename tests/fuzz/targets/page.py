"""HTML pages of reports, which must contain only their own elements whatever the names are."""

from __future__ import annotations

import hashlib
from functools import cache
from html.parser import HTMLParser

from nmpsim.views.html import draw, make_html_page

from ..mutate import mutate_json_bytes
from ..target import CORPUS, Target, allow_errors
from . import report

HARMLESS = ("one-conv.json", "digits.json")
DRAWN_OF = 64
"""Number of pages of which one has figures, since those take a thousand times as long."""
_RENDER_IMAGE = draw.render_image


class _Elements(HTMLParser):
    """Parser that collects the element names, attributes and addresses of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {v or "" for name, v in attrs if name in ("src", "href")}


def parse_elements(page: str) -> _Elements:
    """Return the elements of a page."""
    parser = _Elements()
    parser.feed(page)
    parser.close()
    return parser


@cache
def get_harmless_elements() -> _Elements:
    """Return the elements of the pages of harmless reports."""
    found = _Elements()
    for name in HARMLESS:
        seed = (CORPUS / "report" / name).read_bytes()
        for names in (("a",), ("a", "b")):
            one = parse_elements(make_html_page(dict.fromkeys(names, report.read(seed))))
            found.names |= one.names
            found.attributes |= one.attributes
    return found


def run(data: bytes) -> None:
    """Render a page of a report and one that compares it with itself; check their elements."""
    is_drawn = hashlib.sha1(data).digest()[0] % DRAWN_OF == 0
    draw.render_image = _RENDER_IMAGE if is_drawn else lambda _: "data:,"
    try:
        with allow_errors("REPORT", "FILE001", "DEV"):
            one = report.read(data)
            for runs in ({"a": one}, {"a": one, "<b>": one}):
                made = parse_elements(make_html_page(runs))
                # A stopped run's page has what no harmless one has.
                assert made.names <= get_harmless_elements().names | {"strong", "p", "code"}, (
                    made.names
                )
                assert made.attributes <= get_harmless_elements().attributes, made.attributes
                assert all(a.startswith(("data:", "#")) for a in made.addresses), made.addresses
    finally:
        draw.render_image = _RENDER_IMAGE


TARGET = Target(run, report.seeds, mutate_json_bytes, seconds=30, most_bytes=1 << 17)
