"""The rules on every recorded program, as it is and with its biases' types changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lint_programs import (
    findings,
    list_biases,
    load_recorded,
    redeclare_biases,
    requantize_biases,
)
from recorded_programs import programs
from tiers import each_value, program_parts

from nmpsim.analysis.lint import load_subject, run_rules
from nmpsim.analysis.lint.bias_payload import find_float_bias
from nmpsim.analysis.lint.load import read_float_arrays
from nmpsim.analysis.lint.subject import OriginalBias, QuantizedBias
from nmpsim.lir.nodes import Module

PROGRAMS = programs("lir(_real)?/")
SMALL = [name for name in PROGRAMS if "resnet50" not in name]
TOO_SMALL_TO_SEE = "lir_real/mnist_cntk/i8_"
"""Logits in the thousands beside biases below 1: on the result's scale too its Int8 and Int32
integers, at most 56, look like a small bias."""


@pytest.mark.parametrize("name", each_value(PROGRAMS, program_parts))
def test_programs_of_glow_have_no_findings(name: str, shared: Path) -> None:
    """No error or warning, but for what Glow left in float."""
    module = load_recorded(name, shared)
    report = run_rules(load_subject(module))
    worse = {f.rule for f in report.findings if f.severity != "note"}
    assert worse <= ({"float-islands"} if "i16" in name else set())
    assert not any(f.rule == "bias-payload" for f in report.findings)
    assert findings(requantize_biases(module, list_biases(module)), numerics="nmp") == []


@pytest.mark.parametrize("name", each_value(PROGRAMS, program_parts))
def test_every_changed_type_is_found(name: str, shared: Path) -> None:
    """All biases of a program: each by plausibility alone, and by both references."""
    module = load_recorded(name, shared)
    biases = list_biases(module)
    wrong = redeclare_biases(module, biases)
    visible = [bias for bias in biases if bias.integers.any()]
    plausible = findings(wrong)
    assert len(plausible) == (0 if name.startswith(TOO_SMALL_TO_SEE) else len(visible))
    assert {finding.severity for finding in plausible} <= {"error"}
    assert_references_find(wrong, biases, visible)


def assert_references_find(
    wrong: Module, biases: tuple[QuantizedBias, ...], visible: list[QuantizedBias]
) -> None:
    rng = np.random.default_rng(0)
    floats = {
        bias.view.buffer.name: bias.dequantized
        + bias.scales * rng.uniform(-0.5, 0.5, bias.dequantized.shape)
        for bias in biases
    }
    originals = {
        bias.view.buffer.name: OriginalBias(bias.payload, bias.scales, bias.offsets)
        for bias in biases
    }
    errors = [f for f in findings(wrong, float_weights=floats) if f.severity == "error"]
    moved = [bias for bias in visible if abs(bias.dequantized).max() > 2 * bias.result_scale]
    assert {f.tensor for f in errors} >= {bias.view.name for bias in moved}
    by_original = {f.tensor for f in findings(wrong, original=originals)}
    assert by_original >= {bias.view.name for bias in visible}


@pytest.mark.parametrize("name", each_value(SMALL, program_parts))
def test_one_changed_type_is_found(name: str, shared: Path) -> None:
    """One bias at a time, by plausibility alone; at least a warning, and about no other layer."""
    module = load_recorded(name, shared)
    biases = list_biases(module)
    for bias in biases:
        wrong = redeclare_biases(module, [bias])
        found = findings(wrong)
        expected = [] if name.startswith(TOO_SMALL_TO_SEE) else [bias.view.name]
        shared_by_others = [b for b in biases if b.view.name == bias.view.name]
        if len(shared_by_others) == 1:
            assert [finding.tensor for finding in found] == expected
        assert findings(requantize_biases(module, [bias])) == []


@pytest.mark.parametrize("name", each_value(SMALL, program_parts))
def test_the_float_model_reveals_every_changed_type(name: str, shared: Path) -> None:
    """With the ONNX model that Glow loaded; biases of folded batch norms are not in it."""
    pytest.importorskip("onnx")
    model = shared.joinpath(*Path(name).parts[:2], "model.onnx")
    module = load_recorded(name, shared)
    floats = read_float_arrays(module, model)
    assert findings(module, float_weights=floats) == []
    biases = list_biases(module)
    wrong = findings(redeclare_biases(module, biases), float_weights=floats)
    by_float = {f.tensor for f in wrong if f.facts["evidence"] == "float"}
    known = {b.view.name for b in biases if b.integers.any() and find_float_bias(b, floats)}
    assert by_float == known
    assert all(finding.severity == "error" for finding in wrong)
    if "minires" not in name:
        assert known == {bias.view.name for bias in biases if bias.integers.any()}
