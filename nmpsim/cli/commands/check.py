"""``nmpsim check``: check the outputs and costs of a bundle or of a suite."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import click

from nmpsim.cli.guard import print_ci_command, print_message
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import (
    DEFAULT_IMAGES,
    EXECUTION,
    FORMAT_OPTION,
    STRICT_OPTION,
    FiniteNumber,
    Format,
    InputOptions,
    LimitOptions,
    Tolerance,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_json, write_result, write_text
from nmpsim.cli.parameters import (
    InputFile,
    Natural,
    OutputFile,
    Positive,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.cli.recorded_runs import MatchingOptions
from nmpsim.cli.stdin import has_read_pipes
from nmpsim.diagnostics import did_you_mean, fail, refuse_options
from nmpsim.records import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nmpsim.checking import SaturationLimit, Suite, SuiteCase

_SUITE, _WORKFLOW = Path("suite.toml"), Path(".github/workflows/nmpsim.yml")
_EXPECTED, _BUDGET, _SUITES, _FILES = "Expected outputs", "Budgets", "Suites", "Result files"


@frozen(kw_only=True)
class CaseOptions:
    """Options for checking a single bundle: device, expectations and budgets."""

    device: InputFile | None = define_option("Run the bundle on this device.", "D.toml")
    baseline: OutputFile | None = define_option("Compare with this earlier run.", "B.json")
    expect: InputFile | None = define_option("Expected outputs.", "E.npz|MODEL", group=_EXPECTED)
    expect_layers: InputFile | None = define_option(
        "Expected outputs of layers.", "L.npz|MODEL", group=_EXPECTED
    )
    only: tuple[str, ...] = define_option(
        "Layer, or pattern such as conv*, to compare.", "LAYER", group=_EXPECTED
    )
    ulp: Natural | None = define_option(
        "Allowed difference in units of the last place.", "N", group=_EXPECTED
    )
    sqnr: FiniteNumber | None = define_option("Minimum SQNR.", "DB", group=_EXPECTED)
    top1: Natural | None = define_option("Expected class.", "CLASS", group=_EXPECTED)
    cycles: Natural | None = define_option("Maximum number of cycles.", "N", group=_BUDGET)
    cycles_percent: Tolerance | None = define_option(
        "Maximum increase in cycles, in percent.", "P", group=_BUDGET
    )
    saturation: str | None = define_option(
        "Maximum number of saturated values.", "none|baseline|N", group=_BUDGET
    )
    memory: Natural | None = define_option("Maximum DRAM usage in bytes.", "BYTES", group=_BUDGET)
    hazards: Literal["none"] | None = define_option(
        "Search for hazards in a second run.", group=_BUDGET
    )

    def list_given_options(self) -> dict[str, str]:
        """Return the option of each field that is set, such as ``--cycles``, by field name."""
        values = attrs.asdict(self, recurse=False)
        return {
            name: f"--{name.replace('_', '-')}"
            for name, value in values.items()
            if value not in (None, ())
        }


@frozen(kw_only=True)
class CheckOptions:
    """Options of ``nmpsim check``."""

    program: InputFile = define_argument("SUITE.toml|NET.bin|MODEL")
    inputs: InputOptions
    case_options: CaseOptions
    matching: MatchingOptions
    update_baseline: bool = define_option("Write the baselines; other checks are done first.")
    format: Format = FORMAT_OPTION
    output: OutputFile | None = make_output_option(
        "REPORT", "Write to this file.  [default: stdout]"
    )
    names: tuple[str, ...] = define_option(
        "Check only the cases of this name.", "NAME", names="--case", group=_SUITES
    )
    init: bool = define_option("Write a suite, a baseline and a workflow.", group=_SUITES)
    force: bool = define_option("Overwrite the files of --init.", group=_SUITES)
    junit: OutputFile | None = define_option("Write JUnit XML.", "J.xml", group=_FILES)
    sarif: OutputFile | None = define_option(
        "Write SARIF, for code scanning.", "S.sarif", group=_FILES
    )
    lint: bool = define_option("Add warnings and notes of lint to SARIF.", group=_FILES)
    markdown: OutputFile | None = define_option(
        "Write a summary for a pull request.", "M.md", group=_FILES
    )
    core_on_failure: OutputFile | None = define_option(
        "Write core files of failed cases.", "FOLDER", group=_FILES
    )
    github: bool | None = define_option(
        "Annotate the pull request.  [default: on GitHub]", group=_FILES
    )
    strict: bool = STRICT_OPTION
    jobs: Positive | None = define_option(
        "Number of processes.  [default: one per processor]", "N", group=EXECUTION
    )
    limits: LimitOptions

    @property
    def results(self) -> tuple[Path | None, ...]:
        """Paths of the report and other result files, with None for each file not requested."""
        return self.output, self.junit, self.sarif, self.markdown


@define_command
def command(options: CheckOptions) -> int:
    """Check the outputs and costs of a bundle, or of every case of a suite.

    Options for inputs, expected outputs and budgets are for a single bundle; a suite has keys for
    them (docs/check.md). With --baseline, outputs must be equal and cycles and saturation no worse,
    unless another option says otherwise.

    \b
      nmpsim check --init MODEL --input X.npy
      nmpsim check suite.toml --junit junit.xml
      nmpsim check NET.bin --input X.npy --expect E.npz --baseline B.json

    Exit codes: 0 passed, 1 a wrong output, a trap or a hazard, 4 only over budget, 2 unusable
    arguments or files (a stale baseline, nothing to check), 3 a bug.
    """
    if options.force and not options.init:
        raise click.UsageError(
            "--force can only be used with --init; pass --init, or leave out --force"
        )
    return _init(options) if options.init else _check(options)


def _init(options: CheckOptions) -> int:
    """Run the program once; if that passes, write the baseline, the suite and the workflow."""
    from nmpsim.atomic import make_file_name
    from nmpsim.checking.new_suite import format_suite, format_workflow

    if not _is_program(options.program):
        raise fail(
            "ARG001",
            "--init accepts only a bundle or a model",
            place=options.program,
            found="a file of another format",
            expected="a bundle, or a model in TFLite or ONNX format",
            hint="Compile LIR text with `nmpsim compile` first; run a suite without --init.",
        )
    given = [
        name
        for field, name in options.case_options.list_given_options().items()
        if field != "device"
    ]
    images = attrs.asdict(options.inputs.images)
    changed = [key for key, value in attrs.asdict(DEFAULT_IMAGES).items() if images[key] != value]
    given_images = ["--resize" if key == "resize" else f"--image-{key}" for key in changed]
    if given or given_images:
        name = (given or given_images)[0].replace("_", "-")
        hint = (
            "Omit the option and set the value in the suite file."
            if given
            else "Convert the image to an array and pass --input X.npy."
        )
        raise fail("ARG001", f"--init does not accept {name}", hint=hint)
    baseline = Path("baselines") / f"{make_file_name(options.program.stem)}.json"
    case_options = attrs.evolve(options.case_options, baseline=baseline)
    options = attrs.evolve(options, case_options=case_options, update_baseline=True)
    case = _case(options)
    for one in case.input:
        has_pipes = has_read_pipes(click.get_current_context())
        if not one.path.is_file() or has_pipes:
            raise fail(
                "ARG001",
                "a suite requires a file for each input",
                place=one.path,
                found="standard input or a pipe" if has_pipes else "no file of this name",
                hint="Pass --input FILE once for each input.",
            )
    texts = {_SUITE: format_suite(case, Path()), _WORKFLOW: format_workflow()}
    for path in (*texts, baseline):
        if path.exists() and not options.force:
            hint = "Pass --force to overwrite the file, or change to another folder."
            raise fail("FILE002", "the file already exists", place=path, hint=hint)
    _WORKFLOW.parent.mkdir(parents=True, exist_ok=True)
    check_outputs(texts, [options.program])
    if code := _check(options):
        return code
    for path, text in texts.items():
        write_text(text, path)
    print_message(f"wrote {_SUITE}, {baseline} and {_WORKFLOW}; now: nmpsim check {_SUITE}")
    if '"../' in texts[_SUITE]:
        print_message(
            f"{_SUITE} names files outside this folder; copy these files into the repository"
        )
    print_message(f"in {_WORKFLOW}, replace OWNER and REVISION by nmpsim's repository and commit")
    return code


def _check(options: CheckOptions) -> int:
    from nmpsim.checking import check_cases, get_exit_code
    from nmpsim.cli.suite_files import load_cases
    from nmpsim.views.check_junit import require_junitparser

    suite = _apply_limits(_select(_load_suite(options), options.names), options)
    _check_files(options, suite)
    if options.junit is not None:
        require_junitparser()
    names = tuple(case.name for case in suite.cases)
    work = load_cases(
        suite.cases,
        update=options.update_baseline,
        core_folder=options.core_on_failure,
        strict=options.strict,
        images=options.inputs.images,
    )
    with show_progress() as progress:
        results = check_cases(
            work, names, jobs=options.jobs, max_memory=options.limits.max_memory, progress=progress
        )
    if options.junit is not None:
        from nmpsim.views.check_junit import format_junit

        write_text(format_junit(results), options.junit)
    if options.sarif is not None:
        from nmpsim.checking.suite_run import lint_cases
        from nmpsim.cli.suite_files import BundleCache
        from nmpsim.views.sarif import make_check_sarif

        found = lint_cases(suite.cases, BundleCache().load)
        if not options.lint:
            found = tuple(one for one in found if one.severity == "error")
        write_json(make_check_sarif(results, found), options.sarif)
    if options.markdown is not None:
        from nmpsim.views.check_text import format_markdown

        write_text(format_markdown(results), options.markdown)
    is_on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if is_on_github if options.github is None else options.github:
        from nmpsim.views.check_text import format_github_annotations

        for text in format_github_annotations(results):
            print_ci_command(text)
    from nmpsim.checking import make_check_document
    from nmpsim.views.check_text import print_checks

    write_result(options.format, make_check_document, print_checks, results, output=options.output)
    return get_exit_code(results)


def _load_suite(options: CheckOptions) -> Suite:
    from nmpsim.checking import Suite, read_suite

    if _is_program(options.program):
        return Suite(str(options.program), (_case(options),)).validate()
    inputs = ["--input"] if options.inputs.arguments else []
    inputs += ["--map"] if options.matching.maps else []
    given = dict.fromkeys([*inputs, *options.case_options.list_given_options().values()], True)
    refuse_options(given, "with a suite", "Set the values in the suite file.", options.program)
    return read_suite(options.program)


def _is_program(path: Path) -> bool:
    from nmpsim.analysis.program import is_bundle
    from nmpsim.frontends import find_front_end

    return is_bundle(path) or path.suffix == ".bin" or find_front_end(path) is not None


def _case(options: CheckOptions) -> SuiteCase:
    from nmpsim.checking import Budget, Expectations, InputFile, SuiteCase
    from nmpsim.cli.inputs import split_argument

    if options.names:
        raise click.UsageError(
            f"--case requires a suite, but {options.program} is one program; leave out --case"
        )
    chosen, arguments = options.case_options, options.inputs.arguments
    program = load_program(options.program, inputs=arguments)
    names = [tensor.name for tensor in program.metadata.user_inputs]
    files = [split_argument(argument, names) for argument in arguments]
    return SuiteCase(
        bundle=options.program,
        input=tuple(InputFile(path, name) for name, path in files),
        name=options.program.stem,
        device=chosen.device,
        baseline=chosen.baseline,
        expect=Expectations(
            chosen.expect,
            chosen.expect_layers,
            chosen.only,
            chosen.ulp or 0,
            chosen.sqnr,
            chosen.top1,
            options.matching.read_names(),
            options.matching.reference_layout,
        ),
        budget=Budget(
            chosen.cycles,
            chosen.cycles_percent,
            _parse_saturation(chosen.saturation),
            chosen.memory,
            chosen.hazards,
        ),
    )


def _parse_saturation(text: str | None) -> SaturationLimit | None:
    from nmpsim.checking import SaturationLimit

    if text is None:
        return None
    try:
        return SaturationLimit.parse(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise click.UsageError(f"--saturation: {error}") from error


def _select(suite: Suite, names: Sequence[str]) -> Suite:
    known = [case.name for case in suite.cases]
    for name in names:
        if name not in known:
            expected = ", ".join(known)
            raise fail(
                "ARG001",
                f"the suite has no case {name!r}",
                place=suite.file,
                found=repr(name),
                expected=expected,
                hint=did_you_mean(name, known),
            )
    cases = tuple(case for case in suite.cases if not names or case.name in names)
    return attrs.evolve(suite, cases=cases)


def _apply_limits(suite: Suite, options: CheckOptions) -> Suite:
    """Return the suite with the limits of the command line, which override those of cases."""
    cycles, seconds = options.limits.max_cycles, options.limits.timeout
    cases = tuple(
        attrs.evolve(
            case,
            max_cycles=case.max_cycles if cycles is None else cycles,
            timeout=case.timeout if seconds is None else seconds,
        )
        for case in suite.cases
    )
    return attrs.evolve(suite, cases=cases)


def _check_files(options: CheckOptions, suite: Suite) -> None:
    """Raise UserError if a file to be written cannot be, or is also read."""
    from nmpsim.cli.suite_files import get_core_path

    read: list[Path | None] = [options.program]
    for case in suite.cases:
        read += [case.bundle, case.device, case.expect.outputs, case.expect.layers]
        read += [one.path for one in case.input]
    baselines = [case.baseline for case in suite.cases]
    made = [get_core_path(options.core_on_failure, case) for case in suite.cases]
    if options.update_baseline:
        if not any(baselines):
            hint = "Set `baseline` in the suite, or pass --baseline."
            raise fail("ARG001", "there is no baseline to update", hint=hint)
        made += baselines
    else:
        read += baselines
    for path in made:
        if path is not None:
            with contextlib.suppress(OSError):  # reported by the check below
                path.parent.mkdir(parents=True, exist_ok=True)
    check_outputs([*options.results, *made], read)
