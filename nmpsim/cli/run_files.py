"""Files that ``nmpsim run`` writes besides the report: traces, profiles, coverage, core files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import attrs
import click

from nmpsim.atomic import open_new_file
from nmpsim.cli.guard import print_message
from nmpsim.cli.options import LAYER
from nmpsim.cli.output import write_text
from nmpsim.cli.parameters import OutputFile, define_option
from nmpsim.diagnostics import refuse_options
from nmpsim.records import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from nmpsim.analysis.profile import CallStacks
    from nmpsim.analysis.trace import TimelineTrace
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig
    from nmpsim.core.execution_log import ExecutionLog
    from nmpsim.core.reference.commits import CommitListener
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder
    from nmpsim.debuginfo import SourceMap
    from nmpsim.report.data import RunReport


_MEGABYTE = 1_000_000
_GZIP_LEVEL = 1
"""Four times as fast as the default, for a file that is half as large again."""
_TRACES = "Traces"


@frozen(kw_only=True)
class TraceOptions:
    """Command-line options that select the trace files of a run.

    Raises UserError (ARG001) for a selection of cores or layers without a trace.
    """

    trace: OutputFile | None = define_option(
        "Timeline of all units, for ui.perfetto.dev.", "OUT.json[.gz]", group=_TRACES
    )
    dram_trace: OutputFile | None = define_option(
        "Addresses of DRAM bursts, for DRAMsim3.", "OUT.trc", group=_TRACES
    )
    commit_log: OutputFile | None = define_option(
        "Log of executed instructions, as Spike writes it.", "OUT.log[.gz]", group=_TRACES
    )
    trace_cores: str | None = define_option(
        "Cores to trace.  [default: all]", "0-3,8", group=_TRACES
    )
    trace_layer: tuple[str, ...] = define_option(
        f"Layer to trace: {LAYER}.", "LAYER", group=_TRACES, default=()
    )
    trace_limit: Annotated[int, click.IntRange(1, 100_000)] = define_option(
        "Size limit of --trace.", "MB", group=_TRACES, default=100
    )

    def __attrs_post_init__(self) -> None:
        if not any(self.outputs):
            given = {"--trace-cores": self.trace_cores, "--trace-layer": self.trace_layer}
            refuse_options(given, "without a trace", "Add --trace OUT.json.")

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Paths of the trace files, with None for each trace that is not requested."""
        return self.trace, self.dram_trace, self.commit_log


@attrs.frozen
class RunTraces:
    """Traces of one run: callbacks that record work, and a timeline to finish after the run."""

    listeners: tuple[Callable[[Any], None], ...] = ()
    timeline: TimelineTrace | None = None
    scratchpads: ScratchpadRecorder | None = None
    commits: CommitListener | None = None

    def finish_timeline(self, report: RunReport) -> None:
        """Write the events of the run's report to the timeline trace, if there is one."""
        if self.timeline is None:
            return
        if self.scratchpads is not None:
            blocks = self.scratchpads.list_blocks(len(report.layers))
            report = attrs.evolve(report, scratchpads=blocks)
        self.timeline.finish(report)
        if self.timeline.dropped:
            print_message(
                f"warning: the trace omits {self.timeline.dropped:,} events; raise --trace-limit,"
                " or select with --trace-cores and --trace-layer"
            )


@contextmanager
def open_traces(options: TraceOptions, bundle: Bundle, config: DeviceConfig) -> Iterator[RunTraces]:
    """Open the requested traces in a context manager that closes their files."""
    if not any(options.outputs):
        yield RunTraces()
        return
    from nmpsim.analysis.trace import CommitLog, DramTrace, TimelineTrace, parse_selection
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder
    from nmpsim.timing import get_costs

    cores = config.cores_count
    chosen = parse_selection(bundle.metadata, cores, options.trace_cores, options.trace_layer)
    listeners: list[Callable[[Any], None]] = []
    with ExitStack() as files:
        timeline = scratchpads = None
        if options.trace is not None:
            file = files.enter_context(_open(options.trace))
            limit = options.trace_limit * _MEGABYTE
            timeline = TimelineTrace(file, bundle, cores, chosen, limit)
            scratchpads = ScratchpadRecorder(bundle)
            listeners += [timeline, partial(_record_core, scratchpads, min(chosen.cores or [0]))]
        if options.dram_trace is not None:
            file = files.enter_context(_open(options.dram_trace))
            listeners.append(DramTrace(file, get_costs(config), chosen))
        commits = None
        if options.commit_log is not None:
            commits = CommitLog(files.enter_context(_open(options.commit_log)), chosen)
        yield RunTraces(tuple(listeners), timeline, scratchpads, commits)


