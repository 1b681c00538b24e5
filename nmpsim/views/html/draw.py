"""Rendering of figures as images, and the JavaScript for interactive ones, by vl-convert."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from nmpsim.atomic import write_file
from nmpsim.views.html.figures import Figure

_MAX_SVG_BYTES = 400_000
"""Longest SVG image in characters; a longer one is compared with a PNG."""
_PATH = re.compile(r'<path d="([^"]*)"((?: [a-z-]+="[^"]*")*)/>')
_TAG = re.compile(r"<[^>]*>")
_UNSEEN = re.compile(r' (?:class|role|aria-[a-z]+|pointer-events)="[^"]*"| opacity="1"')
_PATHS = re.compile(f"(?:{_PATH.pattern})+")
_LONG_FRACTION = re.compile(r"(\.\d)\d+")
_UNQUOTED = " !$()*+,-./:;=?@[]^_{|}~"
"""Characters of an SVG that a URL in double quotes may contain."""


def render_image(figure: Figure) -> str:
    """Render a figure as an SVG or PNG image and return its data URL."""
    import vl_convert

    # Screen readers use the text of the img element.
    config = {**figure.spec["config"], "aria": False}
    spec = json.dumps({**figure.spec, "config": config})
    svg = quote(_shrink(vl_convert.vegalite_to_svg(spec)), safe=_UNQUOTED)
    lines = f"data:image/svg+xml,{svg}"
    if len(lines) <= _MAX_SVG_BYTES:
        return lines
    png = base64.b64encode(vl_convert.vegalite_to_png(spec)).decode()
    return min(lines, f"data:image/png;base64,{png}", key=len)


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure with its title and text as SVG or PNG, by the suffix of the path."""
    import vl_convert

    title = {"text": figure.title, "subtitle": figure.text.splitlines()}
    spec = json.dumps({**figure.spec, "title": title})
    is_png = path.suffix.lower() == ".png"
    draw = vl_convert.vegalite_to_png if is_png else vl_convert.vegalite_to_svg
    write_file(path, draw(spec))


def _shrink(svg: str) -> str:
    """Shrink an SVG: round to a tenth of a pixel, and join adjacent paths of equal style.

    Joined bars and cells do not overlap; dots, which may, have a transform and stay separate.
    """
    svg = _TAG.sub(lambda tag: _UNSEEN.sub("", tag[0]), svg)
    return _PATHS.sub(lambda run: "".join(_joined(run[0])), svg)


def _joined(paths: str) -> Iterator[str]:
    found = [(match[2], _LONG_FRACTION.sub(r"\1", match[1])) for match in _PATH.finditer(paths)]
    for look, same in groupby(found, lambda one: one[0]):
        line = "".join(line for _, line in same)
        yield f'<path d="{line}"{look}/>'


def compress_text(text: str) -> str:
    """Compress a text by gzip and encode the result in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def make_vega_script() -> str:
    """Return a script with Vega, Vega-Lite and Vega-Embed, compressed and in base64."""
    import vl_convert

    return compress_text(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
