"""The rule ``bias-payload``: a bias whose declared type was changed, but not its payload.

A reference (the original constant or the float model) proves the fault. Without one, integers
that were made for another scale still show. Glow puts a bias on the scale of the products,
S_in * S_w, or, where that is too fine for an Int8 or Int16 bias, on the smallest scale that holds
it, so that its integers fill their range. On the much coarser scale of the result the same
integers represent a value as large as the result itself: an Int8 or Int16 bias then spans at least
half of the result's range, an Int32 bias far more. A requantized bias spans a small part, except in
networks that clip hard (ReLU6). So a single such layer is only doubtful, while a program in which
all layers look like this is wrong. docs/lint.md has the measured rates of detection and of false
alarms behind the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import attrs
import numpy as np

from nmpsim.analysis.lint.findings import LintFinding, Severity
from nmpsim.analysis.lint.subject import LintSubject, OriginalBias, QuantizedBias, are_equal_scales
from nmpsim.analysis.shadow.constants import list_array_variants
from nmpsim.arrays import Array, Arrays
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix


def check_bias_payloads(subject: LintSubject) -> Iterator[LintFinding]:
    """Report biases whose integers were quantized with a scale other than the declared one."""
    systematic = has_systematic_fault(subject.biases)
    for bias in subject.biases:
        answered, finding = _compare_with_references(bias, subject)
        if not answered:
            finding = _check_plausibility(bias, subject.biases, systematic)
        if finding is not None:
            yield finding


def _compare_with_references(
    bias: QuantizedBias, subject: LintSubject
) -> tuple[bool, LintFinding | None]:
    """Return whether a reference has this bias, and the finding if it differs."""
    original = (subject.original or {}).get(bias.view.buffer.name)
    finding = compare_with_original(bias, original) if original else None
    if finding is not None or subject.float_weights is None:
        return original is not None, finding
    reference = find_float_bias(bias, subject.float_weights)
    if reference is None:
        return original is not None, None
    return True, compare_with_float(bias, reference)


def _check_plausibility(
    bias: QuantizedBias, biases: Sequence[QuantizedBias], systematic: bool
) -> LintFinding | None:
    evidence = find_bias_evidence(bias)
    if evidence is None:
        return None
    certain = systematic or evidence == "beyond"
    if not certain and not is_outlier(bias, biases):
        return None
    severity: Severity = "error" if certain else "warning"
    where = (
        "the scale of the result" if bias.is_on_result_scale else f"scale {bias.format_scales()}"
    )
    parts = np.abs(bias.dequantized) / bias.result_magnitude
    return LintFinding(
        severity,
        f"bias %{bias.view.name} is declared with {where}, but its integers seem to have"
        " another scale",
        bias.op,
        tensor=bias.view,
        found=_describe_evidence(bias, evidence),
        expected=f"integers with scale {bias.format_scales()}; the bias may have scale"
        f" {float(np.median(bias.product_scales)):.9g}, the product of the input and weight scales",
        hint=f"{REQUANTIZE_HINT} Pass --float-weights or --original-weights to be certain.",
        facts={
            "evidence": evidence,
            "systematic": systematic,
            "largest_part_of_result": float(parts.max()),
            "median_part_of_result": float(np.median(parts)),
        },
    )


def _describe_evidence(bias: QuantizedBias, evidence: BiasEvidence) -> str:
    parts = np.abs(bias.dequantized) / bias.result_magnitude
    times = f"{parts.max():.3g} times the limit of the result (median {np.median(parts):.3g} times)"
    if evidence != "fills":
        return f"bias values of up to {times}"
    largest = np.abs(bias.integers).max()
    return f"integers up to {largest} of {bias.limits[1]}, which represent up to {times}"


BiasEvidence: TypeAlias = Literal["beyond", "fills", "large"]
"""Sign that a bias has the wrong scale. ``beyond``: the bias of most channels is larger than the
result's range. ``fills``: the integers use at least half of their range, as on a scale chosen
for the bias alone. ``large``: the bias of a channel is larger than the result's range, and most
are at least a quarter of it."""

MIN_SYSTEMATIC_SHARE = 0.9
"""Smallest share of implausible biases at which all of them are reported."""
MIN_FINER_OCTAVES = 2.0
"""Median octaves between the other biases' scales and their results' for one to be an outlier."""


def find_bias_evidence(bias: QuantizedBias) -> BiasEvidence | None:
    """Return the evidence that a bias's scale is wrong, or None if the scale is plausible."""
    if bias.is_on_product_scale or not bias.integers.any():
        return None
    parts = np.abs(bias.dequantized) / bias.result_magnitude
    middle, most = float(np.median(parts)), float(parts.max())
    if middle > 1.0:
        return "beyond"
    if not bias.is_on_result_scale:
        return None
    if bias.view.type.elem == "i32":
        return "large" if most > 1.0 and middle > 0.25 else None
    return "fills" if _uses_all_bits(bias) else None


