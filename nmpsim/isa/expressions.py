"""Tokens of assembly text, and expressions of numbers and symbols."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import attrs

from nmpsim.diagnostics import did_you_mean, list_alternatives

MAX_LISTED = 10
"""Largest number of known names that a message lists."""

Scope = Callable[["ExpressionToken"], int]
"""Function that returns the value of a symbol, or raises :class:`SourceError` at its token."""


class SourceError(Exception):
    """Exception raised for an error at a column of assembly; the assembler adds file and line."""

    def __init__(
        self,
        code: str,
        message: str,
        column: int,
        *,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.column = column
        self.found = None if found is None else str(found)
        self.expected = None if expected is None else str(expected)
        self.hint = hint


def make_unknown_name_error(
    what: str, name: ExpressionToken, known: Iterable[str], hint: str = ""
) -> SourceError:
    """Return the error (ASM002) for an unknown name, with the most similar known name as hint."""
    names = list(known)
    expected = list_alternatives(names) if 0 < len(names) <= MAX_LISTED else None
    near = did_you_mean(name.text, names) or hint or None
    message = f"unknown {what} {name.text!r}"
    return SourceError("ASM002", message, name.column, expected=expected, hint=near)


@attrs.frozen
class ExpressionToken:
    """Token of a line of assembly text: its kind, its text and its 1-based column."""

    kind: Literal["name", "number", "mark"]
    text: str
    column: int
    quoted: bool = False


_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>\#.*) | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>[0-9]\w*) | (?P<name>%?[A-Za-z_.$][\w.$]*) | (?P<mark>[-+*,():=<>\[\]])""",
    re.VERBOSE,
)
PLAIN_NAME = re.compile(r"[A-Za-z_$][\w.$]*", re.ASCII)
"""Pattern of names that need no quotes and are not local (local names start with ``.L``)."""


def tokenize(line: str, first_column: int = 1) -> list[ExpressionToken]:
    """Split a line into tokens, without spaces and comments."""
    tokens = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        column = first_column + position
        if match is None:
            message, expected = f"unexpected character {line[position]!r}", "a name or a number"
            raise SourceError("ASM001", message, column, expected=expected)
        if match.lastgroup not in ("space", "comment"):
            tokens.append(_token(str(match.lastgroup), match.group(), column))
        position = match.end()
    return tokens


def _token(kind: str, text: str, column: int) -> ExpressionToken:
    if kind == "string":
        try:
            return ExpressionToken("name", json.loads(text), column, quoted=True)
        except ValueError as error:
            message, expected = "a quoted name is malformed", 'a JSON string such as "conv 1"'
            raise SourceError("ASM001", message, column, found=text, expected=expected) from error
    return ExpressionToken(
        "name" if kind == "name" else "number" if kind == "number" else "mark", text, column
    )


class Cursor:
    """Cursor over the tokens of one assembly statement."""

    def __init__(self, tokens: Sequence[ExpressionToken], end_column: int) -> None:
        self._tokens = tokens
        self._position = 0
        self._end_column = end_column

    @property
    def column(self) -> int:
        """Column of the next token, or the column after the statement."""
        token = self.peek()
        return token.column if token else self._end_column

    @property
    def at_end(self) -> bool:
        """Whether all tokens have been read."""
        return self.peek() is None

    def peek(self) -> ExpressionToken | None:
        """Return the next token without reading it, or None at the end."""
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def next_is(self, mark: str) -> bool:
        """Return whether the next token is the punctuation mark ``mark``."""
        token = self.peek()
        return token is not None and token.kind == "mark" and token.text == mark

    def accept(self, mark: str) -> bool:
        """Read the next token if it is the mark ``mark``; return whether the token was read."""
        if self.next_is(mark):
            self._position += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        """Read the punctuation mark ``mark``; raise SourceError if the next token differs."""
        if not self.accept(mark):
            raise self.make_error(repr(mark))

    def read_token(self, kind: str, expected: str) -> ExpressionToken:
        """Read and return a token; raise SourceError if the next token's kind is not ``kind``."""
        token = self.peek()
        if token is None or token.kind != kind:
            raise self.make_error(expected)
        self._position += 1
        return token

    def expect_end(self) -> None:
        """Raise SourceError unless all tokens have been read."""
        if not self.at_end:
            raise self.make_error("end of line")

    def make_error(self, expected: str) -> SourceError:
        """Return a SourceError that reports the next token and the expected text."""
        token = self.peek()
        found = repr(token.text) if token else "end of line"
        return SourceError("ASM001", "unexpected text", self.column, found=found, expected=expected)


@attrs.frozen
class Expression:
    """An integer expression that may contain symbols."""

    evaluate: Callable[[Scope], int]
    """Function that returns the value, given a scope that resolves symbols."""
    column: int


def make_constant(value: int, column: int) -> Expression:
    """Return an expression with a constant value."""
    return Expression(lambda _: value, column)


def compute_high_part(value: int) -> int:
    """Compute the 20 bits for ``lui``, rounded so that adding the low part yields the value."""
    return (value + 0x800) >> 12 & 0xF_FFFF


def compute_low_part(value: Any) -> Any:
    """Compute the lower 12 bits of a value as a signed number, from -2048 to 2047."""
    return ((value & 0xFFF) ^ 0x800) - 0x800


def parse_expression(cursor: Cursor) -> Expression:
    """Parse an expression ``[-] term {(+|-) term}`` with ``term = factor {* factor}``."""
    column = cursor.column
    sign = -1 if cursor.accept("-") else 1
    terms = [(sign, _parse_term(cursor))]
    while cursor.next_is("+") or cursor.next_is("-"):
        sign = 1 if cursor.accept("+") else -1
        if sign < 0:
            cursor.expect("-")
        terms.append((sign, _parse_term(cursor)))
    return Expression(
        lambda scope: sum(sign * math.prod(f(scope) for f in factors) for sign, factors in terms),
        column,
    )


def _parse_term(cursor: Cursor) -> list[Callable[[Scope], int]]:
    factors = [_parse_factor(cursor)]
    while cursor.accept("*"):
        factors.append(_parse_factor(cursor))
    return factors


def _parse_factor(cursor: Cursor) -> Callable[[Scope], int]:
    """Parse a number, a symbol, or ``%hi`` or ``%lo`` of an expression."""
    token = cursor.peek()
    if token is None or token.kind == "mark":
        raise cursor.make_error("a number or a symbol")
    if token.kind == "number":
        number = _number(cursor.read_token("number", "a number"))
        return lambda _: number
    name = cursor.read_token("name", "a symbol")
    if name.quoted or not name.text.startswith("%"):
        return lambda scope: scope(name)
    if name.text not in _PARTS:
        raise SourceError(
            "ASM002", f"unknown function {name.text}", name.column, expected=", ".join(_PARTS)
        )
    cursor.expect("(")
    inner = parse_expression(cursor)
    cursor.expect(")")
    return lambda scope: _PARTS[name.text](inner.evaluate(scope))


_PARTS = {"%hi": compute_high_part, "%lo": compute_low_part}


def _number(token: ExpressionToken) -> int:
    try:
        return int(token.text, 0)
    except ValueError as error:
        raise SourceError(
            "ASM001",
            "invalid number",
            token.column,
            found=repr(token.text),
            expected="a decimal, hexadecimal (0x...) or binary (0b...) number",
        ) from error
