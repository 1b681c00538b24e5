"""Evaluation of a classifier on a labelled data set."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.shadow import ShadowEvaluation
from nmpsim.analysis.shadow.evaluate import Floats
from nmpsim.atomic import is_special_file, write_file
from nmpsim.bundle import Bundle, BundleHolder, get_bundle
from nmpsim.config import make_device_config
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.memory_demand import check_run_memory
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.escape import escape_csv
from nmpsim.experiments.accuracy_result import (
    Evaluation,
    EvaluationKey,
    LayerSaturation,
    make_evaluation_document,
    resume_evaluation,
)
from nmpsim.experiments.error_meter import list_layers
from nmpsim.experiments.identity import (
    compute_array_digest,
    compute_digest,
    compute_network_digest,
    get_code_version,
)
from nmpsim.experiments.jobs import run_jobs
from nmpsim.experiments.process_pool import share_resources
from nmpsim.experiments.samples import (
    UNLABELLED,
    ArraySamples,
    Samples,
    count_classes,
    parse_labels,
    read_sample,
)
from nmpsim.experiments.worker import Chunk, ChunkResult, EvalWork, evaluate_chunk
from nmpsim.report.json import format_json
from nmpsim.session import load

MAX_IN_CHUNK = 16
"""Samples that a worker runs before it returns their predictions."""
SAMPLE_SECONDS, MAC_SECONDS = 2e-4, 4e-11
"""Estimated time of a sample, and of each of its MACs."""
START_SECONDS = 2.0
"""Estimated time to start worker processes."""
PART_TO_WRITE, SECONDS_TO_WRITE = 1 / 16, 1.0
"""The results file is written when this share of samples is new, or after this time."""


def evaluate(
    program: Bundle | BundleHolder | Path | str,
    inputs: Mapping[str, npt.ArrayLike] | Samples,
    labels: npt.ArrayLike,
    *,
    class_names: Sequence[str] = (),
    top: Sequence[int] = (1, 5),
    limit: int | None = None,
    results: Path | str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    max_memory: int | None = None,
    progress: ProgressCallback | None = None,
    limits: Limits = NO_LIMITS,
    shadow: bool = False,
    float_weights: Path | str | None = None,
) -> Evaluation:
    """Evaluate a classifier on labelled samples in parallel; return the evaluation.

    It starts new processes: a script that calls it needs ``if __name__ == "__main__":``.

    Parameters
    ----------
    program
        A bundle, the result of ``compile``, or the file of a bundle or of a model.
    inputs
        For each input an array whose first axis counts the samples, or ``Samples``.
    labels
        The right class of each sample, or -1 for one to leave out.
    class_names
        Names of all classes by label, or none.
    top
        For ``results``: the k of each top-k accuracy.
    limit
        Number of samples to use, from the first on; None for all.
    results
        JSON file that is written after every few samples; samples that it already has are not run
        again.
    jobs
        Number of processes; if None one for each processor, or this process for little work.
    scheduler
        Address of a Dask scheduler, to run there instead.
    max_memory
        Bytes that all processes may take together; what is free, less a margin, if None. On a
        cluster, the bytes that each worker may take.
    progress
        Called with ``compiling`` if kernels must be compiled, and with ``sample``.
    limits
        Limits of each run. Samples of ``results`` that exceeded one are run again.

    shadow
        Measure the errors of each layer against real arithmetic, too (``Evaluation.errors``).
    float_weights
        For ``shadow``: file with the float values of constants, as for :class:`nmpsim.Shadow`.

    Returns
    -------
    Evaluation
        The predictions. A sample whose run does not reach its end counts as wrong.

    Raises
    ------
    UserError
        Codes of FILE, BUN, INPUT, CONST and PKG; DATA001 for samples or labels that cannot be used,
        RESULT001 for results of something else, WORK001 if a worker was lost, MEM001 if it needs
        too much memory.
    """
    bundle = load(program) if isinstance(program, Path | str) else get_bundle(program)
    samples = ArraySamples.from_arrays(inputs) if isinstance(inputs, Mapping) else inputs
    checked = parse_labels(labels, len(samples), count_classes(bundle))
    floats = _load_floats(bundle, float_weights) if shadow else None
    found = _empty_evaluation(bundle, samples, checked, class_names)
    if shadow:
        digest = "none" if floats is None else compute_array_digest(floats)
        found = attrs.evolve(
            found,
            subject=attrs.evolve(found.subject, shadow=digest),
            errors=list_layers(bundle),
        )
    path = None if results is None else Path(results)
    if path is not None and path.exists() and not is_special_file(path):
        found = resume_evaluation(path, found)
    known = {prediction.index for prediction in found.predictions}
    count = len(checked) if limit is None else max(limit, 0)
    labelled = [i for i, label in enumerate(checked[:count]) if label != UNLABELLED]
    missing = [index for index in labelled if index not in known]
    if missing:
        if jobs is None and _is_little(bundle, len(missing)):
            jobs = 1
        jobs, max_bytes = share_resources(jobs, len(missing), max_memory, scheduler)
        if scheduler is None:
            check_run_memory(bundle, make_device_config(bundle.metadata.device), max_bytes)
        work = EvalWork(bytes(bundle.file), bundle.path, max_bytes, limits, shadow, floats)
        chunks = run_jobs(
            evaluate_chunk,
            work,
            lambda workers: _chunks(missing, workers, samples, checked, bundle),
            jobs=jobs,
            scheduler=scheduler,
            progress=progress,
        )
        partial_path = (
            None if path is None or is_special_file(path) else path
        )  # a pipe is written once
        found = _add_results(found, chunks, partial_path, top, progress, len(labelled))
    if path is not None:
        write_results(path, found, top)
    return found


def _add_results(
    found: Evaluation,
    chunks: Iterable[ChunkResult],
    path: Path | None,
    top: Sequence[int],
    progress: ProgressCallback | None,
    total: int,
) -> Evaluation:
    """Return an evaluation with the results of chunks.

    The file, if there is one, is written if new predictions are many or the last write is some time
    ago, and if the run is interrupted.
    """
    added: list[ChunkResult] = []
    count, right = len(found.predictions), found.count_correct()
    written, written_at = count, -math.inf
    try:
        for chunk in chunks:
            added.append(chunk)
            count += len(chunk.predictions)
            right += sum(prediction.rank == 0 for prediction in chunk.predictions)
            is_long_ago = time.monotonic() - written_at > SECONDS_TO_WRITE
            if path is not None and (is_long_ago or count >= written * (1 + PART_TO_WRITE)):
                found, added = found.add_chunks(added), []
                write_results(path, found, top)
                written, written_at = count, time.monotonic()
            if progress:
                text = f"{100 * right / count:.1f} % right"
                progress(Progress("sample", count, total, text))
    finally:
        found = found.add_chunks(added)
        if path is not None and written != count:
            write_results(path, found, top)
    return found


def _load_floats(bundle: Bundle, path: Path | str | None) -> Floats | None:
    """Return the float values of a program's constants from a file or the bundle, if any."""
    weights = None if path is None else Path(path)
    matches = ShadowEvaluation.load(bundle.module(), weights).matches
    return None if matches is None else matches.floats


