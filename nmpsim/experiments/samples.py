"""Samples of a data set and their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle, Tensor
from nmpsim.core.inputs import find_mismatch
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.experiments.identity import compute_array_digest
from nmpsim.report.device_use import find_batch_size

UNLABELLED = -1
"""Label of a sample of unknown class, which is skipped."""


class Samples(Protocol):
    """Samples of a data set, as an interface for reading one sample at a time."""

    @property
    def digest(self) -> str:
        """Text that changes with the contents and so identifies the data set."""
        ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Arrays:
        """Read sample ``index`` and return its arrays by input name."""
        ...

    def source(self, index: int) -> str:
        """Return where sample ``index`` comes from, as text for error messages."""
        ...


@attrs.frozen(eq=False)
class ArraySamples:
    """Samples in arrays: element i of each input's array belongs to sample i."""

    arrays: Arrays
    digest: str
    count: int
    """Number of samples of the data set; the arrays may have only the first of them."""

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, npt.ArrayLike],
        lengths: Mapping[str, int] | None = None,
        digest: str | None = None,
    ) -> ArraySamples:
        """Create samples from one array for each input; the first axis counts the samples.

        Parameters
        ----------
        arrays
            An array for each input.
        lengths
            Number of samples of each input in the data set; by default the lengths of the arrays.
        digest
            A name for the contents of the data set; that of the arrays if None.

        Raises
        ------
        UserError
            DATA001 if the inputs do not have the same number of samples.
        """
        stored = {name: np.asarray(array) for name, array in arrays.items()}
        if lengths is None:
            lengths = {name: len(a) if a.ndim else 0 for name, a in stored.items()}
        if len(set(lengths.values())) > 1:
            message = "the inputs have different numbers of samples"
            found = ", ".join(f"{count:,} for {name}" for name, count in lengths.items())
            expected = "the same number for each input"
            raise fail("DATA001", message, found=found, expected=expected)
        count = min(lengths.values(), default=0)
        return cls(stored, digest or compute_array_digest(stored), count)

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> Arrays:
        """Read the arrays of sample ``index`` by input name."""
        return {name: array[index] for name, array in self.arrays.items()}

    def source(self, index: int) -> str:
        """Return the index of a sample as text for error messages."""
        return f"sample {index} (counted from 0)"


def read_sample(samples: Samples, index: int, tensors: Sequence[Tensor]) -> Arrays:
    """Read a sample in the shapes of the inputs; raise UserError (INPUT002) if it does not fit.

    Raises INPUT002, with the sample's source, for one that no run could take.
    """
    inputs = {tensor.name: tensor for tensor in tensors}
    sample = dict(samples.read(index))
    for name, array in sample.items():
        if name not in inputs:
            continue
        if inputs[name].accepts_shape(array.shape):
            sample[name] = array.reshape(inputs[name].shape)
        wrong = find_mismatch(inputs[name], sample[name])
        if wrong is not None:
            raise UserError(attrs.evolve(wrong, place=Place(samples.source(index))))
    return sample


def is_vector_shape(shape: Sequence[int]) -> bool:
    """Return whether exactly one dimension of a shape is not 1."""
    return sum(dim != 1 for dim in shape) == 1


def count_classes(bundle: Bundle) -> int:
    """Return the number of a classifier's classes; raise UserError (DATA001) for other programs."""
    outputs = bundle.metadata.user_outputs
    scores = [output for output in outputs if is_vector_shape(output.shape)]
    if not scores:
        batch = find_batch_size([one.shape for one in outputs])
        shapes = ", ".join(f"{one.name}: {'x'.join(map(str, one.shape))}" for one in outputs)
        raise fail(
            "DATA001",
            "the program is not a classifier of single samples",
            found=f"outputs {shapes}" if shapes else "no outputs",
            expected="an output with one score for each class, such as 1x1000",
            hint="Compile the model without --batch-cores." if batch > 1 else None,
        )
    return max(scores[0].shape)


def parse_labels(labels: npt.ArrayLike, count: int, classes: int) -> list[int]:
    """Return the labels of ``count`` samples as ints; raise UserError (DATA001) if one is invalid.

    A label is a class, or ``UNLABELLED``. Raises UserError (DATA001) for other labels.
    """
    if count == 0:
        message, expected = "the data set has no samples", "at least one sample"
        raise fail("DATA001", message, found="0 samples", expected=expected)
    given = np.asarray(labels)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise fail(
            "DATA001",
            "the labels are not a list of integers",
            found=f"{given.dtype} of shape {list(given.shape)}",
            expected=f"{count:,} integers, one per sample",
        )
    if len(given) != count:
        raise fail(
            "DATA001",
            "the number of labels differs from the number of samples",
            found=f"{len(given):,} labels",
            expected=f"{count:,} labels, one per sample",
        )
    wrong = np.flatnonzero((given < UNLABELLED) | (given >= classes))
    if wrong.size:
        raise fail(
            "DATA001",
            f"the label of sample {wrong[0]} is not a class of the program",
            found=f"label {given[wrong[0]]}",
            expected=f"a label from 0 to {classes - 1}, or {UNLABELLED} to skip the sample",
        )
    if (given == UNLABELLED).all():
        raise fail(
            "DATA001",
            "no sample has a label",
            found=f"label {UNLABELLED} for all {count:,} samples",
            expected="a class for at least one sample",
        )
    return [int(label) for label in given]
