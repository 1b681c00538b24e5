"""Colours that colour-blind people can tell apart, and a symbol next to each of them.

The colours are those of Okabe and Ito, "Color Universal Design" (2008). Nothing is said by colour
alone: ``NO_COLOR`` takes it away and everything is still there.
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
"""Unit -> its colour in the time line; its name stands next to each row."""


@attrs.frozen
class Glyphs:
    """The symbols of the screen, each one column wide."""

    next: str
    """Next to what is done next."""
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
    """From nothing to full."""
    bar: str
    now: str
    """Where time stands."""


PYTHONS_OWN = "C.UTF-8"
"""What Python sets ``LC_CTYPE`` to where the locale is C."""
UNICODE = Glyphs("▶", "✓", "·", "●", "▲", "▼", "=", "≠", " ░▒▓█", "█", "│")
ASCII = Glyphs(">", "+", ".", "*", "^", "v", "=", "#", " .:%#", "#", "|")


def is_ascii_terminal(environ: Mapping[str, str]) -> bool:
    """Is the user's terminal one without Unicode? Python itself takes the C locale for UTF-8."""
    if environ.get("TERM", "").startswith("vt"):
        return True
    chosen = environ.get("LC_ALL") or environ.get("LANG", "")
    has_other = not environ.get("LC_ALL") and environ.get("LC_CTYPE", PYTHONS_OWN) != PYTHONS_OWN
    return chosen in ("C", "POSIX") and not has_other


def glyphs_for(encoding: str | None) -> Glyphs:
    """Those that a terminal of this encoding can show."""
    try:
        "".join(attrs.astuple(UNICODE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


HEAT_LEVELS = 16
_COLD, _HOT = (0x00, 0x20, 0x4D), (0xFF, 0xEA, 0x46)
"""The ends of cividis, a scale that looks the same with any kind of colour vision."""


@cache
def _level_style(level: int) -> str:
    share = level / (HEAT_LEVELS - 1)
    mixed = (round(c + (h - c) * share) for c, h in zip(_COLD, _HOT, strict=True))
    ink = "white" if share < 0.5 else "black"
    return f"{ink} on #" + "".join(f"{part:02x}" for part in mixed)


def heat_style(share: float) -> str:
    """Colours of a cell whose value is at ``share`` of the range, 0 to 1."""
    return _level_style(round(share * (HEAT_LEVELS - 1)))
