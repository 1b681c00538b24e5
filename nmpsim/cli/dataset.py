"""``--dataset`` and ``--labels``: samples in an ``.npz`` file or in a folder, and what they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.cli.arrays import ArrayFile, StoredArray, read_all
from nmpsim.cli.images import ENDINGS as IMAGE_ENDINGS
from nmpsim.cli.inputs import ARRAY_ENDINGS, PREFIX
from nmpsim.cli.samples import Taker
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.experiments.identity import digest_of
from nmpsim.experiments.samples import UNLABELLED, ArraySamples, Samples
from nmpsim.input_files import read_text

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_TEXT_BYTES = 64 << 20
"""Of a file of labels or of names: some million lines."""


@attrs.frozen(eq=False)
class Labelled:
    """A data set: samples, the class of each, the classes' names if folders name them."""

    samples: Samples
    labels: Sequence[int]
    said_by: Path
    """The file or folder that the labels are from."""
    class_names: tuple[str, ...] = ()


def load_dataset(
    dataset: Path,
    labels: str | None,
    taker: Taker,
    max_memory: int | None = None,
    limit: int | None = None,
) -> Labelled:
    """The samples of a file or folder, with labels.

    Args:
        dataset: an ``.npz`` or ``.npy`` file whose arrays count samples along their first axis, or
            a folder with one file a sample, image or array, or with a folder a class.
        labels: an ``.npy`` or ``.csv`` file, or the name of an array in ``dataset``; None for a
            folder with a folder a class.
        taker: the program's inputs, and how it takes images.
        max_memory: bytes that all samples of a file together may take; what is free, less a
            margin, if None.
        limit: only the first this many samples of a file are read; all if None.

    Raises:
        UserError: FILE001, INPUT003, DATA001, MEM001.
    """
    if dataset.is_dir():
        return _of_folder(dataset, labels, taker)
    if labels is None:
        hint = "--labels L.npy, L.csv, or the name of an array in the data set"
        raise _unusable(dataset, "the data set does not say what its samples are", hint=hint)
    file = ArrayFile(dataset)
    if labels in file.keys:
        numbers = _numbers(file.array(labels))
    else:
        numbers = _read_labels(Path(labels), file.keys if file.is_archive else ())
    said_by = dataset if labels in file.keys else Path(labels)
    stored = _arrays(file, list(taker.tensors))
    lengths = {name: array.shape[0] if array.shape else 0 for name, array in stored.items()}
    read = read_all({name: array.head(limit) for name, array in stored.items()}, max_memory)
    return Labelled(ArraySamples.of(read, lengths, digest_of(file.blocks())), numbers, said_by)


def read_class_names(path: Path, classes: int) -> tuple[str, ...]:
    """A name for each class, one a line.

    Raises:
        UserError: FILE001; DATA001 if there is not one for each of ``classes`` classes.
    """
    names = read_text(path, "file of classes", MAX_TEXT_BYTES, "DATA001").splitlines()
    if len(names) != classes or not all(name.strip() for name in names):
        empty = [number for number, name in enumerate(names, 1) if not name.strip()]
        message = "a file of classes has a line with a name for each class of the program"
        found = f"{len(names):,} lines" + (f", line {empty[0]} is empty" if empty else "")
        raise _unusable(path, message, found=found, expected=f"{classes:,} lines")
    return tuple(name.strip() for name in names)


def _arrays(file: ArrayFile, inputs: Sequence[str]) -> dict[str, StoredArray]:
    """An array for each input: under its name, or the only one that is no row of labels."""
    found = {name: key for name in inputs for key in (PREFIX + name, name) if key in file.keys}
    if not found and len(inputs) == 1:
        keys = [key for key in file.keys if len(file.array(key).shape) > 1]
        found = {inputs[0]: keys[0]} if len(keys) == 1 else {}
    missing = [name for name in inputs if name not in found]
    if missing:
        raise _unusable(
            file.path,
            "the data set has no samples for every input",
            found=", ".join(map(repr, file.keys)) or "no arrays",
            expected=", ".join(map(repr, inputs)),
            hint=f"save them under {missing[0]!r} or {PREFIX + missing[0]!r}",
        )
    return {name: file.array(key) for name, key in found.items()}


@attrs.frozen(eq=False)
class _Files:
    """A file for each sample; read when it is asked for."""

    paths: Sequence[Path]
    taker: Taker
    digest: str

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> Mapping[str, npt.NDArray[Any]]:
        """See :class:`~nmpsim.experiments.Samples`."""
        path = self.paths[index]
        if _is_image(path):
            name = self.taker.only(path)
            return {name: self.taker.read_image(name, path)}
        return read_all(_arrays(ArrayFile(path), list(self.taker.tensors)))

    def source(self, index: int) -> str:
        """See :class:`~nmpsim.experiments.Samples`."""
        return str(self.paths[index])


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS


