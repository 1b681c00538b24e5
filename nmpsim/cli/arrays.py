"""Arrays from ``.npy`` and ``.npz`` files that nobody vouches for.

A header is read before its data, and the data only when somebody asks for it; so neither a broken
file nor one that claims an absurd size can exhaust memory. Nothing is unpickled.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from nmpsim.diagnostics import Place, UserError, fail

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    RecursionError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    OSError,
)
"""What ``zipfile`` and NumPy raise for damaged, encrypted or exotic contents."""
_NUMBERS = "biuf"
_HINT = "write it with numpy.save or numpy.savez, plain arrays of numbers only"


@attrs.frozen(eq=False)
class StoredArray:
    """An array in a file: what its header says; :meth:`read` fetches the data."""

    file: ArrayFile
    key: str
    """Its name in an ``.npz`` file, empty in an ``.npy`` file."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    @property
    def size(self) -> int:
        """Number of elements, as claimed."""
        return math.prod(self.shape)

    def read(self) -> npt.NDArray[Any]:
        """The data, in native byte order; look at :attr:`size` first."""
        flat = np.frombuffer(self.file.data(self), self.dtype)
        array = flat.reshape(self.shape, order="F" if self.fortran_order else "C")
        return np.ascontiguousarray(array, self.dtype.newbyteorder("=")).reshape(self.shape)


class ArrayFile:
    """A file with one array (``.npy``) or several (``.npz``), told apart by their contents.

    Raises :class:`~nmpsim.diagnostics.UserError`: FILE001 if the file cannot be read, INPUT003 if
    it holds something else. An array of objects fails only when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            start = file.read(6)
            self.is_archive = start[:2] == b"PK"
            if not start:
                raise self.unusable("the file is empty")
            if not self.is_archive and start != npy.MAGIC_PREFIX:
                raise self.unusable("this is neither an .npy nor an .npz file", repr(start))
            self.keys = self._archive_keys(file) if self.is_archive else ("",)

    def array(self, key: str) -> StoredArray:
        """The array of this key; only its header is read."""
        with self._open() as file, self._member(file, key) as member:
            shape, fortran_order, dtype = self._header(member, key)
        return StoredArray(self, key, shape, dtype, fortran_order)

    def data(self, array: StoredArray) -> bytes:
        """The bytes behind the header of this array."""
        nbytes = array.size * array.dtype.itemsize
        with self._open() as file, self._member(file, array.key) as member:
            self._header(member, array.key)
            if not self.is_archive:
                self._check_size(os.fstat(file.fileno()).st_size - file.tell(), nbytes, array.key)
            data = member.read(nbytes + 1)
        self._check_size(len(data), nbytes, array.key)
        return data

    def unusable(self, message: str, found: str | None = None) -> UserError:
        """An error about this file."""
        return fail("INPUT003", message, place=Place(str(self.path)), found=found, hint=_HINT)

    def _check_size(self, actual: int, claimed: int, key: str) -> None:
        if actual == claimed:
            return
        found = f"{actual:,} bytes of data" if actual < claimed else "more data than that"
        raise fail(
            "INPUT003",
            f"{_subject(key)} is not as long as its header says",
            place=Place(str(self.path)),
            found=found,
            expected=f"{claimed:,} bytes",
            hint="the file may have been cut off; write or copy it again",
        )

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            # Asked before it is opened: opening a pipe would wait for its other end.
            mode = self.path.stat().st_mode
            if stat.S_ISFIFO(mode):
                raise self._unreadable("it is a pipe", "give a regular file")
            if not stat.S_ISREG(mode):
                raise self._unreadable("it is not a file")
            with self.path.open("rb") as file, self._reporting():
                yield file
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error

    def _unreadable(self, why: str, hint: str | None = None) -> UserError:
        place = Place(str(self.path))
        return fail("FILE001", f"cannot read the input: {why}", place=place, hint=hint)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what the libraries raise into an error for the user."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy's, about headers of old versions
                yield
        except _DAMAGE as error:
            found = str(error).split("\n", 1)[0][:120] or type(error).__name__
            raise self.unusable("the file is damaged or is no NumPy file", found) from error

    def _archive_keys(self, file: IO[bytes]) -> tuple[str, ...]:
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        return tuple(dict.fromkeys(n.removesuffix(".npy") for n in names if n.endswith(".npy")))

    @contextmanager
    def _member(self, file: IO[bytes], key: str) -> Iterator[IO[bytes]]:
        if not self.is_archive:
            yield file
            return
        with zipfile.ZipFile(file) as archive, archive.open(f"{key}.npy") as member:
            yield member

    def _header(self, member: IO[bytes], key: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        version = npy.read_magic(member)
        if version == (1, 0):
            shape, fortran_order, dtype = npy.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, fortran_order, dtype = npy.read_array_header_2_0(member)
        else:
            raise self.unusable(f"{_subject(key)} is of an unknown version", f"{version}")
        if dtype.kind not in _NUMBERS or dtype.itemsize > 8:
            found = "Python objects" if dtype.hasobject else dtype.name[:80]
            raise self.unusable(f"{_subject(key)} does not hold plain numbers", found)
        if any(dim < 0 for dim in shape):
            raise self.unusable(f"{_subject(key)} has a negative dimension", str(shape)[:80])
        return shape, fortran_order, dtype


def _subject(key: str) -> str:
    return f"the array {key!r}" if key else "the array"
