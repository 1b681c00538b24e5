"""LIR text to tokens, one line at a time.

The text is line oriented and nothing in it spans lines, so a parser asks for the tokens of one
line and, after an error, goes on with the next. Tokens are made only when asked for: a line of
garbage costs nothing once it is given up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

PLAIN_NAME = r"[\w.$-]++"
"""A name that stands in the text as it is; another one stands in double quotes, as JSON has it."""


class TokenKind(Enum):
    """What a token is; the value is its name in messages."""

    NAME = "a name such as %x"
    AT = "an operand kind such as @in"
    FLOAT = "a number with decimals"
    INT = "an integer"
    WORD = "a word"
    PUNCT = "punctuation"
    BAD = "unknown text"
    END = "end of line"


class Token(NamedTuple):
    """A piece of one line; ``column`` is 1-based."""

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
    """The lines of a text, without a byte order mark; a ``\\r`` at an end is left as a blank."""
    return text.removeprefix("\ufeff").split("\n")


def tokens(line: str) -> Iterator[Token]:
    """The tokens of one line, comments and blanks left out; the last one is END."""
    end = len(line.rstrip(" \t\r"))
    for match in _TOKEN.finditer(line, 0, end):
        group = match.lastgroup
        if group == "comment":
            end = len(line[: match.start()].rstrip(" \t\r"))
            break
        if group is not None and group != "blank":
            yield Token(TokenKind[group], match.group(), match.start() + 1)
    yield Token(TokenKind.END, "", end + 1)
