"""Two small languages: conditions of breakpoints, and expressions over a stopped run.

A condition is written as in ``saturation in conv3 > 10``, ``hazard`` or ``cycle 1000``; an
expression as in ``cycle < 3000 and saturation(conv1) == 0``. Expressions have numbers, names,
functions of names and numbers, ``+ - *``, comparisons, ``and``, ``or``, ``not`` and parentheses.
Only the look-up functions that the caller passes are executed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from nmpsim.debugger.breakpoints import (
    AddressCondition,
    Condition,
    CycleCondition,
    DifferenceCondition,
    HazardCondition,
    LayerCondition,
    SaturationCondition,
    StallCondition,
    TrapCondition,
)
from nmpsim.diagnostics import UserError, fail

FORMS = (
    "layer NAME|NUMBER",
    "line N",
    "address A [core C]",
    "cycle N",
    "trap",
    "hazard",
    "saturation [in LAYER] [> N]",
    "stall [on core C] > N [cycles]",
    "result [in LAYER] differs [from reference] [by more than N]",
)
"""Forms of a condition, as the help shows them."""

FindLayer = Callable[[str], int]
FindAddress = Callable[[str], int]
Number = int | float
Function = Callable[[Sequence[str]], Number]
"""Function of an expression; its arguments are passed as they were written."""

MAX_CHARACTERS = 1000
MAX_DEPTH = 50
_TOKEN = re.compile(
    r"\s*(?:(\d+\.\d+(?:e[+-]?\d+)?|0x[0-9a-fA-F]+|\d+)|([A-Za-z_][\w./:]*)|(==|!=|<=|>=|[-+*()<>,]))"
)
_OPERATORS: tuple[Mapping[str, Callable[[Number, Number], Number]], ...] = (
    {"or": lambda left, right: bool(left) or bool(right)},
    {"and": lambda left, right: bool(left) and bool(right)},
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul},
)
"""Binary operators by precedence, the weakest first."""
_NOT_PRECEDENCE = 2


def parse_condition(text: str, find_layer: FindLayer, find_address: FindAddress) -> Condition:
    """Return the condition that a text describes.

    Parameters
    ----------
    text : str
        One of FORMS; words in lower case, numbers also as ``0x...``.
    find_layer : callable
        Returns the index of the layer that a word names.
    find_address : callable
        Returns the address that a word names.

    Raises
    ------
    UserError
        DEBUG001 if the text is no condition; whatever the look-ups raise.
    """
    return _ConditionParser(text, find_layer, find_address).parse()


def evaluate(text: str, functions: Mapping[str, Function]) -> Number:
    """Return the value of an expression; true is 1 and false is 0.

    A function without arguments needs no parentheses.

    Raises
    ------
    UserError
        DEBUG001 if the text is no expression; whatever the functions raise.
    """
    return _ExpressionParser(text, functions).parse()


class _Parser:
    kind = ""

    def __init__(self, text: str, expected: str) -> None:
        self._text, self._expected = text, expected
        self._tokens: list[str] = []

    def _next(self, what: str) -> str:
        if not self._tokens:
            raise self._error(f"{what} is missing")
        return self._tokens.pop(0)

    def _take(self, *tokens: str) -> bool:
        """Consume the next token if it is one of these."""
        if self._tokens and self._tokens[0] in tokens:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self._take(token):
                raise self._error(f"{token!r} is expected")

    def _expect_end(self) -> None:
        if self._tokens:
            raise self._error(f"there is too much: {' '.join(self._tokens)!r}")

    def _error(self, message: str) -> UserError:
        return fail(
            "DEBUG001",
            f"the {self.kind} is not understood: {message}",
            found=self._text[:200] or "nothing",
            expected=self._expected,
        )


class _ConditionParser(_Parser):
    kind = "condition"

    def __init__(self, text: str, find_layer: FindLayer, find_address: FindAddress) -> None:
        super().__init__(text, "one of: " + "; ".join(FORMS))
        self._tokens = re.findall(r">=|[>=]|[^\s>=]+", text)
        self._find_layer, self._find_address = find_layer, find_address

    def parse(self) -> Condition:
        parsers: dict[str, Callable[[], Condition]] = {
            "layer": lambda: LayerCondition(self._layer()),
            "line": lambda: LayerCondition(self._find_layer(f"line:{self._number('a line')}")),
            "address": self._address,
            "cycle": lambda: CycleCondition(self._number("a cycle")),
            "trap": TrapCondition,
            "hazard": HazardCondition,
            "saturation": self._saturation,
            "stall": self._stall,
            "result": self._result,
        }
        kind = self._next("a condition")
        if kind not in parsers:
            raise self._error(f"unknown condition {kind!r}")
        condition = parsers[kind]()
        self._expect_end()
        return condition

    def _layer(self) -> int:
        return self._find_layer(self._next("a layer"))

    def _address(self) -> AddressCondition:
        address = self._find_address(self._next("an address"))
        return AddressCondition(address, self._number("a core") if self._take("core") else None)

    def _saturation(self) -> SaturationCondition:
        layer = self._layer() if self._take("in") else None
        return SaturationCondition(self._limit() if self._tokens else 0, layer)

    def _stall(self) -> StallCondition:
        core = None
        if self._take("on"):
            self._expect("core")
            core = self._number("a core")
        limit = self._limit()
        self._take("cycles")
        return StallCondition(limit, core)

    def _result(self) -> DifferenceCondition:
        layer = self._layer() if self._take("in", "of") else None
        self._expect("differs")
        if self._take("from"):
            self._take("the")
            self._expect("reference")
        limit = 0
        if self._take("by"):
            self._expect("more", "than")
            limit = self._number("units of the last place")
        return DifferenceCondition(limit, layer)

    def _limit(self) -> int:
        """Parse ``> N`` or ``>= N`` and return the number that must be exceeded."""
        sign = self._next("'>'")
        if sign not in (">", ">="):
            raise self._error(f"'>' is expected, not {sign!r}")
        return self._number("a number") - (1 if sign == ">=" else 0)

    def _number(self, what: str) -> int:
        word = self._next(what)
        try:
            return int(word, 0)
        except ValueError:
            raise self._error(f"{what} is expected, not {word!r}") from None


class _ExpressionParser(_Parser):
    kind = "expression"

    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        names = ", ".join(functions)
        super().__init__(text, f"numbers, + - * == != < <= > >= and or not, {names}")
        self._functions = functions
        self._depth = 0

    def parse(self) -> Number:
        self._tokens = self._split(self._text)
        value = self._operation()
        self._expect_end()
        return value

    def _split(self, text: str) -> list[str]:
        if len(text) > MAX_CHARACTERS:
            raise self._error(f"it has more than {MAX_CHARACTERS} characters")
        tokens, at = [], 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"{text[at:].strip()[:1]!r} is not understood")
            tokens.append(match[0].strip())
            at = match.end()
        return tokens

    def _operation(self, precedence: int = 0) -> Number:
        """Evaluate operators of this precedence and of stronger ones."""
        if precedence == len(_OPERATORS):
            return self._operand()
        if precedence == _NOT_PRECEDENCE and self._take("not"):
            return self._nest(lambda: int(not self._operation(precedence)))
        value = self._operation(precedence + 1)
        while self._tokens and self._tokens[0] in _OPERATORS[precedence]:
            apply = _OPERATORS[precedence][self._tokens.pop(0)]
            value = +apply(value, self._operation(precedence + 1))  # + makes an int of a bool
        return value

    def _operand(self) -> Number:
        token = self._next("an operand")
        if token == "-":
            return self._nest(lambda: -self._operand())
        if token == "(":
            value = self._nest(self._operation)
            self._expect(")")
            return value
        if token[0].isdigit():
            return float(token) if "." in token else int(token, 0)
        if token in self._functions:
            return self._functions[token](self._arguments())
        raise self._error(f"{token!r} is not known")

    def _arguments(self) -> list[str]:
        """Return the comma-separated words in parentheses; none without parentheses."""
        if not self._take("("):
            return []
        words: list[str] = []
        while not self._take(")"):
            if words:
                self._expect(",")
            sign = "-" if self._take("-") else ""
            words.append(sign + self._next("an argument"))
        return words

    def _nest(self, read: Callable[[], Number]) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("it is nested too deeply")
        value = read()
        self._depth -= 1
        return value
