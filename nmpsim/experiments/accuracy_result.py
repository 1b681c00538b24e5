"""The predictions and the saturation of an evaluation, also as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs
import numpy as np

from nmpsim.experiments.identity import make_results_error
from nmpsim.experiments.layer_errors import LayerErrors, LayerErrorsDocument, read_sums
from nmpsim.experiments.samples import UNLABELLED
from nmpsim.experiments.worker import ChunkResult, Prediction
from nmpsim.input_files import read_text
from nmpsim.report.json import to_json

SCHEMA: Final = "nmpsim-eval-4"
_PREDICTION_FIELDS = tuple(field.name for field in attrs.fields(Prediction))


@attrs.frozen
class EvaluationKey:
    """Key that identifies an evaluation: program name, version and digests."""

    nmpsim: str
    program: str
    network: str
    """Digest by :func:`nmpsim.experiments.identity.compute_network_digest`."""
    bundle: str
    """Digest of the bundle."""
    dataset: str
    """Digest of samples and labels."""
    shadow: str = ""
    """Digest of the float weights, `none` without them; empty if errors are not measured."""


@attrs.frozen
class LayerSaturation:
    """Saturation of one layer over all completed runs: elements and saturated values."""

    name: str
    display_name: str
    op: str
    operation: str
    elements: int
    saturated: int

    @property
    def share(self) -> float:
        """Saturated values divided by the layer's elements, or 0 if there are no elements."""
        return self.saturated / self.elements if self.elements else 0.0


@attrs.frozen
class ClassCounts:
    """Counts for one class: its samples, and its correctly predicted samples."""

    label: int
    name: str
    samples: int
    right: int


@attrs.frozen
class ConfusionEntry:
    """Entry of a confusion matrix: label, predicted class and number of samples."""

    label: int
    best: int
    samples: int


