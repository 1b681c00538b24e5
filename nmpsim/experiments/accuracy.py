"""Evaluate: a classifier on a data set with labels."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmpsim.atomic import is_special, write_file
from nmpsim.bundle import Bundle, BundleHolder, Metadata, get_bundle
from nmpsim.config import from_settings
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.memory_demand import check_run_memory
from nmpsim.core.run import Progress, ProgressCallback, notify_compiling
from nmpsim.experiments.accuracy_result import (
    Evaluation,
    LayerTally,
    Subject,
    evaluation_json,
    resumed,
)
from nmpsim.experiments.identity import code_version, digest_of, digest_of_network
from nmpsim.experiments.local import fitting_jobs
from nmpsim.experiments.pool import run_all
from nmpsim.experiments.pools import open_pool
from nmpsim.experiments.samples import (
    UNLABELLED,
    ArraySamples,
    Samples,
    checked_labels,
    classes_of,
    fitted,
)
from nmpsim.experiments.worker import Chunk, ChunkResult, EvalWork, evaluate_chunk
from nmpsim.host_memory import checked_limit, share_of
from nmpsim.report.json import json_text
from nmpsim.session import load
from nmpsim.visible import csv_field

MAX_IN_CHUNK = 16
"""Samples that a worker does before it answers."""
SAMPLE_SECONDS, MAC_SECONDS = 2e-4, 4e-11
"""What a sample takes, about, and each of its MACs."""
START_SECONDS = 2.0
"""What worker processes take until they are of use."""
PART_TO_WRITE, SECONDS_TO_WRITE = 1 / 16, 1.0
"""The file of results is written when there are so many more samples than it has, or after this
time."""


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
) -> Evaluation:
    """Run a classifier on samples with labels, in parallel.

    It starts new processes: a script that calls it needs ``if __name__ == "__main__":``.

    Args:
        program: a bundle, what ``compile`` gave, or the file of a bundle or of a model.
        inputs: for each input an array whose first axis counts the samples, or ``Samples``.
        labels: the right class of each sample, or -1 for one to leave out.
        class_names: names of all classes, by label, or none.
        top: of how many best classes the label must be one, for ``results``.
        limit: only the first this many samples.
        results: JSON file that is written after every few samples; samples that it already has
            are not run again.
        jobs: processes; if None one for each processor, or this one for little work.
        scheduler: address of a Dask scheduler, to run there instead.
        max_memory: bytes that all processes may take together; what is free, less a margin, if
            None. On a cluster, what each worker may take.
        progress: called with ``compiling`` if kernels must be compiled, and with ``sample``.
        limits: what each run may take. Samples of ``results`` that went beyond one are run again.

    Raises:
        UserError: codes of FILE, BUN, INPUT and PKG; DATA001 for samples or labels that cannot be
            used, RESULT001 for results of something else, WORK001 if a worker was lost, MEM001 if
            it needs too much memory. A sample whose run does not reach its end counts as wrong.
    """
    bundle = load(program) if isinstance(program, Path | str) else get_bundle(program)
    samples = ArraySamples.of(inputs) if isinstance(inputs, Mapping) else inputs
    checked = checked_labels(labels, len(samples), classes_of(bundle))
    found = _fresh(bundle, samples, checked, class_names)
    path = None if results is None else Path(results)
    if path is not None and path.exists() and not is_special(path):
        found = resumed(path, found)
    wanted = len(checked) if limit is None else min(limit, len(checked))
    have = {answer.index for answer in found.answers}
    labelled = [index for index in range(wanted) if checked[index] != UNLABELLED]
    todo = [index for index in labelled if index not in have]
    if todo:
        if jobs is None and _is_little(bundle, len(todo)):
            jobs = 1
        jobs = fitting_jobs(jobs, len(todo))
        limit = checked_limit(max_memory)
        if scheduler is None:  # the workers of a cluster have memory of their own
            limit = share_of(limit, jobs)
            check_run_memory(bundle, from_settings(bundle.metadata.device), limit)
        work = EvalWork(bytes(bundle.file), bundle.digest, bundle.path, limit, limits)
        growing = _Growing(found, path, top)
        with open_pool(work, jobs=jobs, scheduler=scheduler) as pool:
            pool.prepare(lambda: notify_compiling(progress))
            chunks = _chunks(todo, pool.workers, samples, checked, bundle)
            try:
                for result in run_all(pool, evaluate_chunk, chunks):
                    growing.add(result)
                    growing.tell(progress, len(labelled))
            finally:
                growing.write()
        found = growing.merged()
    if path is not None:
        write_results(path, found, top)
    return found


class _Growing:
    """An evaluation to which samples are added, and its file.

    What that takes for each sample does not grow with their number.
    """

    def __init__(self, found: Evaluation, path: Path | None, top: Sequence[int]) -> None:
        self._found, self._top = found, top
        self._path = None if path is None or is_special(path) else path
        """A pipe gets the whole evaluation only."""
        self._added: list[ChunkResult] = []
        self._count, self._right = len(found.answers), found.right()
        self._written, self._written_at = self._count, -math.inf

    def add(self, result: ChunkResult) -> None:
        """Some more samples; the file gets them, too, if they are many or it is some time ago."""
        self._added.append(result)
        self._count += len(result.answers)
        self._right += sum(answer.rank == 0 for answer in result.answers)
        are_many = self._count >= self._written * (1 + PART_TO_WRITE)
        if are_many or time.monotonic() - self._written_at > SECONDS_TO_WRITE:
            self.write()

    def tell(self, progress: ProgressCallback | None, wanted: int) -> None:
        """Say how many samples there are, and how many of them are right."""
        if progress:
            text = f"{100 * self._right / self._count:.1f} % right"
            progress(Progress("sample", self._count, wanted, text))

    def write(self) -> None:
        """Put all samples into the file that it has not."""
        if self._path is None or self._written == self._count:
            return
        write_results(self._path, self.merged(), self._top)
        self._written, self._written_at = self._count, time.monotonic()

    def merged(self) -> Evaluation:
        """With all samples."""
        self._found, self._added = self._found.with_chunks(self._added), []
        return self._found


def _is_little(bundle: Bundle, samples: int) -> bool:
    """Are the samples done here before worker processes would have begun?"""
    macs = sum(layer.macs for layer in bundle.metadata.layers)
    return samples * (SAMPLE_SECONDS + macs * MAC_SECONDS) < START_SECONDS


def write_results(path: Path, evaluation: Evaluation, top: Sequence[int]) -> None:
    """Put the evaluation into a file, whole or not at all."""
    text = json_text(evaluation_json(evaluation, top))
    write_file(path, lambda file: file.write(text.encode()))


def write_confusion(path: Path, evaluation: Evaluation, classes: int) -> None:
    """Put the confusion matrix into a CSV file, whole or not at all.

    A row for each of ``classes`` classes and a column for each answer, named on both sides; samples
    whose run did not reach its end are in none.
    """
    counts = np.zeros((classes, classes), np.int64)
    for one in evaluation.confusions():
        counts[one.label, one.best] = one.samples
    names = [evaluation.class_name(label) for label in range(classes)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    fields = [csv_field(name) for name in names]
    writer.writerow(["class", *fields])
    writer.writerows([name, *row] for name, row in zip(fields, counts.tolist(), strict=True))
    write_file(path, lambda file: file.write(text.getvalue().encode()))


def _fresh(
    bundle: Bundle, samples: Samples, labels: Sequence[int], class_names: Sequence[str]
) -> Evaluation:
    metadata = bundle.metadata
    dataset = digest_of([samples.digest.encode(), np.asarray(labels, "<i8").tobytes()])
    return Evaluation(
        Subject(code_version(), metadata.program, _network(metadata), bundle.digest, dataset),
        tuple(labels),
        tuple(class_names),
        (),
        tuple(
            LayerTally(layer.name, layer.display_name, layer.op, layer.operation, 0, 0)
            for layer in metadata.layers
        ),
    )


def _network(metadata: Metadata) -> str:
    return digest_of_network(
        ((one.name, one.elem, one.shape) for one in metadata.user_outputs),
        ((one.op, one.output.elem, one.output.shape) for one in metadata.layers),
    )


def _chunks(
    todo: Sequence[int], workers: int, samples: Samples, labels: Sequence[int], bundle: Bundle
) -> Iterator[Chunk]:
    """Small enough that all workers have something to do to the end."""
    size = max(1, min(MAX_IN_CHUNK, len(todo) // (4 * workers)))
    for start in range(0, len(todo), size):
        indices = todo[start : start + size]
        arrays = [fitted(samples, index, bundle.metadata.user_inputs) for index in indices]
        yield Chunk(indices, arrays, [labels[index] for index in indices])
