"""The page: every part of the reports, filled into a template that escapes all it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from nmpsim.diagnostics import fail
from nmpsim.report.data import RunReport
from nmpsim.views.answers import output_lines
from nmpsim.views.html import tables
from nmpsim.views.html.compare import change_figure, layers_table, run_names, totals_table
from nmpsim.views.html.figures import Figure, run_figures
from nmpsim.views.html.tables import Heading, Table, plain_table
from nmpsim.views.run_text import run_totals
from nmpsim.views.text import visible, visible_line


@attrs.frozen
class Drawing:
    """How far a page is: an event as :mod:`nmpsim.views.progress` takes it."""

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
    still: str
    """Its address."""
    id: str


@attrs.frozen
class _Run:
    """What the template shows of one run."""

    id: str
    name: str
    report: RunReport
    totals: list[tuple[str, str]]
    outputs: list[str]
    placement: Table
    layers: Table
    settings: Table
    sensitivity: Table | None
    shadow: Table | None
    figures: list[_Drawn]


def require_html() -> None:
    """Refuse a page that cannot be made, before anything else is done (PKG001)."""
    try:
        import jinja2  # noqa: F401 - whether it is there
        import vl_convert  # noqa: F401 - likewise
    except ImportError as error:
        raise fail(
            "PKG001",
            "HTML reports need jinja2 and vl-convert-python",
            found=f"{error.name} is not installed",
            hint="pip install 'nmpsim[html]'",
        ) from error


def html_page(runs: Mapping[str, RunReport], listener: Listener | None = None) -> str:
    """One page of one or more runs, by names that tell them apart.

    It holds its figures, scripts and styles itself, and asks nothing of any network.

    Raises:
        UserError: PKG001 if a library is missing; DEV codes if a report's device is none.
    """
    require_html()
    from nmpsim.views.html.draw import script

    names = run_names([visible_line(name) for name in runs])
    runs = dict(zip(names, runs.values(), strict=True))
    figures = {name: list(run_figures(report)) for name, report in runs.items()}
    changes = change_figure(runs) if len(runs) > 1 else None
    draw = _Draughtsman(sum(map(len, figures.values())) + (changes is not None), listener)
    shown = [_run(n, name, runs[name], draw.all(figures[name])) for n, name in enumerate(runs)]
    comparison = None
    if len(runs) > 1:
        comparison = {
            "totals": totals_table(runs),
            "layers": layers_table(runs),
            "figures": draw.all([changes] if changes else []),
        }
    page: str = _template().render(
        title=", ".join(dict.fromkeys(run.program for run in runs.values())),
        runs=shown,
        comparison=comparison,
        vega=script(),
    )
    return page


class _Draughtsman:
    """Draws figures one after the other and says how far it is."""

    def __init__(self, total: int, listener: Listener | None) -> None:
        self._total = total
        self._listener = listener
        self._done = 0

    def all(self, figures: list[Figure]) -> list[_Drawn]:
        return [self._one(figure) for figure in figures]

    def _one(self, figure: Figure) -> _Drawn:
        from nmpsim.views.html.draw import still

        if self._listener is not None:
            self._listener(Drawing(self._done, self._total, figure.title))
        self._done += 1
        return _Drawn(figure, still(figure), f"figure-{self._done}")


def _run(number: int, name: str, report: RunReport, figures: list[_Drawn]) -> _Run:
    return _Run(
        id=f"run-{number}",
        name=name,
        report=report,
        totals=run_totals(report),
        outputs=[text for output in report.output_reports for text in output_lines(output)],
        placement=tables.placement_table(report),
        layers=tables.layer_table(report),
        settings=_settings(report),
        sensitivity=_sensitivity(report),
        shadow=_shadow(report),
        figures=figures,
    )


def _settings(report: RunReport) -> Table:
    headings = (
        Heading("setting", "section and key of the device file", number=False),
        Heading("value", "of the device of this run"),
        Heading("source", "published, measured, assumed or given", number=False),
    )
    rows = ((name, value, report.sources.get(name, "")) for name, value in report.device.items())
    return plain_table(headings, rows)


def _sensitivity(report: RunReport) -> Table | None:
    if report.sensitivity is None:
        return None
    headings = (
        Heading("setting", "an assumed number of the device", number=False),
        Heading("value", "the device's own"),
        Heading("lower", "a lower value"),
        Heading("cycles then", "of the whole run with the lower value"),
        Heading("higher", "a higher value"),
        Heading("cycles then", "of the whole run with the higher value"),
        Heading("effect", "the larger change, as a share of the cycles"),
    )
    rows = (
        (
            one.setting,
            one.value,
            *(_moved(one.lower)),
            *(_moved(one.higher)),
            one.effect,
        )
        for one in report.sensitivity.effects
    )
    return plain_table(headings, rows)


def _moved(moved: Any) -> tuple[int | None, int | None]:
    return (None, None) if moved is None else (moved.value, moved.cycles)


def _shadow(report: RunReport) -> Table | None:
    if report.shadow is None:
        return None
    measures = {
        "accumulated": "error against the float network",
        "layer_alone": "error against this layer in float on its actual inputs",
        "rounding_alone": "error against this layer in real arithmetic, weights quantized",
        "bias_alone": "what quantizing the bias does",
    }
    headings = (
        Heading("#", "position in the run"),
        Heading("layer", "name of the LIR instruction", number=False),
        *(
            Heading(f"{name.replace('_', ' ')}, dB", f"{meaning}: signal to noise")
            for name, meaning in measures.items()
        ),
    )
    rows = (
        (layer.index, layer.name, *(_sqnr(getattr(layer, name)) for name in measures))
        for layer in report.shadow.layers
    )
    return plain_table(headings, rows)


def _sqnr(size: Any) -> float | None:
    return None if size is None else size.sqnr_db


def _shown(value: Any) -> Any:
    """Text of a report without control characters; what is HTML already stays."""
    return visible(value) if type(value) is str else value


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("nmpsim.views.html", "."),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja")
