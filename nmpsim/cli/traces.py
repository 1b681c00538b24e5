"""``nmpsim run --trace``: files that are written while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import attrs
import click

from nmpsim.atomic import new_file
from nmpsim.cli.guard import say
from nmpsim.cli.options import LAYER, OUTPUT
from nmpsim.diagnostics import fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.trace import DramTrace, TimelineTrace
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig
    from nmpsim.debugger.scratchpads import ScratchpadRecorder
    from nmpsim.report.data import RunReport

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MEGABYTE = 1_000_000
_PACKING = 1
"""Of gzip: four times as fast as its own choice, for a file that is half as large again."""


@frozen(kw_only=True)
class TraceRequest:
    """Which traces a command line asks for."""

    trace: Path | None
    dram_trace: Path | None
    trace_cores: str | None
    trace_layer: tuple[str, ...]
    trace_limit: int

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> TraceRequest:
        """The options of :func:`trace_options`, taken out of a command's arguments."""
        request = cls(**{field.name: arguments.pop(field.name) for field in attrs.fields(cls)})
        if (request.trace_cores or request.trace_layer) and not any(request.outputs):
            raise fail("ARG001", "there is no trace to choose for", hint="add --trace OUT.json")
        return request

    @property
    def outputs(self) -> tuple[Path | None, ...]:
        """The files."""
        return self.trace, self.dram_trace


def trace_options(command: _Command) -> _Command:
    """``--trace`` and what goes with it."""
    options = (
        click.option(
            "--trace",
            metavar="OUT.json[.gz]",
            type=OUTPUT,
            help="Write what every unit did when, for ui.perfetto.dev or chrome://tracing.",
        ),
        click.option(
            "--dram-trace",
            metavar="OUT.trc",
            type=OUTPUT,
            help="Write the address of every DRAM burst, for DRAMsim3.",
        ),
        click.option(
            "--trace-cores", metavar="0-3,8", help="Cores whose work is traced.  [default: all]"
        ),
        click.option(
            "--trace-layer",
            metavar="LAYER",
            multiple=True,
            help=f"Layer whose work is traced: {LAYER}. May be given several times."
            "  [default: all]",
        ),
        click.option(
            "--trace-limit",
            metavar="MB",
            type=click.IntRange(1, 100_000),
            default=100,
            show_default=True,
            help="Size from which on a --trace leaves events out.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


class Traces:
    """The traces of one run: what a device tells, and how they end."""

    def __init__(
        self,
        timeline: TimelineTrace | None,
        dram: DramTrace | None,
        scratchpads: ScratchpadRecorder | None,
        core: int = 0,
    ) -> None:
        """``core``: whose scratchpad is told; to look at all would take as long as the run."""
        self._timeline = timeline
        self._scratchpads = scratchpads
        self._core = core
        self._listeners = [one for one in (timeline, dram) if one is not None]

    @property
    def listener(self) -> Callable[[Any], None] | None:
        """For the device's ``work``; None if nobody listens."""
        return self._listen if self._listeners else None

    def finish(self, report: RunReport) -> None:
        """The run is over."""
        if self._timeline is None:
            return
        if self._scratchpads is not None:
            blocks = self._scratchpads.blocks(len(report.layers))
            report = attrs.evolve(report, scratchpads=blocks)
        self._timeline.finish(report)
        if self._timeline.dropped:
            say(
                f"warning: the trace leaves out {self._timeline.dropped:,} events;"
                " --trace-limit makes room, --trace-cores and --trace-layer choose"
            )

    def _listen(self, work: Any) -> None:
        for listener in self._listeners:
            listener(work)
        if self._scratchpads is not None:
            self._scratchpads(work[work["core"] == self._core])


@contextmanager
def open_traces(request: TraceRequest, bundle: Bundle, config: DeviceConfig) -> Iterator[Traces]:
    """The traces that were asked for; the files appear when all is well at the end."""
    if not any(request.outputs):
        yield Traces(None, None, None)
        return
    from nmpsim.analysis.trace import DramTrace, TimelineTrace, selection
    from nmpsim.debugger.scratchpads import ScratchpadRecorder
    from nmpsim.timing import costs_of

    cores = config.cores_count
    chosen = selection(bundle.metadata, cores, request.trace_cores, request.trace_layer)
    with ExitStack() as files:
        timeline = dram = scratchpads = None
        if request.trace is not None:
            file = files.enter_context(_opened(request.trace))
            limit = request.trace_limit * _MEGABYTE
            timeline = TimelineTrace(file, bundle, cores, chosen, limit)
            scratchpads = ScratchpadRecorder(bundle)
        if request.dram_trace is not None:
            file = files.enter_context(_opened(request.dram_trace))
            dram = DramTrace(file, costs_of(config), chosen)
        yield Traces(timeline, dram, scratchpads, min(chosen.cores or [0]))


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with new_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        import gzip

        with gzip.GzipFile("", "wb", _PACKING, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # it is a file of bytes
