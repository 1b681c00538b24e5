"""Models as people have them become LIR; a sibling of the compiler, which takes it from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from nmpsim.diagnostics import Place, fail
from nmpsim.frontends import tflite
from nmpsim.frontends.imported import Imported

__all__ = ["FRONT_ENDS", "FrontEnd", "Imported", "front_end_of"]

_HEAD = 64
"""Bytes of a file that tell what it is."""


@attrs.frozen
class FrontEnd:
    """Reads one format."""

    name: str
    recognize: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is one."""
    read: Callable[[Path], Imported]


FRONT_ENDS = (FrontEnd("TFLite", tflite.recognize, tflite.read),)


def front_end_of(path: Path) -> FrontEnd | None:
    """Who reads a file; None if its first bytes are no model's that is known, as LIR's are.

    Raises:
        UserError: FILE001 if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        message = f"cannot read the model: {error.strerror}"
        raise fail("FILE001", message, place=Place(str(path))) from error
    return next((one for one in FRONT_ENDS if one.recognize(head)), None)
