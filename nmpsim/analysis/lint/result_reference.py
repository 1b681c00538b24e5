"""The rule ``result-differs``: scales and zero points of results against the float model alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nmpsim.analysis.lint.bias_reference import by_float, find_float_bias
from nmpsim.analysis.lint.biases import SAME_SCALE, Bias
from nmpsim.analysis.lint.findings import Finding, at_layer
from nmpsim.analysis.lint.result_estimate import Estimate, estimates
from nmpsim.analysis.lint.scales import HALF_DIGIT
from nmpsim.analysis.lint.subject import Subject
from nmpsim.analysis.lint.weights_reference import Weights, weights_of
from nmpsim.analysis.shadow.matching import match_constants
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place, UserError

RULE = "result-differs"
ALONE = 2.75
"""Bits by which a type may reach farther, or less far, than its neighbours' for its values."""
WITH_THOSE_AFTER = 1.75
"""The same where all that is computed from it has the opposite: the scale between them is off."""
OFF = 0.01
"""Relative error of a scale that is worth a word."""
SHARE = 0.4
"""Of a type, by which the part for negative values may be another than estimated."""


def check(subject: Subject) -> Iterator[Finding]:
    """What biases prove, then what a run of the float model on made-up inputs makes likely."""
    if subject.float_weights is None:
        return
    proved = dict(_by_biases(subject))
    yield from proved.values()
    try:
        found = estimates(subject)
    except UserError as error:
        (first, *_) = error.diagnostics
        text = (
            f"results are not compared with the float model, which cannot be run: {first.message}"
        )
        yield Finding(RULE, "note", text, Place(subject.module.file), facts={"by": "run"})
        return
    if not proved:  # a scale that is off makes those after it look off
        yield from _by_scales(found, subject)
    yield from _by_zero_points(found, subject)


def _by_biases(subject: Subject) -> Iterator[tuple[str, Finding]]:
    """A bias is on the scale of input times weights: where both are right, so is the input's.

    Only Int32 biases, which Glow and TFLite put there, and only where most are.
    """
    wide = [bias for bias in subject.biases if bias.view.type.elem == "i32" and bias.integers.any()]
    others = [bias for bias in wide if not bias.on_result and _is_off(bias, subject)]
    if 2 * len(others) >= len(wide):
        return
    weights = weights_of(subject)
    for bias in others:
        one = weights.get(bias.op.operands[2].buffer.name)
        factors = bias.product_scales / bias.scales
        alike = np.allclose(factors, factors[0], rtol=100 * SAME_SCALE, atol=0.0)
        if one is not None and alike and _is_the_float_models(bias, one, subject):
            source = bias.op.operands[1]
            yield source.buffer.name, _proved(bias, source, float(factors[0]), subject)


def _is_off(bias: Bias, subject: Subject) -> bool:
    """By more than rounding, and what nine decimals leave of scales."""
    rounded = HALF_DIGIT / float(bias.scales.min()) if subject.printed_only else 0.0
    factors = bias.product_scales / bias.scales
    return bool((np.abs(factors - 1.0) > OFF + 3 * rounded).all())


def _is_the_float_models(bias: Bias, weights: Weights, subject: Subject) -> bool:
    """Both constants of a layer."""
    arrays = subject.float_weights or {}
    name = weights.view.buffer.name
    floats = match_constants({name: weights.reals}, arrays).floats
    found = find_float_bias(bias, arrays)
    return (
        name in floats
        and weights.fits(floats[name])
        and found is not None
        and by_float(bias, found, subject) is None
    )


def _proved(bias: Bias, source: View, factor: float, subject: Subject) -> Finding:
    earlier = subject.operations[: subject.operations.index(bias.op)]
    writers = [op for op in earlier if op.operands[0].buffer.name == source.buffer.name]
    op = writers[-1] if writers else bias.op
    return at_layer(
        RULE,
        "error",
        f"the scale of %{source.name} is {factor:.4g} times what the constants of"
        f" %{bias.op.instruction.name} were quantized for",
        subject,
        op,
        found=f"{source.scale:.9g}",
        expected=f"{source.scale / factor:.9g}: the scale of bias %{bias.view.name} over that of"
        " the weights; both hold the values of the float model",
        hint="the scale with which these constants were made",
        facts={"by": "bias", "factor": factor},
    )


def _by_scales(found: list[Estimate], subject: Subject) -> Iterator[Finding]:
    opposed = [one for one in found if _is_opposed(one)]
    explained = [after for one in opposed for after in one.after]
    for one in found:
        bits = one.step
        if one.is_part or (one not in opposed and (abs(bits) < ALONE or one in explained)):
            continue
        low, high = _reach(one)
        yield at_layer(
            RULE,
            "warning",
            f"the type of the result of %{one.op.instruction.name} reaches about {2.0**bits:.2g}"
            " times as far as the float model makes likely",
            subject,
            one.op,
            found=f"{low:.6g} to {high:.6g}",
            expected=f"about {low / 2.0**bits:.2g} to {high / 2.0**bits:.2g}, by the results"
            " before it and a run on made-up inputs",
            hint="is the scale that of this result? --ranges with a profile tells for sure",
            facts={"by": "run", "factor": 2.0**bits},
        )


def _is_opposed(one: Estimate) -> bool:
    """Whether a result differs from those before it, and those after it from it."""
    steps = [abs(one.step), *(-after.step * np.sign(one.step) for after in one.after)]
    return len(steps) > 1 and min(steps) >= WITH_THOSE_AFTER


def _by_zero_points(found: list[Estimate], subject: Subject) -> Iterator[Finding]:
    """A result that is never negative has its zero at the end, or all have it in the middle."""
    offsets = [one.view.offset for one in found if one.range.low >= 0]
    in_the_middle = 2 * offsets.count(0) > len(offsets)
    for one in found:
        likely = _share(one.range.low, one.range.high)
        if one.is_part or not _contradicts(one, likely, in_the_middle):
            continue
        low, high = _reach(one)
        part = f"{100 * likely:.0f} % of the type for negative values, by a run on made-up inputs"
        yield at_layer(
            RULE,
            "warning",
            f"the zero point of the result of %{one.op.instruction.name} is not one for the"
            " values of the float model",
            subject,
            one.op,
            found=f"{one.view.offset}: {low:.6g} to {high:.6g}",
            expected="0, as of the other results" if in_the_middle else f"about {part}",
            hint="is it that of this result? --ranges with a profile tells for sure",
            facts={"by": "zero point", "offset": one.view.offset},
        )


def _contradicts(one: Estimate, likely: float, in_the_middle: bool) -> bool:
    """In the schema that the zero points of results without negative values tell."""
    offset, lowest = one.view.offset, one.view.limits[0]
    if in_the_middle:
        return offset != 0
    if one.range.low >= 0:
        return offset != lowest
    return offset not in (0, lowest) and abs(_share(*_reach(one)) - likely) > SHARE


def _share(low: float, high: float) -> float:
    """Part of a range that is negative."""
    low, high = min(low, 0.0), max(high, 0.0)
    return -low / (high - low)


def _reach(one: Estimate) -> tuple[float, float]:
    low, high = (one.view.scale * (end - one.view.offset) for end in one.view.limits)
    return low, high
