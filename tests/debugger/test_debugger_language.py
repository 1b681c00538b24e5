"""Test conditions and expressions, and refuse everything else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    parse_condition,
)
from nmpsim.debugger.expressions import evaluate
from nmpsim.diagnostics import UserError

LAYERS = {"conv3": 3, "line:40": 7}
ADDRESSES = {"0x80000010": 0x8000_0010, "0x10": 16}


def parse_text(text: str) -> Condition:
    return parse_condition(text, LAYERS.__getitem__, ADDRESSES.__getitem__)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("layer conv3", LayerCondition(3)),
        ("line 40", LayerCondition(7)),
        ("address 0x80000010 core 2", AddressCondition(0x8000_0010, 2)),
        ("address 0x10", AddressCondition(16)),
        ("cycle 1000", CycleCondition(1000)),
        ("trap", TrapCondition()),
        ("hazard", HazardCondition()),
        ("saturation", SaturationCondition()),
        ("saturation in conv3 > 10", SaturationCondition(10, 3)),
        ("saturation in conv3>=10", SaturationCondition(9, 3)),
        ("stall > 1000 cycles", StallCondition(1000)),
        ("stall on core 4 > 50", StallCondition(50, 4)),
        ("result differs", DifferenceCondition()),
        ("result differs from reference by more than 1", DifferenceCondition(1)),
        ("result of conv3 differs from the reference", DifferenceCondition(0, 3)),
    ],
)
def test_conditions_are_evaluated(text: str, condition: Condition) -> None:
    assert parse_text(text) == condition


@pytest.mark.parametrize(
    "text", ["", "layer", "cycle x", "stall 5", "saturation > 1 2", "__import__('os')", "result"]
)
def test_an_invalid_condition_lists_valid_conditions(text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_text(text)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "DEBUG001"
    assert "saturation [in LAYER]" in (diagnostic.expected or "")


FUNCTIONS = {"cycle": lambda _: 500, "value": lambda words: int(words[1])}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * -3", -9),
        ("cycle < 1000 and not cycle == 3", 1),
        ("cycle > 1000 or 0x10 == 16", 1),
        ("value(a.b, -5) == -5", 1),
        ("0.5 * 4", 2.0),
        ("2 - 1 - 1", 0),
    ],
)
def test_expressions_are_evaluated(text: str, value: float) -> None:
    assert evaluate(text, FUNCTIONS) == value


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "x", "cycle.__class__", "(((", "1 2", "007", "'a'", "(" * 5000, "-" * 900 + "1"],
)
def test_an_invalid_expression_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="DEBUG001"):
        evaluate(text, FUNCTIONS)


@given(st.text(max_size=40))
def test_no_text_does_harm(text: str) -> None:
    for read in (parse_text, lambda text: evaluate(text, FUNCTIONS)):
        with suppress(UserError, KeyError):
            read(text)
