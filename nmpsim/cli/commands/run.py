"""``nmpsim run``: simulate a bundle on inputs, and report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.atomic import STDOUT, write_npz
from nmpsim.cli.ahead import engine_for
from nmpsim.cli.files import check_outputs, emit
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import input_option
from nmpsim.cli.loading import load_program
from nmpsim.cli.memory import max_memory_option
from nmpsim.cli.options import (
    FILE,
    LAYER,
    OUTPUT,
    Command,
    bundle_argument,
    device_option,
    engine_option,
    format_option,
    limit_options,
    load_device,
    output_option,
    patch_option,
    printing,
    show_json,
    strict_option,
)
from nmpsim.cli.traces import TraceRequest, open_traces, trace_options
from nmpsim.diagnostics import EXIT_OK, EXIT_TIMEOUT, EXIT_WORSE, Diagnostic, Place, fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from nmpsim.bundle import Bundle
    from nmpsim.cli.input_options import GivenInputs
    from nmpsim.config import DeviceConfig
    from nmpsim.core.limits import TimeBudget
    from nmpsim.core.run import Progress, ProgressCallback
    from nmpsim.core.work import WorkListener
    from nmpsim.report.data import RunReport
    from nmpsim.session import Shadow


@frozen(kw_only=True, eq=False, repr=False)
class _Request:
    """What the command line asks for."""

    bundle: Path
    inputs: GivenInputs
    device: Path | None
    patch: Path | None
    engine: str
    threads: int | None
    max_memory: int | None
    strict: bool
    save_outputs: Path | None
    save_layers: Path | None
    core_on_trap: Path | None
    shadow: bool
    float_weights: Path | None
    sensitivity: bool
    histogram: tuple[str, ...]
    timeline: bool
    repeat: int
    node_data: Path | None
    traces: TraceRequest
    max_cycles: int | None
    timeout: float | None
    style: str
    output: Path | None

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Files that the run will write."""
        files = (self.output or STDOUT, self.save_outputs, self.save_layers, *self.traces.outputs)
        if self.node_data is None:
            return files
        from nmpsim.views.graph.node_data import node_data_paths

        return (*files, *node_data_paths(self.node_data))

    @property
    def keeps_layers(self) -> bool:
        """Whether the outputs of all layers are needed."""
        return self.shadow or bool(self.histogram) or self.save_layers is not None


@click.command("run", cls=Command)
@bundle_argument
@input_option(
    "An array (.npy; .npz under the inputs' names), float or already quantized; an image (PNG,"
    " JPEG, BMP); raw values (.bin, .raw); - for standard input. A folder, or a pattern in quotes,"
    " is one run for each file. May be given several times."
)
@device_option("the device that the bundle was made for")
@patch_option
@engine_option(
    "The fast engine, which must be compiled once, or the slow and simple one, or whichever has the"
    " answer first; all give the same report."
)
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=1),
    help="Threads of this computer that share the work; nothing in the report but the time it took"
    " depends on them. [default: as many as there are processors]",
)
@max_memory_option
@strict_option
@click.option("--save-outputs", metavar="O.npz", type=OUTPUT, help="Save the outputs.")
@click.option("--save-layers", metavar="L.npz", type=OUTPUT, help="Save every layer's output.")
@click.option(
    "--core-on-trap",
    metavar="FILE",
    type=OUTPUT,
    help="If the run traps, write a file that repeats it; `nmpsim debug FILE` opens it there.",
)
@click.option(
    "--shadow",
    is_flag=True,
    help="Evaluate every layer exactly too, and split its error: bias, weights, rounding,"
    " saturation, inherited.",
)
@click.option(
    "--float-weights",
    metavar="F.npz|F.onnx",
    type=FILE,
    help="The weights before quantization, for --shadow: arrays by their names in the LIR, or an"
    " ONNX model. Without them those that a bundle of `nmpsim quantize` has; else only"
    " rounding and saturation are known.",
)
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Run again with each assumed number of the device 20% lower and higher: which of them the"
    " cycles depend on.",
)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Run N times, one after the other, and report the throughput in steady state: cycles per"
    " inference of all runs but the first. All else is of the first run, which tells the latency.",
)
@click.option(
    "--histogram",
    metavar="LAYER",
    multiple=True,
    help=f"Count the values of a layer's output for the JSON report: {LAYER}, or all."
    " May be given several times.",
)
@click.option(
    "--timeline",
    is_flag=True,
    help="Note when each unit of each core worked and what lay in the scratchpads, for the JSON"
    " report.",
)
@click.option(
    "--node-data",
    metavar="FILE.json",
    type=OUTPUT,
    help="Write cycles, saturated values, SQNR (with --shadow) and placement of each node as Model"
    " Explorer's node data: everything in words, and FILE.cycles.json and so on with one measure"
    " each.",
)
@trace_options
@limit_options("the run")
@format_option
@output_option("REPORT", "Write the report here instead of to stdout.", required=False)
def command(**arguments: Any) -> int:
    """Run a compiled network: its answer, its cycles layer by layer, what saturated.

    Exit code 1 if the run trapped (fault, deadlock, cycle limit) or broke the contract, 124 if it
    took longer than --timeout.
    """
    traces = TraceRequest.taken_from(arguments)
    return _run(_Request(**arguments, traces=traces))


