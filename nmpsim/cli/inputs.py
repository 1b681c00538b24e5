"""``--input [NAME=]FILE``: which values go to which input of the program, for one run or several.

A FILE is an array, an image or raw values; a folder or a pattern stands for several, in the order
of their names, and ``-`` for standard input.
"""

from __future__ import annotations

import difflib
import glob
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nmpsim.cli.arrays import ArrayFile, StoredArray
from nmpsim.cli.images import ENDINGS, ImageFormat, image_format, is_image, read_image
from nmpsim.cli.input_options import NOTHING_SAID, GivenInputs, ImageOptions
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.npy import MAGIC
from nmpsim.views.text import plural, shape_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.bundle.metadata import Metadata, Normalization, Tensor

    Array = npt.NDArray[Any]

PREFIX = "input/"
"""What the files of recorded runs write before an input's name."""
ARRAY_ENDINGS = (".npy", ".npz")
RAW_ENDINGS = (".bin", ".raw", "")
"""Without an ending: standard input."""
_HEAD = 16
"""Bytes that tell what a file is."""


@attrs.frozen(eq=False)
class Taker:
    """A program's inputs, and how it takes images."""

    tensors: Mapping[str, Tensor]
    """By name, as a user has them."""
    images: ImageOptions = NOTHING_SAID
    channel_order: str = "RGB"
    """Of images, where the options say nothing."""
    normalizations: Mapping[str, Normalization] = MappingProxyType({})
    """By input, as far as the model's file says it."""

    @classmethod
    def of(cls, metadata: Metadata, images: ImageOptions) -> Taker:
        """That of a bundle."""
        tensors = {tensor.name: tensor for tensor in metadata.user_inputs}
        normalizations = {one.input: one for one in metadata.normalizations}
        return cls(tensors, images, metadata.channel_order, normalizations)

    def image_format(self, name: str) -> ImageFormat:
        """How an input takes images."""
        normalization = self.normalizations.get(name)
        return image_format(self.tensors[name], self.images, self.channel_order, normalization)

    def only(self, path: Path) -> str:
        """The input that a file is for which holds one thing; INPUT001 if there are several."""
        if len(self.tensors) != 1:
            raise fail(
                "INPUT001",
                "this file does not say which input it is",
                place=Place(str(path)),
                expected=f"one of the inputs {_listed(list(self.tensors))}",
                hint="--input " + shlex.quote(f"{next(iter(self.tensors), 'NAME')}={path}"),
            )
        return next(iter(self.tensors))

    def read_image(self, name: str, path: Path) -> Array:
        """An image in the shape of an input."""
        return read_image(path, self.tensors[name], self.image_format(name), self.images.resize)


@attrs.frozen(eq=False)
class Source:
    """Where the values of an input come from."""

    path: Path
    read: Callable[[], Array]
    """The values, in the shape of the input where only dimensions of 1 differ."""
    is_image: bool = False


@attrs.frozen(eq=False)
class Sample:
    """Where the inputs of one run come from."""

    name: str
    """The file that tells it from others."""
    sources: Mapping[str, Source]
    taker: Taker

    def read(self) -> dict[str, Array]:
        """The values of each input as they are in the files.

        Raises :class:`~nmpsim.diagnostics.UserError`: FILE001, INPUT002, INPUT003 and PKG001.
        """
        return {name: source.read() for name, source in self.sources.items()}

    def fitting(self) -> dict[str, Array]:
        """As :meth:`read`; what a run would refuse is refused here, with its file (INPUT002)."""
        from nmpsim.core.inputs import mismatch

        values = self.read()
        for name, array in values.items():
            wrong = mismatch(self.taker.tensors[name], array)
            if wrong is not None:
                place = Place(str(self.sources[name].path))
                hint = _mend(self.taker.tensors[name], array) or wrong.hint
                raise UserError(attrs.evolve(wrong, place=place, hint=hint))
        return values

    @property
    def formats(self) -> dict[str, ImageFormat]:
        """How its images are taken, by input."""
        return {
            name: self.taker.image_format(name)
            for name, source in self.sources.items()
            if source.is_image
        }


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
        [_sources(name, path, taker) for path in paths]
        for name, paths in (_expanded(argument, names) for argument in arguments)
    ]
    longest = max(lists, key=len, default=[])
    for argument, found in zip(arguments, lists, strict=True):
        if len(found) not in (1, len(longest)):
            raise fail(
                "INPUT001",
                "the inputs have different numbers of files",
                found=f"--input {argument}: {len(found)}",
                expected=f"1 or {len(longest)}",
            )
    runs = [[found[index % len(found)] for found in lists] for index in range(len(longest) or 1)]
    return [_sample(run, taker, own) for run, own in zip(runs, longest or [{}], strict=True)]


