"""Files that ``nmpsim run`` writes besides the report: traces and core files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import attrs
import click

from nmpsim.atomic import open_new_file
from nmpsim.cli.guard import print_message
from nmpsim.cli.options import LAYER
from nmpsim.cli.parameters import OutputFile, option
from nmpsim.diagnostics import fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from nmpsim.analysis.trace import DramTrace, TimelineTrace
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder
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

    trace: OutputFile | None = option(
        "Timeline of all units, for ui.perfetto.dev.", "OUT.json[.gz]", group=_TRACES
    )
    dram_trace: OutputFile | None = option(
        "Addresses of DRAM bursts, for DRAMsim3.", "OUT.trc", group=_TRACES
    )
    trace_cores: str | None = option("Cores to trace.  [default: all]", "0-3,8", group=_TRACES)
    trace_layer: tuple[str, ...] = option(
        f"Layer to trace: {LAYER}.", "LAYER", group=_TRACES, default=()
    )
    trace_limit: Annotated[int, click.IntRange(1, 100_000)] = option(
        "Size limit of --trace.", "MB", group=_TRACES, default=100
    )

    def __attrs_post_init__(self) -> None:
        if (self.trace_cores or self.trace_layer) and not any(self.outputs):
            raise fail(
                "ARG001",
                "--trace-cores and --trace-layer require a trace",
                hint="Add --trace OUT.json.",
            )

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """Paths of the trace files; None for a trace not requested."""
        return self.trace, self.dram_trace


class RunTraces:
    """Trace files that are written during one run."""

    def __init__(
        self,
        timeline: TimelineTrace | None,
        dram: DramTrace | None,
        scratchpads: ScratchpadRecorder | None,
        core: int = 0,
    ) -> None:
        """Collect traces; ``core`` is the only one whose scratchpad is traced, for speed."""
        self._timeline = timeline
        self._scratchpads = scratchpads
        self._core = core
        self._listeners = [one for one in (timeline, dram) if one is not None]

    @property
    def listener(self) -> Callable[[Any], None] | None:
        """Callback for the work of the device; None without a trace."""
        return self._listen if self._listeners else None

    def finish(self, report: RunReport) -> None:
        """Write the rest of the traces after the run."""
        if self._timeline is None:
            return
        if self._scratchpads is not None:
            blocks = self._scratchpads.list_blocks(len(report.layers))
            report = attrs.evolve(report, scratchpads=blocks)
        self._timeline.finish(report)
        if self._timeline.dropped:
            print_message(
                f"warning: the trace omits {self._timeline.dropped:,} events; raise --trace-limit,"
                " or select with --trace-cores and --trace-layer"
            )

    def _listen(self, work: Any) -> None:
        for listener in self._listeners:
            listener(work)
        if self._scratchpads is not None:
            self._scratchpads(work[work["core"] == self._core])


@contextmanager
def open_traces(options: TraceOptions, bundle: Bundle, config: DeviceConfig) -> Iterator[RunTraces]:
    """Open the requested traces in a context manager that closes their files."""
    if not any(options.outputs):
        yield RunTraces(None, None, None)
        return
    from nmpsim.analysis.trace import DramTrace, TimelineTrace, parse_selection
    from nmpsim.debugger.scratchpad_recorder import ScratchpadRecorder
    from nmpsim.timing import get_costs

    cores = config.cores_count
    chosen = parse_selection(bundle.metadata, cores, options.trace_cores, options.trace_layer)
    with ExitStack() as files:
        timeline = dram = scratchpads = None
        if options.trace is not None:
            file = files.enter_context(_open(options.trace))
            limit = options.trace_limit * _MEGABYTE
            timeline = TimelineTrace(file, bundle, cores, chosen, limit)
            scratchpads = ScratchpadRecorder(bundle)
        if options.dram_trace is not None:
            file = files.enter_context(_open(options.dram_trace))
            dram = DramTrace(file, get_costs(config), chosen)
        yield RunTraces(timeline, dram, scratchpads, min(chosen.cores or [0]))


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
    """Write a core file that reproduces the trap of a run; warn if a timeout has none.

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
        print_message(f"warning: a timeout cannot be reproduced; {path} is not written")
        return
    from nmpsim.core.inputs import prepare_inputs
    from nmpsim.debugger.core_dump import CoreDump, write_core_file

    position = None
    if trap.kind == "contract":
        from nmpsim.checking.hazards import find_hazards

        found = find_hazards(bundle, arrays, config, max_memory=max_memory, max_found=1)
        position = found[0].position if found else None
    inputs = prepare_inputs(bundle.metadata, arrays)
    write_core_file(path, CoreDump(bytes(bundle.file), inputs, config, report.engine, position))
    print_message(f"wrote {path}; `nmpsim debug {path}` opens it where the run stopped")
