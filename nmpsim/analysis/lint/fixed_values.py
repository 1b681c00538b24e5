"""Rules about constants: values, use, and differences from the float model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from nmpsim.analysis.lint.bias_payload import (
    MAX_INTEGER_ERROR,
    MAX_RELATIVE_ERROR,
    find_float_bias,
)
from nmpsim.analysis.lint.findings import Fact, LintFinding, Severity
from nmpsim.analysis.lint.subject import LintSubject, QuantizedBias, are_valid_scales
from nmpsim.analysis.shadow.constants import (
    FOLDED,
    list_array_variants,
    list_layouts,
    map_biases_to_filters,
    read_quantized_constants,
)
from nmpsim.analysis.shadow.matching import MIN_MATCH_SQNR_DB, ZERO, find_form, match_constants
from nmpsim.analysis.weighted import read_weighted_scales
from nmpsim.arrays import Array, Arrays
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.interpreter import compute_sqnr_db
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind


def check_splat_values(subject: LintSubject) -> Iterator[LintFinding]:
    """Report splat instructions whose value is outside the range of the result type."""
    for op in subject.operations:
        view, value = op.operands[0], op.instruction.attributes.get("Value")
        if (
            op.kind is not OpcodeKind.FILL
            or view.type.quant is None
            or not isinstance(value, int | float)
        ):
            continue
        low, high = view.real_limits
        held = min(max(value, low), high)
        if abs(held - value) <= view.scale / 2:
            continue
        yield LintFinding(
            "warning",
            f"the value of %{op.instruction.name} is outside the range of its type",
            op,
            found=f"value {value:.9g}, which saturates to {held:.9g}",
            expected=f"a value from {low:.9g} to {high:.9g}",
            hint="Use a larger scale or another zero point.",
            facts={"value": float(value), "held": held},
        )


def check_unused_constants(subject: LintSubject) -> Iterator[LintFinding]:
    """Report constants that no instruction reads."""
    used = {operand.name for one in subject.module.instructions for operand in one.operands}
    used |= {*subject.module.states.values()}
    for weight in subject.module.weights:
        if weight.constant and weight.name not in used:
            yield LintFinding(
                "note",
                f"no instruction reads the constant %{weight.name}",
                weight.span,
                tensor=weight.name,
                found=f"a constant of {weight.type.nbytes:,} bytes",
                hint="Check whether a layer should read this constant; Glow leaves some"
                " constants unused.",
                facts={"bytes": weight.type.nbytes},
            )


@attrs.frozen(eq=False)
class DequantizedWeights:
    """Dequantized weights of a layer, with scales and a mask of unsaturated integers."""

    op: Operation
    view: BufferView
    reals: Array
    """Real values: float64, in the LIR's layout."""
    steps: Array
    """Scales, one or one per output, with as many dimensions as ``reals``."""
    inside: Array
    """Mask of integers that are not saturated: bool, same shape as ``reals``."""

    def matches(self, floats: Array) -> bool:
        """Return whether float values equal the weights up to rounding and saturation."""
        allowed = self.steps * MAX_INTEGER_ERROR + MAX_RELATIVE_ERROR * np.abs(floats)
        near = np.abs(self.reals - floats) <= allowed
        return bool(near[self.inside].all()) and bool(self.inside.any() or near.all())


def read_quantized_weights(subject: LintSubject) -> dict[str, DequantizedWeights]:
    """Read the constant weights of all quantized layers and matrix products.

    Returns
    -------
    dict
        Weights by name of the constant, without unknown, non-finite and badly scaled ones.
    """
    reals = read_quantized_constants(subject.module)
    found: dict[str, DequantizedWeights] = {}
    for op in subject.operations:
        if op.kind not in (*WEIGHTED, OpcodeKind.PRODUCT):
            continue
        view = op.operands[2]
        values = reals.get(view.buffer.name)
        if values is None or values.size != view.type.elements or not np.isfinite(values).all():
            continue
        own = read_weighted_scales(subject.module, op)
        steps = np.array([view.scale])
        if own is not None:
            steps = own.weight_scales[: None if own.by_channel else 1].astype(np.float64)
        if not are_valid_scales(steps):
            continue
        low, high = view.limits
        integers = subject.module.constants[view.buffer.name].reshape(values.shape)
        found[view.buffer.name] = DequantizedWeights(
            op,
            view,
            values,
            steps.reshape(-1, *[1] * (values.ndim - 1)),
            (integers > low) & (integers < high),
        )
    return found


