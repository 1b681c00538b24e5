"""Assembly text: tokens of a line, and expressions over numbers and symbols."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

import attrs

Scope = Callable[["Token"], int]
"""Gives a symbol's value, or raises :class:`SourceError` at its token."""


class SourceError(Exception):
    """Something is wrong at a column of the line at hand; the assembler adds file and line."""

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


@attrs.frozen
class Token:
    """A piece of a line; ``column`` is 1-based. A quoted name is a name without its quotes."""

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
"""A name that needs no quotes and is not local (those start with ``.L``)."""


def tokenize(line: str, first_column: int = 1) -> list[Token]:
    """The tokens of a line without spaces and comment."""
    tokens = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        column = first_column + position
        if match is None:
            raise SourceError("ASM001", f"unexpected character {line[position]!r}", column)
        if match.lastgroup not in ("space", "comment"):
            tokens.append(_token(str(match.lastgroup), match.group(), column))
        position = match.end()
    return tokens


def _token(kind: str, text: str, column: int) -> Token:
    if kind == "string":
        try:
            return Token("name", json.loads(text), column, quoted=True)
        except ValueError as error:
            raise SourceError("ASM001", "a quoted name is malformed", column, found=text) from error
    return Token(
        "name" if kind == "name" else "number" if kind == "number" else "mark", text, column
    )


class Cursor:
    """Walks over the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], end_column: int) -> None:
        self._tokens = tokens
        self._position = 0
        self._end_column = end_column

    @property
    def column(self) -> int:
        """Column of the next token, or behind the last."""
        token = self.peek()
        return token.column if token else self._end_column

    @property
    def at_end(self) -> bool:
        """Whether all tokens are consumed."""
        return self.peek() is None

    def peek(self) -> Token | None:
        """The next token, not consumed."""
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def next_is(self, mark: str) -> bool:
        """Whether the next token is this mark."""
        token = self.peek()
        return token is not None and token.kind == "mark" and token.text == mark

    def accept(self, mark: str) -> bool:
        """Consume this mark if it is next."""
        if self.next_is(mark):
            self._position += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        """Consume this mark, or complain."""
        if not self.accept(mark):
            raise self.unexpected(repr(mark))

    def take(self, kind: str, expected: str) -> Token:
        """Consume a token of this kind, or complain that ``expected`` is missing."""
        token = self.peek()
        if token is None or token.kind != kind:
            raise self.unexpected(expected)
        self._position += 1
        return token

    def finish(self) -> None:
        """Complain if anything is left."""
        if not self.at_end:
            raise self.unexpected("end of line")

    def unexpected(self, expected: str) -> SourceError:
        """The error that something else stands here."""
        token = self.peek()
        found = repr(token.text) if token else "end of line"
        return SourceError("ASM001", "unexpected text", self.column, found=found, expected=expected)


@attrs.frozen
class Factor:
    """A number, a symbol, or ``%hi`` or ``%lo`` of an expression."""

    value: int | Token | Expression
    part: str = ""

    def evaluate(self, scope: Scope) -> int:
        """The factor's value."""
        if isinstance(self.value, int):
            return self.value
        if isinstance(self.value, Token):
            return scope(self.value)
        whole = self.value.evaluate(scope)
        return high_part(whole) if self.part == "%hi" else low_part(whole)


@attrs.frozen
class Term:
    """A product with its sign."""

    sign: int
    factors: tuple[Factor, ...]

    def evaluate(self, scope: Scope) -> int:
        """The term's value."""
        return self.sign * math.prod(factor.evaluate(scope) for factor in self.factors)


@attrs.frozen
class Expression:
    """A sum of terms."""

    terms: tuple[Term, ...]
    column: int

    def evaluate(self, scope: Scope) -> int:
        """The expression's value."""
        return sum(term.evaluate(scope) for term in self.terms)


def constant(value: int, column: int) -> Expression:
    """An expression that is just a number."""
    return Expression((Term(1, (Factor(value),)),), column)


def high_part(value: int) -> int:
    """The ``lui`` operand that, with :func:`low_part` added, makes a 32-bit value."""
    return (value + 0x800) >> 12 & 0xF_FFFF


def low_part(value: int) -> int:
    """The signed low 12 bits of a value."""
    return ((value & 0xFFF) ^ 0x800) - 0x800


def parse_expression(cursor: Cursor) -> Expression:
    """``[-] term {(+|-) term}`` with ``term = factor {* factor}``."""
    column = cursor.column
    sign = -1 if cursor.accept("-") else 1
    terms = [_parse_term(cursor, sign)]
    while cursor.next_is("+") or cursor.next_is("-"):
        sign = 1 if cursor.accept("+") else -1
        if sign < 0:
            cursor.expect("-")
        terms.append(_parse_term(cursor, sign))
    return Expression(tuple(terms), column)


def _parse_term(cursor: Cursor, sign: int) -> Term:
    factors = [_parse_factor(cursor)]
    while cursor.accept("*"):
        factors.append(_parse_factor(cursor))
    return Term(sign, tuple(factors))


def _parse_factor(cursor: Cursor) -> Factor:
    token = cursor.peek()
    if token is None or token.kind == "mark":
        raise cursor.unexpected("a number or a symbol")
    if token.kind == "number":
        return Factor(_number(cursor.take("number", "a number")))
    name = cursor.take("name", "a symbol")
    if name.quoted or not name.text.startswith("%"):
        return Factor(name)
    if name.text not in ("%hi", "%lo"):
        raise SourceError(
            "ASM002", f"unknown function {name.text}", name.column, expected="%hi, %lo"
        )
    cursor.expect("(")
    inner = parse_expression(cursor)
    cursor.expect(")")
    return Factor(inner, name.text)


def _number(token: Token) -> int:
    try:
        return int(token.text, 0)
    except ValueError as error:
        raise SourceError(
            "ASM001",
            "not a number",
            token.column,
            found=repr(token.text),
            expected="decimal, 0x hexadecimal or 0b binary digits",
        ) from error
