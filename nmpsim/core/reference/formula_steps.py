"""Arithmetic as a sequence of named steps, for whoever wants the result or the way to it.

A formula is a generator of :class:`FormulaStep`; the last one's value is its result, which it also
returns. The engine takes :func:`result_of` it; the debugger's ``why`` prints every step.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np


class FormulaStep(NamedTuple):
    """One step, of any number of values at once."""

    name: str
    value: Any
    """int64, or float32 [...]"""
    formula: str
    """With the names of ``numbers`` in braces, as ``str.format`` takes them."""
    numbers: Mapping[str, Any]
    """Each a number, or one for each value."""
    exact: Any
    """The values before they saturated; None where none can."""


Steps: TypeAlias = Generator[FormulaStep, None, Any]


def step(name: str, value: Any, formula: str, exact: Any = None, **numbers: Any) -> FormulaStep:
    """A step; ``numbers`` are those that ``formula`` names."""
    return FormulaStep(name, value, formula, numbers, exact)


def result_of(steps: Steps) -> Any:
    """The last step's value. Infinities and what is no number are results like any other."""
    with np.errstate(all="ignore"):
        for one in steps:
            value = one.value
    return value


def of_side(side: str, steps: Steps) -> Steps:
    """The steps, named as those of one of two operands."""
    for one in steps:
        yield one._replace(name=f"{side} {one.name}")
    return one.value
