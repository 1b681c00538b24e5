"""Reader of untrusted ``.npz`` files.

Each member's header is read before its data, and no more data than the header's shape needs, so
neither a broken file nor one that claims absurd sizes can exhaust memory. Nothing is unpickled.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from nmpsim.arrays import Array
from nmpsim.diagnostics import Place, UserError, fail, list_alternatives
from nmpsim.input_files import CHECK_FILE_HINT
from nmpsim.lir.messages import quote
from nmpsim.npy import ZIP_METHODS, ArrayHeader, HeaderError, read_header

_PIECE_BYTES = 1 << 20
"""Bytes unpacked at a time; a whole array would be in memory twice."""

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,  # a seek to where a damaged directory points
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    IndexError,  # an encrypted member without a name
)
"""Exceptions of ``zipfile`` for a damaged, encrypted or unusual file."""


class NpzFile:
    """Reader of an ``.npz`` file; raises ``UserError`` (CONST001) if the file is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            message = f"cannot read the constants: {error.strerror}"
            raise fail("FILE001", message, place=Place(str(path)), hint=CHECK_FILE_HINT) from None
        with ExitStack() as on_error:
            on_error.callback(self._file.close)
            with self._reporting():
                self._archive = zipfile.ZipFile(self._file)
            on_error.pop_all()
        self._members = {i.filename.removesuffix(".npy"): i for i in self._archive.infolist()}

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def read_header(self, key: str) -> ArrayHeader:
        """Return dtype and shape of an array without reading its data."""
        with self._member(key) as file:
            return self._header(key, file)

    def read_array(self, key: str) -> Array:
        """Return an array; its header is checked against its data first."""
        with self._member(key) as file:
            header = self._header(key, file)
            data = bytearray()  # no more than there is, whatever the header says
            while len(data) <= header.nbytes and (piece := file.read(_PIECE_BYTES)):
                data += piece
        if len(data) != header.nbytes:
            found = f"{len(data)} bytes"
            if len(data) > header.nbytes:
                found = f"more than {header.nbytes} bytes"
            expected = f"{header.nbytes} bytes"
            raise self._damaged(f"{key} does not have the length in its header", found, expected)
        flat = np.frombuffer(memoryview(data).toreadonly(), header.dtype)
        return flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    @contextmanager
    def _member(self, key: str) -> Iterator[IO[bytes]]:
        member = self._members[key]
        if member.compress_type not in ZIP_METHODS:
            found = f"compression method {member.compress_type}"
            expected = list_alternatives(sorted(ZIP_METHODS))
            raise self._damaged(f"{key} uses an unknown compression method", found, expected)
        with self._reporting(), self._archive.open(member) as file:
            yield file

    def _header(self, key: str, file: IO[bytes]) -> ArrayHeader:
        try:
            return read_header(file)
        except HeaderError as error:
            message = f"{key} {error.message}"
            raise self._damaged(message, quote(error.found), error.expected) from None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Convert exceptions of the zip library to ``UserError``."""
        try:
            yield
        except _DAMAGE as error:
            expected = "a complete .npz file"
            raise self._damaged("the file cannot be read", str(error), expected) from None

    def _damaged(
        self, message: str, found: str | None = None, expected: str | None = None
    ) -> UserError:
        place = Place(str(self._path))
        hint = "Write the file with numpy.savez, with arrays of numbers only."
        return fail("CONST001", message, place=place, found=found, expected=expected, hint=hint)
