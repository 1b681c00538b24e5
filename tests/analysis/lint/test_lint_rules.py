"""The other rules: found where they should be, silent where they should be."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import numpy as np
import pytest
from lint_programs import dense_layers, findings, one_convolution
from lir_draft import Draft, int8, tensor_type
from traced_memory import at_most

import nmpsim
from nmpsim.analysis.lint import RULES, LintSubject, make_lint_document, run_rules
from nmpsim.analysis.lint.accumulators import compute_sum_bounds
from nmpsim.analysis.lint.scales import count_significant_digits
from nmpsim.analysis.program import Program
from nmpsim.lir.nodes import Module
from nmpsim.quantization import ValueRange
from nmpsim.report.json import format_json

FLOAT = tensor_type("float", (8,))
PRODUCTS = float(np.float32(0.05) * np.float32(0.02))

# bias-saturates, bias-loses-bits


def test_a_bias_beyond_the_results_scale_is_found() -> None:
    bias = np.array([127, -120, 3, 0], np.int8)  # on 0.5: up to 63.5, results up to 15.9
    module = dense_layers([(bias, 0.5)])
    (note,) = findings(module, "bias-saturates")
    assert (note.severity, note.facts["channels"]) == ("note", 2)
    assert findings(module, "bias-saturates", numerics="q31") == [], "nmp will not run it"
    (error,) = findings(module, "bias-saturates", numerics="nmp")
    assert (error.severity, error.facts["worst_channel"]) == ("error", 0)
    assert error.facts["worst_error_steps"] == pytest.approx(4 * 127 - 127)


def test_a_bias_on_the_results_scale_is_not_moved_again() -> None:
    bias = np.array([127, -120, 3, 0], np.int8)
    for rule in ("bias-saturates", "bias-loses-bits"):
        assert findings(dense_layers([(bias, 0.125)]), rule, numerics="nmp") == []


def test_a_bias_beyond_its_declared_scale_is_found() -> None:
    bias = np.array([127, -128, 3, 0], np.int8)
    module = dense_layers([(bias, 0.125)])
    floats = {"bias": np.array([20.0, -30.0, 0.4, 0.0])}
    name = next(weight.name for weight in module.weights if weight.type.shape == (4,))
    found = findings(module, "bias-saturates", float_weights={name: floats["bias"]})
    assert [(f.severity, f.facts["declared"]) for f in found] == [("error", True)]
    assert found[0].facts["channels"] == 2


def test_a_bias_that_loses_bits_is_found() -> None:
    bias = np.array([100, -50, 3, 0], np.int8)  # on 2^-10; on the result's 2^-3 all are zero
    module = dense_layers([(bias, 2.0**-10)])
    (note,) = findings(module, "bias-loses-bits")
    assert (note.severity, note.facts["bits"]) == ("note", 1.0)
    (warning,) = findings(module, "bias-loses-bits", numerics="nmp")
    assert warning.severity == "warning"
    assert 0.2 < warning.facts["worst_error_result_steps"] < 0.5


def test_a_bias_that_keeps_its_bits_gives_no_finding() -> None:
    module = dense_layers([(np.array([100, -50, 3, 0], np.int8), 2.0**-4)])
    assert findings(module, "bias-loses-bits", numerics="nmp") == []


def test_a_loss_below_the_results_step_gives_no_finding() -> None:
    """Rounded to multiples of 2^-8, of results in steps of 2^-3."""
    module = dense_layers([(np.array([1, 0, 0, -1], np.int32), 2.0**-8)])
    name = next(weight.name for weight in module.weights if weight.type.shape == (4,))
    floats = {name: np.array([0.004, 0.001, 0.0, -0.003])}
    found = findings(module, "bias-loses-bits", float_weights=floats)
    assert [f.facts["declared"] for f in found] == []


# scale-not-power-of-two


def test_powers_of_two_are_required_by_nmp_only() -> None:
    module = one_convolution(np.ones(8, np.int32), PRODUCTS)
    assert findings(module, "scale-not-power-of-two") == []
    found = findings(module, "scale-not-power-of-two", numerics="nmp")
    assert {f.severity for f in found} == {"error"}
    assert {f.tensor for f in found} == {"input__1", "const__2", "const__3", "output__4"}


def test_powers_of_two_give_no_finding() -> None:
    module = dense_layers([(np.ones(4, np.int8), 0.125)])
    assert findings(module, "scale-not-power-of-two", numerics="nmp") == []


def test_tables_of_scales_are_checked() -> None:
    module = channelwise(np.array([0.5, 0.3, 0.25], np.float32))
    tables = [
        f
        for f in findings(module, "scale-not-power-of-two", numerics="nmp")
        if f.tensor.startswith("const")
    ]
    assert [f.facts["count"] for f in tables] == [1, 1]
    assert [f.found[:10] for f in tables] == ["scale 0.30", "scale 0.15"]


def channelwise(scales: np.ndarray, weights: np.ndarray | None = None) -> Module:
    draft = Draft()
    source = draft.input(int8((1, 3, 3, 8), 0.5))
    channels = scales.size
    values = np.full((channels, 1, 1, 8), 100, np.int8) if weights is None else weights
    filter_ = draft.constant(values, "i8", 0.0)
    bias = draft.constant(np.ones(channels, np.int32), "i32", 0.0)
    zeros = np.zeros(channels, np.int32)
    tables = [
        draft.constant(scales, "float"),
        draft.constant(zeros, "index32"),
        draft.constant(scales * np.float32(0.5), "float"),
        draft.constant(zeros, "index32"),
    ]
    out = draft.output(int8((1, 3, 3, channels), 0.25))
    window = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0), "Dilation": (1, 1)}
    draft.emit(
        "channelwisequantizedconvolution", out, source, filter_, bias, *tables, **window, Group=1
    )
    return draft.module()


# scales-lost-in-print


def test_a_module_without_text_loses_no_digits() -> None:
    report = run_rules(LintSubject(Program(one_convolution(np.ones(8, np.int32), PRODUCTS))))
    reasons = {one.rule: one.reason for one in report.skipped}
    assert reasons["scales-lost-in-print"] == "the program was not read from LIR text"


@pytest.mark.parametrize(
    ("scale", "digits", "severity"),
    [
        (0.000021112, 5, "warning"),
        (0.000000512, 3, "warning"),
        (0.000000038, 2, "error"),
        (0.0, 0, "error"),
    ],
)
def test_digits_that_print_leaves(scale: float, digits: int, severity: str) -> None:
    module = one_convolution(np.ones(8, np.int32), PRODUCTS, in_scale=0.5)
    weights = tuple(
        attrs.evolve(w, type=attrs.evolve(w.type, quant=attrs.evolve(w.type.quant, scale=scale)))
        if w.name == "const__3"
        else w
        for w in module.weights
    )
    subject = {"printed_only": frozenset({"const__3"})}
    found = findings(attrs.evolve(module, weights=weights), "scales-lost-in-print", **subject)
    (finding,) = found
    assert (finding.facts["digits"], finding.severity) == (digits, severity)
    if digits:
        assert finding.facts["relative_error"] == pytest.approx(0.5e-9 / scale)


@pytest.mark.parametrize(
    ("scale", "digits"),
    [(1.5, 10), (0.5, 9), (0.0625, 8), (0.000030517578125, 5), (3e-10, 0), (2.0**-30, 1)],
)
def test_digits(scale: float, digits: int) -> None:
    assert count_significant_digits(scale) == digits


# accumulator-overflow


def test_bounds_of_the_accumulator_are_reached() -> None:
    """The worst input of each channel, by trying the ends of the input's range."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-128, 128, (4, 1, 1, 8), np.int8)
    module = one_convolution(np.zeros(4, np.int32), PRODUCTS, weights=weights, offsets=(-7, 0))
    subject = LintSubject(Program(module))
    (op,) = subject.operations
    bounds = compute_sum_bounds(subject, op, subject.biases[0])
    wide = weights.reshape(4, 8).astype(int)
    highest = np.where(wide > 0, 127 + 7, -128 + 7)
    lowest = np.where(wide > 0, -128 + 7, 127 + 7)
    assert bounds.high.tolist() == (wide * highest).sum(axis=1).tolist()
    assert bounds.low.tolist() == (wide * lowest).sum(axis=1).tolist()


