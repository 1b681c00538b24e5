"""A cursor over the tokens of one line, with the messages for what does not fit."""

from __future__ import annotations

import json
import re

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.lir.lexer import Token, TokenKind, tokens
from nmpsim.lir.messages import quote
from nmpsim.lir.nodes import Span

_MAX_DIGITS = 18
"""A longer integer means nothing here, and must not reach Python's int()."""
_MAX_FLOAT_TEXT = 400
_FUNCTION_NAME = re.compile(r"[\w.$+/-]+", re.ASCII)


class Line:
    """The tokens of one line of text; each method takes one or raises ``UserError``."""

    def __init__(self, text: str, number: int, file: str | None) -> None:
        self._text = text
        self._number = number
        self._file = file
        self._tokens = tokens(text)
        self._token = next(self._tokens)

    def peek(self) -> Token:
        """The next token; END at the end of the line."""
        return self._token

    def take(self) -> Token:
        """The next token, and go past it."""
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._tokens)
        return token

    def starts(self, word: str) -> bool:
        """Whether this is the first word of the line, wherever the cursor stands."""
        return next(tokens(self._text)).text == word

    def span(self, token: Token) -> Span:
        """Where a token of this line is."""
        return Span(self._number, token.column)

    def place(self, token: Token) -> Place:
        """Where a token of this line is, for a message."""
        return Place(self._file, self._number, token.column)

    def unexpected(self, expected: str, hint: str | None = None) -> UserError:
        """The error that the next token is not what it should be."""
        found = quote(self._token.text) or TokenKind.END.value
        return fail(
            "LIR001",
            f"unexpected {found}",
            place=self.place(self._token),
            found=found,
            expected=expected,
            hint=hint,
        )

    def at(self, text: str) -> bool:
        """Whether the next token is this punctuation or word."""
        return self._token.text == text

    def accept(self, text: str) -> bool:
        """Go past this punctuation or word, if it is the next token."""
        if self._token.text != text:
            return False
        self.take()
        return True

    def punctuation(self, text: str) -> Token:
        """This punctuation mark."""
        if self._token.text != text:
            raise self.unexpected(text)
        return self.take()

    def word(self, text: str, expected: str | None = None) -> Token:
        """This very word."""
        if self._token.text != text:
            raise self.unexpected(expected or text)
        return self.take()

    def any_word(self, expected: str) -> Token:
        """Some word."""
        if self._token.kind is not TokenKind.WORD:
            raise self.unexpected(expected)
        return self.take()

    def name(self) -> Token:
        """A ``%name``; the text of the token is the name, without percent sign and quotes."""
        if self._token.kind is not TokenKind.NAME:
            raise self.unexpected(TokenKind.NAME.value)
        text = self._token.text[1:]
        if text.startswith('"'):
            try:
                text = json.loads(text)
                text.encode()  # half a surrogate pair is no character
            except ValueError:
                raise self.unexpected("a name in quotes, as JSON writes it") from None
        if not text:
            raise self.unexpected("a name that is not empty")
        return self.take()._replace(text=text)

    def function_name(self) -> str:
        """The name after ``function``; Glow does not restrict it, a path is possible."""
        if not _FUNCTION_NAME.fullmatch(self._token.text):
            raise self.unexpected("the function's name")
        return self.take().text

    def integer(self, expected: str = TokenKind.INT.value) -> int:
        """An integer of a sane length."""
        if self._token.kind is not TokenKind.INT:
            raise self.unexpected(expected)
        if len(self._token.text) > _MAX_DIGITS:
            raise self.unexpected(f"an integer of at most {_MAX_DIGITS} digits")
        return int(self.take().text)

    def real(self, expected: str = "a number") -> float:
        """A number with or without decimals."""
        if self._token.kind is TokenKind.INT:
            return float(self.integer(expected))
        if self._token.kind is not TokenKind.FLOAT or len(self._token.text) > _MAX_FLOAT_TEXT:
            raise self.unexpected(expected)
        return float(self.take().text)

    def end(self) -> None:
        """The end of the line."""
        if self._token.kind is not TokenKind.END:
            raise self.unexpected(TokenKind.END.value)

    def declared_size(self) -> tuple[int, Place]:
        """The line ``; size = N bytes``: N and where it is."""
        self.punctuation(";")
        self.word("size", "; size = N bytes")
        self.punctuation("=")
        place = self.place(self._token)
        size = self.integer()
        self.word("bytes")
        self.end()
        return size, place
