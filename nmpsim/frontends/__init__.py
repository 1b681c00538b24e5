"""Models as people have them become LIR; a sibling of the compiler, which takes it from there.

Whoever takes a program's file asks here first what it is, by its first bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.frontends.formats import is_onnx, is_tflite, other_format
from nmpsim.frontends.imported_model import DEFAULT_IMPORT_OPTIONS, ImportedModel, ImportOptions

__all__ = [
    "FRONT_ENDS",
    "DEFAULT_IMPORT_OPTIONS",
    "FrontEnd",
    "ImportedModel",
    "ImportOptions",
    "find_front_end",
    "import_model",
]

_HEAD = 64
"""Bytes of a file that tell what it is."""


@attrs.frozen
class FrontEnd:
    """Reads one format."""

    name: str
    recognize: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is one."""
    read: Callable[[Path, ImportOptions], ImportedModel]


def _read_tflite(path: Path, options: ImportOptions) -> ImportedModel:
    from nmpsim.frontends import tflite  # slow to import, as is the other one

    return tflite.import_tflite(path, options)


def _read_onnx(path: Path, options: ImportOptions) -> ImportedModel:
    from nmpsim.frontends import onnx

    return onnx.import_onnx(path, options)


FRONT_ENDS = (
    FrontEnd("TFLite", is_tflite, _read_tflite),
    FrontEnd("ONNX", is_onnx, _read_onnx),
)


def find_front_end(path: Path) -> FrontEnd | None:
    """Who reads a file; None if its first bytes are no model's that is known, as LIR's are.

    None also for what cannot be opened, or only once, as a pipe: who reads it next says why.

    Raises
    ------
    UserError
        MODEL001 for a model of a format that nmpsim does not read.
    """
    head = b""
    try:
        if not path.is_file():
            if path.is_dir():
                _refuse_other_format(path, head)
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return None
    front_end = next((one for one in FRONT_ENDS if one.recognize(head)), None)
    if front_end is None:
        _refuse_other_format(path, head)
    return front_end


def _refuse_other_format(path: Path, head: bytes) -> None:
    other = other_format(path, head)
    if other is not None:
        found, hint = other
        message = "this is not a model that nmpsim reads"
        expected = "a .tflite or .onnx file, LIR text, or a bundle"
        raise fail(
            "MODEL001", message, place=Place(str(path)), found=found, expected=expected, hint=hint
        )


def import_model(
    path: Path,
    weights: Path | str | None = None,
    tensors: Path | str | None = None,
    options: ImportOptions = DEFAULT_IMPORT_OPTIONS,
) -> ImportedModel | None:
    """What a front end makes of a model's file; None if it is none's.

    Raises:
        UserError: ARG001 for ``weights`` or ``tensors``, which the file has itself, and for
            options if it is LIR; codes of FILE, PKG, MODEL and LIR.
    """
    front_end = find_front_end(path)
    if front_end is None:
        if options.input_shapes or options.integer_islands is not None:
            message = "shapes of inputs and integer islands are for ONNX models"
            raise fail("ARG001", message, place=Place(str(path)), found="LIR")
        return None
    for given, what in ((weights, "weights"), (tensors, "tensors")):
        if given is not None:
            raise fail(
                "ARG001",
                f"a {front_end.name} file has its own {what}",
                place=Place(str(path)),
                found=f"--{what} {given}",
                hint=f"leave out --{what}",
            )
    with reported_failures(front_end.name, Place(str(path))):
        return front_end.read(path, options)


@contextmanager
def reported_failures(name: str, place: Place) -> Iterator[None]:
    """Raise UserError (MODEL001) for an unexpected exception of a front end.

    Errors that are coded already and a lack of memory pass.
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
