"""What an explanation is made of: terms, steps, a result."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.core.reference.events import LayerCounters, ResultPositions


class _NoAccount(LayerCounters):
    """Nothing is counted: this is only a look."""

    def __init__(self) -> None:
        pass

    def cut(self, *_: Any) -> None:
        """Forget it."""


def nowhere() -> ResultPositions:
    """The place of one value whose saturation is not counted."""
    return ResultPositions(_NoAccount(), np.zeros(1, np.int64))


@attrs.frozen
class Term:
    """One product of a sum, or one value of a window."""

    at: tuple[int, ...]
    """Row, column and channel of the window; of a matrix product the inner index."""
    address: int
    """Of the input, in the scratchpad."""
    input: float
    """Whole, unless it was only moved."""
    weight: int | None = None
    """Less its zero point; None where there are no weights."""
    weight_address: int | None = None

    @property
    def product(self) -> float:
        """What it adds."""
        return self.input if self.weight is None else self.input * self.weight


@attrs.frozen
class WhyStep:
    """One step from terms to result."""

    name: str
    formula: str
    value: float


@attrs.frozen
class Made:
    """All that made a result."""

    terms: tuple[Term, ...]
    steps: tuple[WhyStep, ...]
    result: float
    """What the arithmetic gives; the device wrote the same, or something is wrong with it."""


@attrs.frozen
class Element:
    """Which result of an instruction: where along each of its dimensions, without the innermost."""

    at: tuple[int, ...]
    """Row and pixel, or row, or nothing; of a transpose along all four."""
    channel: int
    """Number in the innermost run."""

    @property
    def y(self) -> int:
        """Row."""
        return self.at[0] if self.at else 0

    @property
    def x(self) -> int:
        """Pixel of the row."""
        return self.at[1] if len(self.at) > 1 else 0