def test_weights_are_processed_in_parts() -> None:
    """Four megabytes, and not once more as 64-bit integers."""
    wide, draft = 2048, Draft()
    source, result = draft.input(int8((1, wide))), draft.output(int8((1, wide)))
    weights = draft.constant(np.full((wide, wide), -1, np.int8), "i8", 0.001, 1)
    bias = draft.constant(np.zeros(wide, np.int32), "i32", 0.0005)
    draft.emit("fullyconnected", result, source, weights, bias)
    subject = LintSubject(Program(draft.module()))
    with at_most(2.5 * wide * wide):
        run_rules(subject)
    (op,) = subject.operations
    bounds = compute_sum_bounds(subject, op, subject.biases[0])
    assert set(bounds.low) == {-2.0 * 127 * wide}
    assert set(bounds.high) == {2.0 * 128 * wide}


def test_a_sum_begins_with_the_bias() -> None:
    module = one_convolution(np.full(4, 2**31 - 1, np.int32), PRODUCTS)
    (finding,) = findings(module, "accumulator-overflow")
    assert (finding.severity, finding.facts["channels"], finding.facts["bits"]) == (
        "warning",
        4,
        32,
    )
    assert finding.facts["high"] == pytest.approx(2**31 - 1 + 8 * 100 * 127)
    assert findings(module, "accumulator-overflow", numerics="nmp") == []


