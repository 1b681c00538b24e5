"""Jinja templates of pages, figures and result files; their suffixes determine the escaping."""

from __future__ import annotations

from functools import cache
from typing import Any

from nmpsim.escape import escape, escape_markdown
from nmpsim.report.data import NOTABLE_SHARE
from nmpsim.views import measures, text


@cache
def make_environment(suffix: str) -> Any:
    """Return the Jinja environment of the templates for a format: html, json, xml or md.

    Texts in HTML, JSON and XML are escaped for HTML, without control characters. In Markdown, ``|``
    is escaped for table cells; the filter ``markdown`` escapes everything. The functions of
    :mod:`nmpsim.views.text` are globals.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        if type(value) is not str:  # markup stays
            return value
        if suffix == "md":
            return value.replace("|", "\\|")
        return escape(value)

    environment = Environment(
        loader=PackageLoader("nmpsim.views", "."),
        autoescape=suffix != "md",
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = {name: one for name, one in vars(text).items() if name.startswith("format_")}
    environment.globals |= {**formats, "measures": measures, "NOTABLE_SHARE": NOTABLE_SHARE}
    environment.filters["markdown"] = lambda value: Markup(escape_markdown(value))
    return environment


def load_template(name: str) -> Any:
    """Load a Jinja template of this package, such as ``html/page.html.jinja``."""
    return make_environment(name.split(".")[-2]).get_template(name)
