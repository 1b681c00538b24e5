"""Figures as still pictures, and the JavaScript that makes them live: both of vl-convert."""

from __future__ import annotations

import base64
import json
from functools import cache

from nmpsim.views.html.figures import Figure


def still(figure: Figure) -> str:
    """The address of what an ``img`` shows before, or without, JavaScript; and on paper."""
    import vl_convert

    spec = json.dumps(figure.spec)
    if figure.is_large:
        return _address("image/png", vl_convert.vegalite_to_png(spec))
    return _address("image/svg+xml", vl_convert.vegalite_to_svg(spec).encode())


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed, for a page of their own; it defines ``vegaEmbed``."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
