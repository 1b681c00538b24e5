"""Runs as one HTML report that needs nothing but itself."""

from nmpsim.views.html.page import html_page, require_html

__all__ = ["html_page", "require_html"]
