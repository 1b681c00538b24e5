"""Read the folder of a program instrumented by Glow: ``dataNNNN`` files and their list.

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

from nmpsim.analysis.diff.printed import NUMBER, parse_printed_values
from nmpsim.analysis.matching import KnownValues, StoredTensor
from nmpsim.diagnostics import Place, UserError, fail, list_alternatives
from nmpsim.input_files import read_text
from nmpsim.interpreter import locate_tensors
from nmpsim.lir.line import LineCursor
from nmpsim.lir.line_parser import parse_type
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcodes import NO_WORK, OPCODES

INFO_FILES = ("instrument-debug.info", "debug.info")
FORMATS = ("bin", "txt", "rawbin", "rawtxt")
_OPERAND = re.compile(r"\[(\d{1,4})\]\s+([^:\s]+):\s+(data\d{1,9}\.(?:bin|txt))\s+(\S.*)")
_ENDINGS = ("bin", "txt")
_NOT_DUMPED = NO_WORK - {"touch"}
_MAX_TYPE_BYTES = 400
_DIGITS = 32
"""Largest length of a printed number with its comma."""


@attrs.frozen
class DumpFile:
    """Dump file ``dataNNNN``: its name, and the operand whose elements the file contains."""

    instruction: str
    index: int
    operand: str
    file: str
    type: TensorType


def find_info_file(folder: Path) -> Path | None:
    """Return the file that lists the dump files of a folder, or None if there is no such file."""
    return next((folder / name for name in INFO_FILES if (folder / name).is_file()), None)


def read_folder_tensors(folder: Path, module: Module | None = None) -> list[StoredTensor]:
    """Return the tensors of a folder of dumps in program order; values are read on demand.

    Parameters
    ----------
    folder
        Folder with ``dataNNNN`` files.
    module
        Program that wrote the dumps. It identifies the tensors if there is no list of dumps.

    Raises
    ------
    UserError
        FILE001, DUMP001; DUMP002 if the tensors of the files are unknown.
    """
    path = find_info_file(folder)
    if path is not None:
        format, files = read_dump_list(path)
        return [_tensor(folder / entry.file, format, entry) for entry in files]
    candidates = (folder / f"data0000.{ending}" for ending in _ENDINGS)
    first = next((file for file in candidates if file.is_file()), None)
    if module is not None and first is not None:
        files = compute_dump_files(module, first.suffix)
        return [_tensor(folder / one.file, _format_of(first, files[0]), one) for one in files]
    raise fail(
        "DUMP002",
        "the list of the folder's files is missing",
        place=folder,
        expected=f"{INFO_FILES[0]}, which Glow's compiler writes, next to data0000.bin or .txt",
        hint="Copy it from the folder of -instrument-debug-dir, or pass the program with --bundle.",
    )


def compute_dump_files(module: Module, ending: str) -> list[DumpFile]:
    """Compute the names of a program's dump files and the operand in each file."""
    places = locate_tensors(module)
    operands = (
        (instruction, index, role.name, operand.name)
        for instruction in module.instructions
        if instruction.opcode not in _NOT_DUMPED
        for index, (role, operand) in enumerate(
            zip(OPCODES[instruction.opcode].operands, instruction.operands, strict=True)
        )
    )
    return [
        DumpFile(i.name, index, role, f"data{number:04d}{ending}", places[name].type)
        for number, (i, index, role, name) in enumerate(operands)
    ]


def _format_of(path: Path, entry: DumpFile) -> str:
    """Return a file's format: typed ones begin with a letter, raw ones have the tensor's size."""
    if path.suffix == ".txt":
        return "txt" if _read(path, 0)[:1].isalpha() else "rawtxt"
    return "rawbin" if path.stat().st_size == entry.type.nbytes else "bin"