def _run(request: _Request) -> int:
    _check(request)
    config = load_device(request.device)
    from nmpsim import session
    from nmpsim.cli.float_models import say_if_float
    from nmpsim.cli.inputs import input_paths, samples_of
    from nmpsim.cli.samples import Taker
    from nmpsim.core.limits import Limits, TimeBudget, TimeLimitError
    from nmpsim.views.progress import RunProgress, stderr_console

    bundle = load_program(
        request.bundle, request.patch, device=config, inputs=request.inputs.arguments
    )
    if session.is_model(request.bundle):
        say_if_float(bundle.metadata, request.bundle)
    request = attrs.evolve(request, histogram=_chosen_layers(bundle, request.histogram))
    taker = Taker.of(bundle.metadata, request.inputs.images)
    samples = samples_of(request.inputs.arguments, taker)
    check_outputs(request.outputs, input_paths(request.inputs.arguments, list(taker.tensors)))
    several = sum(len(sample.files) for sample in samples)
    if several > 1:
        _check_several(request, several)
    arrays = samples[0].fitting()
    for image in dict.fromkeys(str(one) for sample in samples for one in sample.formats.values()):
        say(f"note: images are taken as {image}")
    device = session.Device(
        config or session.device_of(bundle),
        engine=engine_for(request.engine, runs_often=request.sensitivity),
        threads=request.threads,
        max_memory=request.max_memory,
    )
    limits = Limits(request.max_cycles, request.timeout)
    if several > 1:
        from nmpsim.cli.several import run_several

        return run_several(
            device,
            bundle,
            samples,
            limits=limits,
            strict=request.strict,
            save_outputs=request.save_outputs,
            style=request.style,
            output=request.output,
        )
    shadow = session.Shadow(bundle, request.float_weights) if request.shadow else None
    recorder = _Recorder(bundle) if request.timeline else None
    with RunProgress(stderr_console()) as progress:
        with open_traces(request.traces, bundle, device.config) as traces:
            report = device.run(
                bundle,
                arrays,
                save_layers=request.keeps_layers,
                progress=progress,
                work=_all_of(traces.listener, recorder),
                limits=limits,
                strict=request.strict,
                repeat=request.repeat,
            )
            traces.finish(report)
        budget, late = TimeBudget(limits, report.host_seconds), None
        try:
            if shadow is not None and not _is_late(report):
                report = _with_shadow(shadow, report, arrays, progress, budget)
            if request.sensitivity:
                report = _with_sensitivity(bundle, arrays, report, device.config, progress, budget)
        except TimeLimitError as error:
            (late,) = error.diagnostics
    _save(request, bundle, report)
    _tell_limit(request, report)
    if late is not None:
        say(str(attrs.evolve(late, place=Place(str(request.bundle)))))
    if report.trap is not None and request.core_on_trap is not None:
        from nmpsim.cli.core_files import save_core_file

        save_core_file(
            request.core_on_trap,
            bundle,
            arrays,
            report,
            limits.of_device(device.config),
            request.max_memory,
        )
    if recorder is not None:
        report = recorder.added_to(report)
    _show(request, _with_details(request, bundle, report))
    _say_violation(request, report)
    if _is_late(report) or (report.trap is None and late is not None):
        return EXIT_TIMEOUT
    return EXIT_OK if report.trap is None else EXIT_WORSE


