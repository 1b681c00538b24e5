"""Arguments of a command, consumed word by word."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TypeVar

from nmpsim.diagnostics import UserError, fail

Choice = TypeVar("Choice", bound=str)


def split_line(line: str) -> list[str]:
    """Split a command line into words as a shell does; ``#`` starts a comment.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG001 for a quote that is not closed.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise fail(
            "DEBUG001", f"the command line is incomplete: {error}", found=line.strip()
        ) from None


class Arguments:
    """Parser of the words after a command; errors are UserError (DEBUG001)."""

    def __init__(self, words: Sequence[str], usage: str) -> None:
        self._words = list(words)
        self._usage = usage

    def __bool__(self) -> bool:
        return bool(self._words)

    def take_text(self) -> str:
        """Consume all remaining words and return them as one text."""
        text = " ".join(self._words)
        self._words = []
        return text

    def take_word(self, what: str) -> str:
        """Consume and return the next word; an error message calls it ``what``."""
        if not self._words:
            raise self.make_error(f"{what} is missing")
        return self._words.pop(0)

    def take_flag(self, *names: str) -> bool:
        """Consume the first of the given words that occurs anywhere; return whether one does."""
        for name in names:
            if name in self._words:
                self._words.remove(name)
                return True
        return False

    def take_choice(self, choices: Sequence[Choice], default: Choice) -> Choice:
        """Consume an abbreviation of one of ``choices`` and return the choice, or ``default``."""
        if not self._words or not self._words[0][:1].isalpha():
            return default
        found = [name for name in choices if name.startswith(self._words[0])]
        exact = [name for name in found if name == self._words[0]]
        if not exact and len(found) != 1:
            return default
        self._words.pop(0)
        return (exact or found)[0]

    def take_option(self, name: str) -> str | None:
        """Consume ``name`` and the next word; return the next word, or None without ``name``."""
        if name not in self._words:
            return None
        index = self._words.index(name)
        if index + 1 >= len(self._words):
            raise self.make_error(f"the argument after {name!r} is missing")
        value = self._words.pop(index + 1)
        self._words.pop(index)
        return value

    def take_text_after(self, name: str) -> str:
        """Consume ``name`` and all words after it; return the words after it as one text."""
        if name not in self._words:
            return ""
        index = self._words.index(name)
        text = " ".join(self._words[index + 1 :])
        if not text:
            raise self.make_error(f"the argument after {name!r} is missing")
        self._words = self._words[:index]
        return text

    def take_integer(self, what: str, default: int | None = None) -> int:
        """Consume the next word and return it as an integer, decimal or ``0x...``."""
        if not self._words and default is not None:
            return default
        return self.parse_integer(self.take_word(what), what)

    def take_integer_option(self, name: str) -> int | None:
        """Consume ``name`` and an integer; return the integer, or None without ``name``."""
        word = self.take_option(name)
        return None if word is None else self.parse_integer(word, name)

    def parse_integer(self, word: str, what: str) -> int:
        """Parse an integer; an error message calls it ``what``."""
        try:
            return int(word, 0)
        except ValueError:
            raise self.make_error(f"{what} must be a whole number", word) from None

    def take_real(self, what: str) -> float:
        """Consume the next word and return it as a real number."""
        word = self.take_word(what)
        try:
            return float(word)
        except ValueError:
            raise self.make_error(f"{what} must be a number", word) from None

    def take_reals(self, what: str) -> list[float]:
        """Consume and return one or more real numbers, separated by spaces or commas."""
        self._words = self.take_text().replace(",", " ").split() or [self.take_word(what)]
        return [self.take_real("each coordinate and the value") for _ in range(len(self._words))]

    def take_coordinates(self) -> tuple[int, ...]:
        """Consume and return coordinates, such as ``1 2 3``, ``1,2,3`` or ``[1, 2, 3]``."""
        text = self.take_text().strip("[]()").replace(",", " ")
        return tuple(self.parse_integer(word, "a coordinate") for word in text.split())

    def expect_end(self) -> None:
        """Raise UserError (DEBUG001) if words remain."""
        if self._words:
            raise self.make_error("the command has too many arguments", " ".join(self._words))

    def make_error(self, message: str, found: str | None = None) -> UserError:
        """Return a UserError (DEBUG001) that also shows the usage of the command."""
        return fail("DEBUG001", message, found=found, expected=self._usage)
