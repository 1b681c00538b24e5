"""``.npz`` files as inputs of a run and as constants of a program."""

from __future__ import annotations

import io
from collections.abc import Iterator
from random import Random

import numpy as np

from nmpsim.array_files import ArrayFile

from ..mutate import mutate_archive, mutate_bytes
from ..target import Target, allow_errors, write_file
from . import npy


def run(data: bytes) -> None:
    """Read an archive with both readers."""
    npy.run(data)
    path = write_file(data, "constants.npz")
    with allow_errors("CONST001", "FILE001"), ArrayFile(path, "CONST001").keep_open() as file:
        for key in file.keys:
            array = file.get_array(key)
            if array.nbytes <= npy.MAX_ELEMENTS:
                assert array.read().shape == array.shape


def seeds() -> Iterator[bytes]:
    """Yield an uncompressed and a compressed archive."""
    arrays = {"input/data": np.arange(4, dtype=np.int8), "const/w": np.ones((2, 2), np.float32)}
    for save in (np.savez, np.savez_compressed):
        made = io.BytesIO()
        save(made, **arrays)
        yield made.getvalue()


def mutate(data: bytes, random: Random) -> bytes:
    """Change a member of an archive."""
    return mutate_archive(data, random, mutate_member)


def mutate_member(name: str, contents: bytes, random: Random) -> bytes:
    """Mutate a member as an array file, or its bytes if it is not one."""
    try:
        return npy.mutate(contents, random)
    except ValueError:
        return mutate_bytes(contents, random)


TARGET = Target(run, seeds, mutate, most_bytes=1 << 13)
