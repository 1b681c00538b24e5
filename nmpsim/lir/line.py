"""Tokens of a line of LIR text, and a cursor over them that reports errors.

The text is line oriented and nothing in it spans lines, so a parser asks for the tokens of one
line and, after an error, goes on with the next. Tokens are made only when asked for: a line of
garbage costs nothing once it is given up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.messages import quote
from nmpsim.lir.nodes import Span

PLAIN_NAME = r"[\w.$-]++"
"""Pattern of a name without quotes; other names are in double quotes, as in JSON."""


class TokenKind(Enum):
    """Kind of a token; the value is its name in error messages."""

    NAME = "a name such as %x"
    AT = "an operand kind such as @in"
    FLOAT = "a number with decimals"
    INT = "an integer"
    WORD = "a word"
    PUNCT = "punctuation"
    BAD = "unknown text"
    END = "end of line"


class Token(NamedTuple):
    """A token of a line; ``column`` is 1-based."""

    kind: TokenKind
    text: str
    column: int


# Possessive quantifiers (++, *+) keep every match linear in the length of the text.
_TOKEN = re.compile(
    rf"""
    (?P<blank> [ \t\r]++ )
  | (?P<comment> //.*+ )
  | (?P<NAME> %(?: {PLAIN_NAME} | "(?: [^"\\\x00-\x1f] | \\. )*+" ) )
  | (?P<AT> @\w*+ )
  | (?P<FLOAT> -?(?: \d++\.\d*+(?:[eE][+-]?\d++)? | \d++[eE][+-]?\d++ | inf ) (?![\w.]) )
  | (?P<INT> -?\d++ (?![\w.]) )
  | (?P<WORD> [A-Za-z_./](?: [\w.$+-] | /(?!/) )*+ )
  | (?P<PUNCT> [{{}}\[\]<>,:;=] )
  | (?P<BAD> [^ \t\r{{}}\[\]<>,:;=@%]++ | . )
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)


def split_lines(text: str) -> list[str]:
    """Split a text into lines without a byte order mark; a final ``\\\\r`` stays as a blank."""
    return text.removeprefix("\ufeff").split("\n")


def tokens(line: str) -> Iterator[Token]:
    """Yield the tokens of one line without comments and blanks; the last one is END."""
    end = len(line.rstrip(" \t\r"))
    for match in _TOKEN.finditer(line, 0, end):
        group = match.lastgroup
        if group == "comment":
            end = len(line[: match.start()].rstrip(" \t\r"))
            break
        if group is not None and group != "blank":
            yield Token(TokenKind[group], match.group(), match.start() + 1)
    yield Token(TokenKind.END, "", end + 1)


_MAX_DIGITS = 18
"""Longest integer; a longer one must not reach Python's int()."""
_MAX_FLOAT_TEXT = 400
_FUNCTION_NAME = re.compile(r"[\w.$+/-]+", re.ASCII)


class Line:
    """Cursor over the tokens of one line; each method takes a token or raises ``UserError``."""

    def __init__(self, text: str, number: int, file: str | None) -> None:
        self._text = text
        self._number = number
        self._file = file
        self._tokens = tokens(text)
        self._token = next(self._tokens)

    def peek(self) -> Token:
        """Return the next token; END at the end of the line."""
        return self._token

    def take(self) -> Token:
        """Return the next token and advance."""
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._tokens)
        return token

    def starts_with(self, word: str) -> bool:
        """Return whether this is the first word of the line."""
        return next(tokens(self._text)).text == word

    def span(self, token: Token) -> Span:
        """Return the position of a token of this line."""
        return Span(self._number, token.column)

    def place(self, token: Token) -> Place:
        """Return the position of a token of this line, for a message."""
        return Place(self._file, self._number, token.column)

    def make_error(self, expected: str, hint: str | None = None) -> UserError:
        """Return the error that the next token is not the expected one."""
        found = quote(self._token.text) or TokenKind.END.value
        return fail(
            "LIR001",
            f"unexpected {found}",
            place=self.place(self._token),
            found=found,
            expected=expected,
            hint=hint,
        )

    def is_next(self, text: str) -> bool:
        """Return whether the next token is this punctuation or word."""
        return self._token.text == text

    def accept(self, text: str) -> bool:
        """Advance and return True if the next token is this punctuation or word."""
        if self._token.text != text:
            return False
        self.take()
        return True

    def expect(self, text: str, expected: str | None = None) -> Token:
        """Take this word or punctuation mark."""
        if self._token.text != text:
            raise self.make_error(expected or text)
        return self.take()

    def expect_word(self, expected: str) -> Token:
        """Take any word."""
        if self._token.kind is not TokenKind.WORD:
            raise self.make_error(expected)
        return self.take()

    def expect_name(self) -> Token:
        """Take a ``%name``; the token's text is the name without percent sign and quotes."""
        if self._token.kind is not TokenKind.NAME:
            raise self.make_error(TokenKind.NAME.value)
        text = self._token.text[1:]
        if text.startswith('"'):
            try:
                text = json.loads(text)
                text.encode()  # half a surrogate pair is no character
            except ValueError:
                raise self.make_error("a name in quotes, as JSON writes it") from None
        if not text:
            raise self.make_error("a name that is not empty")
        return self.take()._replace(text=text)

    def expect_function_name(self) -> str:
        """Take the name after ``function``, which Glow does not restrict."""
        if not _FUNCTION_NAME.fullmatch(self._token.text):
            raise self.make_error("the function's name")
        return self.take().text

    def expect_integer(self, expected: str = TokenKind.INT.value) -> int:
        """Take an integer of limited length."""
        if self._token.kind is not TokenKind.INT:
            raise self.make_error(expected)
        if len(self._token.text) > _MAX_DIGITS:
            raise self.make_error(f"an integer of at most {_MAX_DIGITS} digits")
        return int(self.take().text)

    def expect_number(self, expected: str = "a number") -> float:
        """Take a number with or without decimals."""
        if self._token.kind is TokenKind.INT:
            return float(self.expect_integer(expected))
        if self._token.kind is not TokenKind.FLOAT or len(self._token.text) > _MAX_FLOAT_TEXT:
            raise self.make_error(expected)
        return float(self.take().text)

    def expect_end(self) -> None:
        """Require the end of the line."""
        if self._token.kind is not TokenKind.END:
            raise self.make_error(TokenKind.END.value)

    def expect_declared_size(self) -> tuple[int, Place]:
        """Take the line ``; size = N bytes`` and return N and its position."""
        self.expect(";")
        self.expect("size", "; size = N bytes")
        self.expect("=")
        place = self.place(self._token)
        size = self.expect_integer()
        self.expect("bytes")
        self.expect_end()
        return size, place
