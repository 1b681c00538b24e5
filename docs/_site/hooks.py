"""Hooks of the documentation site; its pages are also read as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DECISIONS = "decisions"
SEARCH_BOOST = {"Use": 4, "Design": 1, "Reference": 0.5}
"""Part of the navigation -> factor of its pages' ranks in search."""
API_MARK = "<!-- every public name -->"
CLI_MARK = "<!-- every command -->"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_ROLE = re.compile(r":\w+:<code>~?([^<]+)</code>")


def on_config(config: Any) -> Any:
    """List every decision record in the navigation."""
    folder = Path(config.docs_dir)
    sections = {title: section for entry in config.nav for title, section in entry.items()}
    for entry in sections["Design"]:
        if entry.get("Decisions") == DECISIONS:
            paths = sorted((folder / DECISIONS).glob("*.md"))
            entry["Decisions"] = [{_title(p): f"{DECISIONS}/{p.name}"} for p in paths]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Insert generated parts, name files that are no pages, and rank the page in search."""
    if page.ancestors:
        page.meta.setdefault("search", {"boost": SEARCH_BOOST[page.ancestors[-1].title]})
    for mark, text in ((API_MARK, _public_names), (CLI_MARK, _commands)):
        if mark in markdown:
            markdown = markdown.replace(mark, text())
    here = Path(page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        text, target, _ = found.groups()
        if "://" in target or not _leads_out(here / target):
            return found[0]
        return f"{text} (`{_normal(here / target)}`)" if text.strip("`") != target else text

    return _LINK.sub(link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show the targets of Sphinx roles in docstrings as code."""
    return _ROLE.sub(r"<code>\1</code>", html)


def _title(path: Path) -> str:
    (first, *_) = re.findall(r"^# (.+)$", path.read_text(encoding="utf-8"), re.M)
    return str(first).replace("`", "")


def _leads_out(target: Path) -> bool:
    return _normal(target, "docs").split("/")[0] != "docs"


def _normal(target: Path, base: str = "docs") -> str:
    """Return a path in the repository without ``..``."""
    parts: list[str] = [base]
    for part in target.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _public_names() -> str:
    """Return a block of mkdocstrings for each public name of nmpsim."""
    import nmpsim

    homes = nmpsim._HOMES
    return "\n\n".join(f"::: {homes[name]}.{name}" for name in sorted(homes, key=str.lower))


def _commands() -> str:
    """Return the output of ``--help`` for each command."""
    import click

    from nmpsim.cli.app import COMMANDS, app

    # The page has room for 80 columns.
    asked = {"max_content_width": 80, **app.context_settings}
    context = click.Context(app, info_name="nmpsim", **asked)
    sections = [f"```text\n{app.get_help(context)}\n```"]
    for name in COMMANDS:
        command = app.get_command(context, name)
        inner = click.Context(command, context, info_name=name)
        sections.append(f"## nmpsim {name}\n\n```text\n{command.get_help(inner)}\n```")
    return "\n\n".join(sections)
