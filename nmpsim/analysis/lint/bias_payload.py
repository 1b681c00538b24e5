"""The rule ``bias-payload``: a bias whose declared type was changed, while its payload was not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nmpsim.analysis.lint.bias_plausible import (
    Evidence,
    evidence_of,
    is_systematic,
    stands_out,
)
from nmpsim.analysis.lint.bias_reference import (
    HINT,
    RULE,
    by_float,
    by_original,
    find_float_bias,
)
from nmpsim.analysis.lint.biases import Bias
from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """By a reference where there is one for a bias, by plausibility elsewhere."""
    systematic = is_systematic(subject.biases)
    for bias in subject.biases:
        answered, finding = _by_reference(bias, subject)
        if not answered:
            finding = _by_plausibility(bias, subject, systematic)
        if finding is not None:
            yield finding


def _by_reference(bias: Bias, subject: Subject) -> tuple[bool, Finding | None]:
    """Whether a reference knows this bias, and what it says."""
    original = (subject.original or {}).get(bias.view.buffer.name)
    finding = by_original(bias, original, subject) if original else None
    if finding is not None or subject.float_weights is None:
        return original is not None, finding
    reference = find_float_bias(bias, subject.float_weights)
    if reference is None:
        return original is not None, None
    return True, by_float(bias, reference, subject)


def _by_plausibility(bias: Bias, subject: Subject, systematic: bool) -> Finding | None:
    evidence = evidence_of(bias)
    if evidence is None:
        return None
    certain = systematic or evidence == "beyond"
    if not certain and not stands_out(bias, subject.biases):
        return None
    severity: Severity = "error" if certain else "warning"
    where = "the scale of the result" if bias.on_result else f"scale {bias.scale_text()}"
    parts = np.abs(bias.reals) / bias.result_magnitude
    return at_layer(
        RULE,
        severity,
        f"bias %{bias.view.name} is declared on {where}, but its integers seem to be made for"
        " another scale",
        subject,
        bias.op,
        tensor=bias.view,
        found=_found(bias, evidence),
        expected=f"integers for scale {bias.scale_text()}; these may be for"
        f" {float(np.median(bias.product_scales)):.9g}, that of input times weights",
        hint=f"{HINT}; --float-weights or --original-weights make sure",
        facts={
            "evidence": evidence,
            "systematic": systematic,
            "largest_part_of_result": float(parts.max()),
            "median_part_of_result": float(np.median(parts)),
        },
    )


def _found(bias: Bias, evidence: Evidence) -> str:
    parts = np.abs(bias.reals) / bias.result_magnitude
    spans = f"up to {parts.max():.3g} times what the result can hold, {np.median(parts):.3g} times"
    text = f"{spans} in the median channel"
    if evidence != "fills":
        return text
    return f"integers up to {np.abs(bias.integers).max()} of {bias.limits[1]}: {text}"
