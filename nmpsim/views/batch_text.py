"""Several runs of one program, as a table with a row per input and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, NotRequired, TypedDict

import attrs
from rich.console import Console

from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.fields import Source
from nmpsim.report.json import to_json
from nmpsim.views.console import print_line, print_table
from nmpsim.views.measures import NumberColumn, TableColumn
from nmpsim.views.text import find_top_classes, format_range, is_score_shape


class ClassDocument(TypedDict):
    """JSON form of a predicted class and its score."""

    index: Annotated[int, "of the class, from 0"]
    value: Annotated[float, "its score as a real number"]


def _outputs(item: ItemSummary | RunSummary) -> Mapping[str, OutputSummary]:
    return {output.name: output for output in item.outputs}


def _top(output: OutputSummary) -> list[ClassDocument]:
    return [{"index": index, "value": value} for index, value in output.top]


class RunOutputDocument(TypedDict):
    """JSON form of an output of one run."""

    top: Annotated[
        list[ClassDocument],
        Source(_top),
        "best classes, best first; none if it has no classes",
    ]


class ItemDocument(TypedDict):
    """JSON form of the outputs for one input file of a batch."""

    input: Annotated[str, "the file"]
    outputs: Annotated[
        dict[str, RunOutputDocument],
        Source(_outputs),
        "by name; those that have an item for each",
    ]


class RunDocument(TypedDict):
    """JSON form of a run on one input or on a batch."""

    input: Annotated[str, "the file; of a batch the first"]
    cycles: Annotated[int, "latency: of this run, from rest"]
    saturated: Annotated[int, "values that saturated, over all layers"]
    trap: Annotated[str | None, "null, or why the run stopped"]
    outputs: Annotated[
        dict[str, RunOutputDocument], Source(_outputs), "by name; none if the run stopped"
    ]
    items: NotRequired[Annotated[list[ItemDocument], "of a batch that several files fill"]]


class RunsDocument(TypedDict):
    """Output of `nmpsim run --format json` for several inputs."""

    schema: Literal["nmpsim-runs-1"]
    program: str
    bundle: Annotated[str, "digest of the bundle"]
    runs: list[RunDocument]


@attrs.frozen
class OutputSummary:
    """Summary of an output: its best classes or its range of values."""

    name: str
    top: tuple[tuple[int, float], ...]
    """Best classes with their real values, best first; empty if the output has no classes."""
    text: str

    @classmethod
    def from_output(cls, output: OutputReport) -> OutputSummary:
        """Create a summary from an output of a run."""
        if not is_score_shape(output.values.shape):
            return cls(output.name, (), format_range(output))
        real = output.dequantize().reshape(-1)
        top = tuple((index, float(real[index])) for index in find_top_classes(real))
        return cls(output.name, top, ", ".join(f"{index} ({value:.4g})" for index, value in top))


@attrs.frozen
class ItemSummary:
    """Summary of the outputs for one input file."""

    input: str
    outputs: tuple[OutputSummary, ...]


@attrs.frozen
class RunSummary:
    """Summary of a run on one input file, or on the files of a batch."""

    input: str
    cycles: int
    saturated: int
    trap: str | None
    outputs: tuple[OutputSummary, ...]
    items: tuple[ItemSummary, ...]
    """The items of a batch; empty if one file is the whole input."""

    @classmethod
    def from_report(cls, files: Sequence[str], report: RunReport) -> RunSummary:
        """Create a summary from the input files and the report of a run."""
        outputs = report.output_reports if report.trap is None else []
        input = files[0] if files else ""
        return cls(
            input,
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
    names = list(dict.fromkeys(output.name for _, item in lines for output in item.outputs))
    best = any(output.top for _, item in lines for output in item.outputs)
    print_table(
        console,
        lines,
        TableColumn("input", lambda row: row[1].input, least=12),
        *(
            TableColumn(
                f"{escape_line(name)}: best classes" if best else escape_line(name),
                partial(_cell, name),
                least=16,
            )
            for name in names
        ),
        NumberColumn("cycles", lambda row: _first(row, row[0].cycles)),
        NumberColumn("saturated", lambda row: _first(row, row[0].saturated)),
    )
    for run in runs:
        if run.trap is not None:
            print_line(console, f"{run.input}: the run stopped: {run.trap}", "red")


def _first(row: tuple[RunSummary, ItemSummary], number: int) -> int | str:
    run, item = row
    return number if item == run.rows[0] else ""


def _cell(output: str, row: tuple[RunSummary, ItemSummary]) -> str:
    run, item = row
    found = next((one.text for one in item.outputs if one.name == output), None)
    return found or ("" if run.trap is None else "stopped")


def make_runs_document(program: str, runs: Sequence[RunSummary], *, bundle: str) -> RunsDocument:
    """Return the JSON document of several runs; ``bundle`` is the digest of the bundle."""
    data = {"program": program, "bundle": bundle, "runs": runs}
    return to_json(data, RunsDocument)
