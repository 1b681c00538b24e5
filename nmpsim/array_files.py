"""Arrays from untrusted ``.npy``, ``.npz`` and raw binary files, and from folders of them.

A header is read before its data, and data only on request, so that neither a damaged file nor one
that claims an absurd size can exhaust memory. Nothing is unpickled.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.diagnostics import Place, UserError, fail, list_alternatives
from nmpsim.host_memory import PlannedAllocation, check_memory
from nmpsim.input_files import CHECK_FILE_HINT
from nmpsim.npy import MAGIC, ZIP_METHODS, ArrayHeader, HeaderError, read_header
from nmpsim.records import frozen

_COPIES = 3
"""Copies of the data in memory: bytes, native order, and the caller's."""
_BLOCK = 1 << 20
_HINT = "Write arrays of numbers with numpy.save or numpy.savez."


RAW_SUFFIXES = (".bin", ".raw")
"""Endings of files with the bytes of an array."""
MAX_FOLDER_FILES = 10_000
"""Most files of a folder of arrays."""


def _damage() -> tuple[type[Exception], ...]:
    """Return the exceptions of ``zipfile`` for damaged, encrypted or unusual contents."""
    from zipfile import BadZipFile  # few files are archives

    return (
        BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        struct.error,
        RuntimeError,
        OSError,
    )


@frozen
class StoredArray(ArrayHeader):
    """Array in a file; the header is known, and the data are read on request."""

    file: ArrayFile
    key: str
    """Name in an ``.npz`` file, empty in an ``.npy`` file."""
    is_part: bool = False
    """Whether more data follow in the file."""
    runs: tuple[tuple[int, int], ...] = ()
    """Ranges of rows that are read; empty for all rows of the shape."""

    def take_rows(self, rows: int | None) -> StoredArray:
        """Return a stored array of the first ``rows`` rows; all rows for None or Fortran order."""
        if rows is None or self.fortran_order or not self.shape or rows >= self.shape[0]:
            return self
        shape = (rows, *self.shape[1:])
        return StoredArray(self.dtype, shape, False, self.file, self.key, is_part=True)

    def take_runs(self, first: int, step: int, rows: int) -> StoredArray:
        """Return a stored array of every ``step``-th run of ``rows`` rows, from run ``first`` on.

        Returns all rows for Fortran order.
        """
        if self.fortran_order or not self.shape:
            return self
        starts = range(first * rows, self.shape[0], step * rows)
        runs = tuple((start, min(start + rows, self.shape[0])) for start in starts)
        shape = (sum(end - start for start, end in runs), *self.shape[1:])
        return StoredArray(self.dtype, shape, False, self.file, self.key, is_part=True, runs=runs)

    def read(self) -> Array:
        """Read the data in native byte order. Raises UserError (MEM001) for lack of memory."""
        (array,) = read_arrays({self.key: self}).values()
        return array

    def _read(self) -> Array:
        flat = np.frombuffer(self.file.read_data(self), self.dtype)
        array = flat.reshape(self.shape, order="F" if self.fortran_order else "C")
        return np.ascontiguousarray(array, self.dtype.newbyteorder("=")).reshape(self.shape)