def _check(request: _Request) -> None:
    """Refuse what cannot be, before anything is read."""
    if request.node_data is not None and request.node_data.suffix != ".json":
        raise fail(
            "ARG001",
            "Model Explorer takes node data from .json files alone, and they are several",
            found=f"--node-data {request.node_data}",
            hint="--node-data NODES.json",
        )
    check_outputs(
        request.outputs, [request.bundle, request.device, request.float_weights, request.patch]
    )
    if request.float_weights is not None and not request.shadow:
        raise fail("ARG001", "--float-weights is for --shadow alone", hint="add --shadow")
    if request.repeat > 1 and request.core_on_trap is not None:
        message = "--core-on-trap repeats a single run"
        raise fail("ARG001", message, found=f"--repeat {request.repeat}", hint="--repeat 1")
    if (request.histogram or request.timeline) and request.style != "json":
        message = "--histogram and --timeline are for the JSON report alone"
        raise fail("ARG001", message, hint="add --format json; `nmpsim report` draws them")


def _check_several(request: _Request, count: int) -> None:
    """Refuse what tells of one run."""
    asked = {
        "--save-layers": request.save_layers,
        "--core-on-trap": request.core_on_trap,
        "--shadow": request.shadow,
        "--sensitivity": request.sensitivity,
        "--histogram": request.histogram,
        "--timeline": request.timeline,
        "--repeat": request.repeat > 1,
        "--trace and --dram-trace": any(request.traces.outputs),
    }
    for option, given in asked.items():
        if given:
            hint = "give one file; an .npy file can hold a whole batch"
            message = f"{option} is for one input"
            raise fail("ARG001", message, found=f"{count} inputs", hint=hint)


def _is_late(report: RunReport) -> bool:
    return report.trap is not None and report.trap.kind == "timeout"


def _say_violation(request: _Request, report: RunReport) -> None:
    """The violation of the contract as an error with its code."""
    found = report.contract.violation
    if found is not None:
        place = Place(str(request.bundle))
        say(str(Diagnostic(found.code, found.message, place, hint=found.hint)))


class _Recorder:
    """Notes what the JSON report tells of units and scratchpads over time."""

    def __init__(self, bundle: Bundle) -> None:
        from nmpsim.analysis.timeline import TimelineRecorder
        from nmpsim.debugger.scratchpads import ScratchpadRecorder

        self._timeline = TimelineRecorder()
        self._scratchpads = ScratchpadRecorder(bundle)

    def __call__(self, work: Any) -> None:
        self._timeline(work)
        self._scratchpads(work)

    def added_to(self, report: RunReport) -> RunReport:
        layers = len(report.layers)
        timeline, scratchpads = self._timeline.timeline(layers), self._scratchpads.blocks(layers)
        return attrs.evolve(report, timeline=timeline, scratchpads=scratchpads)


def _all_of(*listeners: WorkListener | None) -> WorkListener | None:
    """One listener that tells all of them; None if there are none, as then nothing is recorded."""
    present = [listener for listener in listeners if listener is not None]

    def tell(work: Any) -> None:
        for listener in present:
            listener(work)

    return tell if present else None