def test_a_sum_without_overflow_gives_no_finding() -> None:
    assert findings(one_convolution(np.zeros(4, np.int32), PRODUCTS), "accumulator-overflow") == []


@pytest.mark.parametrize(("elem", "depth"), [("i8", 2**17), ("i16", 2**17)])
def test_deepest_matrices_are_checked(elem: str, depth: int) -> None:
    """2^17 products of 2^14 (Int8) or of 2^30 (Int16) are 2^31 and 2^47."""
    for inner, expected in ((depth, 1), (depth - 1, 0)):
        draft = Draft()
        lhs = draft.input(tensor_type(elem, (1, inner), 0.5))
        rhs = draft.input(tensor_type(elem, (inner, 1), 0.5))
        draft.emit("matmul", draft.output(tensor_type(elem, (1, 1), 0.5)), lhs, rhs)
        assert len(findings(draft.module(), "accumulator-overflow")) == expected


def test_a_constant_matrix_is_checked_with_its_values() -> None:
    """Of its type's greatest values the same sum would overflow."""
    draft = Draft()
    lhs = draft.input(tensor_type("i8", (1, 2**18), 0.5))
    rhs = draft.constant(np.ones((2**18, 1), np.int8), "i8", 0.5)
    draft.emit("matmul", draft.output(tensor_type("i8", (1, 1), 0.5)), lhs, rhs)
    assert findings(draft.module(), "accumulator-overflow") == []


# range-wasted


@pytest.mark.parametrize(
    ("largest", "severity"), [(100, None), (64, None), (31, "note"), (7, "warning"), (1, "warning")]
)
def test_weights_with_few_integers_are_found(largest: int, severity: str | None) -> None:
    weights = np.zeros((4, 1, 1, 8), np.int8)
    weights[0, 0, 0, :2] = (largest, -largest)
    module = one_convolution(np.ones(4, np.int32), PRODUCTS, weights=weights)
    found = findings(module, "range-wasted")
    assert [f.severity for f in found] == ([severity] if severity else [])
    if severity:
        assert found[0].facts["part"] == pytest.approx(2 * largest / 255)


def test_weights_of_zeros_need_no_range() -> None:
    zeros = np.zeros((4, 1, 1, 8), np.int8)
    assert (
        findings(one_convolution(np.ones(4, np.int32), PRODUCTS, weights=zeros), "range-wasted")
        == []
    )


def test_channels_have_separate_ranges() -> None:
    weights = np.full((3, 1, 1, 8), 100, np.int8)
    weights[:, 0, 0, 0] = -100
    weights[1] //= 20
    weights[2] = 0
    (finding,) = findings(channelwise(np.full(3, 0.5, np.float32), weights), "range-wasted")
    assert (finding.facts["channels"], finding.severity) == (1, "warning")
    assert "channel 1" in finding.found


@pytest.mark.parametrize(
    ("low", "high", "severity"),
    [
        (-10.0, 10.0, None),
        (0.0, 2.0, "note"),
        (-0.1, 0.1, "warning"),
        (0.0, 0.0, None),
        (6, 7, None),
    ],
)
def test_wasted_ranges_of_results_are_found(low: float, high: float, severity: str | None) -> None:
    module = one_convolution(np.ones(8, np.int32), PRODUCTS)
    ranges = {"convolution__5": ValueRange(low, high), "nothing": ValueRange(0, 1)}
    found = findings(module, "range-wasted", ranges=ranges)
    assert [f.severity for f in found] == ([severity] if severity else [])


# nothing-quantized, float-islands


def float_dense(draft: Draft, width: int = 8) -> None:
    source = draft.input(tensor_type("float", (1, width)))
    weights = draft.constant(np.ones((width, width), np.float32), "float")
    bias = draft.constant(np.ones(width, np.float32), "float")
    out = draft.output(tensor_type("float", (1, width)))
    draft.emit("fullyconnected", out, source, weights, bias)


def test_a_float_program_is_found() -> None:
    draft = Draft()
    float_dense(draft)
    (finding,) = findings(draft.module(), "nothing-quantized")
    assert finding.severity == "error"
    assert findings(draft.module(), "float-islands") == []


def test_float_products_between_quantized_activations_are_found() -> None:
    draft = Draft()
    float_dense(draft)
    source = draft.input(int8((8,)))
    draft.emit("relu", draft.output(int8((8,))), source)
    (finding,) = findings(draft.module(), "nothing-quantized")
    assert "float convolutions and matrix products" in finding.found


