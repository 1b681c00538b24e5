"""``--input [NAME=]FILE``: which values go to which input of the program, for one run or several.

A FILE is an array, an image or raw values; a folder or a pattern stands for several, in the order
of their names, and ``-`` for standard input.
"""

from __future__ import annotations

import difflib
import glob
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpsim.cli.arrays import ArrayFile, StoredArray
from nmpsim.cli.images import ENDINGS, image_size, is_image
from nmpsim.cli.input_options import GivenInputs
from nmpsim.cli.samples import Run, Sample, Source, Taker, batched, listed
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.npy import MAGIC
from nmpsim.views.text import plural, shape_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle.metadata import Metadata, Tensor

    Array = npt.NDArray[Any]

PREFIX = "input/"
"""What the files of recorded runs write before an input's name."""
ARRAY_ENDINGS = (".npy", ".npz")
RAW_ENDINGS = (".bin", ".raw", "")
"""Without an ending: standard input."""
_HEAD = 16
"""Bytes that tell what a file is."""


def fitting_inputs(given: GivenInputs, metadata: Metadata) -> dict[str, Array]:
    """The values of a bundle's inputs for one run.

    Raises :class:`~nmpsim.diagnostics.UserError` as :func:`only_sample` and :meth:`Sample.fitting`.
    """
    return only_sample(samples_of(given.arguments, Taker.of(metadata, given.images))).fitting()


def only_sample(samples: Sequence[Sample]) -> Sample:
    """The one that there is; INPUT001 if there are several."""
    if len(samples) > 1:
        raise fail(
            "INPUT001",
            "this makes one run",
            found=f"{len(samples)} inputs, from {samples[0].name} to {samples[-1].name}",
            expected="one",
            hint="`nmpsim run` alone takes several",
        )
    return samples[0]


def samples_of(arguments: Sequence[str], taker: Taker) -> list[Sample]:
    """The inputs of each run that the arguments of ``--input`` ask for; no values are read yet.

    Raises:
        UserError: INPUT001 for a missing, unknown or ambiguous input, and for different numbers of
            files; FILE001 for a folder or a pattern without files; INPUT003 for a file.
    """
    names = list(taker.tensors)
    lists = [
        batched([_sources(name, path, taker) for path in paths])
        for name, paths in (_expanded(argument, names) for argument in arguments)
    ]
    longest = max(lists, key=lambda runs: (len(runs), _files(runs)), default=[])
    for argument, found in zip(arguments, lists, strict=True):
        if len(found) not in (1, len(longest)):
            raise fail(
                "INPUT001",
                "the inputs have different numbers of files",
                found=f"--input {argument}: {_count(found)}",
                expected=f"1 or {_count(longest)}",
            )
    runs = [[found[index % len(found)] for found in lists] for index in range(len(longest) or 1)]
    return [_sample(run, taker, own) for run, own in zip(runs, longest or [{}], strict=True)]


def _files(runs: Sequence[Run]) -> int:
    """Of one argument; an archive is one, however many inputs it holds."""
    return sum(max(map(len, run.values()), default=0) for run in runs)


def _count(runs: Sequence[Run]) -> str:
    files = _files(runs)
    return str(files) if files == len(runs) else f"{files}, {len(runs)} batches"


def _sample(parts: Sequence[Run], taker: Taker, own: Run) -> Sample:
    sources: dict[str, tuple[Source, ...]] = {}
    for part in parts:
        for name, found in part.items():
            if name in sources:
                place = Place(str(found[0].path))
                hint = "several runs are a folder, or a pattern in quotes: --input 'images/*.png'"
                raise fail("INPUT001", f"input {name!r} is given twice", place=place, hint=hint)
            sources[name] = found
    _check_complete(sources, taker.tensors)
    files = tuple(str(source.path) for source in next(iter(own.values()), ()))
    return Sample(files, sources, taker)


