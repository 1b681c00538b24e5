"""Front ends, which import model files as LIR for the compiler.

A file's format is detected by its first bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.frontends.formats import describe_other_format, is_onnx, is_tflite
from nmpsim.frontends.imported_model import (
    DEFAULT_IMPORT_OPTIONS,
    ImportedModel,
    ImportOptions,
)

__all__ = [
    "DEFAULT_IMPORT_OPTIONS",
    "FRONT_ENDS",
    "FrontEnd",
    "ImportOptions",
    "ImportedModel",
    "find_front_end",
    "import_model",
]

_HEAD_BYTES = 64
"""Bytes of a file from which its format is detected."""


@attrs.frozen
class FrontEnd:
    """Reader of one file format."""

    name: str
    matches: Callable[[bytes], bool]
    """Returns whether a file that begins with these bytes has the format."""
    read: Callable[[Path, ImportOptions], ImportedModel]


def _read_tflite(path: Path, options: ImportOptions) -> ImportedModel:
    from nmpsim.frontends.tflite import import_tflite  # slow to import

    return import_tflite(path, options)


def _read_onnx(path: Path, options: ImportOptions) -> ImportedModel:
    from nmpsim.frontends.onnx import import_onnx  # slow to import

    return import_onnx(path, options)


FRONT_ENDS = (
    FrontEnd("TFLite", is_tflite, _read_tflite),
    FrontEnd("ONNX", is_onnx, _read_onnx),
)


def find_front_end(path: Path) -> FrontEnd | None:
    """Return the front end for a file, or None if its format is unknown, as that of LIR text.

    None is also returned for a file that cannot be opened, or read only once, such as a pipe.

    Raises
    ------
    UserError
        MODEL001 for a model in a format that nmpsim does not read.
    """
    head = b""
    try:
        if not path.is_file():
            if path.is_dir():
                _check_format(path, head)
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return None
    for front_end in FRONT_ENDS:
        if front_end.matches(head):
            return front_end
    _check_format(path, head)
    return None


def _check_format(path: Path, head: bytes) -> None:
    """Raise UserError (MODEL001) for a known format that no front end reads."""
    other = describe_other_format(path, head)
    if other is not None:
        raise fail(
            "MODEL001",
            "this is not a model that nmpsim reads",
            place=Place(str(path)),
            found=other[0],
            expected="a .tflite or .onnx file, LIR text, or a bundle",
            hint=other[1],
        )


def import_model(
    path: Path,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    options: ImportOptions = DEFAULT_IMPORT_OPTIONS,
) -> ImportedModel | None:
    """Import a model file, or return None if no front end reads its format.

    Parameters
    ----------
    path : Path
        The file.
    weights, tensors : Path or str, optional
        Files that belong to LIR text; an error for other formats.
    options : ImportOptions
        Options of the front end; an error for LIR text.

    Raises
    ------
    UserError
        ARG001 for parameters that do not fit the format; codes of FILE, PKG, MODEL and LIR.
    """
    front_end, place = find_front_end(path), Place(str(path))
    if front_end is None:
        if options.input_shapes or options.integer_islands is not None:
            message = "shapes of inputs and integer islands are for ONNX models"
            raise fail("ARG001", message, place=place, found="LIR")
        return None
    for given, name in ((weights, "weights"), (tensors, "tensors")):
        if given is not None:
            message = f"a {front_end.name} file has its own {name}"
            found, hint = f"--{name} {given}", f"leave out --{name}"
            raise fail("ARG001", message, place=place, found=found, hint=hint)
    with translate_unexpected_errors(front_end.name, place):
        return front_end.read(path, options)


@contextmanager
def translate_unexpected_errors(name: str, place: Place) -> Iterator[None]:
    """Context manager that raises UserError (MODEL001) for unexpected exceptions of a front end.

    UserError and MemoryError are not changed.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise fail(
            "MODEL001",
            f"the {name} front end failed on this model",
            place=place,
            found=f"{type(error).__name__}: {error}"[:240],
            hint="is the file whole? If other tools read it, this is a bug of nmpsim:"
            " please report it with the model and the traceback that NMPSIM_DEBUG=1 prints",
        ) from error
