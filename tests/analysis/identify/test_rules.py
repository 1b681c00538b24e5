"""Every rule can be written as a formulas file; limits of sums and results change its formula."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nmpsim.analysis.identify.evaluation import evaluate_formula
from nmpsim.analysis.identify.limits import ArithmeticLimits
from nmpsim.analysis.identify.rules import RuleFamily, make_families
from nmpsim.bundle.formulas import parse_custom_formulas

BASES = {
    "float": ("float", "float"),
    "float64": ("q31", "q31"),
    "fixed point": ("q31", "q31"),
    "shift": ("glow-int", "glow_int"),
}
LIMITS = ArithmeticLimits(), ArithmeticLimits(16, True, (-127, 127)), ArithmeticLimits(18)


def check_formula(family: RuleFamily, limits: ArithmeticLimits) -> None:
    base, profile = BASES[family.factors[0].form]
    if family.place == "real":
        base, profile = "float-fbgemm", "fbgemm"
    sums, bias = limits.limit_formula(family.text), "bias" if family.place == "sum" else "0"
    text = f'name = "found"\nbase = "{base}"\n[{profile}]\nbias.int8 = "{bias}"\n'
    text += f"sums.int8 = {json.dumps(sums)}\n"
    parse_custom_formulas(text, "found.toml")


@pytest.mark.parametrize("limits", LIMITS)
def test_formulas_of_rules_are_valid(limits: ArithmeticLimits) -> None:
    for family in make_families(0)[::25]:
        check_formula(family, limits)


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
def test_formulas_of_all_rules_are_valid(limits: ArithmeticLimits) -> None:
    for family in make_families(0):
        check_formula(family, limits)


@pytest.mark.parametrize("wraps", [False, True])
def test_limits_change_sums_and_results(wraps: bool) -> None:
    limits = ArithmeticLimits(16, wraps, (-90, 90))
    sums = np.arange(-200000, 200000, 7)
    narrow = (sums + 32768) % 65536 - 32768 if wraps else np.clip(sums, -32768, 32767)
    np.testing.assert_array_equal(limits.limit_sums(sums), narrow)
    found = evaluate_formula(limits.limit_formula("acc >> 8"), 0, {"acc": sums})
    np.testing.assert_array_equal(found, np.clip(narrow >> 8, -90, 90))
