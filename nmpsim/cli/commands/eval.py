"""``nmpsim eval``: measure the accuracy of a classifier on a data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmpsim.atomic import STDOUT, write_file
from nmpsim.cli.guard import print_message
from nmpsim.cli.interrupt import set_interrupt_note
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import (
    FORMAT_OPTION,
    Format,
    ImageOptions,
    LimitOptions,
    WorkerOptions,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, describe_partial_results, show_progress, write_result
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    Positive,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, locate_errors
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.experiments import Evaluation


@frozen(kw_only=True)
class EvalOptions:
    """Options of ``nmpsim eval``."""

    bundle: InputFile = define_argument("NET.bin|MODEL")
    dataset: InputFile = define_option("Samples: an .npz file or a folder.", "DIR|NPZ")
    labels: str | None = define_option("Classes: a file, or an array in NPZ.", "L.npy|L.csv|KEY")
    classes: InputFile | None = define_option("Names of all classes, one per line.", "FILE")
    top: str = define_option("K of each top-K accuracy.", "K1,K2", default="1,5")
    limit: Positive | None = define_option("Evaluate only the first N samples.", "N")
    confusion: OutputFile | None = define_option("Also write the confusion matrix.", "OUT.csv")
    shadow: bool = define_option("Measure the errors of each layer.")
    float_weights: InputFile | None = define_option(
        "Float weights that divide errors by cause.", "W.npz|MODEL.onnx"
    )
    errors: OutputFile | None = define_option(
        "Also write the errors of all channels.", "OUT.csv|.parquet|.html"
    )
    format: Format = FORMAT_OPTION
    output: OutputFile | None = make_output_option("OUT.json", "Also write all results; resumable.")
    images: ImageOptions
    workers: WorkerOptions
    limits: LimitOptions


@define_command
def command(options: EvalOptions) -> int:
    """Run a classifier on labelled samples and report accuracy, cycles and saturation.

    The data set is an .npz file with an array for each input, samples along the first axis; or a
    folder of images, .npy or .npz files, one per sample, possibly with a subfolder for each class.
    Labels are numbers, or lines CLASS or NAME,CLASS; -1 leaves a sample out. Subfolders replace
    them.

    With -o the same command continues after an interruption. Exit code 1 if a run did not complete.

      nmpsim eval NET.bin --dataset testset.npz --labels labels
    """
    labels_file = None if options.labels is None else Path(options.labels)
    inputs = [options.bundle, options.dataset, labels_file, options.classes, options.float_weights]
    check_outputs([options.output, options.confusion, options.errors, STDOUT], inputs)
    for name, value in (("--float-weights", options.float_weights), ("--errors", options.errors)):
        if value is not None and not options.shadow:
            raise click.UsageError(f"{name} requires --shadow")
    if options.errors is not None and options.errors.suffix.lower() != ".html":
        from nmpsim.experiments.table_file import check_table_path

        check_table_path(options.errors, ".csv, .parquet or .html")
    top = _parse_top(options.top)
    from nmpsim.cli.dataset import load_dataset, read_class_names
    from nmpsim.cli.samples import ProgramInputs
    from nmpsim.experiments import evaluate, make_evaluation_document, write_confusion
    from nmpsim.experiments.samples import count_classes, parse_labels
    from nmpsim.views.eval_text import print_evaluation

    bundle = load_program(options.bundle, inputs=[str(options.dataset)])
    data = load_dataset(
        options.dataset,
        options.labels,
        ProgramInputs.from_bundle(bundle.metadata, options.images),
        options.limits.max_memory,
        options.limit,
    )
    classes = count_classes(bundle)
    with locate_errors(data.source):
        parse_labels(data.labels, len(data.samples), classes)
    names = data.class_names
    if options.classes is not None:
        names = read_class_names(options.classes, classes)
    note = partial(describe_partial_results, options.output)
    with set_interrupt_note(note), show_progress() as progress:
        found = evaluate(
            bundle,
            data.samples,
            data.labels,
            class_names=names,
            top=top,
            limit=options.limit,
            results=options.output,
            jobs=options.workers.jobs,
            scheduler=options.workers.scheduler,
            max_memory=options.limits.max_memory,
            progress=progress,
            limits=options.limits.make_limits(),
            shadow=options.shadow,
            float_weights=options.float_weights,
        )
    if found.reused:
        total = len(found.predictions)
        print_message(f"{found.reused} of {total} samples were already in {options.output}")
    if options.confusion is not None:
        write_confusion(options.confusion, found, classes)
    if options.errors is not None:
        _write_errors(options.errors, found)
    write_result(options.format, make_evaluation_document, print_evaluation, found, top)
    return EXIT_WORSE if found.failed else EXIT_OK


def _write_errors(path: Path, found: Evaluation) -> None:
    """Write the errors of layers and channels as a page or as a table."""
    if path.suffix.lower() == ".html":
        from nmpsim.views.html.errors import make_errors_page

        write_file(path, make_errors_page(found))
    else:
        from nmpsim.experiments.error_table import write_errors

        write_errors(path, found.errors)


def _parse_top(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise click.UsageError(f"--top requires comma-separated positive integers, not {text}")
    return tuple(dict.fromkeys(int(word) for word in words))