class ArrayFile:
    """File with one array (``.npy``) or several (``.npz``); the contents determine which.

    Raises UserError: FILE001 if the file cannot be read, ``code`` for other contents. An array of
    objects fails only when it is requested.
    """

    def __init__(self, path: Path, code: str = "INPUT003") -> None:
        self.path, self._code = path, code
        self.is_archive = False
        self._opened: Any = None
        with self._open() as contents:
            names = contents.namelist() if self.is_archive else [".npy"]
        known = (name.removesuffix(".npy") for name in names if name.endswith(".npy"))
        self.keys = tuple(dict.fromkeys(known))

    def find_keys(self, names: Iterable[str], prefix: str) -> dict[str, str]:
        """Return the key of each name that the file has, with or without ``prefix``, by name."""
        found = ((name, key) for name in names for key in (prefix + name, name))
        return {name: key for name, key in found if key in self.keys}

    @contextmanager
    def keep_open(self) -> Iterator[ArrayFile]:
        """Keep an ``.npz`` file open in a ``with`` block; raise UserError for an ``.npy`` file."""
        if not self.is_archive:
            raise self.make_error("the file's array has no name", "an .npy file", "an .npz file")
        with self._open() as self._opened:
            yield self
        self._opened = None

    def get_array(self, key: str) -> StoredArray:
        """Return the stored array with the key ``key``; only the header is read."""
        with self._open_array(key) as (_, header):
            return StoredArray(header.dtype, header.shape, header.fortran_order, self, key)

    def read(self, key: str) -> Array:
        """Read the array that has the key ``key``."""
        return self.get_array(key).read()

    def read_data(self, array: StoredArray) -> memoryview:
        """Read an array's data as bytes; raise UserError if the size in its header is wrong."""
        with self._open_array(array.key) as (file, _):
            if not self.is_archive and not array.is_part:
                self._check_size(os.fstat(file.fileno()).st_size - file.tell(), array)
            data, start = bytearray(), file.tell()
            limit = array.nbytes + (not array.is_part)
            row = array.nbytes // array.shape[0] if array.runs else 0
            for first, last in array.runs or ((0, 0),):
                end = len(data) + (last - first) * row if array.runs else limit
                if array.runs:
                    file.seek(start + first * row)
                while block := file.read(min(_BLOCK, end - len(data))):
                    data += block
        self._check_size(len(data), array)
        return memoryview(data).toreadonly()

    def iter_blocks(self) -> Iterator[bytes]:
        """Yield the contents of the file in blocks of at most 1 MiB."""
        with self._open_bytes() as file:
            while block := file.read(_BLOCK):
                yield block

    def make_error(
        self, message: str, found: str | None = None, expected: str | None = None, hint: str = _HINT
    ) -> UserError:
        """Return a UserError about the contents of the file."""
        return fail(self._code, message, place=self.path, found=found, expected=expected, hint=hint)

    def _check_size(self, actual: int, array: StoredArray) -> None:
        claimed = array.nbytes
        if actual != claimed:
            raise self.make_error(
                f"{_subject(array.key)} does not have the size in its header",
                f"{actual:,} bytes" if actual < claimed else f"more than {claimed:,} bytes",
                f"{claimed:,} bytes",
                "Write or copy the file again; it may be truncated.",
            )

    @contextmanager
    def _open_bytes(self) -> Iterator[IO[bytes]]:
        try:
            # Checked first: opening a pipe would wait for its other end.
            mode = self.path.stat().st_mode
            if stat.S_ISFIFO(mode):
                raise self._unreadable("it is a pipe", "Pass a regular file.")
            if not stat.S_ISREG(mode):
                raise self._unreadable("it is not a regular file", "Pass a regular file.")
            with self.path.open("rb") as file:
                try:
                    yield file
                except _damage() as error:  # of the libraries
                    found = str(error).split("\n", 1)[0][:120] or type(error).__name__
                    raise self.make_error("the file is damaged", found) from error
        except OSError as error:
            raise self._unreadable(error.strerror or str(error), CHECK_FILE_HINT) from error

    def _unreadable(self, why: str, hint: str | None = None) -> UserError:
        return fail("FILE001", f"cannot read the file: {why}", place=self.path, hint=hint)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file as an archive, or at the header of its only array."""
        if self._opened is not None:
            yield self._opened
            return
        with self._open_bytes() as file:
            start = file.read(6)
            file.seek(0)
            if not start.startswith((b"PK", MAGIC)):
                message = "the file is not a NumPy file" if start else "the file is empty"
                found = f"the bytes {start!r}" if start else "0 bytes"
                raise self.make_error(message, found, "an .npy or .npz file")
            self.is_archive = start != MAGIC
            if self.is_archive:
                from zipfile import ZipFile

                yield ZipFile(file)
            else:
                yield file

    @contextmanager
    def _open_array(self, key: str) -> Iterator[tuple[IO[bytes], ArrayHeader]]:
        with self._open() as contents:
            file = contents
            if self.is_archive:
                method = contents.getinfo(f"{key}.npy").compress_type
                if method not in ZIP_METHODS:
                    raise self.make_error(
                        f"{_subject(key)} has an unsupported compression method",
                        f"compression method {method}",
                        f"method {list_alternatives(sorted(ZIP_METHODS))}",
                    )
                file = contents.open(f"{key}.npy")
            with file:
                try:
                    yield file, read_header(file)
                except HeaderError as error:
                    message = f"{_subject(key)} {error.message}"
                    raise self.make_error(message, error.found, error.expected) from None


class RawFile(ArrayFile):
    """File with the raw bytes of one array, without its type and shape."""

    def __init__(self, path: Path, code: str = "INPUT003") -> None:
        self.path, self._code, self.is_archive, self.keys = path, code, False, ("",)

    @contextmanager
    def _open_array(self, key: str) -> Iterator[tuple[IO[bytes], ArrayHeader]]:
        with self._open_bytes() as file:
            yield file, ArrayHeader(np.dtype(np.uint8), (os.fstat(file.fileno()).st_size,), False)

    def get_typed_array(self, dtype: np.dtype[Any], shape: Shape) -> StoredArray:
        """Return the little-endian array with ``dtype`` and ``shape``, without reading its data."""
        return StoredArray(dtype.newbyteorder("<"), shape, False, self, "")


class ArrayFolder:
    """Folder of ``.npy``, ``.bin`` and ``.raw`` files with one array each; file names are the keys.

    A key is the path of a file in the folder without the ending. Raises UserError: FILE001 if the
    folder cannot be read, ``code`` if it contains no such file.
    """

    is_archive = True

    def __init__(self, path: Path, code: str = "INPUT003") -> None:
        self.path, self._files = path, dict[str, ArrayFile]()
        try:
            found = list(islice(path.rglob("*"), MAX_FOLDER_FILES + 1))
            paths = [one for one in sorted(found) if one.is_file()]
        except OSError as error:
            message = f"cannot read the folder: {error.strerror or error}"
            raise fail("FILE001", message, place=path, hint=CHECK_FILE_HINT) from error
        paths = [one for one in paths if one.suffix.lower() in (".npy", *RAW_SUFFIXES)]
        if not paths or len(found) > MAX_FOLDER_FILES:
            raise fail(
                code,
                "the folder contains no arrays, or too many files",
                place=path,
                found=f"{len(paths):,} arrays, {len(found):,} files and folders",
                expected=f"1 to {MAX_FOLDER_FILES:,} files such as conv1.npy or conv1.raw",
                hint="Write each array with numpy.save to a file with the name of the tensor.",
            )
        for one in paths:
            key = one.relative_to(path).with_suffix("").as_posix()
            make = RawFile if one.suffix.lower() in RAW_SUFFIXES else ArrayFile
            self._files.setdefault(key, make(one, code))
        self.keys = tuple(self._files)

    @contextmanager
    def keep_open(self) -> Iterator[ArrayFolder]:
        """Return a context manager that yields the folder, which has no open file."""
        yield self

    def get_array(self, key: str) -> StoredArray:
        """Return the stored array with the key ``key``; only a header is read."""
        return self._files[key].get_array("")


def read_arrays(
    arrays: Mapping[str, StoredArray], max_memory: int | None = None
) -> dict[str, Array]:
    """Read arrays by key; raise UserError (MEM001) if they need over ``max_memory`` bytes."""
    needed = [
        PlannedAllocation(_subject(array.key), _COPIES * array.nbytes) for array in arrays.values()
    ]
    places = [Place(str(array.file.path)) for array in arrays.values()]
    check_memory("reading the file", needed, max_memory, places[0] if places else None)
    return {name: array._read() for name, array in arrays.items()}


def _subject(key: str) -> str:
    return f"the array {key!r}" if key else "the array"
