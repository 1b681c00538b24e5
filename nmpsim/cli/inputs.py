"""Resolution of ``--input [NAME=]FILE`` to the inputs of a program, for one run or several.

A FILE is an array, an image or raw values; a folder or a pattern stands for several, in the order
of their names, and ``-`` for standard input.
"""

from __future__ import annotations

import difflib
import glob
import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmpsim.array_files import ArrayFile, StoredArray
from nmpsim.arrays import Array
from nmpsim.cli.images import ENDINGS, is_image, read_image_size
from nmpsim.cli.options import InputOptions
from nmpsim.cli.samples import (
    InputSample,
    InputSource,
    ProgramInputs,
    RunSources,
    format_names,
    group_batches,
)
from nmpsim.diagnostics import UserError, did_you_mean, fail, format_count
from nmpsim.input_files import CHECK_FILE_HINT, read_first_bytes
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.npy import MAGIC
from nmpsim.views.text import format_shape

if TYPE_CHECKING:
    from nmpsim.bundle.metadata import Metadata, Tensor

PREFIX = "input/"
"""Prefix of an input's name in files of recorded runs."""
ARRAY_ENDINGS = (".npy", ".npz")
RAW_ENDINGS = (".bin", ".raw", "")
"""Suffixes of raw values; standard input has none."""
SAMPLE_ENDINGS = (*ARRAY_ENDINGS, *ENDINGS)
SAMPLE_PATTERNS = ", ".join(f"*{ending}" for ending in SAMPLE_ENDINGS)
_HEAD_BYTES = 16
"""Bytes that identify the format of a file."""


def load_inputs(options: InputOptions, metadata: Metadata) -> dict[str, Array]:
    """Load the values of a bundle's inputs for one run, by input name.

    Raises UserError, see :func:`find_samples` and :meth:`InputSample.load`.
    """
    inputs = ProgramInputs.from_bundle(metadata, options.images)
    return get_single_sample(find_samples(options.arguments, inputs)).load()


def get_single_sample(samples: Sequence[InputSample]) -> InputSample:
    """Return the only element of ``samples``. Raises UserError (INPUT001) for several."""
    if len(samples) > 1:
        raise fail(
            "INPUT001",
            "the command accepts the inputs of only one run",
            found=f"inputs of {len(samples)} runs, from {samples[0].name} to {samples[-1].name}",
            expected="inputs of one run",
            hint="Pass one file, or use `nmpsim run`, which accepts several.",
        )
    return samples[0]


def find_samples(arguments: Sequence[str], inputs: ProgramInputs) -> list[InputSample]:
    """Find the input files of each run that arguments of ``--input`` name, without reading them.

    No values are read.

    Raises
    ------
    UserError
        INPUT001 for a missing, unknown or ambiguous input, and for different numbers of files;
        FILE001 for a folder or a pattern without files; INPUT003 for an unusable file.
    """
    names = list(inputs.tensors)
    series: dict[tuple[str, ...], list[dict[str, InputSource]]] = {}
    titles: dict[tuple[str, ...], list[str]] = {}
    for argument in arguments:
        name, paths = _expand(argument, names)
        files = [_find_sources(name, path, inputs) for path in paths]
        is_series = name is None and inputs.states  # one run after the other changes the state
        key = tuple(files[0]) if is_series else (argument, str(len(titles)))
        series.setdefault(key, []).extend(files)
        titles.setdefault(key, []).append(argument)
    lists = [group_batches(files) for files in series.values()]
    longest = max(lists, key=lambda runs: (len(runs), _count_files(runs)), default=[])
    for own, found in zip(titles.values(), lists, strict=True):
        if len(found) not in (1, len(longest)):
            raise fail(
                "INPUT001",
                "the inputs have different numbers of files",
                found=f"{' '.join(f'--input {one}' for one in own)}: {_describe_count(found)}",
                expected=f"1 or {_describe_count(longest)}",
                hint="Pass the same number of files for each input, or one file for all runs.",
            )
    runs = [[found[index % len(found)] for found in lists] for index in range(len(longest) or 1)]
    return [_make_sample(run, inputs, own) for run, own in zip(runs, longest or [{}], strict=True)]


def _count_files(runs: Sequence[RunSources]) -> int:
    """Return the number of files of one argument; an archive counts once."""
    return sum(max(map(len, run.values()), default=0) for run in runs)


def _describe_count(runs: Sequence[RunSources]) -> str:
    files = _count_files(runs)
    return str(files) if files == len(runs) else f"{files}, {len(runs)} batches"


