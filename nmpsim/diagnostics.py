"""Errors as data: a stable code, place, found and expected values, and a hint.

A problem with a user's input is a :class:`Diagnostic`; a function that cannot continue raises
:class:`UserError` with one or more of them. Every package can import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from nmpsim.escape import escape_line
from nmpsim.records import frozen

EXIT_OK = 0
EXIT_WORSE = 1
"""The run failed: a mismatch or a trap."""
EXIT_USER = 2
"""The user's input is invalid."""
EXIT_BUG = 3
"""An internal error of nmpsim."""
EXIT_OVER_BUDGET = 4
"""`nmpsim check`: outputs are correct, but a budget is exceeded."""
EXIT_INCOMPLETE = 5
"""`nmpsim diff --strict`: common tensors are equal, but one run has more."""
EXIT_TIMEOUT = 124
"""The run exceeded --timeout; the same code as of timeout(1)."""

CODES: dict[str, str] = {
    "ARG001": "unusable command-line argument",
    "FILE001": "file cannot be read",
    "FILE002": "file cannot be written",
    "MODEL001": "model file damaged",
    "MODEL002": "model or operation not supported",
    "LIR001": "unexpected text",
    "LIR002": "unterminated program",
    "LIR003": "unknown name",
    "LIR004": "name defined twice",
    "LIR005": "wrong instruction number",
    "LIR006": "unknown opcode",
    "LIR007": "wrong operands",
    "LIR008": "wrong attributes",
    "LIR009": "types do not fit",
    "LIR010": "value used outside its life",
    "LIR011": "size does not fit",
    "LIR012": "opcode known and not supported",
    "CONST001": "constants file cannot be used",
    "CONST002": "constant missing",
    "CONST003": "constant does not fit its declaration",
    "CONST004": "scales cannot be used",
    "DEV001": "device file is not TOML",
    "DEV002": "device setting unknown or of the wrong kind",
    "DEV003": "device setting out of range",
    "ISA001": "instruction or descriptor cannot be encoded",
    "ASM001": "assembly text not understood",
    "ASM002": "unknown mnemonic, register, symbol or field",
    "ASM003": "value out of range",
    "BUN001": "not a bundle",
    "BUN002": "bundle damaged",
    "BUN003": "bundle made for another version",
    "BUN004": "bundle does not fit the device",
    "BUN005": "bundle carries no LIR module",
    "HOST001": "a value that an operation cannot take",
    "COMP001": "operation cannot be compiled",
    "COMP002": "does not fit the device's memory",
    "INPUT001": "input missing or unknown",
    "INPUT002": "input of the wrong shape or type",
    "INPUT003": "input file cannot be used",
    "QUANT001": "program cannot be quantized",
    "QUANT002": "range unknown",
    "QUANT003": "nothing is quantized",
    "QUANT004": "unknown operation",
    "QUANT005": "profile of another network",
    "LAYER001": "layer unknown or ambiguous",
    "DEBUG001": "debugger command not understood",
    "DEBUG002": "the debugger knows nothing of that name",
    "DEBUG003": "core file cannot be used",
    "PATCH001": "not a patch",
    "PATCH002": "the patch belongs to another bundle",
    "PKG001": "package missing",
    "GRID001": "grid of device settings cannot be used",
    "DATA001": "data set or labels cannot be used",
    "RESULT001": "results file of something else",
    "REPORT001": "report cannot be used",
    "WORK001": "workers cannot be used",
    "DIFF001": "runs that cannot be compared",
    "DUMP001": "dump of Glow damaged",
    "DUMP002": "dump of Glow without its list of files",
    "SUITE001": "suite cannot be used",
    "SUITE002": "nothing to check",
    "BASE001": "baseline cannot be used",
    "BASE002": "baseline stale or of something else",
    "MEM001": "needs more memory than allowed",
    "MEM002": "memory ran out",
    "ENV001": "unusable environment variable",
    "ENV002": "too few open files, processes or threads allowed",
    "LIMIT001": "run beyond its limit of cycles",
    "LIMIT002": "run beyond its limit of time",
    "CONTRACT001": "behavior that the instruction set leaves undefined",
    "CONTRACT002": "unpredictable value used",
    "CONTRACT003": "missing synchronization",
    "CONTRACT004": "not supported",
    "CONTRACT005": "internal: a bug of nmpsim",
}
"""Title of every error code; codes are stable and never change their meaning."""


@frozen
class Place:
    """Location in a file: a 1-based line and column, an operation or an offset.

    Line 0 is the line of an instruction without text.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    offset: int | None = None
    node: str = ""
    """Operation of a model's file, as listed by ``nmpsim inspect``."""

    def __str__(self) -> str:
        text = escape_line(self.file or "<text>")
        if self.line:
            text += f":{self.line}"
            if self.column is not None:
                text += f":{self.column}"
        if self.offset is not None:
            text += f" at byte {self.offset:#x}"
        return f"{text}, operation {escape_line(self.node)}" if self.node else text


def _known_code(_: object, __: object, code: str) -> None:
    if code not in CODES:
        raise KeyError(f"{code} is not in diagnostics.CODES")


@frozen
class Diagnostic:
    """A problem with everything a user needs to fix it."""

    code: str = attrs.field(validator=_known_code)
    message: str
    place: Place | None = None
    found: str | None = None
    expected: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """Return text with one line for the problem and one for each further fact."""
        head = f"{self.place}: " if self.place else ""
        lines = [f"{head}error[{self.code}]: {escape_line(self.message)}"]
        lines += [
            f"  {label}: {escape_line(text)}"
            for label, text in (
                ("found", self.found),
                ("expected", self.expected),
                ("hint", self.hint),
            )
            if text
        ]
        return "\n".join(lines)


class UserError(Exception):
    """Error for invalid input, with one or more diagnostics."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    def __reduce__(self) -> tuple[type[UserError], tuple[tuple[Diagnostic, ...]]]:
        """Support pickling."""
        return UserError, (self.diagnostics,)


@contextmanager
def locate_errors(path: Path | str | None) -> Iterator[None]:
    """Set the place of diagnostics raised in the context that have none."""
    place = Place(None if path is None else str(path))
    try:
        yield
    except UserError as error:
        placed = (attrs.evolve(one, place=one.place or place) for one in error.diagnostics)
        raise UserError(placed) from error


def fail(
    code: str,
    message: str,
    *,
    place: Place | Path | str | None = None,
    found: object = None,
    expected: object = None,
    hint: str | None = None,
) -> UserError:
    """Return a :class:`UserError` with one diagnostic, to be raised by the caller.

    A path as ``place`` is the place of the whole file.
    """
    return UserError(
        Diagnostic(
            code,
            message,
            Place(str(place)) if isinstance(place, Path | str) else place,
            None if found is None else str(found),
            None if expected is None else str(expected),
            hint,
        )
    )
