"""Several runs of one program: one line for each input, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, NotRequired, TypedDict

import attrs
from rich.console import Console

from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.fields import From
from nmpsim.report.json import to_json
from nmpsim.views.answers import is_classifier, range_text, top_classes
from nmpsim.views.columns import print_table
from nmpsim.views.console import line
from nmpsim.views.measures import Measure, Number
from nmpsim.views.text import plural
from nmpsim.visible import visible_line


class ClassDocument(TypedDict):
    """A class and its score."""

    index: Annotated[int, "of the class, from 0"]
    value: Annotated[float, "its score as a real number"]


def _outputs(item: Item | OneRun) -> Mapping[str, Answer]:
    return {answer.output: answer for answer in item.answers}


def _top(answer: Answer) -> list[ClassDocument]:
    return [{"index": index, "value": value} for index, value in answer.top]


class AnswerDocument(TypedDict):
    """An output of one run."""

    top: Annotated[
        list[ClassDocument], From(_top), "best classes, best first; none if it has no classes"
    ]


class ItemDocument(TypedDict):
    """One item of a batch."""

    input: Annotated[str, "the file"]
    outputs: Annotated[
        dict[str, AnswerDocument], From(_outputs), "by name; those that have an item for each"
    ]


class OneRunDocument(TypedDict):
    """A run on one input, or on a batch of them."""

    input: Annotated[str, "the file; of a batch the first"]
    cycles: Annotated[int, "latency: of this run, from rest"]
    saturated: Annotated[int, "values that saturated, over all layers"]
    trap: Annotated[str | None, "null, or why the run stopped"]
    outputs: Annotated[
        dict[str, AnswerDocument], From(_outputs), "by name; none if the run stopped"
    ]
    items: NotRequired[Annotated[list[ItemDocument], "of a batch that several files fill"]]


class RunsDocument(TypedDict):
    """What `nmpsim run --format json` writes for several inputs."""

    schema: Literal["nmpsim-runs-1"]
    program: str
    bundle: Annotated[str, "digest of the bundle"]
    runs: list[OneRunDocument]


@attrs.frozen
class Answer:
    """An output of one run, in short."""

    output: str
    top: tuple[tuple[int, float], ...]
    """Best classes with their real values, best first; empty if it is no classifier's."""
    text: str

    @classmethod
    def of(cls, output: OutputReport) -> Answer:
        """What an output says."""
        if not is_classifier(output.values.shape):
            return cls(output.name, (), range_text(output))
        real = output.real().reshape(-1)
        top = tuple((index, float(real[index])) for index in top_classes(real))
        return cls(output.name, top, ", ".join(f"{index} ({value:.4g})" for index, value in top))


@attrs.frozen
class Item:
    """A line: one file, and what the run says of it."""

    input: str
    answers: tuple[Answer, ...]


@attrs.frozen
class OneRun:
    """A run in a line, or in one for each item of its batch."""

    input: str
    cycles: int
    saturated: int
    trap: str | None
    answers: tuple[Answer, ...]
    items: tuple[Item, ...]
    """None if one file is all of the input."""

    @classmethod
    def of(cls, files: Sequence[str], report: RunReport) -> OneRun:
        """A run on this file, or on these items of a batch."""
        outputs = report.output_reports if report.trap is None else []
        input = files[0] if files else ""
        return cls(
            input,
            report.cycles,
            sum(layer.saturated for layer in report.layers),
            None if report.trap is None else report.trap.message,
            tuple(map(Answer.of, outputs)),
            tuple(_items(files, outputs)) if len(files) > 1 else (),
        )

    @property
    def lines(self) -> tuple[Item, ...]:
        """Its files and what it says of each."""
        return self.items or (Item(self.input, self.answers),)


def _items(files: Sequence[str], outputs: Sequence[OutputReport]) -> Iterator[Item]:
    apart = [one for one in outputs if one.values.shape[:1] == (len(files),)]
    for index, file in enumerate(files):
        parts = (attrs.evolve(one, values=one.values[index : index + 1]) for one in apart)
        yield Item(file, tuple(map(Answer.of, parts)))


def print_several(program: str, runs: Sequence[OneRun], console: Console) -> None:
    """A table with a line for each input; cycles of a batch are on its first one."""
    lines = [(run, item) for run in runs for item in run.lines]
    batches = f" in {plural(len(runs), 'run')}" if len(runs) < len(lines) else ""
    line(console, f"{program}: {plural(len(lines), 'input')}{batches}", "bold")
    console.print()
    names = list(dict.fromkeys(answer.output for _, item in lines for answer in item.answers))
    best = any(answer.top for _, item in lines for answer in item.answers)
    print_table(
        console,
        lines,
        Measure("input", lambda row: row[1].input, least=12),
        *(
            Measure(
                f"{visible_line(name)}: best classes" if best else visible_line(name),
                partial(_cell, name),
                least=16,
            )
            for name in names
        ),
        Number("cycles", lambda row: _first(row, row[0].cycles)),
        Number("saturated", lambda row: _first(row, row[0].saturated)),
    )
    for run in runs:
        if run.trap is not None:
            line(console, f"{run.input}: the run stopped: {run.trap}", "red")


def _first(row: tuple[OneRun, Item], number: int) -> int | str:
    run, item = row
    return number if item == run.lines[0] else ""


def _cell(output: str, row: tuple[OneRun, Item]) -> str:
    run, item = row
    found = next((one.text for one in item.answers if one.output == output), None)
    return found or ("" if run.trap is None else "stopped")


def several_json(program: str, bundle: str, runs: Sequence[OneRun]) -> RunsDocument:
    """The runs as one document; ``bundle`` is the bundle's digest."""
    data = {"program": program, "bundle": bundle, "runs": runs}
    return to_json(data, RunsDocument)