def _make_sample(
    parts: Sequence[RunSources], inputs: ProgramInputs, own: RunSources
) -> InputSample:
    sources: dict[str, tuple[InputSource, ...]] = {}
    for part in parts:
        for name, found in part.items():
            if name in sources:
                hint = "For several runs, pass a folder or a pattern: --input 'images/*.png'."
                raise fail(
                    "INPUT001",
                    f"input {name!r} is passed twice",
                    place=found[0].path,
                    expected="each input once",
                    hint=hint,
                )
            sources[name] = found
    _check_complete(sources, inputs.required)
    files = tuple(str(source.path) for source in next(iter(own.values()), ()))
    return InputSample(files, sources, inputs)


def read_sample_shapes(arguments: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the shape of the first file of each argument of ``--input``, by input name.

    The name is empty for an argument without one. The shape of an image is its height and width.
    Files that cannot be read are left out; reading the values reports the error.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for argument in arguments:
        with suppress(UserError):
            name, paths = _expand(argument, [argument.partition("=")[0]])
            if not is_array_file(paths[0]):
                shapes[name or ""] = read_image_size(paths[0])
                continue
            file = ArrayFile(paths[0])
            for key in file.keys:
                own = name if name is not None and len(file.keys) == 1 else key
                shapes[own.removeprefix(PREFIX)] = file.get_array(key).shape
    return shapes


def list_input_paths(arguments: Sequence[str], names: Sequence[str]) -> list[Path]:
    """Return the paths of all files that the arguments of ``--input`` name."""
    return [path for argument in arguments for path in _expand(argument, names)[1]]


def _expand(argument: str, names: Sequence[str]) -> tuple[str | None, list[Path]]:
    """Return the name and the files of an argument."""
    name, path = split_argument(argument, names)
    if _exists(path) and path.is_dir():
        return name, _find_files(path)
    if _exists(path) or not glob.has_magic(str(path)):
        return name, [path]
    # Path.glob takes no pattern that begins with a slash.
    found = sorted(Path(one) for one in glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not found:
        raise fail(
            "FILE001",
            "no file matches the pattern",
            place=path,
            found="0 files",
            expected="an existing file, or a pattern such as 'images/*.png'",
        )
    return name, found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long
        return False


def list_folder(folder: Path) -> list[Path]:
    """Return the entries of a folder; raise UserError (FILE001) if the folder is unreadable."""
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise fail(
            "FILE001",
            f"cannot read the folder: {error.strerror}",
            place=folder,
            hint=CHECK_FILE_HINT,
        ) from error


def _find_files(folder: Path) -> list[Path]:
    found = sorted(one for one in list_folder(folder) if one.is_file())
    files = [one for one in found if one.suffix.lower() in SAMPLE_ENDINGS]
    if not files:
        raise fail(
            "FILE001",
            "the folder has no input files",
            place=folder,
            found=f"{format_count(len(found), 'other file')}" if found else "no files",
            expected=f"files {SAMPLE_PATTERNS}",
        )
    return files


def split_argument(argument: str, names: Sequence[str]) -> tuple[str | None, Path]:
    """Split an argument ``[NAME=]FILE`` into the name, or None, and the path.

    A name may contain ``=``, and so may a path that exists. Raises UserError (INPUT001) for a name
    that is not one of ``names``.
    """
    for name in sorted(names, key=len, reverse=True):
        for prefix in (name, PREFIX + name):
            if argument.startswith(prefix + "="):
                return name, Path(argument[len(prefix) + 1 :])
    head, equals, _ = argument.partition("=")
    if not equals or "/" in head or _exists(Path(argument)):
        return None, Path(argument)
    raise fail(
        "INPUT001",
        f"the program has no input {head!r}",
        found=f"--input {argument}",
        expected=format_names(names) or "no inputs",
        hint=did_you_mean(head, names) or "List the inputs with `nmpsim inspect`.",
    )


def is_array_file(path: Path) -> bool:
    """Return whether a file begins like an ``.npy`` or ``.npz`` file, or is empty or missing.

    True also for a file that is missing or empty, to report that as an error.
    """
    if (_exists(path) and path.is_dir()) or (glob.has_magic(str(path)) and not _exists(path)):
        return False
    head = read_first_bytes(path, _HEAD_BYTES)
    return not head or _has_array_magic(head)


def _has_array_magic(head: bytes) -> bool:
    return head[:2] == b"PK" or head[: len(MAGIC)] == MAGIC


def _find_sources(name: str | None, path: Path, inputs: ProgramInputs) -> dict[str, InputSource]:
    """Return the sources in a file by input."""
    head = read_first_bytes(path, _HEAD_BYTES)
    if not _has_array_magic(head):
        if is_image(path, head):
            own = name or inputs.get_single_name(path)
            _file_size(path)  # reports a missing file first
            item, batch = inputs.get_item_tensor(own), inputs.get_batch_size(own)
            read = partial(inputs.read_image, own, path)
            if batch > 1:
                inputs.get_image_format(own)  # reports an input that does not accept images
            return {own: InputSource(path, read, item, batch, is_image=True)}
        if head and path.suffix.lower() in RAW_ENDINGS:
            own = name or inputs.get_single_name(path)
            nbytes = _file_size(path)
            itemsize = ELEM_DTYPES[inputs.tensors[own].elem].itemsize
            match = inputs.match_value_count(own, nbytes // itemsize)
            return {own: InputSource(path, lambda: _read_raw(path, nbytes, match[0]), *match)}
        if head:
            raise fail(
                "INPUT003",
                "unknown format of an input file",
                place=path,
                found=f"the bytes {head[:6]!r}",
                expected=f"an array ({', '.join(ARRAY_ENDINGS)}) or an image (PNG, JPEG, BMP)",
                hint="Write arrays with numpy.save, and raw values to a .bin or .raw file.",
            )
    file = ArrayFile(path)
    if name is None and file.is_archive:
        keys = _find_keys(file, inputs.tensors)
    else:
        own = name or inputs.get_single_name(path)
        keys = {own: file.keys[0]} if len(file.keys) == 1 else _find_keys(file, [own])
    return {one: _array_source(file.get_array(key), one, inputs) for one, key in keys.items()}


def _array_source(stored: StoredArray, name: str, inputs: ProgramInputs) -> InputSource:
    match = inputs.match_value_count(name, stored.size)
    return InputSource(stored.file.path, lambda: _read_array(stored, match[0]), *match)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _make_read_error(path, error) from error


def _make_read_error(path: Path, error: OSError) -> UserError:
    message = f"cannot read the input: {error.strerror}"
    return fail("FILE001", message, place=path, hint=CHECK_FILE_HINT)


def _read_raw(path: Path, nbytes: int, tensor: Tensor) -> Array:
    """Return the little-endian values of a file, in the type and shape of the input."""
    dtype = ELEM_DTYPES[tensor.elem].newbyteorder("<")
    expected = dtype.itemsize * math.prod(tensor.shape)
    if nbytes != expected:
        raise fail(
            "INPUT002",
            f"the file does not have the size of input {tensor.name!r}",
            place=path,
            found=f"{nbytes:,} bytes",
            expected=f"{expected:,} bytes: {format_shape(tensor.shape)} of {dtype.name}",
            hint="Pass an .npy file, whose header has the type and shape.",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _make_read_error(path, error) from error
    return np.frombuffer(data, dtype).reshape(tensor.shape).astype(dtype.newbyteorder("="))


def _find_keys(file: ArrayFile, names: Collection[str]) -> dict[str, str]:
    """Return the key of each input in an archive. Raises UserError (INPUT001) if it has none."""
    found = file.find_keys(names, PREFIX)
    if found:
        return found
    raise fail(
        "INPUT001",
        "none of the file's arrays is an input of the program",
        place=file.path,
        found=format_names(file.keys) or "no arrays",
        expected=format_names(list(names)) or "no inputs",
        hint=_suggest_name(file, names),
    )


def _suggest_name(file: ArrayFile, names: Iterable[str]) -> str:
    keys = [key.removeprefix(PREFIX) for key in file.keys]
    for name in names:
        near = difflib.get_close_matches(name, keys, 1)
        if near:
            return f"Rename array {near[0]!r} to {name!r} if it is this input."
    return "Save the arrays under the names of the inputs."


def _check_complete(found: Mapping[str, object], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in found]
    if missing:
        given = " ".join(f"--input {shlex.quote(f'{name}=FILE.npy')}" for name in missing[:4])
        hint = f"Pass {given}."
        if len(required) == 1:
            hint = "Pass --input FILE: an array, an image, a folder, a pattern, or -."
        raise fail(
            "INPUT001",
            f"no value for {'input' if len(missing) == 1 else 'inputs'} {format_names(missing)}",
            found=f"values for {format_names(list(found))}" if found else "no value for any input",
            hint=hint,
        )


def _squeeze(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _read_array(array: StoredArray, tensor: Tensor) -> Array:
    """Return an array, reshaped to the input if only dimensions of 1 differ.

    Raises UserError (INPUT002) for another number of elements.
    """
    expected = int(np.prod(tensor.shape, dtype=object))
    if array.size != expected:
        is_batch = _squeeze(array.shape[1:]) == _squeeze(tensor.shape)
        raise fail(
            "INPUT002",
            f"the array does not have the size of input {tensor.name!r}",
            place=array.file.path,
            found=f"{format_shape(array.shape)}, {format_count(array.size, 'value')}",
            expected=f"{format_shape(tensor.shape)}, {format_count(expected, 'value')}",
            hint=f"Save each of the {array.shape[0]} samples in a separate file, or use"
            " `nmpsim eval`."
            if is_batch
            else None,
        )
    values = array.read()
    return values.reshape(tensor.shape) if tensor.accepts_shape(values.shape) else values
