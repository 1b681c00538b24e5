"""``nmpsim lint``: what will go wrong with a program, before it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.loading import say_warning, told_of_loading
from nmpsim.cli.options import FILE, OUTPUT, Command, format_option, show, tensors_option
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE
from nmpsim.isa.profiles import DEFAULT_NUMERICS

if TYPE_CHECKING:
    from nmpsim.analysis.lint import LintReport


@click.command("lint", cls=Command)
@click.argument("program", metavar="NET.lir|NET.bin|MODEL", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of NET.lir.")
@tensors_option
@click.option(
    "--numerics",
    metavar="PROFILE",
    help=f"Profile that it is to run with.  [default: the bundle's, or {DEFAULT_NUMERICS}]",
)
@click.option(
    "--float-weights",
    metavar="F.npz|F.onnx",
    type=FILE,
    help="The float model's weights, to compare weights and biases with.",
)
@click.option(
    "--original-weights",
    metavar="O.npz",
    type=FILE,
    help="Constants of the program before its bias types were changed.",
)
@click.option(
    "--original-tensors",
    metavar="T.json",
    type=FILE,
    help="Their scales; without it, O.tensors.json next to O.npz if there is one.",
)
@click.option(
    "--ranges",
    metavar="P.yaml|P.tsv",
    type=FILE,
    help="Glow's profile: recorded ranges of results.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option("--all", "show_all", is_flag=True, help="Show every finding.")
@click.option(
    "--sarif", metavar="S.sarif", type=OUTPUT, help="Also write SARIF, for code scanning."
)
@format_option
def command(
    program: Path,
    weights: Path | None,
    tensors: Path | None,
    numerics: str | None,
    strict: bool,
    show_all: bool,
    sarif: Path | None,
    style: str,
    **references: Path | None,
) -> int:
    """Tell what will go wrong with a program: biases, scales, overflow, float parts.

    Exit codes: 0 no errors, 1 errors found (with --strict also warnings), 2 something given
    cannot be used. docs/lint.md describes every rule.
    """
    if references["original_tensors"] is not None and references["original_weights"] is None:
        raise click.UsageError("--original-tensors goes with --original-weights")
    check_outputs([sarif], [program, weights, tensors, *references.values()])
    from nmpsim.analysis.lint import References, lint_json, load_subject, run_rules
    from nmpsim.views.lint_text import print_findings

    with told_of_loading(program):
        subject = load_subject(program, weights, tensors, numerics, References(**references))
    for warning in subject.warnings:
        say_warning(warning)
    report = run_rules(subject)
    if sarif is not None:
        _write_sarif(report, sarif)
    show(
        style,
        lambda: lint_json(subject, report),
        lambda console: print_findings(subject, report, console, show_all=show_all),
    )
    failed = report.count("error") or (strict and report.count("warning"))
    return EXIT_WORSE if failed else EXIT_OK


def _write_sarif(report: LintReport, path: Path) -> None:
    from nmpsim.report.json import json_text
    from nmpsim.views.sarif import LINT_RULES, lint_results, sarif

    emit(json_text(sarif(LINT_RULES, lint_results(report.findings))), path)
