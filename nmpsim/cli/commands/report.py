"""``nmpsim report``: write an HTML report of runs."""

from __future__ import annotations

from nmpsim.cli.guard import print_message
from nmpsim.cli.options import output_option
from nmpsim.cli.output import check_outputs, emit, show_progress
from nmpsim.cli.parameters import InputFile, OutputFile, argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class Request:
    """Parameters of ``nmpsim report``."""

    runs: tuple[InputFile, ...] = argument("RUN.json...")
    output: OutputFile = output_option("REPORT.html", "The HTML report.")


@define_command
def command(request: Request) -> None:
    """Write one HTML report, which opens offline, of the JSON reports of one or more runs.

    Several runs are compared, each with the first.

    \b
      nmpsim run NET.bin --input X.npy --format json --timeline --histogram all -o RUN.json
      nmpsim report RUN.json -o RUN.html
    """
    from nmpsim.report.read import read_report
    from nmpsim.views.html import html_page, require_html
    from nmpsim.views.html.compare import unique_names

    check_outputs([request.output], request.runs)
    require_html()
    names = unique_names([path.stem for path in request.runs])
    reports = dict(zip(names, map(read_report, request.runs), strict=True))
    with show_progress() as progress:
        page = html_page(reports, progress)
    emit(page, request.output)
    print_message(f"wrote {request.output}: {len(page.encode()) / 1e6:.1f} MB")
