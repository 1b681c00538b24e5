"""Draw the pictures of the documentation's first page: docs/pictures/*.svg.

    python programs/gallery.py                   # the digits, into docs/pictures
    python programs/gallery.py RUN.json FOLDER   # a run's report with --timeline

Needs nmpsim[html], and nmpsim[tui] for the debugger's screen, which the first form draws too.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import attrs
import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.report.data import RunReport
from nmpsim.views.html.draw import render_image
from nmpsim.views.html.run_figures import make_run_figures

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
FIGURES = {"report.svg": "Critical path by layer", "trace.svg": "Cores over time"}
"""File name -> title of the figure of the HTML report."""


def run_digits() -> RunReport:
    """Run the digits network on the image of a seven."""
    folder = HERE / "digits"
    compiled = nmpsim.compile(folder / "digits.lir.txt", folder / "digits.npz")
    bundle = parse_bundle(compiled.image)
    recorder = nmpsim.TimelineRecorder()
    inputs = {"data": np.load(folder / "images" / "7.npy")}
    report = nmpsim.Device(engine="reference").run(bundle, inputs, work=recorder)
    return attrs.evolve(report, timeline=recorder.timeline(len(report.layers)))


def render_figures(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield file names and SVG texts."""
    figures = {figure.title: figure for figure in make_run_figures(report)}
    for name, title in FIGURES.items():
        kind, _, drawing = render_image(figures[title]).partition(",")
        if kind != "data:image/svg+xml":
            raise SystemExit(f"{title}: too many marks for a drawing")
        yield name, unquote(drawing)


def main(report: RunReport, folder: Path) -> None:
    """Draw the figures of a run."""
    for name, drawing in render_figures(report):
        (folder / name).write_text(f"{drawing.rstrip()}\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(nmpsim.read_report(sys.argv[1]), Path(sys.argv[2]))
    else:
        main(run_digits(), PICTURES)
        runpy.run_path(str(HERE / "tui_picture.py"))["main"]()
