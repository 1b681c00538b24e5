"""Plots of the error of a rescaling, as text or as a figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmpsim.analysis.explain import (
    ErrorBand,
    Factor,
)
from nmpsim.diagnostics import fail, list_alternatives
from nmpsim.extras import require_extra
from nmpsim.views.html.figures import Figure, make_figure

ROWS = 13
"""Lines of the text plot; odd, so that one is at 0."""
_LABEL = 9
"""Width of the labels in characters."""
FIGURE_PARTS = 1200
"""Number of parts of the input range in a figure."""
TEXT_PARTS = 100
"""Most columns of the text plot."""
FORMATS = (".svg", ".png")


def draw_text_plot(band: ErrorBand, width: int, *, blocks: bool) -> Iterator[str]:
    """Draw an error band over the input as text, and yield the lines of the plot."""
    columns = max(min(width - _LABEL - 1, len(band.low)), 1)
    starts = np.arange(columns) * len(band.low) // columns
    low, high = np.minimum.reduceat(band.low, starts), np.maximum.reduceat(band.high, starts)
    top = max(float(np.abs(low).max()), float(np.abs(high).max()), 0.5)
    middle = ROWS // 2
    mark = "█" if blocks else "#"
    upper, lower = (np.rint(-end / top * middle).astype(int) + middle for end in (high, low))
    for row in range(ROWS):
        label = f"{top * (middle - row) / middle:+.3g}" if row % (middle // 2) == 0 else ""
        blank = "-" if row == middle else " "
        cells = (mark if u <= row <= w else blank for u, w in zip(upper, lower, strict=True))
        yield f"{label:>{_LABEL - 1}} |{''.join(cells)}"
    ends = f"{band.edges[0]}", f"{band.edges[-1] - 1}"
    yield f"{'':{_LABEL}}{ends[0]}{ends[1]:>{max(columns + 1 - len(ends[0]), len(ends[1]) + 1)}}"


def check_figure_path(path: Path) -> None:
    """Raise UserError if a figure's suffix is not supported or vl-convert-python is missing.

    Raises
    ------
    UserError
        ARG001 for another kind of file, PKG001 if vl-convert-python is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise fail(
            "ARG001",
            "unknown format for --plot",
            place=path,
            found=f"the suffix {path.suffix}" if path.suffix else "no suffix",
            expected=list_alternatives(FORMATS),
            hint="Pass a file such as plot.svg.",
        )
    require_plots()


def require_plots() -> None:
    """Raise UserError (PKG001) if the package that renders figures is missing."""
    with require_extra("plot", "figures need vl-convert-python", instead="omit --plot"):
        import vl_convert  # noqa: F401 - whether it is there


def make_error_figure(factor: Factor, band: ErrorBand) -> Figure:
    """Return a figure of an error band over the input."""
    form = factor.integer
    centres = (band.edges[:-1] + band.edges[1:] - 1) / 2
    columns = (centres.tolist(), band.low.tolist(), band.high.tolist())
    return make_figure(
        "error_band",
        f"{factor.real:.9g} as pre {form.pre}, post {form.post}, scale {form.mul}",
        "",
        [{"input": x, "low": low, "high": high} for x, low, high in zip(*columns, strict=True)],
    )
