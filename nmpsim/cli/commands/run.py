"""``nmpsim run``: simulate a bundle on inputs, and report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.atomic import write_npz
from nmpsim.cli.environment import choose_engine
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device, load_program, warn_if_unquantized
from nmpsim.cli.output import (
    check_outputs,
    open_text_output,
    print_console,
    show_progress,
    write_json,
    write_text,
)
from nmpsim.cli.parameters import (
    define_command,
)
from nmpsim.cli.run_files import (
    make_run_profile,
    open_traces,
    save_core_file,
)
from nmpsim.cli.run_options import RunCommandOptions
from nmpsim.diagnostics import (
    EXIT_OK,
    EXIT_TIMEOUT,
    EXIT_WORSE,
    Diagnostic,
    Place,
    fail,
    format_count,
    refuse_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from nmpsim.analysis.timeline import TimelineRecorder
    from nmpsim.bundle import Bundle
    from nmpsim.core.limits import TimeBudget
    from nmpsim.core.run import Progress, ProgressCallback
    from nmpsim.debugger.pointer_check import PointerCheck
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder
    from nmpsim.report.data import RunReport
    from nmpsim.session import Device, Shadow

    Arrays = Mapping[str, npt.NDArray[Any]]

_LIMIT_CODES = {"cycle_limit": "LIMIT001", "timeout": "LIMIT002"}
"""Kind of a trap at a limit -> its error code."""


@define_command
def command(options: RunCommandOptions) -> int:
    """Run a network and print its outputs, per-layer cycles and saturation.

    An input is an array (.npy, or .npz under the inputs' names), float or already quantized; an
    image (PNG, JPEG, BMP); or raw values (.bin, .raw). A folder or a quoted glob pattern starts one
    run per file; so do several --input for a network with state, which runs keep. LAYER is an
    index, a name (conv1 for conv1__2), line:N or number:N of the LIR.

    Exit code 1 if the run trapped (fault, deadlock, cycle limit) or violated the contract, 124 if
    it took longer than --timeout.
    """
    _check(options)
    config = load_device(options.device)
    from nmpsim import session
    from nmpsim.cli.inputs import find_samples, list_input_paths
    from nmpsim.cli.samples import ProgramInputs, print_image_formats

    arguments = options.inputs.arguments
    bundle = load_program(
        options.bundle,
        options.patch,
        device=config,
        inputs=arguments,
    )
    if session.is_model(options.bundle):
        warn_if_unquantized(bundle.metadata, options.bundle)
    options = attrs.evolve(options, histogram=_find_layers(bundle, options.histogram))
    inputs = ProgramInputs.from_bundle(bundle.metadata, options.inputs.images)
    samples = find_samples(arguments, inputs)
    check_outputs(options.outputs, list_input_paths(arguments, list(inputs.tensors)))
    count = sum(len(sample.files) for sample in samples)
    if count > 1:
        _check_batch(options, count)
    arrays = samples[0].load()
    print_image_formats(samples)
    runs_often = options.sensitivity or options.savings
    needs_reference = options.traces.commit_log is not None or options.check_pointers
    device = session.Device(
        config or session.get_device(bundle),
        engine="reference"
        if needs_reference
        else choose_engine(options.engine, runs_often=runs_often),
        threads=options.threads,
        max_memory=options.limits.max_memory,
    )
    if count <= 1:
        return _run(options, bundle, device, arrays)
    from nmpsim.cli.batch import run_batch

    return run_batch(options, device, bundle, samples)


def _run(options: RunCommandOptions, bundle: Bundle, device: Device, arrays: Arrays) -> int:
    """Run the bundle once, write the report and return the exit code."""
    from nmpsim import session
    from nmpsim.core.limits import TimeBudget, TimeLimitError

    limits = options.limits.make_limits()
    shadow = session.Shadow(bundle, options.float_weights) if options.shadow else None
    saves_layers = options.shadow or bool(options.histogram) or options.save_layers is not None
    recorders = _make_recorders(bundle) if options.timeline else ()
    pointers = _make_pointer_check(options, bundle, device)
    with show_progress() as progress:
        with open_traces(options.traces, bundle, device.config) as traces:
            cores = device.config.cores_count
            profile = make_run_profile(options.profiles, bundle, cores, traces.timeline)
            report = device.run(
                bundle,
                arrays,
                save_layers=saves_layers,
                progress=progress,
                work=_combine(*traces.listeners, *recorders),
                commits=_combine(*(one for one in (traces.commits, pointers) if one)),
                execution=None if profile is None else profile.log,
                limits=limits,
                strict=options.strict,
                repeat=options.repeat,
            )
            traces.finish_timeline(report)
        budget, timeout = TimeBudget(limits, report.host_seconds), None
        try:
            if shadow is not None and not _has_timed_out(report):
                report = _add_shadow(shadow, report, arrays, progress, budget)
            if options.sensitivity:
                report = _add_sensitivity(bundle, arrays, report, device, progress, budget)
        except TimeLimitError as error:
            (timeout,) = error.diagnostics
    _save(options, bundle, report)
    print_console(report)
    if profile is not None:
        profile.write_files(options.profiles, bundle.metadata.program)
    place = Place(str(options.bundle))
    trap, violation = report.trap, report.contract.violation
    if trap is not None and trap.kind in _LIMIT_CODES:
        hint = "Raise the limit with --max-cycles, or debug the run with `nmpsim debug`."
        print_message(str(Diagnostic(_LIMIT_CODES[trap.kind], trap.message, place, hint=hint)))
    if timeout is not None:
        print_message(str(attrs.evolve(timeout, place=place)))
    if trap is not None and options.core_on_trap is not None:
        config = limits.apply_to_device(device.config)
        save_core_file(
            options.core_on_trap, bundle, arrays, report, config, options.limits.max_memory
        )
    if recorders:
        timeline, scratchpads = recorders
        report = attrs.evolve(
            report,
            timeline=timeline.timeline(len(report.layers)),
            scratchpads=scratchpads.list_blocks(len(report.layers)),
        )
    if pointers is not None:
        report = attrs.evolve(report, pointers=pointers.make_report())
    _show(options, bundle, report)
    if violation is not None:
        print_message(
            str(Diagnostic(violation.code, violation.message, place, hint=violation.hint))
        )
    if report.pointers is not None:
        for found in report.pointers.findings:
            print_message(str(found.make_diagnostic()))
        for text in report.pointers.limits:
            print_message(f"{place}: not all pointers are checked: {text}")
    if _has_timed_out(report) or (trap is None and timeout is not None):
        return EXIT_TIMEOUT
    if trap is None and report.exit_status:
        print_message(f"{place}: the program ended with exit status {report.exit_status}")
    is_worse = trap is not None or report.exit_status or (pointers and pointers.findings)
    return EXIT_WORSE if is_worse else EXIT_OK


def _check(options: RunCommandOptions) -> None:
    """Raise UserError for options that contradict each other, before anything is read."""
    if options.node_data is not None and options.node_data.suffix != ".json":
        raise fail(
            "ARG001",
            "Model Explorer reads node data from .json files only",
            found=f"--node-data {options.node_data}",
            hint="Pass a file such as NODES.json.",
        )
    check_outputs(
        options.outputs, [options.bundle, options.device, options.float_weights, options.patch]
    )
    if options.allocators and not options.check_pointers:
        raise fail("ARG001", "--allocator requires --check-pointers", hint="Add --check-pointers.")
    if options.float_weights is not None and not options.shadow:
        raise fail("ARG001", "--float-weights requires --shadow", hint="Add --shadow.")
    if options.engine == "compiled":
        needing_reference = {
            "--commit-log": options.traces.commit_log,
            "--check-pointers": options.check_pointers,
        }
        refuse_options(needing_reference, "with the compiled engine", "Leave out --engine.")
    if options.repeat > 1 and options.core_on_trap is not None:
        message = "--core-on-trap cannot be used with --repeat"
        found, hint = f"--repeat {options.repeat}", "Leave out --repeat."
        raise fail("ARG001", message, found=found, hint=hint)
    if options.format != "json":
        given = {
            "--histogram": options.histogram,
            "--savings": options.savings,
            "--timeline": options.timeline,
        }
        hint = "Add --format json, and draw the report with `nmpsim report`."
        refuse_options(given, "without the JSON report", hint)


def _check_batch(options: RunCommandOptions, count: int) -> None:
    """Raise UserError for an option that needs a single run."""
    given = {
        "--save-layers": options.save_layers,
        "--core-on-trap": options.core_on_trap,
        "--shadow": options.shadow,
        "--sensitivity": options.sensitivity,
        "--histogram": options.histogram,
        "--savings": options.savings,
        "--timeline": options.timeline,
        "--repeat": options.repeat > 1,
        "--trace": options.traces.trace,
        "--dram-trace": options.traces.dram_trace,
        "--commit-log": options.traces.commit_log,
        "--check-pointers": options.check_pointers,
        "--profile": options.profiles.profile,
        "--coverage": options.profiles.coverage,
    }
    hint = "Pass one file; an .npy file can contain a whole batch."
    refuse_options(given, f"with {count} inputs", hint)


def _has_timed_out(report: RunReport) -> bool:
    return report.trap is not None and report.trap.kind == "timeout"


def _make_recorders(bundle: Bundle) -> tuple[TimelineRecorder, ScratchpadRecorder]:
    """Return recorders of the work of units and the use of scratchpads, for the JSON report."""
    from nmpsim.analysis.timeline import TimelineRecorder
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder

    return TimelineRecorder(), ScratchpadRecorder(bundle)


def _make_pointer_check(
    options: RunCommandOptions, bundle: Bundle, device: Device
) -> PointerCheck | None:
    """Return the requested check of pointers, or None.

    Raises UserError: LINE001 for a program without source lines, ARG001 for unknown allocators.
    """
    if not options.check_pointers:
        return None
    from nmpsim.debugger.pointer_check import PointerCheck
    from nmpsim.debuginfo.read import read_source_map

    source_map = read_source_map(bundle, requires_lines=True)
    return PointerCheck(bundle, source_map, device.config.cores_count, options.allocators)


def _combine(*listeners: Callable[[Any], None]) -> Callable[[Any], None] | None:
    """Return one listener that calls all of them; None, which records nothing, without any."""

    def call_all(work: Any) -> None:
        for listener in listeners:
            listener(work)

    return call_all if listeners else None


def _find_layers(bundle: Bundle, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the indices of layers as text.

    Raises UserError for an unknown layer, and if no output of the layers is kept in a run.
    """
    if not words:
        return ()
    from nmpsim.analysis.histograms import select_layers

    layers = select_layers(bundle.metadata.layers, words)
    on_host = {i for step in bundle.metadata.steps if step.kind == "host" for i in step.layers}
    if layers and all(one.barrier is None and one.index not in on_host for one in layers):
        raise fail(
            "ARG001",
            "the outputs of the layers cannot be read, because no barrier ends these layers",
            place=bundle.path,
            found=", ".join(layer.display_name for layer in layers[:5]),
            hint="Name the barrier in the `.layer` line of the assembly (docs/assembly.md).",
        )
    return tuple(str(layer.index) for layer in layers)


def _add_shadow(
    shadow: Shadow,
    report: RunReport,
    arrays: Arrays,
    progress: ProgressCallback,
    budget: TimeBudget,
) -> RunReport:
    begin = time.perf_counter()

    def check_time(state: Progress) -> None:
        progress(state)
        budget.check(time.perf_counter() - begin)

    report = shadow.evaluate(report, arrays, progress=check_time)
    budget.spend(time.perf_counter() - begin)
    return report


def _add_sensitivity(
    bundle: Bundle,
    arrays: Arrays,
    report: RunReport,
    device: Device,
    progress: ProgressCallback,
    budget: TimeBudget,
) -> RunReport:
    from nmpsim.experiments.sensitivity import measure_sensitivity

    if report.trap is not None:
        print_message("warning: the run did not complete; the sensitivity is not measured")
        return report
    found = measure_sensitivity(
        bundle, arrays, report, device.config, progress=progress, budget=budget
    )
    return attrs.evolve(report, sensitivity=found)


def _save(options: RunCommandOptions, bundle: Bundle, report: RunReport) -> None:
    if options.node_data is not None:
        from nmpsim.views.graph.node_data import make_node_data

        for path, text in make_node_data(options.node_data, bundle.metadata, report).items():
            write_text(text, path)
    if options.save_layers is not None:
        write_npz(options.save_layers, report.layer_outputs)
        fused = sum(len(layer.fused) - 1 for layer in bundle.metadata.layers if layer.fused)
        if fused:
            print_message(
                f"note: the outputs of {format_count(fused, 'fused instruction')} are not saved;"
                " compile with --no-fuse to save all outputs"
            )
    if options.save_outputs is None:
        return
    if report.trap is not None:
        print_message(f"warning: the run did not complete; {options.save_outputs} is not written")
    else:
        write_npz(options.save_outputs, report.outputs)


def _show(options: RunCommandOptions, bundle: Bundle, report: RunReport) -> None:
    if options.format == "json":
        from nmpsim.analysis.data_flow import layer_edges
        from nmpsim.analysis.histograms import histograms
        from nmpsim.analysis.memory_map import memory_map
        from nmpsim.report.json import to_json

        report = attrs.evolve(
            report,
            savings=report.measure_savings() if options.savings else None,
            histograms=histograms(report, options.histogram),
            memory=memory_map(bundle),
            edges=layer_edges(bundle),
        )
        write_json(to_json(report), options.output)
        return
    from nmpsim.views.run_text import print_run

    with open_text_output(options.output) as console:
        print_run(report, console)
