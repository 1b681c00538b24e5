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

from nmpsim.diagnostics import Place, UserError, fail, quote
from nmpsim.lir.nodes import SourcePosition

PLAIN_NAME = r"[\w.$-]++"
"""Pattern of a name without quotes; other names are in double quotes, as in JSON."""


class TokenKind(Enum):
    """Kind of a token; the value is the kind's description in error messages."""

    NAME = "a name such as %x"
    AT = "an operand kind such as @in"
    FLOAT = "a number with decimals"
    INT = "an integer"
    WORD = "a word"
    PUNCT = "punctuation"
    BAD = "unknown text"
    END = "end of line"


class LirToken(NamedTuple):
    """Token of a line of LIR text, with its 1-based column."""

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
    """Split a text into lines and remove a byte order mark at its beginning."""
    return text.removeprefix("\ufeff").split("\n")


def tokenize_line(line: str) -> Iterator[LirToken]:
    """Yield the tokens of a line, except comments and blanks, and a final END token."""
    end = len(line.rstrip(" \t\r"))
    for match in _TOKEN.finditer(line, 0, end):
        group = match.lastgroup
        if group == "comment":
            end = len(line[: match.start()].rstrip(" \t\r"))
            break
        if group is not None and group != "blank":
            yield LirToken(TokenKind[group], match.group(), match.start() + 1)
    yield LirToken(TokenKind.END, "", end + 1)


_MAX_DIGITS = 18
"""Longest integer; a longer one must not reach Python's int()."""
_MAX_FLOAT_TEXT = 400
_FUNCTION_NAME = re.compile(r"[\w.$+/-]+", re.ASCII)


class LineCursor:
    """Cursor over the tokens of a line; its methods raise UserError for an unexpected token."""

    def __init__(self, text: str, number: int, file: str | None) -> None:
        self._text = text
        self._number = number
        self._file = file
        self._tokens = tokenize_line(text)
        self._token = next(self._tokens)

    def peek(self) -> LirToken:
        """Return the next token without advancing, or an END token at the end of the line."""
        return self._token

    def advance(self) -> LirToken:
        """Return the next token and move past it."""
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._tokens)
        return token

    def starts_with(self, word: str) -> bool:
        """Return whether the first token of the line is ``word``."""
        return next(tokenize_line(self._text)).text == word

    def get_position(self, token: LirToken) -> SourcePosition:
        """Return the line and column of a token."""
        return SourcePosition(self._number, token.column)

    def get_place(self, token: LirToken) -> Place:
        """Return the file, line and column of a token for a message."""
        return Place(self._file, self._number, token.column)

    def make_error(self, expected: str, hint: str | None = None) -> UserError:
        """Return a UserError (LIR001) that reports the next token and the expected text."""
        found = quote(self._token.text) or TokenKind.END.value
        return fail(
            "LIR001",
            f"unexpected {found}",
            place=self.get_place(self._token),
            found=found,
            expected=expected,
            hint=hint,
        )

    def is_next(self, text: str) -> bool:
        """Return whether the text of the next token is ``text``."""
        return self._token.text == text

    def accept(self, text: str) -> bool:
        """Move past the next token and return True if its text is ``text``, else return False."""
        if self._token.text != text:
            return False
        self.advance()
        return True

    def expect(self, text: str, expected: str | None = None) -> LirToken:
        """Return the next token and move past it; raise UserError if its text is not ``text``."""
        if self._token.text != text:
            raise self.make_error(expected or text)
        return self.advance()

    def expect_word(self, expected: str) -> LirToken:
        """Return the next token and move past it; raise UserError unless the token is a word."""
        if self._token.kind is not TokenKind.WORD:
            raise self.make_error(expected)
        return self.advance()

    def expect_name(self) -> LirToken:
        """Return the next token, a ``%name``, without percent sign and quotes, and move past it."""
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
        return self.advance()._replace(text=text)

    def expect_function_name(self) -> str:
        """Return the next function name and move past it; raise UserError for other tokens."""
        if not _FUNCTION_NAME.fullmatch(self._token.text):
            raise self.make_error("the function's name")
        return self.advance().text

    def expect_integer(self, expected: str = TokenKind.INT.value) -> int:
        """Return the next integer and move past it; raise UserError if it is not an integer."""
        if self._token.kind is not TokenKind.INT:
            raise self.make_error(expected)
        if len(self._token.text) > _MAX_DIGITS:
            raise self.make_error(f"an integer of at most {_MAX_DIGITS} digits")
        return int(self.advance().text)

    def expect_number(self, expected: str = "a number") -> float:
        """Return the next number and move past it; raise UserError if it is not a number."""
        if self._token.kind is TokenKind.INT:
            return float(self.expect_integer(expected))
        if self._token.kind is not TokenKind.FLOAT or len(self._token.text) > _MAX_FLOAT_TEXT:
            raise self.make_error(expected)
        return float(self.advance().text)

    def expect_end(self) -> None:
        """Raise UserError (LIR001) unless the line is at its end."""
        if self._token.kind is not TokenKind.END:
            raise self.make_error(TokenKind.END.value)

    def expect_declared_size(self) -> tuple[int, Place]:
        """Parse the line ``; size = N bytes`` and return N and the position of N."""
        self.expect(";")
        self.expect("size", "; size = N bytes")
        self.expect("=")
        place = self.get_place(self._token)
        size = self.expect_integer()
        self.expect("bytes")
        self.expect_end()
        return size, place