def check_weights(subject: LintSubject) -> Iterator[LintFinding]:
    """Report weights that differ from the weights of the float model."""
    arrays = subject.float_weights
    if arrays is None:
        return
    weights = read_quantized_weights(subject)
    matches = match_constants({name: one.reals for name, one in weights.items()}, arrays)
    sources = {found.constant: found.source for found in matches.found}
    others = {name: arrays[name] for name in arrays if name not in sources.values()}
    unknown: list[DequantizedWeights] = []
    for name, one in weights.items():
        if name in matches.floats:
            finding = _compare_by_name(one, matches.floats[name], sources[name], arrays)
            if finding is not None:
                yield finding
        elif (explained := _find_explanation(one, others)) is not None:
            yield _describe_fault(one, *explained)
        elif one.reals.any():
            unknown.append(one)
    if unknown and {one.reals.size for one in weights.values()} & {a.size for a in arrays.values()}:
        yield _describe_unknown(unknown, len(weights))


def check_biases(subject: LintSubject) -> Iterator[LintFinding]:
    """Report biases that are zero or permuted, or that match no array of the float model.

    The rule ``bias-payload`` compares biases that match an array with the array.
    """
    arrays = subject.float_weights
    if arrays is None:
        return
    weights = {name: one.reals for name, one in read_quantized_weights(subject).items()}
    biases = {one.view.buffer.name: one for one in subject.biases}
    reals = {name: one.dequantized for name, one in biases.items()}
    filters = map_biases_to_filters(subject.module)
    matches = match_constants(weights | reals, arrays, filters)
    found = {one.constant: one for one in matches.found}
    rest = {
        name: array
        for name, array in arrays.items()
        if name not in {o.source for o in matches.found}
    }
    for name, bias in biases.items():
        match = found.get(name)
        if match is not None and match.fault:
            source = arrays[match.source].reshape(-1)
            if np.abs(source).max(initial=0) > bias.scales.max():
                yield _describe_bias(bias, match.fault, match.source)
        elif match is None and 2 * len(found.keys() & biases.keys()) > len(biases):
            same = [key for key, array in rest.items() if array.size == bias.payload.size]
            is_scaled = find_float_bias(bias, arrays) is not None
            if len(same) == 1 and bias.integers.any() and not is_scaled:
                yield _describe_bias(bias, _UNKNOWN, same[0])


_UNKNOWN = "unknown"
_BIAS_TEXTS = {
    ZERO: "is zero, but not in the float model",
    _UNKNOWN: "matches no array of the float model",
}
"""Fault of a bias -> text of its finding."""


def _describe_bias(bias: QuantizedBias, fault: str, source: str) -> LintFinding:
    text = _BIAS_TEXTS.get(fault, f"has the float model's values with {fault}")
    return LintFinding(
        "error",
        f"bias %{bias.view.name} {text}",
        bias.op,
        tensor=bias.view,
        found=f"values from {bias.dequantized.min():.6g} to {bias.dequantized.max():.6g}",
        expected=f"the values of array {source} of the float model",
        hint="Write the bias of the float model again, quantized with the declared scale.",
        facts={"source": source, "form": fault},
    )


@attrs.frozen
class WeightFault:
    """Fault that would explain how weights differ from the float model."""

    text: str
    hint: str
    facts: Mapping[str, Fact]


