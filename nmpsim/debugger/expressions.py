"""Expressions over a stopped run: ``cycle < 3000 and saturation(conv1) == 0``.

Numbers, names, functions of names and numbers, ``+ - *``, comparisons, ``and``, ``or``, ``not`` and
parentheses. A recursive descent over tokens; nothing is executed but the look-ups given.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from nmpsim.diagnostics import UserError, fail

Number = int | float
Function = Callable[[Sequence[str]], Number]
"""Takes its arguments as they were written."""

_TOKEN = re.compile(
    r"\s*(?:(\d+\.\d+(?:e[+-]?\d+)?|0x[0-9a-fA-F]+|\d+)|([A-Za-z_][\w./:]*)|(==|!=|<=|>=|[-+*()<>,]))"
)
_COMPARE: Mapping[str, Callable[[Number, Number], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MAX_CHARACTERS = 1000
MAX_DEPTH = 50


def evaluate(text: str, functions: Mapping[str, Function]) -> Number:
    """The value of an expression; what is true is 1.

    A function is called with its arguments as text; one without arguments needs no parentheses.

    Raises:
        UserError: DEBUG001 if the text is no expression; what functions raise.
    """
    return _Parser(text, functions).whole()


class _Parser:
    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        self._text, self._functions = text, functions
        self._tokens = self._split(text)
        self._depth = 0

    def whole(self) -> Number:
        """All of it."""
        value = self._either()
        if self._tokens:
            raise self._wrong(f"there is too much: {self._tokens[0]!r}")
        return value

    def _split(self, text: str) -> list[str]:
        if len(text) > MAX_CHARACTERS:
            raise self._wrong(f"it has more than {MAX_CHARACTERS} characters")
        tokens, at = [], 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(f"{text[at:].strip()[:1]!r} is not understood")
            tokens.append(match[0].strip())
            at = match.end()
        return tokens

    def _either(self) -> Number:
        value = self._both()
        while self._take("or"):
            other = self._both()
            value = int(bool(value) or bool(other))
        return value

    def _both(self) -> Number:
        value = self._negation()
        while self._take("and"):
            other = self._negation()
            value = int(bool(value) and bool(other))
        return value

    def _negation(self) -> Number:
        if self._take("not"):
            return self._deeper(lambda: int(not self._negation()))
        return self._comparison()

    def _comparison(self) -> Number:
        value = self._sum()
        while self._tokens and self._tokens[0] in _COMPARE:
            compare = _COMPARE[self._tokens.pop(0)]
            value = int(compare(value, self._sum()))
        return value

    def _sum(self) -> Number:
        value = self._product()
        while self._tokens and self._tokens[0] in ("+", "-"):
            sign = 1 if self._tokens.pop(0) == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> Number:
        value = self._atom()
        while self._take("*"):
            value *= self._atom()
        return value

    def _atom(self) -> Number:
        token = self._next()
        if token == "-":
            return self._deeper(lambda: -self._atom())
        if token == "(":
            value = self._deeper(self._either)
            self._expect(")")
            return value
        if token[0].isdigit():
            return float(token) if "." in token else int(token, 0)
        if token in self._functions:
            return self._functions[token](self._arguments())
        raise self._wrong(f"{token!r} is not known")

    def _arguments(self) -> list[str]:
        """Words between parentheses, separated by commas; none without parentheses."""
        if not self._take("("):
            return []
        words: list[str] = []
        while not self._take(")"):
            if words:
                self._expect(",")
            sign = "-" if self._take("-") else ""
            words.append(sign + self._next())
        return words

    def _deeper(self, read: Callable[[], Number]) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong("it is nested too deeply")
        value = read()
        self._depth -= 1
        return value

    def _next(self) -> str:
        if not self._tokens:
            raise self._wrong("it ends too early")
        return self._tokens.pop(0)

    def _take(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"{token!r} is expected")

    def _wrong(self, message: str) -> UserError:
        names = ", ".join(self._functions)
        return fail(
            "DEBUG001",
            f"the expression is not understood: {message}",
            found=self._text[:200] or "nothing",
            expected=f"numbers, + - * == != < <= > >= and or not, {names}",
        )
