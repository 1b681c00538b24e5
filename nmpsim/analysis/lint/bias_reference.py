"""A bias whose declared type was changed while its payload was not, found with a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.lint.biases import SAME_SCALE, Bias
from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.subject import OriginalBias, Subject
from nmpsim.analysis.shadow.batch_norms import forms_of
from nmpsim.lir.names import make_legal_name, strip_numeric_suffix

Array: TypeAlias = npt.NDArray[Any]

RULE = "bias-payload"
STEPS_OFF = 1.0
"""Integers may be so far from the reference's; its own rounding is half of it."""
RELATIVE_OFF = 0.01
"""And so much more for scales and references that are not exact."""
SAME_DIRECTION = 0.99
"""Cosine from which on two biases of one size are taken for the same, whatever their scale."""
HINT = "requantize the payload with the type: nmpsim compile --rescale-bias"


def by_original(bias: Bias, original: OriginalBias, subject: Subject) -> Finding | None:
    """Compare with the constant as it was before its type was changed."""
    if original.payload is not None and not np.array_equal(original.payload, bias.payload):
        return None
    if not bias.integers.any():
        return None
    if original.scales is None or original.offsets is None:
        return _by_unknown_original(bias, subject)
    same_scale = np.allclose(bias.scales, original.scales, rtol=SAME_SCALE, atol=0.0)
    if same_scale and bool(np.all(bias.offsets == original.offsets)):
        return None
    reals = original.scales * (bias.payload - original.offsets)
    wanted = _clipped(bias, np.rint(reals / bias.scales) + bias.offsets)
    if not _apart(bias.payload, wanted).any():
        return None
    old = float(np.median(original.scales))
    return at_layer(
        RULE,
        "error",
        f"the type of bias %{bias.view.name} was changed, its payload was not",
        subject,
        bias.op,
        tensor=bias.view,
        found=f"scale {bias.scale_text()} with the integers of scale {old:.9g}",
        expected=_integers_text(wanted, bias.payload),
        hint=HINT,
        facts={
            "evidence": "original",
            "factor": float(np.median(bias.scales / original.scales)),
            "original_scale": old,
        },
    )


def _by_unknown_original(bias: Bias, subject: Subject) -> Finding | None:
    """The same integers as before the change: right only if nothing was changed."""
    if not bias.on_result or bias.on_products:
        return None
    return at_layer(
        RULE,
        "error",
        f"bias %{bias.view.name} is declared on the scale of the result, with the integers that"
        " the original has",
        subject,
        bias.op,
        tensor=bias.view,
        found=f"scale {bias.scale_text()}, payload unchanged",
        expected="integers for that scale",
        hint=f"{HINT}; with --original-tensors the original's scale is compared too",
        facts={"evidence": "original"},
    )


@attrs.frozen(eq=False)
class FloatBias:
    """The float values of a bias."""

    source: str
    values: Array
    """float64, one a channel."""


def find_float_bias(bias: Bias, arrays: Mapping[str, Array]) -> FloatBias | None:
    """The array of the float model that a bias was made from.

    By its name in the LIR; by that name without Glow's ``__N`` if the array points the same way;
    else the one array that does. A scale never changes the direction.
    """
    legal = {make_legal_name(name): name for name in arrays}
    exact = legal.get(bias.view.buffer.name)
    if exact is not None and arrays[exact].size == bias.payload.size:
        forms = forms_of(exact, arrays)
        near = [form for form in forms if _points_as(bias, arrays[form])]
        return _float_bias((near or forms)[0], arrays)
    stem = legal.get(strip_numeric_suffix(bias.view.buffer.name))
    others = [name for name in arrays if name != stem]
    for name in ([stem] if stem else []) + others:
        if arrays[name].size == bias.payload.size and _points_as(bias, arrays[name]):
            return _float_bias(name, arrays)
    return None


def _float_bias(name: str, arrays: Mapping[str, Array]) -> FloatBias:
    return FloatBias(name, arrays[name].astype(np.float64).reshape(-1))


def _points_as(bias: Bias, reals: Array) -> bool:
    """On one scale for all channels, or on each channel's own."""
    flat = reals.astype(np.float64).reshape(-1)
    return any(
        _same_direction(vector, flat)
        for integers in (bias.integers, bias.payload.astype(np.float64))
        for vector in (integers, integers * bias.product_scales)
    )


def _same_direction(a: Array, b: Array) -> bool:
    """A single number always points one way; three do so by chance too often."""
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return a.size > 3 and float(a @ b) >= SAME_DIRECTION * lengths > 0.0


def by_float(bias: Bias, reference: FloatBias, subject: Subject) -> Finding | None:
    """Compare with the float bias."""
    wanted = _clipped(bias, np.rint(reference.values / bias.scales) + bias.offsets)
    apart = _apart(bias.payload, wanted)
    if not apart.any():
        return None
    factor = _constant_factor(bias, reference.values)
    explained = factor is not None or _fits_the_products(bias, reference.values)
    severity: Severity = "error" if explained else "warning"
    times = f"{factor:.4g} times " if factor is not None else "not "
    message = f"bias %{bias.view.name} is {times}its float values"
    if explained:
        message += ": its type was changed, its payload was not"
    worst = int(np.argmax(np.abs(bias.reals - reference.values)))
    return at_layer(
        RULE,
        severity,
        message,
        subject,
        bias.op,
        tensor=bias.view,
        found=f"{bias.reals[worst]:.6g} in channel {worst}, from integer {bias.payload[worst]}"
        f" and scale {bias.scales[worst]:.9g}",
        expected=f"{reference.values[worst]:.6g}, as {reference.source} has it, from integer"
        f" {wanted[worst]:.0f}",
        hint=HINT if explained else "is the reference of before a folded batch norm?",
        facts={
            "evidence": "float",
            "source": reference.source,
            "channels": int(apart.sum()),
            **({"factor": factor} if factor is not None else {}),
        },
    )


def _clipped(bias: Bias, integers: Array) -> Array:
    low, high = bias.limits
    held: Array = np.clip(integers, low, high)
    return held


def _apart(payload: Array, wanted: Array) -> Array:
    """Where the integers differ by more than rounding explains."""
    far: Array = np.abs(payload - wanted) > STEPS_OFF + RELATIVE_OFF * np.abs(wanted)
    return far


def _constant_factor(bias: Bias, reals: Array) -> float | None:
    """Declared over real, if it is the same for all channels up to rounding."""
    own = np.where(_inside(bias), bias.reals, 0.0)
    common = float(own @ reals)
    if common <= 0.0:
        return None
    factor = float(own @ own) / common
    return factor if _fits(bias, bias.integers, reals / (bias.scales / factor)) else None


def _fits_the_products(bias: Bias, reals: Array) -> bool:
    """On the scale of input times weights; the type may have got the result's offset as well."""
    wanted = reals / bias.product_scales
    return any(_fits(bias, integers, wanted) for integers in (bias.integers, bias.payload))


def _fits(bias: Bias, integers: Array, wanted: Array) -> bool:
    """Whether the integers are the wanted ones, as far as they were not clipped."""
    inside = _inside(bias)
    apart = _apart(integers, wanted)
    return bool(inside.any()) and not bool(apart[inside].any())


def _inside(bias: Bias) -> Array:
    inner: Array = (bias.payload > bias.limits[0]) & (bias.payload < bias.limits[1])
    return inner


def _integers_text(wanted: Array, payload: Array) -> str:
    worst = int(np.argmax(np.abs(wanted - payload)))
    return f"for example {wanted[worst]:.0f} instead of {payload[worst]} in channel {worst}"