def _compare_by_name(
    one: DequantizedWeights,
    floats: Array,
    source: str,
    arrays: Arrays,
) -> LintFinding | None:
    """Compare weights with the float array of their name, with and without folded batch norm."""
    if one.matches(floats):
        return None
    forms = {
        form: arrays[form] for form in list_array_variants(source.removesuffix(FOLDED), arrays)
    }
    cause = _find_fault(one, floats)
    explained = (source, cause) if cause else _find_explanation(one, forms)
    if explained is not None:
        return _describe_fault(one, *explained)
    near = compute_sqnr_db(floats, one.reals - floats)
    text = f"differ from their float values: the SQNR is {near:.1f} dB"
    hint = "Check that the float model has the same training state and weight layout."
    severity: Severity = "error" if near < MIN_MATCH_SQNR_DB else "warning"
    return _describe_fault(one, source, WeightFault(text, hint, {"cause": "other"}), severity)


def _find_explanation(one: DequantizedWeights, arrays: Arrays) -> tuple[str, WeightFault] | None:
    """Find an array and a fault that together explain a constant without a matching name."""
    if one.reals.size < 4 or np.ptp(one.reals) == 0:
        return None
    for name, array in arrays.items():
        if array.size != one.reals.size or np.ptp(array) == 0:
            continue
        for layout in list_layouts(array, one.reals.shape):
            cause = _find_fault(one, layout.get_values())
            if cause is not None:
                return name, cause
    return None


def _find_fault(one: DequantizedWeights, floats: Array) -> WeightFault | None:
    """Return the first known fault that explains the weights, or None."""
    return next(_list_faults(one, floats), None)


def _list_faults(one: DequantizedWeights, floats: Array) -> Iterator[WeightFault]:
    """Yield the known faults that explain how weights differ from their float values."""
    if floats.any() and not one.reals.any():
        yield WeightFault(
            "are all zero",
            "Check that the file of constants was written completely.",
            {"cause": "zeros"},
        )
    inner = np.where(one.inside, floats, 0.0)
    power = float((inner * inner).sum())
    factor = float((inner * one.reals).sum()) / power if power else 0.0
    scaled = attrs.evolve(one, steps=one.steps * max(factor, 1.0))
    if factor > 0.0 and scaled.matches(factor * floats):
        yield WeightFault(
            f"are {factor:.4g} times their float values",
            "Use the scale with which these integers were quantized.",
            {"cause": "scale", "factor": factor},
        )
    errors = (one.reals - floats)[one.inside]
    shift = float(np.median(errors)) if errors.size else 0.0
    integers = round(shift / float(np.median(one.steps)))
    if integers != 0 and one.matches(floats + integers * one.steps):
        yield WeightFault(
            f"differ from their float values by {integers} steps",
            "Use the zero point with which these integers were quantized.",
            {"cause": "zero point", "integers": integers},
        )
    ordered = attrs.evolve(
        one,
        reals=np.sort(one.reals, axis=None),
        steps=one.steps.max(keepdims=True).reshape(-1),
        inside=np.ones(one.reals.size, np.bool_),
    )
    if ordered.matches(np.sort(floats, axis=None)):
        form = find_form(one.reals, floats)
        text = (
            f"are their float values with {form}"
            if form
            else ("have the elements of their float values in another order")
        )
        facts = {"cause": "order", "form": form} if form else {"cause": "order"}
        yield WeightFault(text, "Check the order of axes; Glow's filters are OHWI.", facts)


def _describe_fault(
    one: DequantizedWeights,
    source: str,
    cause: WeightFault,
    severity: Severity = "error",
) -> LintFinding:
    return LintFinding(
        severity,
        f"the weights %{one.view.name} {cause.text}",
        one.op,
        tensor=one.view,
        found=f"weights from {one.reals.min():.6g} to {one.reals.max():.6g}",
        expected=f"the values of array {source} of the float model",
        hint=cause.hint,
        facts={"source": source, **cause.facts},
    )


def _describe_unknown(unknown: list[DequantizedWeights], count: int) -> LintFinding:
    first = unknown[0]
    return LintFinding(
        "error" if 2 * len(unknown) < count else "warning",
        f"{len(unknown)} of {count} weights do not match any array of the float model",
        first.op,
        tensor=first.view,
        found=f"%{first.view.name}, which is not proportional to any array",
        expected="an array of the float model with the same name or values",
        hint="Pass the float model of this network.",
        facts={"cause": "unknown", "count": len(unknown)},
    )
