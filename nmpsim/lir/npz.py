"""Arrays out of an ``.npz`` file that nobody vouches for.

Each member's header is read before its data, and no more data than the header's shape needs, so
neither a broken file nor one that claims absurd sizes can exhaust memory. Nothing is unpickled.
"""

from __future__ import annotations

import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.messages import quote

Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 4096
_HEADER = re.compile(
    r"\s*\{'descr': '([^']{1,16})', 'fortran_order': (True|False), "
    r"'shape': \(([0-9, ]{0,200})\),? *\}\s*"
)
_DTYPES = {
    dtype.newbyteorder(order).str: dtype.newbyteorder(order)
    for dtype in map(
        np.dtype, ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
    )
    for order in ("<", ">")
}
"""The kinds of numbers that may be in a file, by NumPy's name."""
_KIND = re.compile(r"[|<>=]?[A-Za-z?][0-9]{0,6}")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
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
)
"""What ``zipfile`` raises for a damaged, encrypted or exotic file."""


@attrs.frozen
class Header:
    """What a member says about itself."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool

    @property
    def nbytes(self) -> int:
        """Size of the data behind the header."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpzFile:
    """An open ``.npz`` file; use it as a context manager. Raises ``UserError`` for any damage."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            message = f"cannot read the constants: {error.strerror}"
            raise fail("FILE001", message, place=Place(str(path))) from None
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

    def header(self, key: str) -> Header:
        """What the array of this key says about itself; its data is not read."""
        with self._member(key) as file:
            return self._header(key, file)

    def read(self, key: str) -> Array:
        """The array of this key; look at its header first, it may claim any size."""
        with self._member(key) as file:
            header = self._header(key, file)
            data = file.read(header.nbytes + 1)
        if len(data) != header.nbytes:
            found = f"{len(data)} bytes" if len(data) < header.nbytes else "more"
            expected = f"{header.nbytes} bytes"
            raise self._damaged(f"{key} is not as long as its header says", found, expected)
        flat = np.frombuffer(data, header.dtype)
        return flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    @contextmanager
    def _member(self, key: str) -> Iterator[IO[bytes]]:
        member = self._members[key]
        if member.compress_type not in _METHODS:
            raise self._damaged(f"{key} is compressed in an unknown way")
        with self._reporting(), self._archive.open(member) as file:
            yield file

    def _header(self, key: str, file: IO[bytes]) -> Header:
        start = file.read(8)
        size_bytes = 2 if start[6:7] == b"\x01" else 4
        if start[:6] != _MAGIC or start[6:7] not in (b"\x01", b"\x02", b"\x03"):
            raise self._damaged(f"{key} is not a NumPy array")
        length = int.from_bytes(file.read(size_bytes), "little")
        text = file.read(length).decode("latin-1") if length <= _MAX_HEADER else ""
        match = _HEADER.fullmatch(text)
        if match is None:
            found = quote(text.strip()) or "no header"
            raise self._damaged(f"{key} is not a plain array", found, "numbers of one kind")
        kind, order, dims = match.groups()
        dtype = _DTYPES.get(kind)
        if dtype is None:
            known = ", ".join(dict.fromkeys(known.name for known in _DTYPES.values()))
            raise self._damaged(f"{key} is not a plain array", _kind_name(kind), known)
        shape = tuple(int(dim) for dim in dims.split(",") if dim.strip())
        return Header(dtype, shape, order == "True")

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what the zip library raises into an error for the user."""
        try:
            yield
        except _DAMAGE as error:
            raise self._damaged("the file is damaged or not an .npz file", str(error)) from None

    def _damaged(
        self, message: str, found: str | None = None, expected: str | None = None
    ) -> UserError:
        place = Place(str(self._path))
        hint = "write it with numpy.savez, plain arrays only"
        return fail("CONST001", message, place=place, found=found, expected=expected, hint=hint)


def _kind_name(kind: str) -> str:
    """A kind of value as NumPy names it, not by its code."""
    if not _KIND.fullmatch(kind):
        return quote(kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, about codes of old versions
            dtype = np.dtype(kind)
    except (TypeError, ValueError):
        return quote(kind)
    return "Python objects" if dtype.hasobject else dtype.name
