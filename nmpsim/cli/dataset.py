"""Data sets and calibration samples, from an ``.npz`` file, arrays, images or folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nmpsim.array_files import ArrayFile, StoredArray, read_arrays
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.metadata import Tensor
from nmpsim.cli.images import ENDINGS as IMAGE_ENDINGS
from nmpsim.cli.inputs import (
    ARRAY_ENDINGS,
    PREFIX,
    SAMPLE_ENDINGS,
    SAMPLE_PATTERNS,
    find_samples,
    is_array_file,
    list_folder,
    split_argument,
)
from nmpsim.cli.samples import ProgramInputs, print_image_formats
from nmpsim.diagnostics import UserError, fail
from nmpsim.experiments.identity import compute_digest
from nmpsim.experiments.samples import UNLABELLED, ArraySamples, Samples
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.input_files import read_text
from nmpsim.quantization import find_float_inputs

if TYPE_CHECKING:
    from nmpsim.cli.options import ImageOptions
    from nmpsim.frontends import ImportedModel


MAX_TEXT_BYTES = 64 << 20
"""Largest file of labels or of names: some million lines."""


@attrs.frozen(eq=False)
class LabelledDataset:
    """Data set of samples with a class label for each sample."""

    samples: Samples
    labels: Sequence[int]
    source: Path
    """The file or folder with the labels."""
    class_names: tuple[str, ...] = ()


def load_dataset(
    dataset: Path,
    labels: str | None,
    inputs: ProgramInputs,
    max_memory: int | None = None,
    limit: int | None = None,
) -> LabelledDataset:
    """Load the samples and labels of a data set from a file or folder.

    Parameters
    ----------
    dataset
        An ``.npz`` or ``.npy`` file whose arrays have samples along the first axis; or a folder
        with a file for each sample, image or array, or with a folder for each class.
    labels
        An ``.npy`` or ``.csv`` file, or the name of an array in ``dataset``; None for a folder with
        a folder for each class.
    inputs
        The inputs of the program, with the conversion of images.
    max_memory
        Most bytes of all samples of a file; by default free memory, less a margin.
    limit
        Number of samples to read from a file; all if None.

    Raises
    ------
    UserError
        FILE001, INPUT003, DATA001, MEM001.
    """
    if dataset.is_dir():
        return _load_folder(dataset, labels, inputs)
    if labels is None:
        hint = (
            "Pass --labels with an .npy or .csv file, or with the name of an array in the data set."
        )
        raise _dataset_error(dataset, "the samples have no labels", hint=hint)
    file = ArrayFile(dataset)
    if labels in file.keys:
        numbers = _numbers(file.get_array(labels))
    else:
        numbers = _read_labels(Path(labels), file.keys if file.is_archive else ())
    source = dataset if labels in file.keys else Path(labels)
    stored = _find_arrays(file, list(inputs.tensors))
    lengths = {name: array.shape[0] if array.shape else 0 for name, array in stored.items()}
    read = read_arrays({name: array.take_rows(limit) for name, array in stored.items()}, max_memory)
    samples = ArraySamples.from_arrays(read, lengths, compute_digest(file.iter_blocks()))
    return LabelledDataset(samples, numbers, source)


def read_class_names(path: Path, classes: int) -> tuple[str, ...]:
    """Read the names of ``classes`` classes from a text file with one name per line.

    Raises
    ------
    UserError
        FILE001; DATA001 if the number of names is not ``classes``.
    """
    names = read_text(path, "file of classes", MAX_TEXT_BYTES, "DATA001").splitlines()
    if len(names) != classes or not all(name.strip() for name in names):
        empty = [number for number, name in enumerate(names, 1) if not name.strip()]
        message = "the file of class names does not have one line for each class"
        found = f"{len(names):,} lines" + (f", line {empty[0]} is empty" if empty else "")
        raise _dataset_error(path, message, found=found, expected=f"{classes:,} lines")
    return tuple(name.strip() for name in names)


def _find_arrays(file: ArrayFile, inputs: Sequence[str]) -> dict[str, StoredArray]:
    """Return the array of each input: by name, or the only one with two or more dimensions."""
    found = file.find_keys(inputs, PREFIX)
    if not found and len(inputs) == 1:
        keys = [key for key in file.keys if len(file.get_array(key).shape) > 1]
        found = {inputs[0]: keys[0]} if len(keys) == 1 else {}
    missing = [name for name in inputs if name not in found]
    if missing:
        raise _dataset_error(
            file.path,
            f"the data set has no samples for input {missing[0]!r}",
            found=", ".join(map(repr, file.keys)) or "no arrays",
            expected=", ".join(map(repr, inputs)),
            hint=f"Save the samples under {missing[0]!r} or {PREFIX + missing[0]!r}.",
        )
    return {name: file.get_array(key) for name, key in found.items()}


@attrs.frozen(eq=False)
class _FileSamples:
    """Samples with a file each, read on request."""

    paths: Sequence[Path]
    inputs: ProgramInputs
    digest: str

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> Arrays:
        """Return the inputs of a sample by name."""
        path = self.paths[index]
        if _is_image(path):
            name = self.inputs.get_single_name(path)
            return {name: self.inputs.read_image(name, path)}
        return read_arrays(_find_arrays(ArrayFile(path), list(self.inputs.tensors)))

    def source(self, index: int) -> str:
        """Return the name of a sample's file."""
        return str(self.paths[index])


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS


def _load_folder(folder: Path, labels: str | None, inputs: ProgramInputs) -> LabelledDataset:
    classes = sorted(path for path in list_folder(folder) if path.is_dir())
    if labels is None and classes:
        paths = [path for one in classes for path in _sample_files(one)]
        numbers = _class_numbers(classes)
        names = {number: path.name for path, number in numbers.items()}
        labelled = [numbers[path.parent] for path in paths]
        class_names = tuple(names.get(n, str(n)) for n in range(max(names) + 1))
    else:
        paths, class_names = _sample_files(folder), ()
        if paths and labels is None:
            hint = "Pass --labels L.csv with lines NAME,CLASS, or put each class into a folder."
            raise _dataset_error(folder, "the folder has no labels", hint=hint)
        names_of_files = [path.name for path in paths]
        labelled = list(_read_labels(Path(labels or ""), (), names_of_files)) if paths else []
    if not paths:
        message, expected = "the folder has no samples", f"files {SAMPLE_PATTERNS}"
        raise _dataset_error(folder, message, expected=expected)
    source = folder if labels is None else Path(labels)
    samples = _FileSamples(paths, inputs, _digest(folder, paths, inputs))
    return LabelledDataset(samples, labelled, source, class_names)


def _sample_files(folder: Path) -> list[Path]:
    files = [path for path in list_folder(folder) if path.suffix.lower() in SAMPLE_ENDINGS]
    return sorted(path for path in files if path.is_file())


def _class_numbers(folders: Sequence[Path]) -> dict[Path, int]:
    """Return the class of each folder: its name, or its position if not all names are numbers."""
    if all(folder.name.isascii() and folder.name.isdigit() for folder in folders):
        return {folder: int(folder.name) for folder in folders}
    return {folder: index for index, folder in enumerate(folders)}


def _digest(folder: Path, paths: Sequence[Path], inputs: ProgramInputs) -> str:
    """Return a digest of names, sizes and times of files, and of the conversion of images.

    Reading all files would take as long as half an evaluation.
    """
    facts = ((path.relative_to(folder).as_posix(), path.stat()) for path in paths)
    lines = [f"{name} {s.st_size} {s.st_mtime_ns}" for name, s in facts]
    if any(map(_is_image, paths)):
        lines.append(f"{inputs.images} {inputs.channel_order}")
    return compute_digest(line.encode() for line in lines)


def _read_labels(path: Path, keys: Sequence[str], names: Sequence[str] = ()) -> Sequence[int]:
    """Return the labels of a file in the order of the samples, whose files have ``names``."""
    if path.suffix.lower() in ARRAY_ENDINGS:
        file = ArrayFile(path)
        if len(file.keys) != 1:
            raise _dataset_error(
                path,
                "the file of labels does not have one array",
                found=f"{len(file.keys)} arrays",
                expected="1 array",
            )
        return _numbers(file.get_array(file.keys[0]))
    if not path.exists() and keys:
        expected = ", ".join(map(repr, keys))
        raise _dataset_error(
            path,
            "the file of labels does not exist",
            found=f"no file {path.name}, and no array of this name in the data set",
            expected=f"an existing file, or an array of the data set: {expected}",
        )
    return _parse_rows(path, _csv_rows(path), names)