def sample_shapes(arguments: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shape of the first array of each argument of ``--input``, by the input's name.

    The name is empty for an argument without one. Of an image it is height and width. What cannot
    be read is left out: who reads the values says why.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for argument in arguments:
        with suppress(UserError):
            name, paths = _expanded(argument, [argument.partition("=")[0]])
            if not is_array_file(paths[0]):
                shapes[name or ""] = image_size(paths[0])
                continue
            file = ArrayFile(paths[0])
            for key in file.keys:
                own = name if name is not None and len(file.keys) == 1 else key
                shapes[own.removeprefix(PREFIX)] = file.array(key).shape
    return shapes


def input_paths(arguments: Sequence[str], names: Sequence[str]) -> list[Path]:
    """The files that the arguments name."""
    return [path for argument in arguments for path in _expanded(argument, names)[1]]


def _expanded(argument: str, names: Sequence[str]) -> tuple[str | None, list[Path]]:
    """Name and files of an argument."""
    name, path = split_argument(argument, names)
    if _exists(path) and path.is_dir():
        return name, _files_of_folder(path)
    if _exists(path) or not glob.has_magic(str(path)):
        return name, [path]
    # Path.glob takes no pattern that begins with a slash.
    found = sorted(Path(one) for one in glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not found:
        raise fail(
            "FILE001",
            "no file is called like that",
            place=Place(str(path)),
            expected="a pattern that fits files, such as 'images/*.png'",
        )
    return name, found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _files_of_folder(folder: Path) -> list[Path]:
    try:
        found = sorted(one for one in folder.iterdir() if one.is_file())
    except OSError as error:
        raise fail(
            "FILE001", "cannot read the folder", place=Place(str(folder)), found=error.strerror
        ) from error
    files = [one for one in found if one.suffix.lower() in (*ARRAY_ENDINGS, *ENDINGS)]
    if not files:
        raise fail(
            "FILE001",
            "there are no inputs in the folder",
            place=Place(str(folder)),
            found=f"{plural(len(found), 'file')} of other kinds" if found else "no files",
            expected=", ".join(f"*{ending}" for ending in (*ARRAY_ENDINGS, *ENDINGS)),
        )
    return files


def split_argument(argument: str, names: Sequence[str]) -> tuple[str | None, Path]:
    """Name and path of an argument; a name may hold ``=`` and so may a path that exists.

    Raises INPUT001 for a name that is none of ``names``.
    """
    for name in sorted(names, key=len, reverse=True):
        for prefix in (name, PREFIX + name):
            if argument.startswith(prefix + "="):
                return name, Path(argument[len(prefix) + 1 :])
    head, equals, _ = argument.partition("=")
    if not equals or "/" in head or _exists(Path(argument)):
        return None, Path(argument)
    raise _unknown(head, names, None)


def is_array_file(path: Path) -> bool:
    """Whether a path is to be read as an ``.npy`` or ``.npz`` file, by its first bytes.

    Also what is nothing else: a file that is not there, or is empty.
    """
    if (_exists(path) and path.is_dir()) or (glob.has_magic(str(path)) and not _exists(path)):
        return False
    head = _head(path)
    return not head or _begins_arrays(head)


def _begins_arrays(head: bytes) -> bool:
    return head[:2] == b"PK" or head[: len(MAGIC)] == MAGIC


def _sources(name: str | None, path: Path, taker: Taker) -> dict[str, Source]:
    """What a file holds, by input."""
    head = _head(path)
    if not _begins_arrays(head):
        if is_image(path, head):
            own = name or taker.only(path)
            _size(path)  # that it is missing is told before how it would be read
            item = taker.item(own)
            read = partial(taker.read_image, own, path)
            if taker.batch(own) > 1:
                taker.image_format(own)  # an input that takes no images says so first
            return {own: Source(path, read, item, taker.batch(own), is_image=True)}
        if head and path.suffix.lower() in RAW_ENDINGS:
            own = name or taker.only(path)
            nbytes = _size(path)
            fitting = taker.fitting(own, nbytes // ELEM_DTYPES[taker.tensors[own].elem].itemsize)
            return {own: Source(path, lambda: _raw(path, nbytes, fitting[0]), *fitting)}
        if head:
            raise fail(
                "INPUT003",
                "this is neither an .npy nor an .npz file, nor an image",
                place=Place(str(path)),
                found=repr(head[:6]),
                expected=f"an array ({', '.join(ARRAY_ENDINGS)}) or an image (PNG, JPEG, BMP)",
                hint="numpy.save writes arrays; raw values are read from a .bin or .raw file",
            )
    file = ArrayFile(path)
    if name is not None:
        found = {name: _array_for(name, file)}
    elif file.is_archive:
        found = _matching(file, taker.tensors)
    else:
        found = {taker.only(path): file.array("")}
    return {name: _array(array, name, taker) for name, array in found.items()}


def _head(path: Path) -> bytes:
    """The beginning of a file; of what cannot be opened nothing, who reads it says why."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _array(stored: StoredArray, name: str, taker: Taker) -> Source:
    fitting = taker.fitting(name, stored.size)
    return Source(stored.file.path, lambda: _read(stored, fitting[0]), *fitting)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        message = f"cannot read the input: {error.strerror}"
        raise fail("FILE001", message, place=Place(str(path))) from error


def _raw(path: Path, nbytes: int, tensor: Tensor) -> Array:
    """Values of the input's type one after the other, little-endian."""
    dtype = ELEM_DTYPES[tensor.elem].newbyteorder("<")
    expected = dtype.itemsize * math.prod(tensor.shape)
    if nbytes != expected:
        raise fail(
            "INPUT002",
            f"these are not the raw values of input {tensor.name!r}",
            place=Place(str(path)),
            found=f"{nbytes:,} bytes",
            expected=f"{expected:,} bytes: {shape_text(tensor.shape)} of {dtype.name}",
            hint="an .npy file says its type and shape itself",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"cannot read the input: {error.strerror}"
        raise fail("FILE001", message, place=Place(str(path))) from error
    return np.frombuffer(data, dtype).reshape(tensor.shape).astype(dtype.newbyteorder("="))


def _unknown(name: str, names: Sequence[str], place: Place | None) -> UserError:
    near = difflib.get_close_matches(name, names, 1)
    return fail(
        "INPUT001",
        f"the program has no input {name!r}",
        place=place,
        expected=listed(names) or "no input at all",
        hint=f"did you mean {near[0]!r}?" if near else "`nmpsim inspect` shows the inputs",
    )


def _array_for(name: str, file: ArrayFile) -> StoredArray:
    """The array of a file that the user gave for this input."""
    if len(file.keys) == 1:
        return file.array(file.keys[0])
    for key in (name, PREFIX + name):
        if key in file.keys:
            return file.array(key)
    raise _no_match(file, [name])


def _matching(file: ArrayFile, tensors: Mapping[str, Tensor]) -> dict[str, StoredArray]:
    """Every input that an archive holds, with or without prefix."""
    found = {
        name: file.array(key)
        for name in tensors
        for key in (PREFIX + name, name)  # the plain name wins
        if key in file.keys
    }
    if not found:
        raise _no_match(file, list(tensors))
    return found


def _no_match(file: ArrayFile, names: Sequence[str]) -> UserError:
    return fail(
        "INPUT001",
        "none of the file's arrays is an input of the program",
        place=Place(str(file.path)),
        found=listed(file.keys) or "no arrays",
        expected=listed(names) or "no input at all",
        hint=_rename_hint(file, names),
    )


def _rename_hint(file: ArrayFile, names: Sequence[str]) -> str:
    keys = [key.removeprefix(PREFIX) for key in file.keys]
    for name in names:
        near = difflib.get_close_matches(name, keys, 1)
        if near:
            return f"is {near[0]!r} meant to be {name!r}?"
    return "save the arrays under the names of the inputs"


def _check_complete(found: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
    missing = [name for name in tensors if name not in found]
    if missing:
        hint = " ".join(f"--input {shlex.quote(f'{name}=FILE.npy')}" for name in missing[:4])
        if len(tensors) == 1:
            hint = "--input FILE: an array, an image, a folder or a pattern of them, or -"
        raise fail(
            "INPUT001",
            f"no value for {'input' if len(missing) == 1 else 'inputs'} {listed(missing)}",
            found=f"values for {listed(list(found))}" if found else "no value for any input",
            hint=hint,
        )


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _read(array: StoredArray, tensor: Tensor) -> Array:
    """The array, unless it cannot fit, in the input's shape where only dimensions of 1 differ."""
    expected = int(np.prod(tensor.shape, dtype=object))
    if array.size != expected:
        several = _without_ones(array.shape[1:]) == _without_ones(tensor.shape)
        raise fail(
            "INPUT002",
            f"input {tensor.name!r} is of another size",
            place=Place(str(array.file.path)),
            found=f"{shape_text(array.shape)}, {plural(array.size, 'value')}",
            expected=f"{shape_text(tensor.shape)}, {plural(expected, 'value')}",
            hint=f"these are {array.shape[0]} samples: save each in a file of its own, or"
            " take `nmpsim eval`"
            if several
            else None,
        )
    values = array.read()
    return values.reshape(tensor.shape) if tensor.holds(values.shape) else values
