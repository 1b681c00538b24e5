"""``nmpsim history``: store reports of runs and evaluations and show them over commits."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import Literal

from nmpsim.cli.guard import print_message
from nmpsim.cli.options import make_output_option
from nmpsim.cli.output import check_outputs, write_result, write_text
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    Positive,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import fail, refuse_options
from nmpsim.records import frozen


@frozen(kw_only=True)
class HistoryOptions:
    """Options of ``nmpsim history``."""

    folder: OutputFile = define_argument("FOLDER")
    documents: tuple[InputFile, ...] = define_argument("[RUN.json|EVAL.json]...")
    commit: str | None = define_option("Commit, or any text.  [default: HEAD]", "C")
    label: str | None = define_option("Distinguishes series of one network.", "TEXT")
    date: str | None = define_option("Date of the commit.  [default: from git, or now]", "ISO8601")
    show: Positive | None = define_option("Write the JSON document of entry N.", "N")
    format: Literal["text", "json", "html"] = define_option("Table, JSON or HTML.", default="text")
    output: OutputFile | None = make_output_option("OUT", "Write to this file.  [default: stdout]")


@define_command
def command(options: HistoryOptions) -> None:
    """Store JSON reports of runs and evaluations in a folder, and show them over commits.

    The reports that are named are added. Then all entries are shown, the oldest first: cycles,
    saturated values, SQNR, accuracy, and whether the last entry is worse than the one before.

    \b
      nmpsim run NET.bin --input X.npy --format json -o RUN.json
      nmpsim history results RUN.json
      nmpsim history results --format html -o HISTORY.html
    """
    from nmpsim.experiments.history import add_entry, list_entries, read_document

    folder, documents, output = options.folder, options.documents, options.output
    check_outputs([output], documents)
    if options.format == "html":
        from nmpsim.views.html import require_html

        require_html()
    label = options.label or ""
    if not documents:
        given = {"--commit": options.commit, "--label": label, "--date": options.date}
        refuse_options(given, "without a report", "Pass a RUN.json or an EVAL.json.")
    else:
        commit, when = _find_commit(options.commit, options.date)
        for document in documents:
            entry = add_entry(folder, document, commit, label, when)
            name = f"{entry.program} ({entry.label})" if entry.label else entry.program
            print_message(f"added {document}: {name}, {commit}")
    if options.show is not None:
        write_text(read_document(folder, options.show), output)
        return
    found = list_entries(folder)
    if options.format == "html":
        from nmpsim.views.html.history import make_history_page

        write_text(make_history_page(folder.resolve().name, found), output)
        return
    from nmpsim.views.history_text import make_history_document, print_history

    write_result(options.format, make_history_document, print_history, found, output=output)


def _find_commit(commit: str | None, date: str | None) -> tuple[str, datetime]:
    """Return a commit and its date, completed from git where they are not given."""
    known = _ask_git(commit or "HEAD")
    commit = known[0] if known else commit
    if commit is None:
        raise fail(
            "ARG001",
            "cannot determine the commit",
            found="no git repository with commits in this folder",
            hint="Pass --commit TEXT to identify the version.",
        )
    if date is None:
        return commit, datetime.fromisoformat(known[1]) if known else datetime.now(UTC)
    try:
        given = datetime.fromisoformat(date)
    except ValueError as error:
        raise fail(
            "ARG001",
            "--date is not an ISO 8601 date",
            found=repr(date[:40]),
            expected="a date such as 2026-01-31T12:00Z",
        ) from error
    return commit, given if given.tzinfo else given.replace(tzinfo=UTC)


def _ask_git(commit: str) -> list[str] | None:
    """Return hash and date of a commit in the repository of this folder; None if unknown."""
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
