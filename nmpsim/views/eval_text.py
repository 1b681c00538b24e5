"""An evaluation as text: accuracy, cycles, saturation, classes and mistakes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from nmpsim.diagnostics import format_count
from nmpsim.experiments import Evaluation
from nmpsim.views.console import print_heading, print_line, print_more, print_table
from nmpsim.views.error_columns import list_error_columns, rank_errors
from nmpsim.views.measures import make_columns
from nmpsim.views.text import format_percent

MAX_CLASSES = 20
"""Classes that are shown, the worst first."""
MAX_FAILED = 5
MAX_LAYERS = 20
MAX_MISTAKES = 10


def print_evaluation(evaluation: Evaluation, top: Sequence[int], console: Console) -> None:
    """Print an evaluation: accuracy, cycles, saturation, classes and mistakes."""
    count = len(evaluation.predictions)
    print_line(console, f"{evaluation.subject.program}: {format_count(count, 'sample')}", "bold")
    if count < len(evaluation.labels):
        without = evaluation.count_unlabelled()
        left_out = f", {without:,} of them without a label" if without else ""
        print_line(console, f"  of {len(evaluation.labels):,} in the data set{left_out}")
    print_heading(console, "accuracy")
    for k in top:
        right = evaluation.count_correct(k)
        print_line(
            console, f"  top {k:<3} {format_percent(right, count)}% ({right:,} of {count:,})"
        )
    _print_failed(evaluation, console)
    least, mean, most = evaluation.summarize_cycles()
    print_heading(console, "cycles")
    same = "the same for all samples" if least == most else f"mean {mean:,.1f}, most {most:,}"
    print_line(console, f"  {'' if least == most else 'least '}{least:,}, {same}")
    _print_layers(evaluation, console)
    _print_errors(evaluation, console)
    _print_classes(evaluation, console)
    wrong = [one for one in evaluation.count_confusions() if one.label != one.best]
    if not wrong:
        return
    print_heading(console, "most frequent mistakes")
    shown = sorted(wrong, key=lambda one: -one.samples)[:MAX_MISTAKES]
    print_table(
        console,
        shown,
        *make_columns(
            "eval_confusions",
            label=lambda one: evaluation.get_class_name(one.label),
            best=lambda one: evaluation.get_class_name(one.best),
        ),
    )
    if len(wrong) > MAX_MISTAKES:
        print_line(console, f"and {format_count(len(wrong) - MAX_MISTAKES, 'pair')} of classes")


def _print_failed(evaluation: Evaluation, console: Console) -> None:
    if not evaluation.failed:
        return
    print_heading(
        console, f"{format_count(len(evaluation.failed), 'run')} did not complete; counted as wrong"
    )
    for answer in evaluation.failed[:MAX_FAILED]:
        print_line(console, f"  sample {answer.index}: {answer.error}", "red")
    print_more(console, len(evaluation.failed) - MAX_FAILED)


def _print_layers(evaluation: Evaluation, console: Console) -> None:
    layers = evaluation.list_saturated_layers()
    if not layers:
        print_heading(console, "no value saturated")
        return
    print_heading(console, "layers with saturated values, largest share first")
    print_table(console, layers[:MAX_LAYERS], *make_columns("eval_layers"))
    if len(layers) > MAX_LAYERS:
        print_line(
            console, f"and {format_count(len(layers) - MAX_LAYERS, 'layer')} with smaller shares"
        )


def _print_errors(evaluation: Evaluation, console: Console) -> None:
    if not evaluation.errors:
        return
    rows = rank_errors(evaluation.errors)
    print_heading(console, "errors against real arithmetic, lowest isolated SQNR first")
    print_table(console, rows[:MAX_LAYERS], *list_error_columns(rows))
    if len(rows) > MAX_LAYERS:
        print_line(console, f"and {format_count(len(rows) - MAX_LAYERS, 'layer')} with less error")


def _print_classes(evaluation: Evaluation, console: Console) -> None:
    classes = sorted(evaluation.count_by_class(), key=lambda one: one.right / one.samples)
    if len(classes) < 2:
        return
    many = len(classes) > MAX_CLASSES
    print_heading(console, "worst classes" if many else "classes, worst first")
    print_table(console, classes[:MAX_CLASSES], *make_columns("eval_classes"))
