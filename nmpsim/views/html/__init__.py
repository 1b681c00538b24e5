"""Self-contained HTML reports of runs."""

from nmpsim.views.html.page import make_html_page, require_html

__all__ = ["make_html_page", "require_html"]
