"""The folder that a program instrumented by Glow fills: ``dataNNNN`` files and what they are.

Glow's compiler, called with ``-instrument-debug -instrument-debug-format=bin|txt|rawbin|rawtxt``,
writes ``instrument-debug.info`` (older documentation calls it ``debug.info``) and numbers a file
for each operand of each instruction but allocations, deallocations and tensorviews; the program
writes the files when it runs. ``bin`` and ``txt`` files begin with the tensor's type. Sources:
Glow's ``docs/AOT.md`` ("-instrument-debug"), ``lib/Optimizer/IROptimizer/IRInstrumentation.cpp``
(the info file, the numbering), ``lib/Base/TensorSerialization.cpp`` and
``lib/Backends/CPU/libjit/libjit.cpp`` (the files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np

from nmpsim.analysis.diff.printed import NUMBER, printed_values
from nmpsim.analysis.diff.tensors import Tensor, Values
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir import TensorType
from nmpsim.lir.line import Line
from nmpsim.lir.line_parser import parse_type

INFO_FILES = ("instrument-debug.info", "debug.info")
FORMATS = ("bin", "txt", "rawbin", "rawtxt")
_OPERAND = re.compile(r"\[(\d{1,4})\]\s+([^:\s]+):\s+(data\d{1,9}\.(?:bin|txt))\s+(\S.*)")
_MOST_TYPE_BYTES = 400
_DIGITS = 32
"""Bytes that a printed number takes at most, its comma included."""


@attrs.frozen
class DumpFile:
    """A ``dataNNNN`` file and the operand whose elements it has."""

    instruction: str
    index: int
    operand: str
    file: str
    type: TensorType


def info_file(folder: Path) -> Path | None:
    """The file that says what a folder's ``dataNNNN`` files are; None if there is none."""
    return next((folder / name for name in INFO_FILES if (folder / name).is_file()), None)


def folder_tensors(folder: Path) -> list[Tensor]:
    """All that a folder holds, in the order of the program; raises FILE001, DUMP001, DUMP002."""
    path = info_file(folder)
    if path is None:
        raise fail(
            "DUMP002",
            "nothing says what the folder's files are",
            place=Place(str(folder)),
            expected=f"{INFO_FILES[0]}, which Glow's compiler writes beside the bundle",
            hint="copy it from where -instrument-debug-dir pointed into the folder of the files",
        )
    format, files = read_info(path)
    return [_tensor(folder / entry.file, format, entry) for entry in files]


def read_info(path: Path) -> tuple[str, list[DumpFile]]:
    """Format and files that an ``instrument-debug.info`` names."""
    lines = read_text(path).splitlines()
    found = lines[0].partition(":")[2].strip() if lines else ""
    if not lines or not lines[0].startswith("Format:") or found not in FORMATS:
        place = Place(str(path), 1)
        raise fail(
            "DUMP001",
            "this is no list of Glow's dumps",
            place=place,
            found=lines[0][:80] if lines else "an empty file",
            expected=f"Format: {' or '.join(FORMATS)}",
        )
    return found, list(_entries(lines, path))


def read_text(path: Path) -> str:
    """A text file; raises FILE001."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        place = Place(str(path), offset=error.start)
        raise fail("DUMP001", "this is not UTF-8 text", place=place) from None


def _entries(lines: list[str], path: Path) -> Iterator[DumpFile]:
    name = None
    for number, text in enumerate(lines, 1):
        word, _, rest = text.partition(":")
        if word == "Name":
            name = rest.strip()
        elif text.startswith("["):
            match = _OPERAND.fullmatch(text.rstrip())
            if match is None or name is None:
                place = Place(str(path), number)
                raise fail(
                    "DUMP001",
                    "this line names no operand",
                    place=place,
                    found=text[:80],
                    expected="[0] Dest: data0000.bin TYPE below a line Name: INSTRUCTION",
                )
            index, operand, file, type = match.groups()
            yield DumpFile(name, int(index), operand, file, _type(type, number, path))


def _type(text: str, number: int, path: Path) -> TensorType:
    line = Line(text, number, str(path))
    type = parse_type(line)
    line.end()
    return type


def _tensor(path: Path, format: str, entry: DumpFile) -> Tensor:
    read = {"bin": _typed_bytes, "txt": _typed_text, "rawbin": _raw_bytes, "rawtxt": _raw_text}
    return Tensor(
        name=entry.instruction,
        operand=entry.operand,
        # Glow's instructions have their result first.
        is_result=entry.index == 0,
        type=entry.type,
        load=lambda: read[format](path, entry.type),
    )


def _typed_bytes(path: Path, type: TensorType) -> Values:
    data = _read(path, _MOST_TYPE_BYTES + type.nbytes)
    head = data[: data.find(b">", 0, _MOST_TYPE_BYTES) + 1]
    _check_type(head, type, path)
    return _elements(data[len(head) :], type, path)


def _raw_bytes(path: Path, type: TensorType) -> Values:
    return _elements(_read(path, type.nbytes), type, path)


def _typed_text(path: Path, type: TensorType) -> Values:
    data = _read(path, _MOST_TYPE_BYTES + _DIGITS * type.elements)
    head, _, numbers = data.partition(b"\n")
    _check_type(head.rstrip(), type, path)
    return _numbers(numbers, type, path)


def _raw_text(path: Path, type: TensorType) -> Values:
    return _numbers(_read(path, _DIGITS * type.elements), type, path)


def _read(path: Path, most: int) -> bytes:
    """The file, but not much more than ``most`` bytes of it."""
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UserError:
    place = Place(str(path))
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = "the instrumented program writes it when it runs"
    return fail("FILE001", f"cannot read the dump: {error.strerror}", place=place, hint=hint)


def _check_type(head: bytes, type: TensorType, path: Path) -> None:
    text = head.decode("utf-8", "replace")
    try:
        found = _type(text, 1, path)
    except UserError:
        found = None
    if found is None or (found.elem, found.shape) != (type.elem, type.shape):
        place = Place(str(path))
        hint = "the file is from another program than the list"
        expected = f"{type.elem}<{' x '.join(map(str, type.shape))}>"
        raise fail(
            "DUMP001",
            "the dump does not begin with the tensor's type",
            place=place,
            found=repr(text[:80]),
            expected=expected,
            hint=hint,
        )


def _elements(data: bytes, type: TensorType, path: Path) -> Values:
    if len(data) != type.nbytes:
        found = f"{len(data):,}" if len(data) < type.nbytes else "more"
        raise fail(
            "DUMP001",
            "the dump has another number of bytes than its tensor",
            place=Place(str(path)),
            found=found,
            expected=f"{type.nbytes:,}",
        )
    little = type.dtype.newbyteorder("<")
    return Values(type.shape, np.frombuffer(data, little).astype(type.dtype))


def _numbers(data: bytes, type: TensorType, path: Path) -> Values:
    place = Place(str(path))
    tokens = [token.strip() for token in data.decode("utf-8", "replace").split(",")]
    tokens = tokens if tokens[-1] else tokens[:-1]
    wrong = next((token for token in tokens if not re.fullmatch(NUMBER, token)), None)
    if wrong is not None:
        raise fail("DUMP001", "this is not a number", place=place, found=repr(wrong[:80]))
    if len(tokens) < type.elements:
        raise fail(
            "DUMP001",
            "the dump has fewer numbers than its tensor has elements",
            place=place,
            found=f"{len(tokens):,}",
            expected=f"{type.elements:,}",
        )
    return printed_values(tokens, type.shape, type.dtype, place)
