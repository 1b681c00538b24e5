"""Jinja templates of HTML pages and figures, which escape all texts."""

from __future__ import annotations

from functools import cache
from typing import Any

from nmpsim.escape import escape


def _shown(value: Any) -> Any:
    """Escape control characters of a text; markup stays."""
    return escape(value) if type(value) is str else value


@cache
def load_template(name: str) -> Any:
    """Load a Jinja template of this package, with HTML escaping."""
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