def test_a_program_that_only_moves_is_quantized_enough() -> None:
    draft = Draft()
    draft.emit("relu", draft.output(int8((8,))), draft.input(int8((8,))))
    assert findings(draft.module(), "nothing-quantized") == []
    assert findings(Draft().module(), "nothing-quantized") == []


def test_a_single_float_layer_is_found() -> None:
    module = one_convolution(np.ones(8, np.int32), PRODUCTS)
    draft = Draft()
    float_dense(draft)
    both = attrs.evolve(
        module,
        weights=module.weights + tuple(attrs.evolve(w, name=f"f_{w.name}") for w in draft.weights),
        instructions=module.instructions
        + tuple(
            attrs.evolve(
                i,
                number=1,
                operands=tuple(attrs.evolve(o, name=f"f_{o.name}") for o in i.operands),
            )
            for i in draft.instructions
        ),
    )
    (finding,) = findings(both, "float-islands")
    assert "is float in a quantized program" in finding.message


def island(*opcodes: str) -> Module:
    """Return float operations between two quantized tensors, and a float tail."""
    draft = Draft()
    value = draft.emit("dequantize", draft.buffer(FLOAT), draft.input(int8((8,))))
    for opcode in opcodes:
        value = draft.emit(opcode, draft.buffer(FLOAT), value)
    back = draft.emit("quantize", draft.buffer(int8((8,))), value)
    tail = draft.emit("dequantize", draft.buffer(FLOAT), back)
    draft.emit("sigmoid", draft.output(FLOAT), tail)
    return draft.module()


def test_a_float_island_is_found_with_its_reason() -> None:
    (finding,) = findings(island("relu", "sigmoid"), "float-islands")
    assert finding.severity == "warning"
    assert finding.found == "1 relu, 1 sigmoid"
    assert "no unit for sigmoid" in finding.hint
    assert "Quantize relu, which the device can execute" in finding.hint


def test_repeated_conversions_are_found() -> None:
    (finding,) = findings(island(), "float-islands")
    assert "dequantized and quantized again" in finding.message
    assert "rescalequantized" in finding.hint


def test_a_float_head_and_tail_are_no_islands() -> None:
    draft = Draft()
    value = draft.emit("relu", draft.buffer(FLOAT), draft.input(FLOAT))
    inside = draft.emit("quantize", draft.buffer(int8((8,))), value)
    tail = draft.emit("dequantize", draft.buffer(FLOAT), inside)
    draft.emit("sigmoid", draft.output(FLOAT), tail)
    assert findings(draft.module(), "float-islands") == []


def test_a_reused_buffer_does_not_join_islands() -> None:
    """A float head writes the buffer that a tail uses later."""
    draft = Draft()
    head = draft.emit("relu", draft.buffer(FLOAT), draft.input(FLOAT))
    inside = draft.emit("quantize", draft.buffer(int8((8,))), head)
    draft.emit("dequantize", head, inside)
    draft.emit("sigmoid", draft.output(FLOAT), head)
    assert findings(draft.module(), "float-islands") == []


def test_two_islands_are_reported_separately() -> None:
    draft = Draft()
    value = draft.input(int8((8,)))
    for opcode in ("sigmoid", "tanh"):
        real = draft.emit("dequantize", draft.buffer(FLOAT), value)
        real = draft.emit(opcode, draft.buffer(FLOAT), real)
        value = draft.emit("quantize", draft.buffer(int8((8,))), real)
    found = findings(draft.module(), "float-islands")
    assert [f.found for f in found] == ["1 sigmoid", "1 tanh"]


# all of them


def test_names_are_unique_and_documented() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    page = Path(__file__).parents[3] / "docs/lint.md"
    headings = re.findall(r"^## `([a-z-]+)`$", page.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(names)


def test_findings_are_worst_first_and_json_holds_them() -> None:
    module = one_convolution(np.full(8, 2**31 - 1, np.int32), 0.1)
    subject = LintSubject(Program(module, "nmp"))
    report = run_rules(subject)
    order = ["error", "warning", "note"]
    ranks = [order.index(finding.severity) for finding in report.findings]
    assert ranks == sorted(ranks)
    document = make_lint_document(subject, report)
    assert document["counts"] == {s: ranks.count(i) for i, s in enumerate(order)}
    assert format_json(document)


def test_lint_accepts_a_module() -> None:
    module = one_convolution(np.ones(8, np.int32), PRODUCTS)
    assert nmpsim.lint(module) == run_rules(LintSubject(Program(module))).findings
    assert {f.rule for f in nmpsim.lint(module, numerics="nmp")} >= {"scale-not-power-of-two"}
    with pytest.raises(nmpsim.UserError, match="unknown numerics profile"):
        nmpsim.lint(module, numerics="glow")
