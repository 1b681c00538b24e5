"""``nmpsim report``: runs as an HTML report."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.guard import say
from nmpsim.cli.options import FILE, Command, output_option


@click.command("report", cls=Command)
@click.argument("runs", metavar="RUN.json...", type=FILE, nargs=-1, required=True)
@output_option("REPORT.html", "The HTML report.", required=True)
def command(runs: tuple[Path, ...], output: Path) -> None:
    """Make one HTML report of the JSON reports of one or more runs; it opens offline.

    Several runs are compared, each against the first.

    \b
      nmpsim run NET.bin --input X.npy --format json --timeline --histogram all -o RUN.json
      nmpsim report RUN.json -o RUN.html
    """
    from nmpsim.report.read import read_report
    from nmpsim.views.html import html_page, require_html
    from nmpsim.views.html.compare import run_names
    from nmpsim.views.progress import RunProgress, stderr_console

    check_outputs([output], runs)
    require_html()
    names = run_names([path.stem for path in runs])
    reports = dict(zip(names, map(read_report, runs), strict=True))
    with RunProgress(stderr_console()) as progress:
        page = html_page(reports, progress)
    emit(page, output)
    say(f"wrote {output}: {len(page.encode()) / 1e6:.1f} MB")