def _sample(
    parts: Sequence[Mapping[str, Source]], taker: Taker, own: Mapping[str, Source]
) -> Sample:
    sources: dict[str, Source] = {}
    for part in parts:
        for name, source in part.items():
            if name in sources:
                place = Place(str(source.path))
                hint = "several runs are a folder, or a pattern in quotes: --input 'images/*.png'"
                raise fail("INPUT001", f"input {name!r} is given twice", place=place, hint=hint)
            sources[name] = source
    _check_complete(sources, taker.tensors)
    return Sample(next((str(one.path) for one in own.values()), ""), sources, taker)


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


def _sources(name: str | None, path: Path, taker: Taker) -> dict[str, Source]:
    """What a file holds, by input."""
    head = _head(path)
    if head[:2] != b"PK" and head[: len(MAGIC)] != MAGIC:
        if is_image(path, head):
            own = name or taker.only(path)
            return {own: Source(path, lambda: taker.read_image(own, path), is_image=True)}
        if head and path.suffix.lower() in RAW_ENDINGS:
            tensor = taker.tensors[name or taker.only(path)]
            return {tensor.name: Source(path, lambda: _raw(path, tensor))}
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
    return {name: _array(array, taker.tensors[name]) for name, array in found.items()}


def _head(path: Path) -> bytes:
    """The beginning of a file; of what cannot be opened nothing, who reads it says why."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _array(stored: StoredArray, tensor: Tensor) -> Source:
    return Source(stored.file.path, lambda: _read(stored, tensor))


def _raw(path: Path, tensor: Tensor) -> Array:
    """Values of the input's type one after the other, little-endian."""
    dtype = ELEM_DTYPES[tensor.elem].newbyteorder("<")
    expected = dtype.itemsize * int(np.prod(tensor.shape, dtype=np.int64))
    try:
        nbytes = path.stat().st_size
        if nbytes != expected:
            raise fail(
                "INPUT002",
                f"these are not the raw values of input {tensor.name!r}",
                place=Place(str(path)),
                found=f"{nbytes:,} bytes",
                expected=f"{expected:,} bytes: {shape_text(tensor.shape)} of {dtype.name}",
                hint="an .npy file says its type and shape itself",
            )
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
        expected=_listed(names) or "no input at all",
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
        found=_listed(file.keys) or "no arrays",
        expected=_listed(names) or "no input at all",
        hint=_rename_hint(file, names),
    )


def _rename_hint(file: ArrayFile, names: Sequence[str]) -> str:
    keys = [key.removeprefix(PREFIX) for key in file.keys]
    for name in names:
        near = difflib.get_close_matches(name, keys, 1)
        if near:
            return f"is {near[0]!r} meant to be {name!r}?"
    return "save the arrays under the names of the inputs"


def _check_complete(found: Mapping[str, Source], tensors: Mapping[str, Tensor]) -> None:
    missing = [name for name in tensors if name not in found]
    if missing:
        hint = " ".join(f"--input {shlex.quote(f'{name}=FILE.npy')}" for name in missing[:4])
        if len(tensors) == 1:
            hint = "--input FILE: an array, an image, a folder or a pattern of them, or -"
        raise fail(
            "INPUT001",
            f"no value for {'input' if len(missing) == 1 else 'inputs'} {_listed(missing)}",
            found=f"values for {_listed(list(found))}" if found else "no value for any input",
            hint=hint,
        )


def _read(array: StoredArray, tensor: Tensor) -> Array:
    """The array, unless it cannot fit, in the input's shape where only dimensions of 1 differ."""
    expected = int(np.prod(tensor.shape, dtype=object))
    if array.size != expected:
        several = expected and array.size % expected == 0
        raise fail(
            "INPUT002",
            f"input {tensor.name!r} is of another size",
            place=Place(str(array.file.path)),
            found=f"{shape_text(array.shape)}, {plural(array.size, 'value')}",
            expected=f"{shape_text(tensor.shape)}, {plural(expected, 'value')}",
            hint=f"these are {array.size // expected} samples: save each in a file of its own, or"
            " take `nmpsim eval`"
            if several
            else None,
        )
    values = array.read()
    return values.reshape(tensor.shape) if tensor.holds(values.shape) else values


def _mend(tensor: Tensor, values: Array) -> str | None:
    """What to do with values that no run takes, where one can tell."""
    shape, found = tensor.shape, values.shape
    if len(found) == len(shape) == 4:
        for order, name in (((0, 2, 3, 1), "NCHW"), ((0, 3, 1, 2), "NHWC")):
            if tuple(found[axis] for axis in order) == shape and found != shape:
                return f"the array is {name}: x.transpose{order}"
    own = ELEM_DTYPES[tensor.elem]
    if found == shape and values.dtype != own and values.dtype.kind in "iub":
        if tensor.scale is not None:
            return (
                f"real numbers: x.astype('float32'); values on the input's scale:"
                f" x.astype('{own.name}')"
            )
        return f"x.astype('{own.name}')"
    return None


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:8]]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
