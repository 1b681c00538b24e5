"""TFLite models, from the file to the bundle."""

from __future__ import annotations

from random import Random

from nmpsim import compile
from nmpsim.frontends import find_front_end

from ..target import Target, allow_errors, write_file

_WORDS = (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0", b"\x01\0\0\0")


def run(data: bytes) -> None:
    """Read a model and compile it."""
    path = write_file(data, "model.tflite")
    with allow_errors("MODEL", "LIR", "COMP"):
        if find_front_end(path) is not None:
            compile(path, tiling="simple")


def mutate(data: bytes, rng: Random) -> bytes:
    """Change words, bytes and bits without changing the length."""
    if len(data) < 16:
        raise ValueError("too short for a model")
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(8, len(data) - 4)
        choice = rng.randrange(3)
        if choice == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            changed[at] = rng.choice((0, 1, 2, 4, 127, 128, 255))
        else:
            changed[at : at + 4] = rng.choice(_WORDS)
    return bytes(changed)


TARGET = Target(run, mutate=mutate)