def _of_folder(folder: Path, labels: str | None, taker: Taker) -> Labelled:
    classes = sorted(path for path in _listed(folder) if path.is_dir())
    if labels is None and classes:
        paths = [path for one in classes for path in _sample_files(one)]
        numbers = _class_numbers(classes)
        names = {number: path.name for path, number in numbers.items()}
        labelled = [numbers[path.parent] for path in paths]
        class_names = tuple(names.get(n, str(n)) for n in range(max(names) + 1))
    else:
        paths, class_names = _sample_files(folder), ()
        if not paths:
            raise _nothing(folder)
        if labels is None:
            hint = "--labels L.csv with lines NAME,CLASS; or put each class into a folder"
            raise _unusable(folder, "the folder does not say what its samples are", hint=hint)
        names_of_files = [path.name for path in paths]
        labelled = list(_read_labels(Path(labels), (), names_of_files))
    if not paths:
        raise _nothing(folder)
    said_by = folder if labels is None else Path(labels)
    samples = _Files(paths, taker, _digest(folder, paths, taker))
    return Labelled(samples, labelled, said_by, class_names)


def _nothing(folder: Path) -> UserError:
    expected = ", ".join(f"*{ending}" for ending in (*ARRAY_ENDINGS, *IMAGE_ENDINGS))
    return _unusable(folder, "there are no samples in the folder", expected=expected)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        place = Place(str(folder))
        raise fail(
            "FILE001", "cannot read the folder", place=place, found=error.strerror
        ) from error


def _sample_files(folder: Path) -> list[Path]:
    files = [
        path for path in _listed(folder) if path.suffix.lower() in ARRAY_ENDINGS or _is_image(path)
    ]
    return sorted(path for path in files if path.is_file())


def _class_numbers(folders: Sequence[Path]) -> dict[Path, int]:
    """The number that names a folder, or its place in their order if not all are numbers."""
    if all(folder.name.isascii() and folder.name.isdigit() for folder in folders):
        return {folder: int(folder.name) for folder in folders}
    return {folder: index for index, folder in enumerate(folders)}


def _digest(folder: Path, paths: Sequence[Path], taker: Taker) -> str:
    """Of names, sizes and times: reading all files would take as long as half an evaluation.

    What becomes of images is a part of them.
    """
    facts = ((path.relative_to(folder).as_posix(), path.stat()) for path in paths)
    lines = [f"{name} {s.st_size} {s.st_mtime_ns}" for name, s in facts]
    if any(map(_is_image, paths)):
        lines.append(f"{taker.images} {taker.channel_order}")
    return digest_of(line.encode() for line in lines)


def _read_labels(path: Path, keys: Sequence[str], names: Sequence[str] = ()) -> Sequence[int]:
    """Labels of a file, in the order of the samples; ``names`` are those of the samples' files."""
    if path.suffix.lower() in ARRAY_ENDINGS:
        file = ArrayFile(path)
        if len(file.keys) != 1:
            raise _unusable(path, "a file of labels has one array", found=f"{len(file.keys)}")
        return _numbers(file.array(file.keys[0]))
    if not path.exists() and keys:
        expected = ", ".join(map(repr, keys))
        raise _unusable(path, "no such file, and no such array in the data set", expected=expected)
    return _labels_of_rows(path, _csv_rows(path), names)


def _csv_rows(path: Path) -> list[list[str]]:
    text = io.StringIO(read_text(path, "file of labels", MAX_TEXT_BYTES, "DATA001"), newline="")
    try:
        rows = [[field.strip() for field in row] for row in csv.reader(text) if row]
    except csv.Error as error:
        raise _unusable(path, "labels are an .npy or a .csv file", found=error) from error
    return rows[1:] if rows and not _is_label(rows[0][-1]) else rows


def _is_label(text: str) -> bool:
    return text.isascii() and (text.isdigit() or text == str(UNLABELLED))


def _labels_of_rows(path: Path, rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[int]:
    """Rows ``CLASS`` in the order of the samples, or ``NAME,CLASS`` in any order."""
    for row in rows:
        if len(row) not in (1, 2) or not _is_label(row[-1]):
            found, expected = ",".join(row)[:80], "CLASS or NAME,CLASS, the class as a number"
            raise _unusable(path, "a line is no label", found=found, expected=expected)
    if not rows:
        raise _unusable(path, "there are no labels in the file", expected="a line for each sample")
    if len(rows[0]) == 1 or not names:
        return [int(row[-1]) for row in rows]
    by_name = {row[0]: int(row[-1]) for row in rows}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise _unusable(path, "a sample has no label", found=missing[0])
    return [by_name[name] for name in names]


def _numbers(stored: StoredArray) -> Sequence[int]:
    if stored.dtype.kind not in "iu" or stored.size != max(stored.shape, default=1):
        found = f"{stored.dtype} of shape {'x'.join(map(str, stored.shape)) or 'scalar'}"
        message = "labels are whole numbers, one for each sample"
        raise _unusable(stored.file.path, message, found=found)
    return [int(value) for value in stored.read().reshape(-1)]


def _unusable(
    path: Path,
    message: str,
    *,
    found: object = None,
    expected: object = None,
    hint: str | None = None,
) -> UserError:
    place = Place(str(path))
    return fail("DATA001", message, place=place, found=found, expected=expected, hint=hint)
