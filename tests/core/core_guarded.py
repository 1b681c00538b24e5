"""Runs a network with all its memory against pages that nobody may touch: ``THREADS...``.

A process of its own, as whoever touches such a page ends it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

import nmpsim

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
PAGE = mmap.PAGESIZE
_maps: list[mmap.mmap] = []


def copy_guarded(array: Any, at_end: bool) -> Any:
    """Copy an array to the start or the end of memory between two inaccessible pages."""
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    _maps.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (base, base + (pages + 1) * PAGE):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = (pages + 1) * PAGE - array.nbytes if at_end else PAGE
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def main() -> None:
    bundle = nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").bundle
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    plain = nmpsim.Device(threads=1).run(bundle, inputs).outputs["prob__1"].tobytes()
    for threads in map(int, sys.argv[1:]):
        for at_end in (False, True):
            device = nmpsim.Device(threads=threads)
            device._engine._workers.min_seconds = 0.0  # type: ignore[attr-defined]
            loaded = device._load(bundle)
            names = ("ram", "scratchpad", "image", "channel_saturated")
            memories = {n: copy_guarded(getattr(loaded.machine, n), at_end) for n in names}
            loaded.machine = loaded.machine._replace(**memories)
            for save_layers in (False, False, True):  # recorded, replayed, and as the loop does it
                report = device.run(bundle, inputs, save_layers=save_layers)
                assert report.outputs["prob__1"].tobytes() == plain
    print("untouched")


if __name__ == "__main__":
    main()
