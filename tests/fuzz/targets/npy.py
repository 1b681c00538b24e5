"""``.npy`` files as inputs of a run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from random import Random

import numpy as np

from nmpsim.array_files import ArrayFile

from ..mutate import INTEGERS, mutate_bytes
from ..target import Target, allow_errors, write_file

MAX_ELEMENTS = 1 << 24
"""Elements of the largest array that is read; a run also rejects arrays of a wrong size."""
HEADERS = (
    "'descr': '<f4'", "'descr': '|O'", "'descr': '|V8'", "'descr': [('a', '<i4')]", "'<U4'",
    "'>i2'", "'|b1'", "'<f2'", "'<c8'", "'<M8[s]'", "'fortran_order': True", "'shape': ()",
    "'shape': (-1,)", "'shape': (0,)", "(1 << 9)", "(", ")", "{", "}", "\0", "#", "\n", "'", "\\",
    "True", "None", "1L", "9" * 30, "[" * 100, "-" * 200, "(" * 200, "1,",
)  # fmt: skip


def run(data: bytes) -> None:
    """Read each array of the file that has at most ``MAX_ELEMENTS`` elements."""
    path = write_file(data, "input.npy")
    with allow_errors("INPUT003", "FILE001"):
        file = ArrayFile(path)
        for key in file.keys:
            stored = file.get_array(key)
            if stored.size <= MAX_ELEMENTS:
                values = stored.read()
                assert values.shape == stored.shape
                assert values.dtype.isnative


def seeds() -> Iterator[bytes]:
    """Yield a file of each number type, byte order, memory order and format version."""
    for kind in ("?", "i1", ">i2", "<i4", "i8", "u1", "f2", "<f4", ">f8"):
        for order in "CF":
            made = io.BytesIO()
            np.save(made, np.asarray(np.arange(6).reshape(2, 3), kind, order=order))
            yield made.getvalue()
    made = io.BytesIO()
    np.lib.format.write_array(made, np.arange(3), version=(2, 0))
    yield made.getvalue()


def mutate(data: bytes, random: Random) -> bytes:
    """Change the header or the data of an array file."""
    if data[:6] != b"\x93NUMPY":
        raise ValueError("no NumPy array")
    width = 2 if data[6] == 1 else 4
    begin = 8 + width
    end = begin + int.from_bytes(data[8:begin], "little")
    header, rest = data[begin:end], data[end:]
    kind = random.randrange(5)
    if kind == 0:
        rest = mutate_bytes(rest, random)
    elif kind == 1:
        header = mutate_bytes(header, random)
    else:
        at, piece = random.randint(0, len(header)), random.choice((*HEADERS, *map(str, INTEGERS)))
        cut = random.choice((0, 1, len(piece)))
        header = header[:at] + piece.encode() + header[at + cut :]
    length = len(header) if random.random() < 0.9 else random.choice((0, 65535, len(header) + 1))
    most = (1 << 8 * width) - 1
    return data[:8] + min(length, most).to_bytes(width, "little") + header + rest


TARGET = Target(run, seeds, mutate, most_bytes=1 << 12)
