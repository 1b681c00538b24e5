"""Figures as still pictures, and the JavaScript that makes them live: both of vl-convert."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from urllib.parse import quote

from nmpsim.views.html.figures import Figure

_MAX_LINES = 400_000
"""Characters of a drawing of lines; of a longer one, dots are tried."""
_PATH = re.compile(r'<path d="([^"]*)"((?: [a-z-]+="[^"]*")*)/>')
_TAG = re.compile(r"<[^>]*>")
_UNSEEN = re.compile(r' (?:class|role|aria-[a-z]+|pointer-events)="[^"]*"| opacity="1"')
_PATHS = re.compile(f"(?:{_PATH.pattern})+")
_LONG_FRACTION = re.compile(r"(\.\d)\d+")
_AS_THEY_ARE = " !$()*+,-./:;=?@[]^_{|}~"
"""Of an SVG's characters, those that an address in double quotes may hold."""


def still(figure: Figure) -> str:
    """The address of what an ``img`` shows before, or without, JavaScript; and on paper."""
    import vl_convert

    # Words for those who hear a page are in the img; here each mark would repeat them.
    config = {**figure.spec["config"], "aria": False}
    spec = json.dumps({**figure.spec, "config": config})
    svg = quote(_small(vl_convert.vegalite_to_svg(spec)), safe=_AS_THEY_ARE)
    lines = f"data:image/svg+xml,{svg}"
    if len(lines) <= _MAX_LINES:
        return lines
    png = base64.b64encode(vl_convert.vegalite_to_png(spec)).decode()
    return min(lines, f"data:image/png;base64,{png}", key=len)


def _small(svg: str) -> str:
    """The same picture to a tenth of a pixel, neighbours that look alike in one path.

    Bars and cells do not overlap, so this holds for those that shine through too; dots, which may,
    have a transform and stay separate.
    """
    svg = _TAG.sub(lambda tag: _UNSEEN.sub("", tag[0]), svg)
    return _PATHS.sub(lambda run: "".join(_joined(run[0])), svg)


def _joined(paths: str) -> Iterator[str]:
    found = [(match[2], _LONG_FRACTION.sub(r"\1", match[1])) for match in _PATH.finditer(paths)]
    for look, same in groupby(found, lambda one: one[0]):
        line = "".join(line for _, line in same)
        yield f'<path d="{line}"{look}/>'


def packed(text: str) -> str:
    """The text as gzip in base64: a quarter of its size, unpacked when a reader looks at it."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed, for a page of their own, packed; it defines ``vegaEmbed``."""
    import vl_convert

    return packed(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
