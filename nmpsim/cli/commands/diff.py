"""``nmpsim diff``: where two runs part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from nmpsim.cli.loading import load_program
from nmpsim.cli.options import FILE, Command, format_option, output_option, show
from nmpsim.cli.runs import Given, given
from nmpsim.diagnostics import EXIT_INCOMPLETE, EXIT_OK, EXIT_WORSE, fail
from nmpsim.input_files import read_text

if TYPE_CHECKING:
    from nmpsim.analysis.diff import Parameters, ReportDifference, RunDifference
    from nmpsim.analysis.difference import Tolerance
    from nmpsim.bundle import Bundle

TOLERANCE = click.FloatRange(0, math.inf, max_open=True)


@attrs.frozen
class _SoFar:
    """How many tensors are compared."""

    done: int
    total: int
    name: str
    kind: str = "layer"


@click.command("diff", cls=Command)
@click.argument("first", metavar="A", type=FILE)
@click.argument("second", metavar="B", type=FILE)
@click.option(
    "--bundle",
    metavar="NET.bin",
    type=FILE,
    help="The program: scales and offsets of its layers, for SQNR; and what the files of a folder"
    " without instrument-debug.info are.",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "same", "nchw", "nhwc"]),
    default="auto",
    show_default=True,
    help="Layout of A's tensors of four dimensions where B's have the other; auto: as their shapes"
    " say.",
)
@click.option(
    "--within",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Units of the last place by which elements may differ; floats may not.",
)
@click.option(
    "--atol",
    metavar="X",
    type=TOLERANCE,
    default=0.0,
    help="Distance by which real values may differ.",
)
@click.option(
    "--rtol",
    metavar="X",
    type=TOLERANCE,
    default=0.0,
    help="The same, as a share of A's value; added to --atol.",
)
@click.option(
    "--map",
    "maps",
    metavar="A=B|FILE",
    multiple=True,
    help="A's name of a result, and B's; or a file with such a pair in each line. Other names are"
    " matched where they, the model's operations (--bundle) or shapes leave no doubt.",
)
@click.option("--all", "show_all", is_flag=True, help="List equal layers too.")
@click.option("--strict", is_flag=True, help="Exit with 5 where a layer is only in A or only in B.")
@format_option
@output_option("FILE", "Write the result here instead of to stdout.", required=False)
def command(
    first: Path,
    second: Path,
    bundle: Path | None,
    layout: str,
    within: int,
    atol: float,
    rtol: float,
    maps: tuple[str, ...],
    show_all: bool,
    strict: bool,
    style: str,
    output: Path | None,
) -> int:
    """Tell where run B parts from run A: first difference, worst, every layer.

    A is the run before, or the one that is taken for right; B the run after, or in question.

    \b
    A and B are two of
      a JSON report (nmpsim run --format json): both must be reports
      an .npz file: --save-layers, --save-outputs, or a recorded run of Glow
      a folder with instrument-debug.info and dataNNNN files, as a program
        instrumented by Glow writes it (bin, txt, rawbin, rawtxt)
      the text that such a program printed (console)

    Exit codes: 0 nothing differs, 1 something differs, 2 something given cannot be used;
    with --strict 5 if what both have is equal, and a run has more.
    """
    from nmpsim.analysis.diff import report_document, run_document
    from nmpsim.analysis.difference import Tolerance
    from nmpsim.cli.files import check_outputs
    from nmpsim.views.diff_text import print_report_difference, print_run_difference

    check_outputs([output], [first, second, bundle])
    names = _read_names(maps)
    tolerance = Tolerance(within, atol, rtol)
    one, other = given(first), given(second)
    if "report" in (one.kind, other.kind):
        reports = _reports(one, other, tolerance)
        show(
            style,
            lambda: report_document(reports),
            lambda console: print_report_difference(reports, console),
            output,
        )
        return EXIT_WORSE if reports.differs else EXIT_OK
    found = _runs(one, other, layout, tolerance, _loaded(bundle), names)
    show(
        style,
        lambda: run_document(found),
        lambda console: print_run_difference(found, console, show_all=show_all),
        output,
    )
    if found.differing:
        return EXIT_WORSE
    return EXIT_INCOMPLETE if strict and (found.only_first or found.only_second) else EXIT_OK


def _reports(one: Given, other: Given, tolerance: Tolerance) -> ReportDifference:
    from nmpsim.analysis.diff import compare_reports
    from nmpsim.report.read import read_report

    if one.kind != other.kind:
        raise fail(
            "ARG001",
            "a report can be compared with a report only",
            found=f"{one.path}: {one.kind}; {other.path}: {other.kind}",
            hint="nmpsim run --save-layers L.npz keeps what Glow's dumps can be compared with",
        )
    return compare_reports(read_report(one.path), read_report(other.path), tolerance=tolerance)


def _runs(
    one: Given,
    other: Given,
    layout: str,
    tolerance: Tolerance,
    bundle: Bundle | None,
    names: Mapping[str, str],
) -> RunDifference:
    from nmpsim.analysis.diff import compare_runs
    from nmpsim.views.progress import RunProgress, stderr_console

    with RunProgress(stderr_console()) as progress:
        return compare_runs(
            one.tensors(bundle),
            other.tensors(bundle),
            layout=layout,
            tolerance=tolerance,
            parameters=_parameters(bundle),
            names=names,
            origins={} if bundle is None else bundle.metadata.origins,
            progress=lambda *so_far: progress(_SoFar(*so_far)),
        )


def _read_names(maps: Sequence[str]) -> Mapping[str, str]:
    """What ``--map`` says: A's name -> B's; ARG001 for what is neither a pair nor a file."""
    lines = []
    for text in maps:
        lines += _lines(Path(text)) if _is_file(text) else [text]
    names: dict[str, str] = {}
    for line in lines:
        name, equals, other = (part.strip() for part in line.rpartition("="))
        if not (name and equals and other):
            message = "--map takes a pair of names or a file with such pairs"
            raise fail("ARG001", message, found=line, expected="A's name=B's name")
        if name in names or other in names.values():
            twice = name if name in names else other
            raise fail("ARG001", "--map names a result twice", found=twice)
        names[name] = other
    return names


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a name that is too long for a file
        return False


def _lines(path: Path) -> list[str]:
    """Lines with something in them; what follows # at a line's start is a comment."""
    text = read_text(path, "file of --map")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _loaded(path: Path | None) -> Bundle | None:
    return None if path is None else load_program(path)


def _parameters(bundle: Bundle | None) -> Mapping[str, Parameters]:
    from nmpsim.analysis.diff import Parameters

    if bundle is None:
        return {}
    metadata = bundle.metadata
    results = {layer.name: layer.output for layer in metadata.layers}
    results |= {tensor.name: tensor for tensor in metadata.user_outputs}
    return {
        name: Parameters(tensor.scale, tensor.offset or 0)
        for name, tensor in results.items()
        if tensor.scale is not None
    }
