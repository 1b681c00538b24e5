"""``nmpsim lint``: check a program for numerical problems without running it."""

from __future__ import annotations

from functools import partial

import click

from nmpsim.cli.loading import print_warnings, report_slow_loading
from nmpsim.cli.options import FORMAT_OPTION, TENSORS_OPTION, WEIGHTS_OPTION, Format
from nmpsim.cli.output import check_outputs, write_json, write_result
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE
from nmpsim.isa.profiles import DEFAULT_NUMERICS
from nmpsim.records import frozen

_REFERENCES = "References"


@frozen(kw_only=True)
class LintOptions:
    """Options of ``nmpsim lint``."""

    program: InputFile = define_argument("NET.lir|NET.bin|MODEL")
    weights: InputFile | None = WEIGHTS_OPTION
    tensors: InputFile | None = TENSORS_OPTION
    numerics: str | None = define_option(
        f"Profile.  [default: the bundle's, or {DEFAULT_NUMERICS}]", "PROFILE"
    )
    strict: bool = define_option("Exit with 1 for warnings too.")
    show_all: bool = define_option("Show every finding.", names="--all")
    sarif: OutputFile | None = define_option("Also write SARIF, for code scanning.", "S.sarif")
    format: Format = FORMAT_OPTION
    float_weights: InputFile | None = define_option(
        "Weights of the float model, to compare with.", "F.npz|F.onnx", group=_REFERENCES
    )
    original_weights: InputFile | None = define_option(
        "Constants before bias types were changed.", "O.npz", group=_REFERENCES
    )
    original_tensors: InputFile | None = define_option(
        "Their scales.  [default: O.tensors.json]", "T.json", group=_REFERENCES
    )
    ranges: InputFile | None = define_option(
        "Glow's profile with the ranges of results.", "P.yaml|P.tsv", group=_REFERENCES
    )


@define_command
def command(options: LintOptions) -> int:
    """Check a program for numerical problems: biases, scales, overflow, float parts.

    Exit codes: 0 no errors, 1 errors found (with --strict also warnings), 2 unusable arguments or
    files. docs/lint.md describes every rule.
    """
    if options.original_tensors is not None and options.original_weights is None:
        raise click.UsageError("--original-tensors requires --original-weights")
    references = (
        options.float_weights,
        options.original_weights,
        options.original_tensors,
        options.ranges,
    )
    files = options.program, options.weights, options.tensors
    check_outputs([options.sarif], [*files, *references])
    from nmpsim.analysis.lint import ReferenceFiles, load_subject, make_lint_document, run_rules
    from nmpsim.views.lint_text import print_findings

    with report_slow_loading(options.program):
        subject = load_subject(*files, options.numerics, ReferenceFiles(*references))
    print_warnings(subject.program.warnings)
    report = run_rules(subject)
    if options.sarif is not None:
        from nmpsim.views.sarif import LINT_RULES, convert_findings, make_sarif_document

        results = convert_findings(report.findings)
        write_json(make_sarif_document(LINT_RULES, results), options.sarif)
    view = partial(print_findings, show_all=options.show_all)
    write_result(options.format, make_lint_document, view, subject, report)
    has_failed = report.count_findings("error") or (
        options.strict and report.count_findings("warning")
    )
    return EXIT_WORSE if has_failed else EXIT_OK
