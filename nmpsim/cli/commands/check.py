"""``nmpsim check``: a bundle or a suite as a build's last word."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import click

from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.guard import say, tell_ci
from nmpsim.cli.input_options import NOTHING_SAID, image_options, spooled_arguments
from nmpsim.cli.loading import load_program
from nmpsim.cli.memory import max_memory_option
from nmpsim.cli.options import (
    FILE,
    LAYER,
    OUTPUT,
    Command,
    format_option,
    jobs_option,
    limit_options,
    output_option,
    show,
    strict_option,
)
from nmpsim.cli.stdin import reads_pipes
from nmpsim.diagnostics import Place, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nmpsim.checking import Case, CaseResult, SaturationLimit, Suite
    from nmpsim.cli.input_options import ImageOptions

_BUNDLE_OPTIONS = (
    "input",
    "device",
    "baseline",
    "expect",
    "expect_layers",
    "only",
    "ulp",
    "sqnr",
    "top1",
    "cycles",
    "cycles_percent",
    "saturation",
    "memory",
    "hazards",
)

_SUITE, _WORKFLOW = Path("suite.toml"), Path(".github/workflows/nmpsim.yml")
_INIT_OPTIONS = ("input", "device")
"""Options of a bundle that ``--init`` puts into the suite."""


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    program: Path
    input: tuple[str, ...]
    images: ImageOptions
    device: Path | None
    baseline: Path | None
    expect: Path | None
    expect_layers: Path | None
    only: tuple[str, ...]
    ulp: int | None
    sqnr: float | None
    top1: int | None
    cycles: int | None
    cycles_percent: float | None
    saturation: str | None
    memory: int | None
    hazards: Literal["none"] | None
    names: tuple[str, ...]
    update_baseline: bool
    init: bool
    force: bool
    junit: Path | None
    sarif: Path | None
    lint: bool
    markdown: Path | None
    core_on_failure: Path | None
    github: bool | None
    max_cycles: int | None
    timeout: float | None
    strict: bool
    jobs: int | None
    max_memory: int | None
    style: str
    output: Path | None

    @property
    def results(self) -> tuple[Path | None, ...]:
        """Files that are written next to the report."""
        return self.output, self.junit, self.sarif, self.markdown


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no limit.")
    return value


@click.command("check", cls=Command)
@click.argument("program", metavar="SUITE.toml|NET.bin|MODEL", type=FILE)
@click.option(
    "--input",
    metavar="[NAME=]FILE",
    multiple=True,
    callback=spooled_arguments,
    help="Of NET.bin: as for `nmpsim run`.",
)
@image_options
@click.option("--device", metavar="D.toml", type=FILE, help="Of NET.bin: run on this device.")
@click.option(
    "--baseline",
    metavar="B.json",
    type=OUTPUT,
    help="Of NET.bin: outputs must be these, cycles and saturation no worse, unless another"
    " option says what they must be.",
)
@click.option("--expect", metavar="E.npz", type=FILE, help="Of NET.bin: what it must answer.")
@click.option(
    "--expect-layers",
    metavar="L.npz",
    type=FILE,
    help="Of NET.bin: the outputs of layers, as `nmpsim run --save-layers` writes them.",
)
@click.option(
    "--only",
    metavar="LAYER",
    multiple=True,
    help=f"Compare these layers only: {LAYER}; or a pattern such as conv*.",
)
@click.option("--ulp", metavar="N", type=click.IntRange(0), help="Units of the last place allowed.")
@click.option(
    "--sqnr",
    metavar="DB",
    type=float,
    callback=_finite,
    help="Signal to noise, in dB, that is enough.",
)
@click.option("--top1", metavar="CLASS", type=click.IntRange(0), help="The class it must name.")
@click.option("--cycles", metavar="N", type=click.IntRange(0), help="At most N cycles.")
@click.option(
    "--cycles-percent",
    metavar="P",
    type=click.FloatRange(0),
    callback=_finite,
    help="At most P percent above the baseline.",
)
@click.option(
    "--saturation", metavar="none|baseline|N", help="Values that may saturate where none should."
)
@click.option("--memory", metavar="BYTES", type=click.IntRange(0), help="At most BYTES of DRAM.")
@click.option(
    "--hazards",
    type=click.Choice(["none"]),
    help="No access may depend on when a transfer lands; a second run looks for them.",
)
@click.option(
    "--case", "names", metavar="NAME", multiple=True, help="Of a suite: only cases of this name."
)
@click.option(
    "--update-baseline", is_flag=True, help="Write the baselines; other checks are done first."
)
@click.option(
    "--init",
    is_flag=True,
    help=f"Write {_SUITE}, a baseline and {_WORKFLOW} for a bundle or model, in this folder.",
)
@click.option("--force", is_flag=True, help="With --init: overwrite these files.")
@click.option("--junit", metavar="J.xml", type=OUTPUT, help="Write JUnit XML, a test case a layer.")
@click.option(
    "--sarif",
    metavar="S.sarif",
    type=OUTPUT,
    help="Write SARIF: failures, notable saturation, lint's errors.",
)
@click.option("--lint", is_flag=True, help="Add lint's warnings and notes to the SARIF file.")
@click.option("--markdown", metavar="M.md", type=OUTPUT, help="Write a summary for a pull request.")
@click.option(
    "--core-on-failure",
    metavar="FOLDER",
    type=OUTPUT,
    help="Leave a core file of each failed case here, for `nmpsim debug`.",
)
@click.option(
    "--github/--no-github",
    default=None,
    help="Annotate the pull request.  [default: if GITHUB_ACTIONS is true]",
)
@limit_options("each run")
@strict_option
@jobs_option
@max_memory_option
@format_option
@output_option("REPORT", "Write the report here instead of to stdout.", required=False)
def command(**arguments: Any) -> int:
    """Check what a bundle, or every case of a suite, answers and costs.

    \b
      nmpsim check --init MODEL --input X.npy
      nmpsim check suite.toml --junit junit.xml
      nmpsim check NET.bin --input X.npy --expect E.npz --baseline B.json

    Exit codes: 0 as asked, 1 a wrong answer, a trap or a hazard, 4 only over budget, 2 something
    given cannot be used (a stale baseline, nothing to check), 3 a bug. docs/check.md has all keys.
    """
    request = _Request(**arguments)
    if request.force and not request.init:
        raise click.UsageError("--force is for --init")
    return _init(request) if request.init else _check(request)


def _init(request: _Request) -> int:
    """Run the program once; if that passes, write the baseline, the suite and the workflow."""
    from nmpsim.atomic import file_name
    from nmpsim.checking.new_suite import suite_text, workflow_text

    if not _is_program(request.program):
        message, place = "--init takes a bundle or a model", Place(str(request.program))
        raise fail("ARG001", message, place=place, hint="compile LIR first: nmpsim compile")
    others = [name for name in _BUNDLE_OPTIONS if name not in _INIT_OPTIONS]
    given = [name for name in others if getattr(request, name) not in (None, ())]
    if given or request.images != NOTHING_SAID:
        option = f"--{given[0].replace('_', '-')}" if given else "an option of images"
        hint = "say it in the suite" if given else "prepare the input: --input X.npy"
        raise fail("ARG001", f"--init does not take {option}", hint=hint)
    baseline = Path("baselines") / f"{file_name(request.program.stem)}.json"
    request = attrs.evolve(request, baseline=baseline, update_baseline=True)
    case = _case(request)
    for one in case.input:
        if not one.path.is_file() or reads_pipes(click.get_current_context()):
            message, place = "a suite needs a file for each input", Place(str(one.path))
            raise fail("ARG001", message, place=place, hint="--input FILE, once for each input")
    texts = {_SUITE: suite_text(case, Path()), _WORKFLOW: workflow_text()}
    for path in (*texts, baseline):
        if path.exists() and not request.force:
            hint = "--force overwrites it, or work in another folder"
            raise fail("FILE002", "the file exists", place=Place(str(path)), hint=hint)
    _WORKFLOW.parent.mkdir(parents=True, exist_ok=True)
    check_outputs(texts, [request.program])
    if code := _check(request):
        return code
    for path, text in texts.items():
        emit(text, path)
    say(f"wrote {_SUITE}, {baseline} and {_WORKFLOW}; now: nmpsim check {_SUITE}")
    if '"../' in texts[_SUITE]:
        say(f"files outside of this folder are not in its repository: copy them, change {_SUITE}")
    say(f"in {_WORKFLOW}, replace OWNER and REVISION: the repository of nmpsim and a commit of it")
    return code


def _check(request: _Request) -> int:
    from nmpsim.checking import check_cases, exit_code
    from nmpsim.cli.suite_files import case_work
    from nmpsim.views.check_junit import require_junitparser
    from nmpsim.views.progress import RunProgress, stderr_console

    suite = _limited(_chosen(_suite(request), request.names), request)
    _check_files(request, suite)
    if request.junit is not None:
        require_junitparser()
    names = tuple(case.name for case in suite.cases)
    cores = request.core_on_failure
    strict, images = request.strict, request.images
    work = case_work(
        suite.cases, update=request.update_baseline, cores=cores, strict=strict, images=images
    )
    with RunProgress(stderr_console()) as progress:
        results = check_cases(
            work, names, jobs=request.jobs, max_memory=request.max_memory, progress=progress
        )
    _write(request, suite, results)
    _annotate(request, results)
    _show(request, results)
    return exit_code(results)


def _suite(request: _Request) -> Suite:
    from nmpsim.checking import Suite, read_suite

    if _is_program(request.program):
        return Suite(str(request.program), (_case(request),)).checked()
    given = [name for name in _BUNDLE_OPTIONS if getattr(request, name) not in (None, ())]
    if given:
        raise fail(
            "ARG001",
            f"--{given[0].replace('_', '-')} is for a single bundle",
            place=Place(str(request.program)),
            hint="say it in the suite",
        )
    return read_suite(request.program)


def _is_program(path: Path) -> bool:
    from nmpsim.analysis.program import is_bundle
    from nmpsim.frontends import find_front_end

    return is_bundle(path) or path.suffix == ".bin" or find_front_end(path) is not None


def _case(request: _Request) -> Case:
    from nmpsim.checking import Budget, Case, Expect, InputFile
    from nmpsim.cli.inputs import split_argument

    if request.names:
        raise click.UsageError("--case is for a suite")
    names = [
        tensor.name
        for tensor in load_program(request.program, inputs=request.input).metadata.user_inputs
    ]
    files = [split_argument(argument, names) for argument in request.input]
    return Case(
        bundle=request.program,
        input=tuple(InputFile(path, name) for name, path in files),
        name=request.program.stem,
        device=request.device,
        baseline=request.baseline,
        expect=Expect(
            request.expect,
            request.expect_layers,
            request.only,
            request.ulp or 0,
            request.sqnr,
            request.top1,
        ),
        budget=Budget(
            request.cycles,
            request.cycles_percent,
            _saturation(request.saturation),
            request.memory,
            request.hazards,
        ),
    )


def _saturation(text: str | None) -> SaturationLimit | None:
    from nmpsim.checking import SaturationLimit

    if text is None:
        return None
    try:
        return SaturationLimit.of(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise click.UsageError(f"--saturation: {error}") from error


def _chosen(suite: Suite, names: Sequence[str]) -> Suite:
    known = [case.name for case in suite.cases]
    for name in names:
        if name not in known:
            place, expected = Place(suite.file), ", ".join(known)
            raise fail("ARG001", f"no case is named {name!r}", place=place, expected=expected)
    cases = tuple(case for case in suite.cases if not names or case.name in names)
    return attrs.evolve(suite, cases=cases)


def _limited(suite: Suite, request: _Request) -> Suite:
    """What the command line allows wins over what the cases say."""
    cases = tuple(
        attrs.evolve(
            case,
            max_cycles=case.max_cycles if request.max_cycles is None else request.max_cycles,
            timeout=case.timeout if request.timeout is None else request.timeout,
        )
        for case in suite.cases
    )
    return attrs.evolve(suite, cases=cases)


def _check_files(request: _Request, suite: Suite) -> None:
    """Nothing that is written may be something that is read."""
    from nmpsim.cli.suite_files import core_path

    read: list[Path | None] = [request.program]
    for case in suite.cases:
        read += [case.bundle, case.device, case.expect.outputs, case.expect.layers]
        read += [one.path for one in case.input]
    baselines = [case.baseline for case in suite.cases]
    made = [core_path(request.core_on_failure, case) for case in suite.cases]
    if request.update_baseline:
        if not any(baselines):
            hint = "baseline = ... in the suite, or --baseline"
            raise fail("ARG001", "there is no baseline to update", hint=hint)
        made += baselines
    else:
        read += baselines
    for path in made:
        if path is not None:
            with contextlib.suppress(OSError):  # the check below says what is wrong
                path.parent.mkdir(parents=True, exist_ok=True)
    check_outputs([*request.results, *made], read)


def _write(request: _Request, suite: Suite, results: Sequence[CaseResult]) -> None:
    if request.junit is not None:
        from nmpsim.views.check_junit import junit_text

        emit(junit_text(results), request.junit)
    if request.sarif is not None:
        from nmpsim.checking.lint import lint_cases
        from nmpsim.cli.suite_files import LastBundle
        from nmpsim.report.json import json_text
        from nmpsim.views.check_sarif import check_sarif

        found = lint_cases(suite.cases, LastBundle().load)
        if not request.lint:
            found = tuple(one for one in found if one.severity == "error")
        emit(json_text(check_sarif(results, found)), request.sarif)
    if request.markdown is not None:
        from nmpsim.views.check_markdown import markdown_text

        emit(markdown_text(results), request.markdown)


def _annotate(request: _Request, results: Sequence[CaseResult]) -> None:
    """GitHub reads workflow commands from stderr too, where they disturb no report."""
    running_there = os.environ.get("GITHUB_ACTIONS") == "true"
    if running_there if request.github is None else request.github:
        from nmpsim.views.check_github import github_annotations

        for text in github_annotations(results):
            tell_ci(text)


def _show(request: _Request, results: Sequence[CaseResult]) -> None:
    from nmpsim.checking import check_json
    from nmpsim.views.check_text import print_checks

    show(
        request.style,
        lambda: check_json(results),
        lambda console: print_checks(results, console),
        request.output,
    )
