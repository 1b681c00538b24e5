"""The HTML report: all parts of the reports in a template that escapes what it is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from nmpsim.extras import missing
from nmpsim.report.data import RunReport
from nmpsim.views.html import compare, tables
from nmpsim.views.html.figures import MAX_MARKS, Figure
from nmpsim.views.html.findings import saturation_table, slow_table
from nmpsim.views.html.headline import Headline, headline, title_of
from nmpsim.views.html.layer_graph import LayerGraph, layer_graph
from nmpsim.views.html.run_figures import error_figures, run_figures
from nmpsim.views.outputs import output_lines
from nmpsim.views.run_text import run_totals
from nmpsim.visible import visible, visible_line


@attrs.frozen
class Drawing:
    """How far a report is: an event as :mod:`nmpsim.views.progress` takes it."""

    done: int
    """Figures that are drawn."""
    total: int
    name: str
    """Of the figure at hand."""
    kind: str = "figure"


Listener = Callable[[Drawing], None]


@attrs.frozen
class _Drawn:
    """A figure with its picture."""

    figure: Figure
    spec: str | None
    """Packed; None if it is too large to be drawn."""
    still: str | None
    """Its address; None if it is drawn only when somebody opens it."""
    id: str


@attrs.frozen
class _Run:
    """What the template shows of one run."""

    id: str
    name: str
    report: RunReport
    headline: Headline
    totals: list[tuple[str, str]]
    outputs: list[str]
    graph: LayerGraph | None
    slow: tables.Table
    saturation: tables.Table
    placement: tables.Table
    layers: tables.Table
    settings: tables.Table
    sensitivity: tables.Table | None
    shadow: tables.Table | None
    errors: list[_Drawn]
    figures: list[_Drawn]


def require_html() -> None:
    """Refuse a report that cannot be made, before anything else is done (PKG001)."""
    try:
        import jinja2  # noqa: F401 - whether it is there
        import pygraphviz  # noqa: F401 - likewise
        import vl_convert  # noqa: F401 - likewise
    except ImportError as error:
        needed = "HTML reports need jinja2, pygraphviz and vl-convert-python"
        raise missing(error, "html", needed) from error


def html_page(runs: Mapping[str, RunReport], listener: Listener | None = None) -> str:
    """One HTML report of one or more runs, by names that tell them apart.

    It holds its figures, scripts and styles itself, and asks nothing of any network.

    Raises:
        UserError: PKG001 if a library is missing; DEV codes if a report's device is none.
    """
    require_html()
    from nmpsim.views.html.draw import script

    names = compare.unique_names([visible_line(name) for name in runs])
    runs = dict(zip(names, runs.values(), strict=True))
    errors = {name: list(error_figures(report)) for name, report in runs.items()}
    figures = {name: list(run_figures(report)) for name, report in runs.items()}
    changes = compare.change_figure(runs) if len(runs) > 1 else None
    every = [*chain(*errors.values(), *figures.values()), *([changes] if changes else [])]
    draw = Draughtsman(every, listener)
    page: str = template("page.html.jinja").render(
        title=", ".join(dict.fromkeys(title_of(name, run) for name, run in runs.items())),
        runs=[
            _run(n, name, runs[name], draw.all(errors[name]), draw.all(figures[name]))
            for n, name in enumerate(runs)
        ],
        comparison=_comparison(runs, draw.all([changes] if changes else [])),
        vega=script(),
    )
    return page


def _comparison(runs: Mapping[str, RunReport], figures: list[_Drawn]) -> dict[str, Any] | None:
    if len(runs) < 2:
        return None
    return {
        "verdicts": compare.verdicts(runs),
        "totals": compare.totals_table(runs),
        "settings": compare.settings_table(runs),
        "layers": compare.layers_table(runs),
        "figures": figures,
    }


class Draughtsman:
    """Draws figures one after the other and says how far it is."""

    def __init__(self, figures: Sequence[Figure], listener: Listener | None) -> None:
        self._total = len(figures)
        self._listener = listener
        self._done = 0

    def all(self, figures: list[Figure]) -> list[_Drawn]:
        """The figures with their pictures."""
        return [self._one(figure) for figure in figures]

    def _one(self, figure: Figure) -> _Drawn:
        from nmpsim.views.html.draw import packed, still

        if self._listener is not None:
            self._listener(Drawing(self._done, self._total, figure.title))
        self._done += 1
        id = f"figure-{self._done}"
        if figure.marks > MAX_MARKS:
            return _Drawn(figure, None, None, id)
        spec = packed(json.dumps(figure.spec, separators=(",", ":")))
        return _Drawn(figure, spec, None if figure.narrow else still(figure), id)


def _run(
    number: int, name: str, report: RunReport, errors: list[_Drawn], figures: list[_Drawn]
) -> _Run:
    return _Run(
        id=f"run-{number}",
        name=name,
        report=report,
        headline=headline(report),
        totals=run_totals(report),
        outputs=[text for output in report.output_reports for text in output_lines(output)],
        graph=layer_graph(report),
        slow=slow_table(report),
        saturation=saturation_table(report),
        placement=tables.placement_table(report),
        layers=tables.layer_table(report),
        settings=tables.settings_table(report),
        sensitivity=tables.sensitivity_table(report),
        shadow=tables.shadow_table(report),
        errors=errors,
        figures=figures,
    )


def _shown(value: Any) -> Any:
    """Text of a report without control characters; what is HTML already stays."""
    return visible(value) if type(value) is str else value


def template(name: str) -> Any:
    """A template that escapes what it is given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nmpsim.views.html", "."),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
