"""``nmpsim report``: write an HTML report of runs."""

from __future__ import annotations

from nmpsim.cli.guard import print_message
from nmpsim.cli.options import make_output_option
from nmpsim.cli.output import check_outputs, show_progress, write_text
from nmpsim.cli.parameters import InputFile, OutputFile, define_argument, define_command
from nmpsim.records import frozen


@frozen(kw_only=True)
class ReportOptions:
    """Options of ``nmpsim report``."""

    runs: tuple[InputFile, ...] = define_argument("RUN.json...")
    output: OutputFile = make_output_option("REPORT.html", "The HTML report.")


@define_command
def command(options: ReportOptions) -> None:
    """Write the JSON reports of one or more runs as one HTML file that opens offline.

    Several runs are compared, each with the first.

    \b
      nmpsim run NET.bin --input X.npy --format json --timeline --histogram all -o RUN.json
      nmpsim report RUN.json -o RUN.html
    """
    from nmpsim.report.read import read_report
    from nmpsim.views.html import make_html_page, require_html
    from nmpsim.views.html.compare import make_names_unique

    check_outputs([options.output], options.runs)
    require_html()
    names = make_names_unique([path.stem for path in options.runs])
    reports = dict(zip(names, map(read_report, options.runs), strict=True))
    with show_progress() as progress:
        page = make_html_page(reports, progress)
    write_text(page, options.output)
    print_message(f"wrote {options.output}: {len(page.encode()) / 1e6:.1f} MB")
