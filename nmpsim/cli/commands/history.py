"""``nmpsim history``: runs and evaluations over the commits of a repository."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import click

from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.guard import say
from nmpsim.cli.options import FILE, Command, output_option, show
from nmpsim.diagnostics import fail


@click.command("history", cls=Command)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.argument("documents", metavar="[RUN.json|EVAL.json]...", type=FILE, nargs=-1)
@click.option(
    "--commit",
    metavar="C",
    help="Of what is added: what git knows here, or any text.  [default: HEAD]",
)
@click.option(
    "--label",
    metavar="TEXT",
    default="",
    help="Tells apart several of one network, such as two devices.",
)
@click.option("--date", metavar="ISO8601", help="Of the commit.  [default: as git has it, or now]")
@click.option(
    "--show",
    "number",
    metavar="N",
    type=click.IntRange(min=1),
    help="Give out the JSON document of entry N, for `nmpsim report` and others.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="A table, one JSON document, or a page with figures.",
)
@output_option("OUT", "Write there instead of to standard output.", required=False)
def command(
    folder: Path,
    documents: tuple[Path, ...],
    commit: str | None,
    label: str,
    date: str | None,
    number: int | None,
    style: str,
    output: Path | None,
) -> None:
    """Keep JSON reports of runs and evaluations in a folder, and show them over commits.

    Documents that are named are added; then all are shown, the oldest first: cycles, saturated
    values, SQNR, accuracy, and whether the last is worse than the one before.

    \b
      nmpsim run NET.bin --input X.npy --format json -o RUN.json
      nmpsim history results RUN.json
      nmpsim history results --format html -o HISTORY.html
    """
    from nmpsim.experiments.history import add, document_of, entries

    check_outputs([output], documents)
    if style == "html":
        from nmpsim.views.html import require_html

        require_html()
    if not documents and (commit, label, date) != (None, "", None):
        raise fail("ARG001", "there is nothing to add", hint="name a RUN.json or an EVAL.json")
    if documents:
        commit, when = _commit(commit, date)
        for document in documents:
            entry = add(folder, document, commit, label, when)
            name = f"{entry.program} ({entry.label})" if entry.label else entry.program
            say(f"added {document}: {name}, {commit}")
    if number is not None:
        emit(document_of(folder, number), output)
        return
    found = entries(folder)
    if style == "html":
        from nmpsim.views.html.history import history_page

        emit(history_page(folder.resolve().name, found), output)
        return
    from nmpsim.views.history_text import history_json, print_history

    show(style, lambda: history_json(found), lambda console: print_history(found, console), output)


def _commit(commit: str | None, date: str | None) -> tuple[str, datetime]:
    """The commit and its date: as they were given, and what git knows of the rest."""
    known = _git(commit or "HEAD")
    commit = known[0] if known else commit
    if commit is None:
        raise fail(
            "ARG001",
            "which commit is this of?",
            found="no git repository here, or one without commits",
            hint="give --commit, any text that names the version",
        )
    if date is None:
        return commit, datetime.fromisoformat(known[1]) if known else datetime.now(UTC)
    try:
        given = datetime.fromisoformat(date)
    except ValueError as error:
        raise fail(
            "ARG001", "this is no date", found=repr(date[:40]), expected="such as 2026-01-31T12:00Z"
        ) from error
    return commit, given if given.tzinfo else given.replace(tzinfo=UTC)


def _git(commit: str) -> list[str] | None:
    """Hash and date of a commit of the repository of this folder; None if git knows neither."""
    if commit.startswith("-"):
        return None
    words = ["git", "show", "-s", "--format=%H %cI", f"{commit}^{{commit}}", "--"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.split()
