"""Read the console output of a program instrumented by Glow (``-instrument-debug-format=console``).

A line with the name ``debug_print.before|after.INSTRUCTION.OPERAND.KIND``, then
``shape: ( n ... )``, the extremes, and up to 100 numbers with three decimals; a tensor of zeros and
a scalar have lines of their own. The text does not say what the elements are. Sources: Glow's
``lib/Optimizer/IROptimizer/IRInstrumentation.cpp`` (names), ``lib/Backends/CPU/libjit/libjit.cpp``
and ``lib/Base/Tensor.cpp`` (the rest).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from nmpsim.analysis.diff.printed import NUMBER, parse_printed_values
from nmpsim.analysis.matching import KnownValues, StoredTensor
from nmpsim.diagnostics import Place, fail
from nmpsim.input_files import read_text
from nmpsim.lir.nodes import find_size_problem

MAX_PRINTED = 100
"""Largest number of elements of a tensor that Glow prints."""
_TITLE = re.compile(r"debug_print\.(before|after)\.(\S+)\.([^.\s]+)\.([^.\s:]+)")
_SHAPE = re.compile(r"shape: \(((?: *\d{1,9})*) *\)")
_SCALAR = re.compile(rf"\[ Scalar containing: ({NUMBER}) \]")
_ZEROS = "[ Zero tensor ]"
_NUMBER = re.compile(NUMBER)


def is_console_text(path: Path) -> bool:
    """Return whether a file begins like the console output of an instrumented program."""
    try:
        with path.open("rb") as file:
            return b"debug_print." in file.read(1 << 16)
    except OSError:
        return False


def read_console_tensors(path: Path) -> list[StoredTensor]:
    """Read the tensors that an instrumented program printed, in order.

    Of several tensors with one name, the last one is returned.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, DUMP001 if it is damaged.
    """
    found: dict[tuple[str, str], StoredTensor] = {}
    for line, lines in _split_tensors(read_text(path, "text", code="DUMP001").splitlines()):
        match = _TITLE.search(lines[0])
        assert match is not None
        when, name, operand, _ = match.groups()
        tensor = _tensor(name, operand, when == "after", lines[1:], Place(str(path), line))
        found.pop((name, operand), None)
        found[name, operand] = tensor
    return list(found.values())


def _split_tensors(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line, and the lines, of each tensor."""
    starts = [number for number, text in enumerate(lines) if _TITLE.search(text)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start + 1, lines[start:end]


def _tensor(
    name: str, operand: str, is_result: bool, lines: list[str], place: Place
) -> StoredTensor:
    values = _values("\n".join(lines), place)
    return StoredTensor(name, operand, is_result, None, lambda: values)


def _values(text: str, place: Place) -> KnownValues:
    if scalar := _SCALAR.search(text):
        return parse_printed_values([scalar[1]], (), None, place)
    head = _SHAPE.search(text)
    if head is None:
        raise fail(
            "DUMP001",
            "the printed tensor has no shape",
            place=place,
            found=text[:80],
            expected="shape: ( 1 4 4 8 )",
            hint="Check that the text is complete.",
        )
    shape = tuple(map(int, head[1].split()))
    if problem := find_size_problem(shape):
        found, expected = problem
        message = "the tensor is too large"
        raise fail("DUMP001", message, place=place, found=found, expected=expected)
    rest = text[head.end() :]
    if _ZEROS in rest:
        return KnownValues(shape, np.broadcast_to(np.float64(0), math.prod(shape)), is_typed=False)
    return parse_printed_values(_numbers(rest, math.prod(shape), place), shape, None, place)


def _numbers(text: str, size: int, place: Place) -> list[str]:
    """Return the numbers of the first list in a text; other output may follow."""
    count = min(size, MAX_PRINTED)
    found = _NUMBER.finditer(text, text.find("[")) if "[" in text else iter(())
    numbers = [match[0] for match in islice(found, count)]
    if len(numbers) < count:
        raise fail(
            "DUMP001",
            "the printed tensor has too few numbers",
            place=place,
            found=f"{len(numbers):,} numbers",
            expected=f"{count:,} numbers",
            hint="Check that the text is complete.",
        )
    return numbers