def _csv_rows(path: Path) -> list[list[str]]:
    text = io.StringIO(read_text(path, "file of labels", MAX_TEXT_BYTES, "DATA001"), newline="")
    try:
        rows = [[field.strip() for field in row] for row in csv.reader(text) if row]
    except csv.Error as error:
        raise _dataset_error(
            path, "the labels cannot be read", found=error, expected="an .npy or .csv file"
        ) from error
    return rows[1:] if rows and not _is_label(rows[0][-1]) else rows


def _is_label(text: str) -> bool:
    return text.isascii() and (text.isdigit() or text == str(UNLABELLED))


def _parse_rows(path: Path, rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[int]:
    """Return labels of rows ``CLASS`` in the order of the samples, or ``NAME,CLASS``."""
    for row in rows:
        if len(row) not in (1, 2) or not _is_label(row[-1]):
            found, expected = ",".join(row)[:80], "CLASS or NAME,CLASS, where CLASS is a number"
            raise _dataset_error(path, "a label is invalid", found=found, expected=expected)
    if not rows:
        raise _dataset_error(path, "the file has no labels", expected="a line for each sample")
    if len(rows[0]) == 1 or not names:
        return [int(row[-1]) for row in rows]
    by_name = {row[0]: int(row[-1]) for row in rows}
    missing = [name for name in names if name not in by_name]
    if missing:
        hint = f"Add a line {missing[0]},CLASS; the class -1 skips the sample."
        raise _dataset_error(path, "a sample has no label", found=f"sample {missing[0]}", hint=hint)
    return [by_name[name] for name in names]


def _numbers(stored: StoredArray) -> Sequence[int]:
    if stored.dtype.kind not in "iu" or stored.size != max(stored.shape, default=1):
        found = f"{stored.dtype} of shape {'x'.join(map(str, stored.shape)) or 'scalar'}"
        message, expected = "the labels are not integers", "integers, one for each sample"
        raise _dataset_error(stored.file.path, message, found=found, expected=expected)
    return [int(value) for value in stored.read().reshape(-1)]


def _dataset_error(
    path: Path,
    message: str,
    *,
    found: object = None,
    expected: object = None,
    hint: str | None = None,
) -> UserError:
    return fail("DATA001", message, place=path, found=found, expected=expected, hint=hint)


# Calibration samples of a float network, from arrays, images and folders.

_COPIES = 2
"""Copies of the samples in memory: as read, and as one array."""


def load_calibration_samples(
    arguments: Sequence[str], images: ImageOptions, program: ImportedModel
) -> Arrays:
    """Load the calibration samples of each float input by name, stacked along the first axis.

    A file of arrays holds any number of samples; an image, and each file of a folder or a pattern,
    is one sample.

    Raises
    ------
    UserError
        FILE001, INPUT001 to INPUT003, ARG001, MEM001, PKG001; QUANT001 if the program is not float.
    """
    tensors = {
        name: Tensor(name, type_.elem, type_.shape, 0)
        for name, type_ in find_float_inputs(program).items()
    }
    stored: dict[str, StoredArray] = {}
    others: list[str] = []
    for argument in arguments:
        name, path = split_argument(argument, list(tensors))
        if not is_array_file(path):
            others.append(argument)
            continue
        file = ArrayFile(path)
        if name is None:
            stored |= {key: file.get_array(key) for key in file.keys}
        else:
            stored[name] = file.get_array(file.find_keys([name], PREFIX).get(name, file.keys[0]))
    if not others:
        return _StoredArrays(stored)
    left = {
        name: tensor
        for name, tensor in tensors.items()
        if not {name, PREFIX + name} & stored.keys() and not (len(tensors) == 1 and "" in stored)
    }
    order = "RGB" if program.operators else "BGR"
    known = {one.input: one for one in program.normalizations}
    samples = find_samples(others, ProgramInputs(left or tensors, images, order, known))
    print_image_formats(samples)
    needed = [
        PlannedAllocation(
            name, _COPIES * len(samples) * 4 * int(np.prod(tensor.shape, dtype=object))
        )
        for name, tensor in left.items()
    ]
    check_memory("the calibration inputs", needed)
    values = [sample.load() for sample in samples]
    stacked = {name: np.stack([one[name] for one in values]) for name in left}
    return {**_StoredArrays(stored), **stacked}


class _StoredArrays(Mapping[str, "Array"]):
    """Arrays of files, read on request."""

    def __init__(self, arrays: Mapping[str, StoredArray]) -> None:
        self._arrays = arrays

    def __getitem__(self, key: str) -> Array:
        return self._arrays[key].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, key: object) -> bool:
        return key in self._arrays