def _is_little(bundle: Bundle, samples: int) -> bool:
    """Return whether this process would finish before worker processes have started."""
    macs = sum(layer.macs for layer in bundle.metadata.layers)
    return samples * (SAMPLE_SECONDS + macs * MAC_SECONDS) < START_SECONDS


def write_results(path: Path, evaluation: Evaluation, top: Sequence[int]) -> None:
    """Write an evaluation to a JSON file, with top-k accuracies for each k in ``top``."""
    write_file(path, format_json(make_evaluation_document(evaluation, top)))


def write_confusion(path: Path, evaluation: Evaluation, classes: int) -> None:
    """Write the confusion matrix of an evaluation to a CSV file.

    The matrix has a named row for each of ``classes`` classes and a named column for each predicted
    class. Samples whose run did not complete are omitted.
    """
    counts = np.zeros((classes, classes), np.int64)
    for one in evaluation.count_confusions():
        counts[one.label, one.best] = one.samples
    names = [evaluation.get_class_name(label) for label in range(classes)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    fields = [escape_csv(name) for name in names]
    writer.writerow(["class", *fields])
    writer.writerows([name, *row] for name, row in zip(fields, counts.tolist(), strict=True))
    write_file(path, text.getvalue())


def _empty_evaluation(
    bundle: Bundle, samples: Samples, labels: Sequence[int], class_names: Sequence[str]
) -> Evaluation:
    metadata = bundle.metadata
    dataset = compute_digest([samples.digest.encode(), np.asarray(labels, "<i8").tobytes()])
    return Evaluation(
        EvaluationKey(
            get_code_version(),
            metadata.program,
            compute_network_digest(
                ((one.name, one.elem, one.shape) for one in metadata.user_outputs),
                ((one.op, one.output.elem, one.output.shape) for one in metadata.layers),
            ),
            bundle.digest,
            dataset,
        ),
        tuple(labels),
        tuple(class_names),
        (),
        tuple(
            LayerSaturation(layer.name, layer.display_name, layer.op, layer.operation, 0, 0)
            for layer in metadata.layers
        ),
    )


def _chunks(
    todo: Sequence[int], workers: int, samples: Samples, labels: Sequence[int], bundle: Bundle
) -> Iterator[Chunk]:
    """Yield chunks small enough to keep all workers busy to the end."""
    size = max(1, min(MAX_IN_CHUNK, len(todo) // (4 * workers)))
    for start in range(0, len(todo), size):
        indices = todo[start : start + size]
        arrays = [read_sample(samples, index, bundle.metadata.user_inputs) for index in indices]
        yield Chunk(indices, arrays, [labels[index] for index in indices])
