"""Importers of model files as LIR.

A file's format is detected by its first bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.frontends.imported_model import (
    DEFAULT_IMPORT_OPTIONS,
    TFLITE_IDENTIFIER,
    ImportedModel,
    ImportOptions,
    make_onnx_option_error,
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
    """Front end: name of a model format, function that detects it, and function that imports it."""

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


_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"
"""Tags of the fields that can follow the version in an ONNX file."""


def is_tflite(head: bytes) -> bool:
    """Return whether ``head``, the first bytes of a file, identifies a TFLite file."""
    return head[4:8] == TFLITE_IDENTIFIER


def is_onnx(head: bytes) -> bool:
    """Return whether ``head``, the first bytes of a file, identifies an ONNX file."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80 and head[2] in _ONNX_FIELDS


FRONT_ENDS = (
    FrontEnd("TFLite", is_tflite, _read_tflite),
    FrontEnd("ONNX", is_onnx, _read_onnx),
)


def find_front_end(path: Path) -> FrontEnd | None:
    """Return the front end that reads a file, or None if no front end does.

    None is also returned for LIR text, for a file that cannot be opened, and for a pipe.

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
    other = _describe_other_format(path, head)
    if other is not None:
        raise fail(
            "MODEL001",
            "unsupported model format",
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
            raise make_onnx_option_error(options, place, "an LIR file")
        return None
    for given, name in ((weights, "weights"), (tensors, "tensors")):
        if given is not None:
            message = f"--{name} applies to LIR files only"
            found = f"--{name} {given} with a {front_end.name} file"
            hint = f"Leave out --{name}: the model file contains its {name}."
            raise fail("ARG001", message, place=place, found=found, hint=hint)
    with translate_unexpected_errors(front_end.name, place):
        return front_end.read(path, options)


@contextmanager
def translate_unexpected_errors(name: str, place: Place) -> Iterator[None]:
    """Raise UserError (MODEL001) for each unexpected exception in a ``with`` block.

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
            expected="a model that the front end can import or reject with a reason",
            hint="Check that the file is complete. If other tools can read it, report the model"
            " with the traceback that NMPSIM_DEBUG=1 prints.",
        ) from error


# --- other formats ---------------------------------------------------------------------------


def _describe_other_format(path: Path, head: bytes) -> tuple[str, str] | None:
    """Return the name of a format that is not read and a hint; None if the format is unknown."""
    if path.name == "saved_model.pb" or (path / "saved_model.pb").is_file():
        hint = "Convert it to a quantized TFLite file with tf.lite.TFLiteConverter."
        return "a TensorFlow SavedModel", hint
    if path.is_dir():
        return None
    text = Path(__file__).with_name("other_formats.toml").read_text(encoding="utf-8")
    for row in tomllib.loads(text)["formats"]:
        is_suffix = path.suffix.lower() in row.get("suffixes", (path.suffix.lower(),))
        if is_suffix and re.match(row["first_bytes"].encode(), head, re.DOTALL):
            return row["name"].format(text=head[:32].decode("ascii", "replace")), row["hint"]
    return None
