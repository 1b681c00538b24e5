"""Errors for users as data: a stable code, a place, found and expected values, and a hint.

A problem with a user's input is a :class:`Diagnostic`; a function that cannot continue raises
:class:`UserError` with one or more of them. Every package can import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from nmpsim.escape import escape_line
from nmpsim.records import frozen

_LONGEST_WORD = 100
"""Characters of the longest word that gets a hint."""
MAX_ERRORS = 20
"""Number of errors that are reported together."""

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
    "ARG001": "invalid argument of a command or function",
    "FILE001": "a file cannot be read",
    "FILE002": "a file cannot be written",
    "MODEL001": "the model file is damaged or has an unknown format",
    "MODEL002": "the model or an operation of it is not supported",
    "LIR001": "unexpected text in LIR",
    "LIR002": "the LIR text ends before its program does",
    "LIR003": "unknown name in LIR",
    "LIR004": "a name is defined twice in LIR",
    "LIR005": "an LIR instruction has the wrong number",
    "LIR006": "unknown LIR opcode",
    "LIR007": "an LIR instruction has the wrong operands",
    "LIR008": "an LIR instruction has the wrong attributes",
    "LIR009": "types of LIR operands do not match",
    "LIR010": "an LIR value is used before it is written or after its buffer is freed",
    "LIR011": "a size in LIR is invalid or does not match",
    "LIR012": "the LIR opcode is known but not supported",
    "CONST001": "the constants file is damaged or has another format",
    "CONST002": "a constant is missing",
    "CONST003": "a constant does not match its declaration",
    "CONST004": "the scales file is damaged or contradicts the program",
    "DEV001": "the device file is not TOML",
    "DEV002": "a device setting is unknown or has the wrong type",
    "DEV003": "a device setting is out of range",
    "ISA001": "an instruction or descriptor cannot be encoded",
    "ASM001": "syntax error in assembly",
    "ASM002": "unknown mnemonic, register, symbol or field in assembly",
    "ASM003": "a value in assembly is out of range",
    "BUN001": "the file is neither a bundle nor a program for the device",
    "BUN002": "the bundle or the program is damaged",
    "BUN003": "the bundle was made for another version of nmpsim",
    "BUN004": "the bundle does not fit the device",
    "BUN005": "the bundle contains no LIR module",
    "HOST001": "a host operation cannot process a value",
    "COMP001": "an operation cannot be compiled",
    "COMP002": "the program does not fit the device's memory",
    "NUM001": "a formulas file is invalid",
    "INPUT001": "an input is missing or unknown",
    "INPUT002": "an input has the wrong shape, type or values",
    "INPUT003": "an input file is damaged or has an unknown format",
    "QUANT001": "the program cannot be quantized",
    "QUANT002": "the range of a value is unknown",
    "QUANT003": "no operation would be quantized",
    "QUANT004": "unknown operation in the settings of a quantization",
    "QUANT005": "the profile was recorded from another network",
    "LINE001": "the program has no source lines",
    "LAYER001": "a layer name is unknown or ambiguous",
    "DEBUG001": "syntax error in a debugger command",
    "DEBUG002": "a debugger command names something unknown",
    "DEBUG003": "the core file is damaged or cannot be used",
    "POINTER001": "a program uses a pointer outside of its object, or an undefined value",
    "PATCH001": "the file is not a patch",
    "PATCH002": "the patch belongs to another bundle",
    "PKG001": "a Python package is missing",
    "GRID001": "the grid of device settings is invalid",
    "FIT001": "the device cannot be fitted to the measured cycles",
    "DATA001": "the data set or its labels are invalid",
    "RESULT001": "the results file belongs to another sweep or evaluation",
    "REPORT001": "the report is damaged or has another version",
    "WORK001": "worker processes cannot be used",
    "DIFF001": "the runs cannot be compared",
    "REF001": "the reference runtime cannot run the model",
    "DUMP001": "a dump of Glow is damaged",
    "DUMP002": "the list of files of Glow's dumps is missing",
    "SUITE001": "the suite file is invalid",
    "SUITE002": "the suite or a case checks nothing",
    "BASE001": "the baseline is missing, damaged or incomplete",
    "BASE002": "the baseline belongs to another program, input or device",
    "MEM001": "more memory is needed than allowed",
    "MEM002": "the memory is exhausted",
    "ENV001": "an environment variable has an invalid value",
    "ENV002": "too few open files, processes or threads are allowed",
    "LIMIT001": "the run exceeded its limit of cycles",
    "LIMIT002": "the run exceeded its time limit",
    "CONTRACT001": "the program relies on undefined behavior of the instruction set",
    "CONTRACT002": "the program uses an unpredictable value",
    "CONTRACT003": "synchronization is missing",
    "CONTRACT004": "the program uses an unsupported feature",
    "CONTRACT005": "internal error of nmpsim",
}
"""Meaning of every error code; codes are stable and never change their meaning."""


@frozen
class Place:
    """Place of a problem: a file, and in the file a line and column, an offset or an operation.

    Line 0 is the line of an instruction without text.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    offset: int | None = None
    node: str = ""
    """Operation of a model file, as ``nmpsim inspect`` lists it."""

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
    """Diagnostic of a problem in user input: message, place, found and expected value, hint."""

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
    """Exception for errors in a user's input, with one or more diagnostics."""

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
    """In a ``with`` block, set a file as the place of each raised UserError without a place."""
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


def list_alternatives(names: Iterable[object]) -> str:
    """Join names to a list of alternatives: "a", "a or b", "a, b or c"."""
    return join_names(names, "or")


def join_names(names: Iterable[object], conjunction: str = "and") -> str:
    """Join names to an enumeration: "a", "a and b", "a, b and c"."""
    *first, last = map(str, names)
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def join_first(names: Sequence[str], count: int) -> str:
    """Join the first ``count`` names, and say how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return f"{', '.join(names[:count])}{more}"


def format_count(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun: ``1 layer``, ``2 layers``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def refuse_options(
    options: Mapping[str, object], condition: str, hint: str, place: Place | Path | None = None
) -> None:
    """Raise UserError (ARG001) for the options with a true value.

    Parameters
    ----------
    options
        Values of options by name, such as ``--trace``.
    condition
        When the options cannot be used, such as "with a core file".
    hint
        What to do instead.
    place
        File to which the options do not apply.
    """
    if given := [name for name, value in options.items() if value]:
        message = f"{join_names(given)} cannot be used {condition}"
        raise fail("ARG001", message, place=place, hint=hint)


def did_you_mean(
    word: str, known: Iterable[str], prefix: str = "", nearness: float = 0.6
) -> str | None:
    """Return a hint with the known word most similar to ``word``, or None if no word is similar.

    ``nearness`` from 0 to 1: how much of both must be alike.
    """
    import difflib  # only for an error

    if len(word) > _LONGEST_WORD:  # comparing is quadratic in the length
        return None
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=nearness)
    return suggest_name(prefix + near[0]) if near else None


def suggest_name(name: str) -> str:
    """Return the hint "Did you mean ...?" for a name."""
    return f"Did you mean '{name}'?"


_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """Return the quotation of a text in a message: at most 60 characters, then ``...``."""
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."