def _uses_all_bits(bias: QuantizedBias) -> bool:
    """Return whether the largest integer needs all bits, and at most one integer is at the limit.

    Clipped values would reach the limit repeatedly.
    """
    limit = bias.limits[1]
    magnitudes = np.abs(bias.integers)
    return int(magnitudes.max()) > limit // 2 and int((magnitudes >= limit).sum()) <= 1


def has_systematic_fault(biases: Sequence[QuantizedBias]) -> bool:
    """Return whether at least 90 % of the biases seem wrong and have their result's scale."""
    telling = [bias for bias in biases if bias.integers.any()]
    wrong = [bias for bias in telling if find_bias_evidence(bias) is not None]
    on_result = [bias for bias in telling if bias.is_on_result_scale]
    return bool(wrong) and min(len(wrong), len(on_result)) >= MIN_SYSTEMATIC_SHARE * len(telling)


def is_outlier(bias: QuantizedBias, biases: Sequence[QuantizedBias]) -> bool:
    """Return whether a bias with its result's scale is implausible among the program's biases.

    This is so if most other biases have scales of their own, and these are much finer than those of
    their results, or this scale is not a power of two, which could equal the result's by chance.
    """
    own = [other for other in biases if not other.is_on_result_scale]
    if 2 * len(own) < len(biases) - 1 or not own:
        return False
    octaves = [float(np.log2(other.result_scale / np.median(other.scales))) for other in own]
    by_chance = math.frexp(bias.result_scale)[0] == 0.5
    return not by_chance or float(np.median(octaves)) >= MIN_FINER_OCTAVES


MAX_INTEGER_ERROR = 1.0
"""Largest error of an integer against the reference, whose own rounding is half of it."""
MAX_RELATIVE_ERROR = 0.01
"""Additional relative error allowed for inexact scales and references."""
MIN_COSINE = 0.99
"""Smallest cosine of two bias vectors that count as the same one on different scales."""
REQUANTIZE_HINT = (
    "Compile the original program with --rescale-bias, which changes type and payload."
)


def compare_with_original(bias: QuantizedBias, original: OriginalBias) -> LintFinding | None:
    """Compare a bias with its original constant; return a finding, or None if they agree."""
    if original.payload is not None and not np.array_equal(original.payload, bias.payload):
        return None
    if not bias.integers.any():
        return None
    if original.scales is None or original.offsets is None:
        return _compare_with_untyped_original(bias)
    if are_equal_scales(bias.scales, original.scales) and bool(
        np.all(bias.offsets == original.offsets)
    ):
        return None
    reals = original.scales * (bias.payload - original.offsets)
    wanted = _quantize(bias, reals)
    if not _integers_differ(bias.payload, wanted).any():
        return None
    old = float(np.median(original.scales))
    return LintFinding(
        "error",
        f"the type of bias %{bias.view.name} was changed, but its payload was not",
        bias.op,
        tensor=bias.view,
        found=f"scale {bias.format_scales()} with the integers of scale {old:.9g}",
        expected=_describe_integers(wanted, bias.payload),
        hint=REQUANTIZE_HINT,
        facts={
            "evidence": "original",
            "factor": float(np.median(bias.scales / original.scales)),
            "original_scale": old,
        },
    )


def _compare_with_untyped_original(bias: QuantizedBias) -> LintFinding | None:
    """Report unchanged integers on the result's scale if the original's type is unknown."""
    if not bias.is_on_result_scale or bias.is_on_product_scale:
        return None
    return LintFinding(
        "error",
        f"bias %{bias.view.name} has the scale of the result, but the integers of the original"
        " bias",
        bias.op,
        tensor=bias.view,
        found=f"scale {bias.format_scales()} with the integers of the original file",
        expected=f"integers quantized with scale {bias.format_scales()}",
        hint=f"{REQUANTIZE_HINT} Pass --original-tensors to compare the original's scale too.",
        facts={"evidence": "original"},
    )


@attrs.frozen(eq=False)
class FloatBias:
    """Float bias: its values, and the name of their array in the float model."""

    source: str
    values: Array
    """Values: float64 [channels]."""


def find_float_bias(bias: QuantizedBias, arrays: Arrays) -> FloatBias | None:
    """Return the float array from which a bias was quantized, or None if there is none.

    The array has the bias's name in the LIR, or that name without Glow's ``__N`` suffix and values
    proportional to the bias, or such values alone.

    Parameters
    ----------
    bias
        The bias.
    arrays
        Arrays of the float model by name.
    """
    legal = {make_legal_name(name): name for name in arrays}
    exact = legal.get(bias.view.buffer.name)
    if exact is not None and arrays[exact].size == bias.payload.size:
        forms = list_array_variants(exact, arrays)
        near = [form for form in forms if _has_direction_of(bias, arrays[form])]
        return _float_bias((near or forms)[0], arrays)
    stem = legal.get(strip_numeric_suffix(bias.view.buffer.name))
    others = [name for name in arrays if name != stem]
    for name in ([stem] if stem else []) + others:
        if arrays[name].size == bias.payload.size and _has_direction_of(bias, arrays[name]):
            return _float_bias(name, arrays)
    return None


