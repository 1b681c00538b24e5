"""``nmpsim eval``: a classifier on a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.atomic import STDOUT
from nmpsim.cli.files import check_outputs, what_is_kept
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import image_options
from nmpsim.cli.interrupt import noting
from nmpsim.cli.loading import load_program
from nmpsim.cli.memory import max_memory_option
from nmpsim.cli.options import (
    FILE,
    OUTPUT,
    Command,
    bundle_argument,
    check_workers,
    format_option,
    jobs_option,
    limit_options,
    output_option,
    scheduler_option,
    show,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, about

if TYPE_CHECKING:
    from nmpsim.cli.input_options import ImageOptions
    from nmpsim.experiments import Evaluation


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    bundle: Path
    dataset: Path
    labels: str | None
    classes: Path | None
    top: str
    limit: int | None
    images: ImageOptions
    max_cycles: int | None
    timeout: float | None
    jobs: int | None
    scheduler: str | None
    max_memory: int | None
    style: str
    confusion: Path | None
    output: Path | None


@click.command("eval", cls=Command)
@bundle_argument
@click.option(
    "--dataset",
    metavar="DIR|NPZ",
    type=FILE,
    required=True,
    help="An .npz file with an array for each input, samples along its first axis; or a folder of"
    " images, .npy or .npz files, one a sample, or with a folder for each class.",
)
@click.option(
    "--labels",
    metavar="L.npy|L.csv|KEY",
    help="The right classes: a file (lines CLASS, or NAME,CLASS), or the name of an array in the"
    " data set; -1 leaves a sample out. Not needed with a folder for each class.",
)
@click.option(
    "--classes", metavar="FILE", type=FILE, help="Names of all classes in their order, one a line."
)
@click.option(
    "--top",
    metavar="K1,K2",
    default="1,5",
    show_default=True,
    help="Count a sample as right if its label is among the K best classes.",
)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Only the first N samples.")
@image_options
@limit_options("each run")
@jobs_option
@scheduler_option
@max_memory_option
@click.option(
    "--confusion",
    metavar="OUT.csv",
    type=OUTPUT,
    help="Also write the confusion matrix: a row for each class, a column for each answer.",
)
@format_option
@output_option(
    "OUT.json",
    "Also write all results here, after every few samples; samples that it has are not run again.",
    required=False,
)
def command(**arguments: Any) -> int:
    """Run a classifier on samples with labels: accuracy, cycles, what saturated where.

    With -o the same command again goes on after an interruption. Exit code 1 if a run did not
    reach its end.

      nmpsim eval NET.bin --dataset testset.npz --labels labels
    """
    return _evaluate(_Request(**arguments))


def _evaluate(request: _Request) -> int:
    labels_file = None if request.labels is None else Path(request.labels)
    inputs = [request.bundle, request.dataset, labels_file, request.classes]
    check_outputs([request.output, request.confusion, STDOUT], inputs)
    check_workers(request.jobs, request.scheduler)
    top = _top(request.top)
    from nmpsim.cli.dataset import load_dataset, read_class_names
    from nmpsim.cli.samples import Taker
    from nmpsim.core.limits import Limits
    from nmpsim.experiments import evaluate, write_confusion
    from nmpsim.experiments.samples import checked_labels, classes_of
    from nmpsim.views.progress import RunProgress, stderr_console

    bundle = load_program(request.bundle, inputs=[str(request.dataset)])
    taker = Taker.of(bundle.metadata, request.images)
    data = load_dataset(request.dataset, request.labels, taker, request.max_memory, request.limit)
    classes = classes_of(bundle)
    with about(data.said_by):
        checked_labels(data.labels, len(data.samples), classes)
    names = data.class_names
    if request.classes is not None:
        names = read_class_names(request.classes, classes)
    kept = partial(what_is_kept, request.output)
    with noting(kept), RunProgress(stderr_console()) as progress:
        found = evaluate(
            bundle,
            data.samples,
            data.labels,
            class_names=names,
            top=top,
            limit=request.limit,
            results=request.output,
            jobs=request.jobs,
            scheduler=request.scheduler,
            max_memory=request.max_memory,
            progress=progress,
            limits=Limits(request.max_cycles, request.timeout),
        )
    if found.reused:
        say(f"{found.reused} of {len(found.answers)} samples were in {request.output} already")
    if request.confusion is not None:
        write_confusion(request.confusion, found, classes)
    _show(request, found, top)
    return EXIT_WORSE if found.failed else EXIT_OK


def _top(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise click.UsageError(f"--top is numbers from 1 on with commas between, not {text}")
    return tuple(dict.fromkeys(int(word) for word in words))


def _show(request: _Request, found: Evaluation, top: tuple[int, ...]) -> None:
    from nmpsim.experiments import evaluation_json
    from nmpsim.views.eval_text import print_evaluation

    show(
        request.style,
        lambda: evaluation_json(found, top),
        lambda console: print_evaluation(found, top, console),
    )