def _chosen_layers(bundle: Bundle, words: tuple[str, ...]) -> tuple[str, ...]:
    """Indices of the layers that are asked for.

    Unknown ones, and those whose outputs are never kept, are refused before anything is run.
    """
    if not words:
        return ()
    from nmpsim.analysis.histograms import chosen_layers

    chosen = chosen_layers(bundle.metadata.layers, words)
    by_host = {i for step in bundle.metadata.steps if step.kind == "host" for i in step.layers}
    if chosen and all(one.barrier is None and one.index not in by_host for one in chosen):
        raise fail(
            "ARG001",
            "the outputs of these layers are not kept: no barrier ends them",
            place=Place(str(bundle.path)),
            found=", ".join(layer.display_name for layer in chosen[:5]),
            hint="name the barrier in the `.layer` line of the assembly (docs/bundle.md);"
            " `nmpsim debug` shows what lies in memory without it",
        )
    return tuple(str(layer.index) for layer in chosen)


def _with_shadow(
    shadow: Shadow,
    report: RunReport,
    arrays: Mapping[str, npt.NDArray[Any]],
    progress: ProgressCallback,
    budget: TimeBudget,
) -> RunReport:
    begin = time.perf_counter()

    def done(state: Progress) -> None:
        progress(state)
        budget.check(time.perf_counter() - begin)

    report = shadow.beside(report, arrays, progress=done)
    budget.spend(time.perf_counter() - begin)
    return report


def _with_sensitivity(
    bundle: Bundle,
    arrays: Mapping[str, npt.NDArray[Any]],
    report: RunReport,
    config: DeviceConfig,
    progress: ProgressCallback,
    budget: TimeBudget,
) -> RunReport:
    from nmpsim.experiments.sensitivity import sensitivity

    if report.trap is not None:
        say("warning: the run did not reach its end, so there is no sensitivity of its cycles")
        return report
    found = sensitivity(bundle, arrays, report, config, progress=progress, budget=budget)
    return attrs.evolve(report, sensitivity=found)


def _with_details(request: _Request, bundle: Bundle, report: RunReport) -> RunReport:
    """What only the JSON report tells."""
    if request.style != "json":
        return report
    from nmpsim.analysis.data_flow import layer_edges
    from nmpsim.analysis.histograms import histograms
    from nmpsim.analysis.memory_map import memory_map

    counted = histograms(report, request.histogram)
    memory, edges = memory_map(bundle), layer_edges(bundle)
    return attrs.evolve(report, histograms=counted, memory=memory, edges=edges)


def _save(request: _Request, bundle: Bundle, report: RunReport) -> None:
    if request.node_data is not None:
        from nmpsim.views.graph.node_data import node_data

        for path, text in node_data(request.node_data, bundle.metadata, report).items():
            emit(text, path)
    if request.save_layers is not None:
        write_npz(request.save_layers, report.layer_outputs)
        hidden = sum(len(layer.fused) - 1 for layer in bundle.metadata.layers if layer.fused)
        if hidden:
            say(_fused_note(hidden))
    if request.save_outputs is None:
        return
    if report.trap is not None:
        say(f"warning: the run did not reach its end; {request.save_outputs} is not written")
    else:
        write_npz(request.save_outputs, report.outputs)


def _tell_limit(request: _Request, report: RunReport) -> None:
    """A run beyond a limit is reported on stderr too, with its code."""
    codes = {"cycle_limit": "LIMIT001", "timeout": "LIMIT002"}
    if report.trap is not None and report.trap.kind in codes:
        place = Place(str(request.bundle))
        say(str(Diagnostic(codes[report.trap.kind], report.trap.message, place)))


def _fused_note(count: int) -> str:
    if count == 1:
        text = "1 instruction is fused into another and has no output of its own"
        return f"{text}; compile with --no-fuse to see it"
    text = f"{count:,} instructions are fused into others and have no output of their own"
    return f"{text}; compile with --no-fuse to see them"


def _show(request: _Request, report: RunReport) -> None:
    if request.style == "json":
        from nmpsim.report.json import to_json

        show_json(to_json(report), request.output)
        return
    from nmpsim.views.run_text import print_run

    with printing(request.output) as console:
        print_run(report, console)
        if report.shadow is not None:
            from nmpsim.views.shadow_text import print_shadow

            print_shadow(report.shadow, console)
        if report.sensitivity is not None:
            from nmpsim.views.sensitivity_text import print_sensitivity

            print_sensitivity(report.sensitivity, console)
