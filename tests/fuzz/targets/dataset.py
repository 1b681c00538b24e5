"""Data sets of ``nmpsim eval``: an archive with samples and labels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from random import Random

import numpy as np

from nmpsim.bundle.metadata import Tensor
from nmpsim.cli.dataset import load_dataset
from nmpsim.cli.samples import ProgramInputs

from ..mutate import mutate_archive
from ..target import Target, allow_errors, write_file
from . import npz

_INPUTS = ProgramInputs({"x": Tensor("x", "i8", (1, 4), 0)})
_MAX_MEMORY = 1 << 26


def run(data: bytes) -> None:
    """Read labels and samples."""
    with allow_errors("DATA001", "INPUT003", "FILE001"):
        found = load_dataset(write_file(data, "data.npz"), "labels", _INPUTS, _MAX_MEMORY)
        assert len(found.labels) >= 0
        for index in range(min(len(found.samples), 4)):
            assert set(found.samples.read(index)) == {"x"}


def seeds() -> Iterator[bytes]:
    """Yield an uncompressed and a compressed archive."""
    for save in (np.savez, np.savez_compressed):
        made = io.BytesIO()
        save(made, x=np.zeros((3, 4), np.int8), labels=np.array([1, 0, -1]))
        yield made.getvalue()


def mutate(data: bytes, random: Random) -> bytes:
    """Change a member of an archive."""
    return mutate_archive(data, random, npz.mutate_member)


TARGET = Target(run, seeds, mutate, most_bytes=1 << 13)
