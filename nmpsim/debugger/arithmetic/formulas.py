"""Rescalings in steps, each with the integers that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nmpsim.core.reference.operands import INT8, Element, Scale, Words, element_of, float_of_bits
from nmpsim.core.reference.rounding import doubling_high
from nmpsim.core.reference.scales import fixed_point, integer_scale, wide_fixed_point
from nmpsim.debugger.arithmetic.records import WhyStep, nowhere
from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    Q31,
    check_profiles,
)
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW

INTEGER_PROFILES = (GLOW_INT, NMP)


def held_to_32_bits(value: int) -> int:
    """A number as a register of 32 bits that saturates holds it."""
    return max(min(value, (1 << 31) - 1), -(1 << 31))


def number(value: Any) -> int:
    """The only number of an array, or a number."""
    return int(np.asarray(value).reshape(-1)[0])


def factor_of(scale: Scale) -> float:
    """The real factor of a float profile."""
    return float(np.asarray(scale.factor).reshape(-1)[0])


def scaled_steps(
    what: str, x: int, scale: Scale, d: Words, wide: bool = False
) -> Iterator[WhyStep]:
    """From a number to its rescaled value, before the zero point.

    ``wide`` says that x is a sum of Int16 products, which q31 scales in a form of its own. Float
    profiles round once, together with the zero point: of them only the factor is told.
    """
    if d["profile"] in INTEGER_PROFILES:
        yield from _integer_steps(what, x, scale, element_of(d))
    elif d["profile"] == Q31:
        yield from _wide_steps(what, x, scale) if wide else _fixed_steps(what, x, scale)
    else:
        yield WhyStep("factor", "float32", factor_of(scale))


def _integer_steps(what: str, x: int, scale: Scale, element: Element) -> Iterator[WhyStep]:
    pre, mul, post = number(scale.pre), number(scale.mul), number(scale.post)
    half = (1 << post) >> 1
    shifted = x >> pre
    yield WhyStep("shifted", f"{what} >> {pre}", shifted)
    exact = shifted * mul + half
    product = held_to_32_bits(exact) if element == INT8 else exact
    note = f" = {exact}, held to 32 bits" if product != exact else ""
    yield WhyStep("product", f"* {mul} + {half}{note}", product)
    one = Scale(pre, mul, post)
    rescaled = number(integer_scale(np.array([x]), one, element, nowhere()))
    yield WhyStep("rescaled", f">> {post}", rescaled)


def _fixed_steps(what: str, x: int, scale: Scale) -> Iterator[WhyStep]:
    pre, mul, post = number(scale.pre), number(scale.mul), number(scale.post)
    held = held_to_32_bits(x << pre)
    high = number(doubling_high(np.array([held]), mul))
    yield WhyStep("shifted", f"{what} << {pre}, held to 32 bits", held)
    yield WhyStep("product", f"* {mul} / 2^31, rounded", high)
    rescaled = number(fixed_point(np.array([x]), Scale(pre, mul, post), nowhere()))
    yield WhyStep("rescaled", f">> {post}, rounded, halves away from 0", rescaled)


def _wide_steps(what: str, x: int, scale: Scale) -> Iterator[WhyStep]:
    one = Scale(number(scale.pre), number(scale.mul), number(scale.post))
    reduced = (one.mul + 0x8000) >> 16 if one.mul < 0x7FFF_0000 else 0x7FFF
    shift = 15 - one.pre + one.post
    formula = f"({what} * {reduced} + {1 << (shift - 1)}) >> {shift}"
    yield WhyStep("rescaled", formula, number(wide_fixed_point(np.array([x]), one)))


_ROUNDED = {
    GLOW_FLOAT: "rha({what} * {factor:.9g} + {offset})",
    GLOW_FLOAT_LATE: "rha({what} * {factor:.9g}) + {offset}",
    FLOAT: "rne({what} * {factor:.9g}) + {offset}",
    FBGEMM: "rne(({what} + bias) * {factor:.9g}) + {offset}",
    ONEDNN: "rne(({what} * {sx:.9g} * {factor:.9g} + bias) * {result:.9g} + {offset})",
}
"""Of float profiles: rha rounds halves away from 0, rne to even; every operation is a float32's."""
check_profiles(
    f"{__name__}._ROUNDED", (*_ROUNDED, *INTEGER_PROFILES, Q31), "conv", "dwconv", "gemm"
)


def result_formula(what: str, scale: Scale, d: Words, bias: Scale | None = None) -> str:
    """How the result of a sum comes of its rescaled value; ``bias`` None if there is no bias."""
    profile, offset = d["profile"], d["out_offset"]
    if profile == NMP and bias is not None:
        return f"rescaled + bias + {offset}"
    if profile not in _ROUNDED:
        return f"rescaled + {offset}"
    return _ROUNDED[profile].format(
        what=what,
        factor=factor_of(scale),
        offset=offset,
        sx=0.0 if bias is None else factor_of(bias),
        result=float(float_of_bits(d["result_scale"])),
    )


def clip_step(d: Words, result: int) -> WhyStep:
    """The last one: within the range that the descriptor allows."""
    wanted = d["clip_wanted"]
    sides = [name for bit, name in ((WANTED_LOW, "lower"), (WANTED_HIGH, "upper")) if wanted & bit]
    note = f" ({' and '.join(sides)} clip is an activation)" if sides else ""
    return WhyStep("clip", f"to {d['clip_low']} ... {d['clip_high']}{note}", result)
