"""The header of an array in NumPy's format, read without NumPy's own reader.

That one evaluates Python text, whose tokenizer and parser fail in ways of their own on hostile
files. Source: *NEP 1, A simple file format for NumPy arrays*.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from typing import IO, Any

import numpy as np

from nmpsim.records import frozen

MAGIC = b"\x93NUMPY"
ZIP_METHODS = (0, 8)
"""Stored and deflated: how members of an ``.npz`` file are packed; others may take much memory."""
_MAX_HEADER = 4096
_MAX_DIMENSIONS = 64
"""NumPy 2's ``NPY_MAXDIMS``."""
_HEADER = re.compile(
    r"\s*\{'descr': (?:'([^']{1,16})'|(\[.{0,3000}\])), 'fortran_order': (True|False), "
    r"'shape': \(([0-9L, -]{0,200})\),? *\}\s*"
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


@frozen
class Header:
    """What an array says about itself."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool

    @property
    def nbytes(self) -> int:
        """Size of the data after the header, as claimed."""
        return math.prod(self.shape) * self.dtype.itemsize


class NotPlainError(Exception):
    """What is there is no array of plain numbers."""

    def __init__(self, message: str, found: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.message, self.found, self.expected = message, found, expected


def read_header(file: IO[bytes]) -> Header:
    """The header; the file is at the data then. Raises :class:`NotPlainError`."""
    start = file.read(8)
    version = start[6:8]
    if start[:6] != MAGIC:
        raise NotPlainError("is not a NumPy array", repr(start[:6]))
    if len(start) < 8:
        raise NotPlainError("is damaged: it is truncated", repr(start))
    if version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise NotPlainError("is of an unknown version", f"{tuple(version)}")
    length = int.from_bytes(file.read(2 if version == b"\x01\x00" else 4), "little")
    text = file.read(length).decode("latin-1") if length <= _MAX_HEADER else ""
    match = _HEADER.fullmatch(text)
    if match is None:
        found = repr(text.strip()[:80]) if text else "no header"
        raise NotPlainError("is damaged, or no plain array", found, "numbers of one kind")
    kind, fields, order, dims = match.groups()
    dtype = None if fields else _DTYPES.get(kind)
    if dtype is None:
        known = ", ".join(dict.fromkeys(known.name for known in _DTYPES.values()))
        found = "records" if fields else _kind_name(kind)
        raise NotPlainError("does not hold plain numbers", found, known)
    try:
        shape = tuple(int(dim.strip().removesuffix("L")) for dim in dims.split(",") if dim.strip())
    except ValueError:
        raise NotPlainError("is damaged: its shape is none", dims) from None
    if any(dim < 0 for dim in shape):
        raise NotPlainError("has a negative dimension", str(shape)[:80])
    if len(shape) > _MAX_DIMENSIONS:
        found = f"{len(shape)} dimensions"
        raise NotPlainError("has too many dimensions", found, f"at most {_MAX_DIMENSIONS}")
    # NumPy has no such shape, though the array has no element; of others the size is compared with
    # the file's.
    if 0 in shape and math.prod(filter(None, shape)) * dtype.itemsize > sys.maxsize:
        raise NotPlainError("has an impossible shape", str(shape)[:80])
    return Header(dtype, shape, order == "True")


def _kind_name(kind: str) -> str:
    """A kind of value as NumPy names it, not by its code."""
    if not _KIND.fullmatch(kind):
        return repr(kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, about codes of old versions
            dtype = np.dtype(kind)
    except (TypeError, ValueError):
        return repr(kind)
    return "Python objects" if dtype.hasobject else dtype.name
