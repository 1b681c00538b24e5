"""Self-contained HTML reports of runs."""

from nmpsim.views.html.page import html_page, require_html

__all__ = ["html_page", "require_html"]
