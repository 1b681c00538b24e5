"""The HTML report, rendered from a template that escapes all texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain

import attrs

from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.escape import escape_line
from nmpsim.extras import require_extra
from nmpsim.report.data import RunReport
from nmpsim.views.analyses_text import PARTS, make_sensitivity_columns
from nmpsim.views.device_table import SETTING_COLUMNS, list_settings
from nmpsim.views.html import compare, tables
from nmpsim.views.html.figures import MAX_MARKS, Figure, get_core_count, shorten_names
from nmpsim.views.html.layer_graph import make_layer_graph
from nmpsim.views.html.run_figures import make_error_figures, make_run_figures
from nmpsim.views.run_text import list_run_totals
from nmpsim.views.templates import load_template
from nmpsim.views.text import describe_output

FUNCTION = "main"
"""Glow's name of every network."""


@attrs.frozen
class _RenderedFigure:
    """A figure with its image."""

    figure: Figure
    spec: str | None
    """Compressed specification; None if the figure is too large."""
    still: str | None
    """Data URL of the image; None for a folded figure."""
    id: str


def require_html() -> None:
    """Raise UserError (PKG001) if a library for HTML reports is missing."""
    with require_extra("html", "HTML reports need pygraphviz and vl-convert-python"):
        import pygraphviz  # noqa: F401 - whether it is there
        import vl_convert  # noqa: F401 - likewise


def make_html_page(runs: Mapping[str, RunReport], listener: ProgressCallback | None = None) -> str:
    """Return a self-contained HTML report of one or more runs.

    Raises
    ------
    UserError
        PKG001 if a library is missing, DEV codes if the device of a report is invalid.
    """
    require_html()
    from nmpsim.views.html.draw import make_vega_script

    names = compare.make_names_unique([escape_line(name) for name in runs])
    runs = dict(zip(names, runs.values(), strict=True))
    errors = {name: list(make_error_figures(report)) for name, report in runs.items()}
    figures = {name: list(make_run_figures(report)) for name, report in runs.items()}
    changes = compare.make_change_figure(runs) if len(runs) > 1 else None
    every = [*chain(*errors.values(), *figures.values()), *([changes] if changes else [])]
    renderer = FigureRenderer(every, listener)
    page: str = load_template("html/page.html.jinja").render(
        title=", ".join(dict.fromkeys(choose_title(name, run) for name, run in runs.items())),
        runs=[
            {
                "id": f"run-{n}",
                "name": name,
                "report": run,
                "errors": renderer.render(errors[name]),
                "figures": renderer.render(figures[name]),
            }
            for n, (name, run) in enumerate(runs.items())
        ],
        reports=runs,
        changes=renderer.render([changes] if changes else []),
        vega=make_vega_script(),
        compare=compare,
        tables=tables,
        make_table=tables.make_table,
        list_settings=list_settings,
        setting_columns=SETTING_COLUMNS,
        make_sensitivity_columns=make_sensitivity_columns,
        parts=PARTS,
        get_core_count=get_core_count,
        shorten_names=shorten_names,
        make_layer_graph=make_layer_graph,
        list_run_totals=list_run_totals,
        describe_output=describe_output,
    )
    return page


def choose_title(name: str, report: RunReport) -> str:
    """Return the network's name, or ``name`` if the network has only Glow's default name."""
    return name if report.program == FUNCTION else escape_line(report.program)


class FigureRenderer:
    """Renderer of figures that reports progress."""

    def __init__(self, figures: Sequence[Figure], listener: ProgressCallback | None) -> None:
        self._total = len(figures)
        self._listener = listener
        self._done = 0

    def render(self, figures: list[Figure]) -> list[_RenderedFigure]:
        """Render figures and return each figure with its compressed specification and its image."""
        return [self._render(figure) for figure in figures]

    def _render(self, figure: Figure) -> _RenderedFigure:
        from nmpsim.views.html.draw import compress_text, render_image

        if self._listener is not None:
            self._listener(Progress("figure", self._done, self._total, figure.title))
        self._done += 1
        id = f"figure-{self._done}"
        if figure.mark_count > MAX_MARKS:
            return _RenderedFigure(figure, None, None, id)
        spec = compress_text(json.dumps(figure.spec, separators=(",", ":")))
        return _RenderedFigure(figure, spec, None if figure.is_narrow else render_image(figure), id)
