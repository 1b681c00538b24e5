"""Colors for color-blind users, and a symbol next to each of them.

The colors are those of Okabe and Ito, "Color Universal Design" (2008). Nothing is conveyed by color
alone: with ``NO_COLOR`` everything is still visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import attrs
from textual.theme import Theme

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

THEME = Theme(
    name="nmpsim",
    primary=SKY,
    secondary=BLUE,
    warning=ORANGE,
    error=VERMILION,
    success=GREEN,
    accent=YELLOW,
    foreground="#E8E8E8",
    background="#101418",
    surface="#161C22",
    panel="#222B33",
    dark=True,
)

UNIT_COLORS = {"load": SKY, "store": ORANGE, "mac": GREEN, "vector": PURPLE, "dram": YELLOW}
"""Unit -> color in the time line, where its name is shown as well."""


@attrs.frozen
class Glyphs:
    """Glyphs of the screen: symbols that are one column wide."""

    next: str
    """Mark of what is executed next."""
    done: str
    pending: str
    breakpoint: str
    over: str
    """Saturated at the upper end."""
    under: str
    """Saturated at the lower end."""
    equal: str
    differs: str
    shades: str
    """Shades from empty to full."""
    bar: str
    now: str
    """Mark of the current time."""


PYTHON_DEFAULT_LOCALE = "C.UTF-8"
"""Value of ``LC_CTYPE`` that Python sets if the locale is C."""
UNICODE = Glyphs("▶", "✓", "·", "●", "▲", "▼", "=", "≠", " ░▒▓█", "█", "│")
ASCII = Glyphs(">", "+", ".", "*", "^", "v", "=", "#", " .:%#", "#", "|")


def is_ascii_terminal(environ: Mapping[str, str]) -> bool:
    """Return whether the environment variables indicate a terminal without Unicode."""
    if environ.get("TERM", "").startswith("vt"):
        return True
    chosen = environ.get("LC_ALL") or environ.get("LANG", "")
    has_other = (
        not environ.get("LC_ALL")
        and environ.get("LC_CTYPE", PYTHON_DEFAULT_LOCALE) != PYTHON_DEFAULT_LOCALE
    )
    return chosen in ("C", "POSIX") and not has_other


def choose_glyphs(encoding: str | None) -> Glyphs:
    """Return the Unicode symbols, or the ASCII symbols if the encoding lacks some of them."""
    try:
        "".join(attrs.astuple(UNICODE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


HEAT_LEVELS = 16
_COLD, _HOT = (0x00, 0x20, 0x4D), (0xFF, 0xEA, 0x46)
"""Ends of cividis, a color scale that looks the same with any color vision."""


@cache
def _level_style(level: int) -> str:
    share = level / (HEAT_LEVELS - 1)
    mixed = (round(c + (h - c) * share) for c, h in zip(_COLD, _HOT, strict=True))
    ink = "white" if share < 0.5 else "black"
    return f"{ink} on #" + "".join(f"{part:02x}" for part in mixed)


def get_heat_style(share: float) -> str:
    """Return the style of a heat map cell for a relative value ``share`` from 0 to 1."""
    return _level_style(round(share * (HEAT_LEVELS - 1)))
