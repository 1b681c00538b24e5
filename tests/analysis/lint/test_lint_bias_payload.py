"""A bias whose declared type was changed while its payload was not, found in three ways."""

from __future__ import annotations

import numpy as np
import pytest
from lint_programs import (
    dense_layers,
    findings,
    list_biases,
    one_convolution,
    redeclare_biases,
    requantize_biases,
)

from nmpsim.analysis.lint import LintSubject
from nmpsim.analysis.lint.subject import OriginalBias
from nmpsim.analysis.program import Program
from nmpsim.lir.nodes import Module

S_PRODUCTS = float(np.float32(0.05) * np.float32(0.02))
FLOATS = np.array([0.4, -0.25, 0.1, 0.02, -0.31, 0.27, 0.05, -0.12])
"""The forum's kind of bias: small beside results of up to 12.7."""
NAME = "const__3"


def quantize(scale: float, dtype: type = np.int32) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(FLOATS / scale), limits.min, limits.max).astype(dtype)


def make_correct() -> Module:
    """Return a program with biases on the scale of input times weights, as Glow makes it."""
    return one_convolution(quantize(S_PRODUCTS), S_PRODUCTS)


def make_redeclared() -> Module:
    """Return a convolution with the result's type as bias type and an unchanged payload."""
    return redeclare_biases(make_correct(), list_biases(make_correct()))


def make_requantized() -> Module:
    """Return the program with requantized payloads."""
    return requantize_biases(make_correct(), list_biases(make_correct()))


def original(payload: np.ndarray | None, scale: float, offset: int = 0) -> OriginalBias:
    integers = None if payload is None else payload.astype(np.int64)
    return OriginalBias(integers, np.array([scale]), np.array([offset]))


ORIGINAL = {NAME: original(quantize(S_PRODUCTS), S_PRODUCTS)}
REFERENCES = {
    "nothing": {},
    "float": {"float_weights": {NAME: FLOATS.astype(np.float32)}},
    "original": {"original": ORIGINAL},
    "original without its type": {
        "original": {NAME: OriginalBias(quantize(S_PRODUCTS).astype(np.int64), None, None)}
    },
    "original known by its digest": {"original": {NAME: original(None, S_PRODUCTS)}},
}


@pytest.mark.parametrize("references", REFERENCES.values(), ids=REFERENCES)
def test_a_changed_type_without_payload_is_found(references: dict[str, object]) -> None:
    (finding,) = findings(make_redeclared(), **references)
    assert (finding.severity, finding.tensor) == ("error", NAME)
    assert finding.layer.startswith("convolution")
    assert "--rescale-bias" in finding.hint


@pytest.mark.parametrize("references", REFERENCES.values(), ids=REFERENCES)
def test_correct_biases_give_no_finding(references: dict[str, object]) -> None:
    assert findings(make_correct(), **references) == []


@pytest.mark.parametrize("case", ["nothing", "float", "original"])
def test_a_requantized_payload_gives_no_finding(case: str) -> None:
    assert findings(make_requantized(), **REFERENCES[case]) == []


def test_the_factor_is_reported() -> None:
    factor = float(np.float32(0.1)) / S_PRODUCTS
    for case in ("float", "original"):
        (finding,) = findings(make_redeclared(), **REFERENCES[case])
        assert finding.facts["factor"] == pytest.approx(factor, rel=0.01)


# by a float reference


@pytest.mark.parametrize(
    "name", [NAME, f"const/{NAME}", "const", "a/model.bias", "anything"], ids=str
)
def test_the_float_bias_is_found_by_name_or_direction(name: str) -> None:
    arrays = {
        "other": np.arange(8.0),
        "const.weights": np.ones((8, 8)),
        name: FLOATS.astype(np.float32),
    }
    (finding,) = findings(make_redeclared(), float_weights=arrays)
    assert finding.facts["evidence"] == "float"
    assert finding.facts["source"] == name


def test_plausibility_replaces_a_missing_float_bias() -> None:
    (finding,) = findings(make_redeclared(), float_weights={"other": np.arange(8.0)})
    assert finding.facts["evidence"] == "beyond"


def test_other_float_values_are_a_warning() -> None:
    (finding,) = findings(make_correct(), float_weights={NAME: FLOATS[::-1]})
    assert finding.severity == "warning"
    assert "batch norm" in finding.hint


