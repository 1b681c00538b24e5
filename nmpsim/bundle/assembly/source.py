"""Statements of assembly text: lines without comments, continued lines joined."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import attrs

from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.isa.expressions import Cursor, ExpressionToken, SourceError, tokenize

_CODE = re.compile(r'(?:[^"#]|"(?:[^"\\]|\\.)*"|")*')
"""Pattern of a line up to its comment; a ``#`` within quotes starts no comment."""

_METADATA = re.compile(r"\s*\.metadata(?=\s)")


@attrs.frozen
class Statement:
    """Statement of assembly text: one line, or several lines joined by backslashes."""

    text: str
    file: str
    starts: tuple[tuple[int, int], ...]
    """Offset in the text (0-based) and number (1-based) of each physical line."""

    @property
    def line(self) -> int:
        """Number of the first line, 1-based."""
        return self.starts[0][1]

    @property
    def end_column(self) -> int:
        """Column after the last character, 1-based."""
        return len(self.text.rstrip()) + 1

    def get_place(self, column: int) -> Place:
        """Return the file, line and column of a character, given its column in the joined text."""
        index = bisect_right(self.starts, (column - 1, 1 << 62)) - 1
        start, line = self.starts[index]
        return Place(self.file, line, column - start)

    def tokens(self) -> list[ExpressionToken]:
        """Return the statement's tokens; for ``.metadata``, return only the directive's tokens."""
        directive = _METADATA.match(self.text)
        return tokenize(directive.group() if directive else self.text)

    def make_cursor(self, tokens: list[ExpressionToken]) -> Cursor:
        """Return a cursor over tokens of the statement."""
        return Cursor(tokens, self.end_column)

    def make_diagnostic(self, error: SourceError) -> Diagnostic:
        """Convert an error to a diagnostic with file, line and column."""
        return Diagnostic(
            error.code,
            error.message,
            self.get_place(error.column),
            error.found,
            error.expected,
            error.hint,
        )


def split_statements(text: str, file: str) -> Iterator[Statement]:
    """Split assembly text into statements; yield all statements that are not empty."""
    joined = ""
    starts: list[tuple[int, int]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        match = _CODE.match(line)
        code = match.group().rstrip() if match else ""
        starts.append((len(joined), number))
        continued = code.endswith("\\")
        joined += code[:-1] + " " if continued else code
        if not continued:
            if joined.strip():
                yield Statement(joined, file, tuple(starts))
            joined, starts = "", []
    if joined.strip():
        yield Statement(joined, file, tuple(starts))