def read_dump_list(path: Path) -> tuple[str, list[DumpFile]]:
    """Read the format of a folder's dumps and the list of the dump files.

    Parameters
    ----------
    path
        An ``instrument-debug.info`` file.

    Returns
    -------
    tuple of str and list of DumpFile
        Format of the dumps, one of FORMATS, and their files.
    """
    lines = read_text(path, "list of dumps", code="DUMP001").splitlines()
    found = lines[0].partition(":")[2].strip() if lines else ""
    if not lines or not lines[0].startswith("Format:") or found not in FORMATS:
        place = Place(str(path), 1)
        raise fail(
            "DUMP001",
            "the file is not a list of Glow's dumps",
            place=place,
            found=lines[0][:80] if lines else "an empty file",
            expected=f"Format: {list_alternatives(FORMATS)}",
        )
    return found, list(_entries(lines, path))


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
                    "the line does not name an operand",
                    place=place,
                    found=text[:80],
                    expected="[0] Dest: data0000.bin TYPE below a line Name: INSTRUCTION",
                )
            index, operand, file, type = match.groups()
            yield DumpFile(name, int(index), operand, file, _type(type, number, path))


def _type(text: str, number: int, path: Path) -> TensorType:
    line = LineCursor(text, number, str(path))
    type = parse_type(line)
    line.expect_end()
    return type


def _tensor(path: Path, format: str, entry: DumpFile) -> StoredTensor:
    return StoredTensor(
        name=entry.instruction,
        operand=entry.operand,
        # Glow's instructions have their result first.
        is_result=entry.index == 0,
        type=entry.type,
        load=lambda: _load(path, format, entry.type),
    )


def _load(path: Path, format: str, type: TensorType) -> KnownValues:
    """Read a dump; formats without ``raw`` begin with the tensor's type."""
    is_text, is_typed = format.endswith("txt"), not format.startswith("raw")
    size = _DIGITS * type.elements if is_text else type.nbytes
    data = _read(path, size + (_MAX_TYPE_BYTES if is_typed else 0))
    if is_typed:
        end = b"\n" if is_text else b">"
        head = data[: data.find(end, 0, _MAX_TYPE_BYTES) + 1]
        _check_type(head.rstrip(), type, path)
        data = data[len(head) :]
    return _numbers(data, type, path) if is_text else _elements(data, type, path)


def _read(path: Path, most: int) -> bytes:
    """Read at most slightly more than ``most`` bytes of a file."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            message, hint = "cannot read the dump: it is not a regular file", "Pass a regular file."
            raise fail("FILE001", message, place=path, hint=hint)
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        hint = "Check the permissions of the file."
        if is_missing:
            hint = "Run the instrumented program to write the dump."
        message = f"cannot read the dump: {error.strerror}"
        raise fail("FILE001", message, place=path, hint=hint) from None


def _check_type(head: bytes, type: TensorType, path: Path) -> None:
    text = head.decode("utf-8", "replace")
    try:
        found = _type(text, 1, path)
    except UserError:
        found = None
    if found is None or (found.elem, found.shape) != (type.elem, type.shape):
        hint = "Use the list and the dumps of the same program."
        expected = f"{type.elem}<{' x '.join(map(str, type.shape))}>"
        raise fail(
            "DUMP001",
            "the dump does not begin with the tensor's type",
            place=path,
            found=repr(text[:80]),
            expected=expected,
            hint=hint,
        )


def _elements(data: bytes, type: TensorType, path: Path) -> KnownValues:
    if len(data) != type.nbytes:
        found = f"{len(data):,} bytes"
        if len(data) > type.nbytes:
            found = f"more than {type.nbytes:,} bytes"
        raise fail(
            "DUMP001",
            "the size of the dump does not match its tensor",
            place=path,
            found=found,
            expected=f"{type.nbytes:,} bytes",
            hint="Use the list and the dumps of the same program.",
        )
    little = type.dtype.newbyteorder("<")
    return KnownValues(type.shape, np.frombuffer(data, little).astype(type.dtype))


def _numbers(data: bytes, type: TensorType, path: Path) -> KnownValues:
    place = Place(str(path))
    tokens = [token.strip() for token in data.decode("utf-8", "replace").split(",")]
    tokens = tokens if tokens[-1] else tokens[:-1]
    wrong = next((token for token in tokens if not re.fullmatch(NUMBER, token)), None)
    if wrong is not None:
        message, found = "the dump contains text that is not a number", repr(wrong[:80])
        expected = "numbers separated by commas"
        raise fail("DUMP001", message, place=place, found=found, expected=expected)
    if len(tokens) < type.elements:
        raise fail(
            "DUMP001",
            "the dump has fewer numbers than its tensor has elements",
            place=place,
            found=f"{len(tokens):,} numbers",
            expected=f"{type.elements:,} numbers",
        )
    return parse_printed_values(tokens, type.shape, type.dtype, place)
