"""Formulas of the reference engine as steps that can be read, each with its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaStep, Steps
from nmpsim.debugger.arithmetic.records import WhyStep


def why_steps(steps: Steps) -> tuple[WhyStep, ...]:
    """The steps of a formula of one value."""
    with np.errstate(all="ignore"):
        return tuple(why_step(one) for one in steps)


def why_step(step: FormulaStep) -> WhyStep:
    """One step of one value, with its numbers."""
    value = number(step.value)
    formula = step.formula.format_map({name: number(n) for name, n in step.numbers.items()})
    if step.exact is not None and number(step.exact) != value:
        formula += f" = {number(step.exact)}, saturated"
    return WhyStep(step.name, formula, value)


def number(value: Any) -> Any:
    """The only number of an array, or what is none."""
    return value if isinstance(value, str) else np.asarray(value).reshape(-1)[:1].tolist()[0]