def _float_bias(name: str, arrays: Arrays) -> FloatBias:
    return FloatBias(name, arrays[name].astype(np.float64).reshape(-1))


def _has_direction_of(bias: QuantizedBias, reals: Array) -> bool:
    """Return whether an array has the bias's direction, on one scale or on one per channel."""
    flat = reals.astype(np.float64).reshape(-1)
    return any(
        _same_direction(vector, flat)
        for integers in (bias.integers, bias.payload.astype(np.float64))
        for vector in (integers, integers * bias.product_scales)
    )


def _same_direction(a: Array, b: Array) -> bool:
    """Return whether two vectors have the same direction; up to 3 elements match by chance."""
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return a.size > 3 and float(a @ b) >= MIN_COSINE * lengths > 0.0


def compare_with_float(bias: QuantizedBias, reference: FloatBias) -> LintFinding | None:
    """Compare a bias with its float values; return a finding, or None if they agree.

    The rule ``bias-differs`` reports a bias of zero.
    """
    if not bias.integers.any():
        return None
    wanted = _quantize(bias, reference.values)
    differs = _integers_differ(bias.payload, wanted)
    if not differs.any():
        return None
    factor = _constant_factor(bias, reference.values)
    explained = factor is not None or _fits_product_scale(bias, reference.values)
    severity: Severity = "error" if explained else "warning"
    relation = "differs from" if factor is None else f"is {factor:.4g} times"
    message = f"bias %{bias.view.name} {relation} its float values"
    if explained:
        message += ": its type was changed, but its payload was not"
    worst = int(np.argmax(np.abs(bias.dequantized - reference.values)))
    return LintFinding(
        severity,
        message,
        bias.op,
        tensor=bias.view,
        found=f"{bias.dequantized[worst]:.6g} in channel {worst}, from integer"
        f" {bias.payload[worst]} and scale {bias.scales[worst]:.9g}",
        expected=f"{reference.values[worst]:.6g} as in array {reference.source}, from integer"
        f" {wanted[worst]:.0f}",
        hint=REQUANTIZE_HINT
        if explained
        else "Check that the float values include folded batch norms.",
        facts={
            "evidence": "float",
            "source": reference.source,
            "channels": int(differs.sum()),
            **({"factor": factor} if factor is not None else {}),
        },
    )


def _quantize(bias: QuantizedBias, reals: Array) -> Array:
    """Return the integers of real values on the declared scale of a bias, clipped to its type."""
    integers: Array = np.clip(np.rint(reals / bias.scales) + bias.offsets, *bias.limits)
    return integers


def _integers_differ(payload: Array, wanted: Array) -> Array:
    """Return where integers differ by more than rounding explains."""
    far: Array = np.abs(payload - wanted) > MAX_INTEGER_ERROR + MAX_RELATIVE_ERROR * np.abs(wanted)
    return far


def _constant_factor(bias: QuantizedBias, reals: Array) -> float | None:
    """Return declared over real values if the ratio is the same in all channels, else None."""
    own = np.where(_unclipped(bias), bias.dequantized, 0.0)
    common = float(own @ reals)
    if common <= 0.0:
        return None
    factor = float(own @ own) / common
    return factor if _integers_fit(bias, bias.integers, reals / (bias.scales / factor)) else None


def _fits_product_scale(bias: QuantizedBias, reals: Array) -> bool:
    """Return whether the integers fit the scale of input times weights, with or without offset."""
    wanted = reals / bias.product_scales
    return any(_integers_fit(bias, integers, wanted) for integers in (bias.integers, bias.payload))


def _integers_fit(bias: QuantizedBias, integers: Array, wanted: Array) -> bool:
    """Return whether the integers are the expected ones where they are not clipped."""
    inside = _unclipped(bias)
    differs = _integers_differ(integers, wanted)
    return bool(inside.any()) and not bool(differs[inside].any())


def _unclipped(bias: QuantizedBias) -> Array:
    inner: Array = (bias.payload > bias.limits[0]) & (bias.payload < bias.limits[1])
    return inner


def _describe_integers(wanted: Array, payload: Array) -> str:
    worst = int(np.argmax(np.abs(wanted - payload)))
    shown = f"{wanted[worst]:.0f} instead of {payload[worst]} in channel {worst}"
    return f"integers quantized with the declared scale, such as {shown}"
