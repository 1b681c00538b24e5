"""Plots of the error of a rescaling, as text or as a figure by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from nmpsim.analysis.explain import ErrorBand, Factor
from nmpsim.atomic import write_file
from nmpsim.diagnostics import fail, list_alternatives
from nmpsim.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Yield the lines of a text plot of an error band over the input."""
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
    """Raise UserError early if a figure cannot be written.

    Raises
    ------
    UserError
        ARG001 for another kind of file, PKG001 if matplotlib is missing.
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
    with require_extra("plot", "plots in files need matplotlib", instead="omit --plot"):
        import matplotlib.figure  # noqa: F401 - whether it is there


def write_figure(path: Path, factor: Factor, band: ErrorBand) -> None:
    """Write a plot of an error band as SVG or PNG, by the suffix of the path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    centres = (band.edges[:-1] + band.edges[1:] - 1) / 2
    axes.fill_between(centres, band.low, band.high, step="mid", linewidth=0.5)
    axes.axhline(0.0, color="black", linewidth=0.5)
    form = factor.integer
    axes.set_title(f"{factor.real:.9g} as pre {form.pre}, post {form.post}, scale {form.mul}")
    axes.set_xlabel("input")
    axes.set_ylabel("error, units of the last place")
    save_figure(path, figure)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a matplotlib figure as SVG or PNG with reproducible bytes."""
    import matplotlib

    kind = path.suffix.lower().removeprefix(".")

    def save(file: IO[bytes]) -> None:
        with matplotlib.rc_context({"svg.hashsalt": "nmpsim"}):
            figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)

    write_file(path, save)
