"""Several runs of one program: one line for each input, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypedDict

import attrs
from rich.console import Console

from nmpsim.report.data import OutputReport, RunReport
from nmpsim.views.answers import is_classifier, range_text, top_classes
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.console import line
from nmpsim.views.text import plural
from nmpsim.visible import visible_line

SCHEMA: Final = "nmpsim-runs-1"


class ClassDocument(TypedDict):
    """A class and its score."""

    index: Annotated[int, "of the class, from 0"]
    value: Annotated[float, "its score as a real number"]


class AnswerDocument(TypedDict):
    """An output of one run."""

    top: Annotated[list[ClassDocument], "best classes, best first; none if it has no classes"]


class OneRunDocument(TypedDict):
    """A run on one input."""

    input: Annotated[str, "the file"]
    cycles: int
    saturated: Annotated[int, "values that saturated, over all layers"]
    trap: Annotated[str | None, "null, or why the run stopped"]
    outputs: Annotated[dict[str, AnswerDocument], "by name; none if the run stopped"]


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
class OneRun:
    """A run in a line."""

    input: str
    cycles: int
    saturated: int
    trap: str | None
    answers: tuple[Answer, ...]

    @classmethod
    def of(cls, input: str, report: RunReport) -> OneRun:
        """A run on the input of this name."""
        return cls(
            input,
            report.cycles,
            sum(layer.saturated for layer in report.layers),
            None if report.trap is None else report.trap.message,
            tuple(map(Answer.of, report.output_reports)) if report.trap is None else (),
        )


def print_several(program: str, runs: Sequence[OneRun], console: Console) -> None:
    """A table with a line for each run."""
    line(console, f"{program}: {plural(len(runs), 'input')}", "bold")
    console.print()
    names = list(dict.fromkeys(answer.output for run in runs for answer in run.answers))
    columns = [Column("input", [visible_line(run.input) for run in runs], least=12)]
    for name in names:
        best = any(answer.top for run in runs for answer in run.answers)
        title = f"{visible_line(name)}: best classes" if best else visible_line(name)
        columns.append(Column(title, [_cell(run, name) for run in runs], least=16))
    columns += [
        Column("cycles", [f"{run.cycles:,}" for run in runs], right=True),
        Column("saturated", [f"{run.saturated:,}" for run in runs], right=True),
    ]
    console.print(fitted_table(columns, console))
    for run in runs:
        if run.trap is not None:
            line(console, f"{run.input}: the run stopped: {run.trap}", "red")


def _cell(run: OneRun, output: str) -> str:
    return next((one.text for one in run.answers if one.output == output), "stopped")


def several_json(program: str, bundle: str, runs: Sequence[OneRun]) -> RunsDocument:
    """The runs as one document; ``bundle`` is the bundle's digest."""
    return {
        "schema": SCHEMA,
        "program": program,
        "bundle": bundle,
        "runs": [
            {
                "input": run.input,
                "cycles": run.cycles,
                "saturated": run.saturated,
                "trap": run.trap,
                "outputs": {
                    answer.output: {
                        "top": [{"index": index, "value": value} for index, value in answer.top]
                    }
                    for answer in run.answers
                },
            }
            for run in runs
        ],
    }
