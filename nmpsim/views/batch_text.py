"""Several runs of one program, as a table with a row per input and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Literal, TypedDict

import attrs
from rich.console import Console

from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.fields import BY_NAME, NOT_IN_JSON, OMITTED_IF_EMPTY
from nmpsim.report.json import to_json
from nmpsim.views.console import print_line, print_table
from nmpsim.views.measures import NumberColumn, TableColumn
from nmpsim.views.text import ClassScore, find_top_classes, format_range


@frozen
class OutputSummary:
    """Summary of an output: its best classes or its range of values."""

    name: Annotated[str, NOT_IN_JSON]
    top: Annotated[tuple[ClassScore, ...], "best classes, best first; none if it has no classes"]
    text: Annotated[str, NOT_IN_JSON]

    @classmethod
    def from_output(cls, output: OutputReport) -> OutputSummary:
        """Create a summary from an output of a run."""
        top = find_top_classes(output)
        return cls(output.name, top, ", ".join(map(str, top)) or format_range(output))


@frozen
class ItemSummary:
    """Summary of the outputs for one input file."""

    input: Annotated[str, "the file"]
    outputs: Annotated[
        tuple[OutputSummary, ...], BY_NAME, "by name; those that have an item for each"
    ]


@frozen
class RunSummary:
    """Summary of a run on one input file, or on the files of a batch."""

    input: Annotated[str, "the file; of a batch the first"]
    cycles: Annotated[int, "latency: of this run, from rest"]
    saturated: Annotated[int, "values that saturated, over all layers"]
    trap: Annotated[str | None, "null, or why the run stopped"]
    outputs: Annotated[tuple[OutputSummary, ...], BY_NAME, "by name; none if the run stopped"]
    items: Annotated[
        tuple[ItemSummary, ...], OMITTED_IF_EMPTY, "of a batch that several files fill"
    ]

    @classmethod
    def from_report(cls, files: Sequence[str], report: RunReport) -> RunSummary:
        """Create a summary from the input files and the report of a run."""
        outputs = report.output_reports if report.trap is None else []
        return cls(
            files[0] if files else "",
            report.cycles,
            report.saturated,
            None if report.trap is None else report.trap.message,
            tuple(map(OutputSummary.from_output, outputs)),
            tuple(_items(files, outputs)) if len(files) > 1 else (),
        )

    @property
    def rows(self) -> tuple[ItemSummary, ...]:
        """Summaries of the outputs, one item for each input file."""
        return self.items or (ItemSummary(self.input, self.outputs),)


class RunsDocument(TypedDict):
    """Output of `nmpsim run --format json` for several inputs."""

    schema: Literal["nmpsim-runs-1"]
    program: str
    bundle: Annotated[str, "digest of the bundle"]
    runs: list[RunSummary]


def _items(files: Sequence[str], outputs: Sequence[OutputReport]) -> Iterator[ItemSummary]:
    batched = [one for one in outputs if one.values.shape[:1] == (len(files),)]
    for index, file in enumerate(files):
        parts = (attrs.evolve(one, values=one.values[index : index + 1]) for one in batched)
        yield ItemSummary(file, tuple(map(OutputSummary.from_output, parts)))


def print_batch(program: str, runs: Sequence[RunSummary], console: Console) -> None:
    """Print a table of several runs with a row for each input file.

    The cycles of a batch are in the row of its first file.
    """
    lines = [(run, item) for run in runs for item in run.rows]
    batches = f" in {format_count(len(runs), 'run')}" if len(runs) < len(lines) else ""
    print_line(console, f"{program}: {format_count(len(lines), 'input')}{batches}", "bold")
    console.print()
    outputs = [output for _, item in lines for output in item.outputs]
    best = ": best classes" if any(output.top for output in outputs) else ""
    print_table(
        console,
        lines,
        TableColumn("input", lambda row: row[1].input, least=12),
        *(
            TableColumn(f"{escape_line(name)}{best}", partial(_cell, name), least=16)
            for name in dict.fromkeys(output.name for output in outputs)
        ),
        *(NumberColumn(name, partial(_number, name)) for name in ("cycles", "saturated")),
    )
    for run in runs:
        if run.trap is not None:
            print_line(console, f"{run.input}: the run stopped: {run.trap}", "red")


def _number(name: str, row: tuple[RunSummary, ItemSummary]) -> int | str:
    run, item = row
    return getattr(run, name) if item == run.rows[0] else ""


def _cell(output: str, row: tuple[RunSummary, ItemSummary]) -> str:
    run, item = row
    found = next((one.text for one in item.outputs if one.name == output), None)
    return found or ("" if run.trap is None else "stopped")


def make_runs_document(program: str, runs: Sequence[RunSummary], *, bundle: str) -> RunsDocument:
    """Return the JSON document of several runs; ``bundle`` is the digest of the bundle."""
    return to_json({"program": program, "bundle": bundle, "runs": runs}, RunsDocument)
