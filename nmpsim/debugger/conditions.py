"""Conditions as a user writes them: ``saturation in conv3 > 10``, ``hazard``, ``cycle 1000``.

A language of its own that only describes; nothing in it is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nmpsim.debugger.breakpoints import (
    AtAddress,
    AtCycle,
    AtLayer,
    Condition,
    OnDifference,
    OnHazard,
    OnSaturation,
    OnStall,
    OnTrap,
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
"""What may be said, as help shows it."""

FindLayer = Callable[[str], int]
FindAddress = Callable[[str], int]


def parse_condition(text: str, find_layer: FindLayer, find_address: FindAddress) -> Condition:
    """The condition that a text describes.

    Args:
        text: one of FORMS; words in lower case, numbers also as ``0x...``.
        find_layer: index of the layer that a word names.
        find_address: address that a word names.

    Raises:
        UserError: DEBUG001 if it is none; what the look-ups raise.
    """
    reader = _Reader(text, find_layer, find_address)
    condition = reader.condition()
    reader.end()
    return condition


class _Reader:
    def __init__(self, text: str, find_layer: FindLayer, find_address: FindAddress) -> None:
        self._text = text
        self._words: list[str] = re.findall(r">=|[>=]|[^\s>=]+", text)
        self._find_layer, self._find_address = find_layer, find_address

    def condition(self) -> Condition:
        """One of the forms."""
        kind = self._next("a condition")
        read: dict[str, Callable[[], Condition]] = {
            "layer": lambda: AtLayer(self._find_layer(self._next("a layer"))),
            "line": lambda: AtLayer(self._find_layer(f"line:{self._number('a line')}")),
            "address": self._address,
            "cycle": lambda: AtCycle(self._number("a cycle")),
            "trap": OnTrap,
            "hazard": OnHazard,
            "saturation": self._saturation,
            "stall": self._stall,
            "result": self._result,
        }
        if kind not in read:
            raise self._wrong(f"unknown condition {kind!r}")
        return read[kind]()

    def end(self) -> None:
        """Nothing may be left."""
        if self._words:
            raise self._wrong(f"there is too much: {' '.join(self._words)!r}")

    def _address(self) -> AtAddress:
        word = self._next("an address")
        address = self._find_address(word)
        return AtAddress(address, self._number("a core") if self._take("core") else None)

    def _saturation(self) -> OnSaturation:
        layer = self._find_layer(self._next("a layer")) if self._take("in") else None
        return OnSaturation(self._limit() if self._words else 0, layer)

    def _stall(self) -> OnStall:
        core = None
        if self._take("on"):
            self._expect("core")
            core = self._number("a core")
        limit = self._limit()
        self._take("cycles")
        return OnStall(limit, core)

    def _result(self) -> OnDifference:
        layer = self._find_layer(self._next("a layer")) if self._take("in", "of") else None
        self._expect("differs")
        if self._take("from"):
            self._take("the")
            self._expect("reference")
        limit = 0
        if self._take("by"):
            self._expect("more")
            self._expect("than")
            limit = self._number("units of the last place")
        return OnDifference(limit, layer)

    def _limit(self) -> int:
        """``> N`` or ``>= N``, as the number that must be exceeded."""
        sign = self._next("'>'")
        if sign not in (">", ">="):
            raise self._wrong(f"'>' is expected, not {sign!r}")
        return self._number("a number") - (1 if sign == ">=" else 0)

    def _number(self, what: str) -> int:
        word = self._next(what)
        try:
            return int(word, 0)
        except ValueError:
            raise self._wrong(f"{what} is expected, not {word!r}") from None

    def _take(self, *words: str) -> bool:
        if self._words and self._words[0] in words:
            self._words.pop(0)
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(f"{word!r} is expected")

    def _next(self, what: str) -> str:
        if not self._words:
            raise self._wrong(f"{what} is missing")
        return self._words.pop(0)

    def _wrong(self, message: str) -> UserError:
        return fail(
            "DEBUG001",
            f"the condition is not understood: {message}",
            found=self._text or "nothing",
            expected="one of: " + "; ".join(FORMS),
        )
