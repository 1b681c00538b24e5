"""A tensor as a stack of planes that fit a screen: channels of rows and columns."""

from __future__ import annotations

import math
from typing import Any, Literal

import attrs
import numpy as np

from nmpsim.debugger.operands import Operand, Values

FILTER = "Filter"
"""Role of weights whose first dimension is the output channel."""


@attrs.frozen(eq=False)
class Planes:
    """An operand and where its elements are on the screen."""

    operand: Operand
    is_channel_first: bool = False
    is_difference: bool = False
    """Is it the distance from a reference, where only what is not 0 counts?"""
    values: Values = attrs.field(init=False)
    """[channels, rows, columns]"""
    spread: tuple[float, float] = attrs.field(init=False)
    """Smallest and largest value."""
    limits: tuple[int, int] | None = attrs.field(init=False)
    """Lowest and highest value that its type can hold; None for float."""

    @values.default
    def _by_channel(self) -> Values:
        values = self.operand.values
        if values.ndim < 3:
            return values.reshape(1, -1, values.shape[-1] if values.ndim else 1)
        if self.is_channel_first:
            return values.reshape(values.shape[0], *map(math.prod, self._channel_shape()))
        channels, columns = values.shape[-1], values.shape[-2]
        rows = int(np.prod(values.shape[:-2]))
        return np.ascontiguousarray(np.moveaxis(values.reshape(rows, columns, channels), -1, 0))

    @spread.default
    def _spread(self) -> tuple[float, float]:
        return finite_range(self.operand.values)

    @limits.default
    def _limits(self) -> tuple[int, int] | None:
        if self.values.dtype.kind not in "iu":
            return None
        info = np.iinfo(self.values.dtype)
        return int(info.min), int(info.max)

    def side(self, value: Any) -> Literal["low", "high", ""]:
        """At which end of the range is a value? Of a difference its sign."""
        if self.is_difference:
            return "low" if value < 0 else "high" if value > 0 else ""
        if self.limits is None:
            return ""
        low, high = self.limits
        return "low" if value == low else "high" if value == high else ""

    def coordinates(self, channel: int, row: int, column: int) -> tuple[int, ...]:
        """Of an element, in the tensor's logical shape."""
        shape = self.operand.values.shape
        if len(shape) < 3:
            return (row, column)[2 - len(shape) :] if shape else ()
        if self.is_channel_first:
            rows, columns = self._channel_shape()
            return (channel, *_unravel(row, rows), *_unravel(column, columns))
        return (*_unravel(row, shape[:-2]), column, channel)

    def position(self, at: tuple[int, ...]) -> tuple[int, int, int]:
        """Channel, row and column of an element that lies inside."""
        shape = self.operand.values.shape
        if len(shape) < 3:
            row, column = (0, 0, *at)[-2:]
            return 0, row, column
        if self.is_channel_first:
            rows, columns = self._channel_shape()
            return at[0], _ravel(at[1 : 1 + len(rows)], rows), _ravel(at[1 + len(rows) :], columns)
        return at[-1], _ravel(at[:-2], shape[:-2]), at[-2]

    def holds(self, at: tuple[int, ...]) -> bool:
        """Is there such an element?"""
        shape = self.operand.values.shape
        return len(at) == len(shape) and all(0 <= i < n for i, n in zip(at, shape, strict=True))

    def _channel_shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Dimensions that are rows and columns of weights; one input channel needs no column."""
        shape = self.operand.values.shape
        split = 2 if shape[-1] == 1 else len(shape) - 1
        return shape[1:split], shape[split:]


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(index, shape))


def _ravel(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(at, shape)) if shape else 0


def finite_range(values: Values) -> tuple[float, float]:
    """Smallest and largest number; 0 and 0 if there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