@attrs.frozen
class Evaluation:
    """Evaluation of a classifier on a data set: predictions and layer saturation."""

    subject: EvaluationKey
    labels: tuple[int, ...]
    """Labels of the whole data set; -1 for samples that are skipped."""
    class_names: tuple[str, ...]
    """Class names by label; empty if there are none."""
    predictions: tuple[Prediction, ...]
    layers: tuple[LayerSaturation, ...]
    errors: tuple[LayerErrors, ...] = ()
    """Errors of each layer in completed runs; empty if they are not measured."""
    reused: int = 0
    """Number of predictions taken from a file of results."""

    @property
    def failed(self) -> tuple[Prediction, ...]:
        """Predictions of samples whose run did not complete; these count as wrong."""
        return tuple(prediction for prediction in self.predictions if prediction.error is not None)

    def count_correct(self, top: int = 1) -> int:
        """Return the number of samples whose label is among the ``top`` best classes."""
        return sum(a.rank is not None and a.rank < top for a in self.predictions)

    def accuracy(self, top: int = 1) -> float:
        """Return the share of predictions with the label among the ``top`` best classes."""
        return self.count_correct(top) / len(self.predictions) if self.predictions else 0.0

    def summarize_cycles(self) -> tuple[int, float, int]:
        """Summarize completed runs by minimum, mean and maximum cycles, or zeros without runs."""
        cycles = [prediction.cycles for prediction in self.predictions if prediction.error is None]
        return (min(cycles), sum(cycles) / len(cycles), max(cycles)) if cycles else (0, 0.0, 0)

    def list_saturated_layers(self) -> list[LayerSaturation]:
        """Return the layers with saturated values, largest share first."""
        saturated = [layer for layer in self.layers if layer.saturated]
        return sorted(saturated, key=lambda layer: -layer.share)

    def count_by_class(self) -> list[ClassCounts]:
        """Count the samples and correct predictions of each class; sort by label."""
        counts: dict[int, tuple[int, int]] = {}
        for prediction in self.predictions:
            samples, right = counts.get(self.labels[prediction.index], (0, 0))
            counts[self.labels[prediction.index]] = samples + 1, right + (prediction.rank == 0)
        return [
            ClassCounts(label, self.get_class_name(label), *count)
            for label, count in sorted(counts.items())
        ]

    def get_class_name(self, label: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return self.class_names[label] if label < len(self.class_names) else str(label)

    def count_unlabelled(self) -> int:
        """Return the number of samples without a label."""
        return self.labels.count(UNLABELLED)

    def count_confusions(self) -> list[ConfusionEntry]:
        """Count the samples for each pair of label and predicted class that occurs."""
        counts = Counter(
            (self.labels[prediction.index], prediction.best)
            for prediction in self.predictions
            if prediction.best is not None
        )
        return [ConfusionEntry(*pair, samples) for pair, samples in sorted(counts.items())]

    def add_chunks(self, chunks: Sequence[ChunkResult]) -> Evaluation:
        """Return a copy of the evaluation that includes the results of more chunks of samples."""
        if not chunks:
            return self
        more = (prediction for chunk in chunks for prediction in chunk.predictions)
        counts = np.sum([chunk.layers for chunk in chunks], axis=0).tolist()
        errors = self.errors
        for chunk in chunks:
            errors = tuple(map(LayerErrors.add, errors, chunk.errors))
        return attrs.evolve(
            self,
            predictions=tuple(sorted((*self.predictions, *more), key=lambda a: a.index)),
            layers=tuple(
                attrs.evolve(
                    layer, elements=layer.elements + elements, saturated=layer.saturated + saturated
                )
                for layer, (elements, saturated) in zip(self.layers, counts, strict=True)
            ),
            errors=errors,
        )


class CyclesDocument(TypedDict):
    """Document with the minimum, mean and maximum cycles of completed runs."""

    min: int
    mean: float
    max: int


class PredictionsDocument(TypedDict):
    """Document with the predictions, as one list for each column."""

    index: list[int]
    best: Annotated[list[int | None], "the class that it names; null if the run did not end"]
    rank: Annotated[list[int | None], "how many classes it puts before the right one"]
    cycles: list[int]
    error: list[str | None]


class EvaluationDocument(TypedDict):
    """Document that ``nmpsim eval --format json`` prints and that its results file contains."""

    schema: Literal["nmpsim-eval-4"]
    nmpsim: str
    program: str
    network: Annotated[str, "digest of outputs and layers: operations, types and shapes"]
    bundle: Annotated[str, "digest of the bundle"]
    dataset: Annotated[str, "digest of samples and labels"]
    shadow: Annotated[
        str, "digest of the float weights, or `none`; empty if errors of layers are not measured"
    ]
    dataset_samples: int
    unlabelled: Annotated[int, "samples of the data set that are skipped because their label is -1"]
    samples: Annotated[int, "those that have an answer"]
    failed: int
    accuracy: Annotated[dict[str, float], "by k of top-k"]
    right: Annotated[dict[str, int], "by k of top-k"]
    cycles: CyclesDocument
    layers: list[LayerSaturation]
    errors: Annotated[
        list[LayerErrorsDocument], "errors of layers against real arithmetic, with `--shadow`"
    ]
    classes: list[ClassCounts]
    confusions: Annotated[list[ConfusionEntry], "over samples with an answer; those that occurred"]
    answers: PredictionsDocument


def make_evaluation_document(evaluation: Evaluation, top: Sequence[int]) -> EvaluationDocument:
    """Return the evaluation as a JSON document, with top-k accuracies for each of ``top``."""
    predictions = evaluation.predictions
    data = {
        **attrs.asdict(evaluation.subject),
        "dataset_samples": len(evaluation.labels),
        "unlabelled": evaluation.count_unlabelled(),
        "samples": len(predictions),
        "failed": len(evaluation.failed),
        "accuracy": {str(k): evaluation.accuracy(k) for k in top},
        "right": {str(k): evaluation.count_correct(k) for k in top},
        "cycles": dict(zip(("min", "mean", "max"), evaluation.summarize_cycles(), strict=True)),
        "layers": evaluation.layers,
        "errors": evaluation.errors,
        "classes": evaluation.count_by_class(),
        "confusions": evaluation.count_confusions(),
        "answers": {n: [getattr(one, n) for one in predictions] for n in _PREDICTION_FIELDS},
    }
    return to_json(data, EvaluationDocument)


def has_exceeded_limit(prediction: Prediction) -> bool:
    """Return whether the run for a prediction was stopped by its cycle or time limit."""
    return prediction.error is not None and prediction.error.startswith(("cycle_limit", "timeout"))


def resume_evaluation(path: Path, fresh: Evaluation) -> Evaluation:
    """Return ``fresh`` with predictions and layers from a results file; omit limited runs.

    Raises
    ------
    UserError
        FILE001 if it cannot be read, RESULT001 if it holds something else.
    """
    document = _document(path)
    for key, ours in attrs.asdict(fresh.subject).items():
        if document.get(key) != ours:
            raise make_results_error(
                path, f"the file has results of another {key}", document.get(key), ours
            )
    try:
        predictions = tuple(
            a for a in _read_predictions(document["answers"]) if not has_exceeded_limit(a)
        )
        layers = tuple(LayerSaturation(**layer) for layer in document["layers"])
        errors = tuple(
            attrs.evolve(
                layer, not_compared=str(found["not_compared"]), sums=read_sums(layer, found["sums"])
            )
            for layer, found in zip(fresh.errors, document["errors"], strict=True)
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise make_results_error(path, "the file is damaged", error) from error
    pairs = zip_longest((one.name for one in layers), (one.name for one in fresh.layers))
    for index, (found, expected) in enumerate(pairs):
        if found != expected:
            raise make_results_error(
                path,
                "the file has results of other layers",
                f"no layer {index}" if found is None else f"layer {index}, {found}",
                f"{index} layers" if expected is None else f"layer {index}, {expected}",
            )
    return attrs.evolve(
        fresh, predictions=predictions, layers=layers, errors=errors, reused=len(predictions)
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(read_text(path, "evaluation", code="RESULT001"))
    except (ValueError, RecursionError) as error:
        raise make_results_error(path, "the file is not JSON", error) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise make_results_error(path, "the file is not an evaluation", found, SCHEMA)
    return document


def _read_predictions(columns: Mapping[str, list[Any]]) -> tuple[Prediction, ...]:
    fields = [columns[name] for name in _PREDICTION_FIELDS]
    return tuple(Prediction(*values) for values in zip(*fields, strict=True))