def _record_core(scratchpads: ScratchpadRecorder, core: int, work: Any) -> None:
    """Record the scratchpad of one core only, for speed."""
    scratchpads(work[work["core"] == core])


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with open_new_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        import gzip

        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # it is a file of bytes


def save_core_file(
    path: Path,
    bundle: Bundle,
    arrays: Mapping[str, npt.NDArray[Any]],
    report: RunReport,
    config: DeviceConfig,
    max_memory: int | None,
) -> None:
    """Write a core file that reproduces a run's trap; for a timeout, only print a warning.

    The debugger opens the file at the trap. For a violation of the contract, at which the debugger
    does not stop, the position of the first violation is searched for and stored.

    Raises
    ------
    UserError
        FILE002 if the file cannot be written, MEM001 if the search for a violation needs more than
        ``max_memory`` bytes.
    """
    trap = report.trap
    assert trap is not None
    if trap.kind == "timeout":
        print_message(f"warning: {path} is not written, because a timeout cannot be reproduced")
        return
    from nmpsim.core.inputs import prepare_inputs
    from nmpsim.debugger.core_dump import CoreDump, write_core_file

    position = None
    if trap.kind == "contract":
        from nmpsim.checking.hazards import find_hazards

        found = find_hazards(bundle, arrays, config, max_memory=max_memory, max_found=1).found
        position = found[0].position if found else None
    inputs = prepare_inputs(bundle, arrays)
    write_core_file(path, CoreDump(bytes(bundle.file), inputs, config, report.engine, position))
    print_message(f"wrote {path}; `nmpsim debug {path}` shows the run where it stopped")


# Profiles and coverage that ``nmpsim run`` writes besides the report.

_PROFILES = "Profiles"


@frozen(kw_only=True)
class ProfileOptions:
    """Command-line options that select the profile and the coverage file of a run."""

    profile: OutputFile | None = define_option(
        "Cycles of each function, for speedscope.app.", "OUT.json", group=_PROFILES
    )
    coverage: OutputFile | None = define_option(
        "Executions of each source line, for lcov.", "OUT.info", group=_PROFILES
    )

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Paths of the files, with None for each file that is not requested."""
        return self.profile, self.coverage


@attrs.frozen(eq=False)
class RunProfile:
    """Profile of one run: the execution log, and what the files are made of."""

    log: ExecutionLog
    stacks: CallStacks
    source_map: SourceMap

    def write_files(self, options: ProfileOptions, program: str) -> None:
        """Write the requested files of a profile after the run of a program."""
        from nmpsim.analysis.profile import format_coverage, make_speedscope_document

        if options.profile is not None:
            document = make_speedscope_document(program, self.log.layout, self.stacks)
            write_text(json.dumps(document, separators=(",", ":")) + "\n", options.profile)
        if options.coverage is not None:
            write_text(format_coverage(self.source_map, self.log), options.coverage)


def make_run_profile(
    options: ProfileOptions, bundle: Bundle, cores: int, timeline: TimelineTrace | None
) -> RunProfile | None:
    """Return the profile of a run before it begins, or None if no file needs one.

    A ``timeline`` of an ELF program without metadata also needs it, for the functions of each core.

    Raises
    ------
    UserError
        LINE001 or PKG001 if the program has no source lines for a coverage file.
    """
    has_functions = timeline is not None and not bundle.has_metadata
    if not any(options.outputs) and not has_functions:
        return None
    from nmpsim.analysis.profile import CallStacks, list_profile_functions
    from nmpsim.core.execution_log import CodeLayout, ExecutionLog
    from nmpsim.debuginfo import read_source_map

    source_map = read_source_map(bundle, requires_lines=options.coverage is not None)
    if source_map.warning:
        print_message(f"warning: {source_map.warning}")
    layout = CodeLayout(bundle, list_profile_functions(bundle, source_map.functions))
    listener = None
    if timeline is not None and has_functions:
        listener = timeline.begin_functions([name for name, _ in layout.names])
    stacks = CallStacks(layout, cores, listener)
    return RunProfile(ExecutionLog(layout, [stacks]), stacks, source_map)
