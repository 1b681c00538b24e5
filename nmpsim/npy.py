"""A reader of headers of NumPy's array format that is safe for untrusted files.

NumPy's own reader evaluates Python text. Source: *NEP 1, A simple file format for NumPy arrays*.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from typing import IO, Any

import numpy as np

from nmpsim.arrays import Shape
from nmpsim.records import frozen

MAGIC = b"\x93NUMPY"
ZIP_METHODS = (0, 8)
"""Compression of members of ``.npz`` files: stored, deflated. Others may take much memory."""
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
"""Accepted element types by NumPy's name."""
_KIND = re.compile(r"[|<>=]?[A-Za-z?][0-9]{0,6}")


@frozen
class ArrayHeader:
    """Header of a stored array: element type, shape and memory order."""

    dtype: np.dtype[Any]
    shape: Shape
    fortran_order: bool

    @property
    def size(self) -> int:
        """Number of elements according to the header."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes according to the header."""
        return self.size * self.dtype.itemsize


class HeaderError(Exception):
    """Exception raised if a header does not describe an array of numbers."""

    def __init__(self, message: str, found: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.message, self.found, self.expected = message, found, expected


def read_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header of an array up to the start of its data; raise HeaderError if invalid."""
    start = file.read(8)
    version = start[6:8]
    if start[:6] != MAGIC:
        raise HeaderError("is not a NumPy array", repr(start[:6]))
    if len(start) < 8:
        raise HeaderError("is damaged: it is truncated", repr(start))
    if version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise HeaderError("has an unknown format version", f"{tuple(version)}", "version 1, 2 or 3")
    length = int.from_bytes(file.read(2 if version == b"\x01\x00" else 4), "little")
    text = file.read(length).decode("latin-1") if length <= _MAX_HEADER else ""
    match = _HEADER.fullmatch(text)
    if match is None:
        found = repr(text.strip()[:80]) if text else "no header"
        raise HeaderError(
            "is damaged: its header describes no array of numbers", found, "numbers of one type"
        )
    kind, fields, order, dims = match.groups()
    dtype = None if fields else _DTYPES.get(kind)
    if dtype is None:
        known = ", ".join(dict.fromkeys(known.name for known in _DTYPES.values()))
        found = "records" if fields else _kind_name(kind)
        raise HeaderError("has an unsupported element type", found, known)
    try:
        shape = tuple(int(dim.strip().removesuffix("L")) for dim in dims.split(",") if dim.strip())
    except ValueError:
        raise HeaderError("is damaged: its shape is invalid", dims) from None
    if any(dim < 0 for dim in shape):
        raise HeaderError(
            "has a negative dimension", f"shape {shape}"[:80], "dimensions of 0 or more"
        )
    if len(shape) > _MAX_DIMENSIONS:
        found, expected = f"{len(shape)} dimensions", f"at most {_MAX_DIMENSIONS} dimensions"
        raise HeaderError("has too many dimensions", found, expected)
    # NumPy rejects such a shape although the array is empty; other sizes are compared with the
    # file.
    if 0 in shape and math.prod(filter(None, shape)) * dtype.itemsize > sys.maxsize:
        raise HeaderError(
            "has an impossible shape", f"shape {shape}"[:80], "a size that fits memory"
        )
    return ArrayHeader(dtype, shape, order == "True")


def _kind_name(kind: str) -> str:
    """Return NumPy's name of an element type for its code."""
    if not _KIND.fullmatch(kind):
        return repr(kind)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about codes of old versions of NumPy
            dtype = np.dtype(kind)
    except (TypeError, ValueError):
        return repr(kind)
    return "Python objects" if dtype.hasobject else dtype.name