@pytest.mark.parametrize("name", [NAME, "another"])
def test_the_offset_of_the_result_is_no_evidence(name: str) -> None:
    made = one_convolution(quantize(S_PRODUCTS), S_PRODUCTS, offsets=(0, -128))
    changed = redeclare_biases(made, list_biases(made))
    (finding,) = findings(changed, float_weights={name: FLOATS})
    assert finding.severity == "error"
    assert "its payload was not" in finding.message


def test_rounding_and_clipping_are_no_findings() -> None:
    saturated = one_convolution(quantize(S_PRODUCTS, np.int8), S_PRODUCTS)
    assert findings(saturated, float_weights={NAME: FLOATS}) == []


@pytest.mark.parametrize("error", [-0.005, 0.005])
def test_a_scale_that_is_not_exact_is_no_finding(error: float) -> None:
    slightly_off = one_convolution(quantize(S_PRODUCTS), S_PRODUCTS * (1 + error))
    assert findings(slightly_off, float_weights={NAME: FLOATS}) == []


# by the original constants


def test_another_payload_is_no_finding() -> None:
    other = {NAME: original(quantize(S_PRODUCTS) + 1, S_PRODUCTS)}
    assert findings(make_requantized(), original=other) == []


def test_zeros_may_have_any_type() -> None:
    zeros = one_convolution(np.zeros(8, np.int32), 0.1)
    assert findings(zeros, original={NAME: original(np.zeros(8), S_PRODUCTS)}) == []
    assert findings(zeros, float_weights={NAME: np.zeros(8)}) == []


def test_a_changed_zero_point_counts() -> None:
    moved = {NAME: original(quantize(S_PRODUCTS), S_PRODUCTS, 50)}
    (finding,) = findings(make_correct(), original=moved)
    assert finding.severity == "error"


# by plausibility


def make_full_range(elem: str) -> np.ndarray:
    """Return integers that use over half of their range, as on the smallest sufficient scale."""
    limits = np.iinfo({"i8": np.int8, "i16": np.int16}[elem])
    return (np.array([0.7, -0.3, 0.1, 0.2]) * limits.max).astype(limits.dtype)


@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_full_integers_on_the_results_scale_are_found(elem: str) -> None:
    module = dense_layers([(make_full_range(elem), 0.125)] * 3, elem)
    found = findings(module)
    assert [finding.severity for finding in found] == ["error"] * 3
    assert {finding.facts["evidence"] for finding in found} == {"fills"}


@pytest.mark.parametrize("elem", ["i8", "i16"])
def test_one_layer_that_stands_out_is_a_warning(elem: str) -> None:
    others = [(make_full_range(elem), 2.0**-7)] * 3
    (finding,) = findings(dense_layers([*others, (make_full_range(elem), 0.125)], elem))
    assert finding.severity == "warning"
    assert finding.layer == "fullyconnected__20"


def test_biases_as_large_as_results_give_no_finding() -> None:
    """Where the others' own scales come near their results' too, equality is no wonder."""
    others = [(make_full_range("i8"), 2.0**-4)] * 3
    assert findings(dense_layers([*others, (make_full_range("i8"), 0.125)])) == []


def test_small_integers_on_the_results_scale_give_no_finding() -> None:
    assert findings(dense_layers([(np.array([5, -3, 1, 0], np.int8), 0.125)] * 3)) == []


def test_scales_of_glow_give_no_finding() -> None:
    assert findings(dense_layers([(make_full_range("i8"), 2.0**-6)] * 3)) == []
    assert findings(dense_layers([(np.array([9000, -3, 1, 0], np.int32), 2.0**-8)] * 3)) == []


def test_clipped_biases_give_no_finding() -> None:
    clipped = np.array([127, -128, 127, 20], np.int8)
    assert findings(dense_layers([(clipped, 0.125)] * 3)) == []


def test_int32_beyond_the_result_is_found() -> None:
    payload = np.array([9000, -5000, 800, 2000], np.int32)
    (finding,) = findings(dense_layers([(payload, 0.125)]))
    assert (finding.severity, finding.facts["evidence"]) == ("error", "beyond")
    assert finding.facts["median_part_of_result"] > 1


def test_another_scale_beyond_the_result_is_found() -> None:
    payload = np.array([9000, -5000, 800, 2000], np.int32)
    assert len(findings(dense_layers([(payload, 0.06)]))) == 1


def test_without_constants_the_rule_is_skipped() -> None:
    from nmpsim.analysis.lint import run_rules

    module = make_redeclared()
    bare = Module(module.name, module.weights, module.instructions)
    report = run_rules(LintSubject(Program(bare)))
    assert "bias-payload" in {one.rule for one in report.skipped}
    assert not any(finding.rule == "bias-payload" for finding in report.findings)
