"""The space of rules of operations without weights: formulas of pairs and of rescaled values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import attrs

from nmpsim.analysis.identify.rules import (
    DIRECTED,
    FIXED_POINT,
    FLOAT32,
    IN_SUM,
    NEAREST,
    RuleFactor,
    RuleFamily,
    make_float_roundings,
    make_float_texts,
    make_integer_texts,
    make_shift_rounding,
)

_WIDTHS = (31, 16, 15, 24, 8, *(n for n in range(30, 5, -1) if n not in (16, 15, 24, 8)))
_RAISED = 20, 15, 16, 12, 10, 8
"""Bits by which operands are shifted left before they are scaled."""
_RAISED_WIDTHS = 31, 24, 16, 15
_FIRST = "half up", "half away from zero", "down"
_LAST = *NEAREST[:3], *DIRECTED[:2]


_RHS = "hold(rhs, 1 << 17)"
"""Right operand; the range of the word also covers Int32."""


def make_operation_families(opcode: str) -> list[RuleFamily]:
    """Make the rule families of an operation without weights, the simplest first."""
    if opcode == "rescalequantized":
        found = list(_replace_sums("x", {"Sw": "1"}))
    elif opcode == "elementmul":
        found = list(
            _replace_sums(f"hold(lhs * {_RHS}, 1 << 31)", {"Sx": "Sl", "Dx": "Dl", "Sw": "Sr"})
        )
    else:
        found = list(_make_sums(opcode))
    return [attrs.evolve(one, rank=rank) for rank, one in enumerate(found)]


def _replace_sums(value: str, names: dict[str, str]) -> Iterator[RuleFamily]:
    """Yield the families of sums without bias, of another value and with other scales."""
    for factors, texts in (
        (FIXED_POINT, make_integer_texts(IN_SUM, 31)),
        (FLOAT32, make_float_texts(IN_SUM, "float32")),
    ):
        own = tuple(
            attrs.evolve(one, out=re.sub(r"\b[SD][xw]\b", lambda m: names.get(m[0], m[0]), one.out))
            for one in factors
        )
        for name, text in texts:
            yield RuleFamily(
                "", name, f"value = {value}\n" + re.sub(r"\bacc\b", "value", text), own
            )


def _make_sums(opcode: str) -> Iterator[RuleFamily]:
    """Yield the families of sums and differences."""
    sign = "-" if opcode == "elementsub" else "+"
    raised = tuple(_make_raised(count, bits) for count, bits in product(_RAISED, _RAISED_WIDTHS))
    both = f"both = fixed_point(lhs, lhs) {sign} fixed_point({_RHS}, rhs)"
    text = f"{both}\nfixed_point(both, out) + out_offset"
    yield RuleFamily("", "half up, then half away from zero", text, raised)
    for first, last in product(_FIRST, _LAST):
        lines = [*_scale("lhs", "lhs", first), *_scale(_RHS, "rhs", first)]
        lines += [f"both = hold(scaled_lhs {sign} scaled_rhs, 1 << 31)"]
        lines += [*_scale("both", "out", last), "scaled_out + out_offset"]
        yield RuleFamily("", f"operands {first}, sum {last}", "\n".join(lines), raised)
    factors = tuple(_make_pairs())
    for mode in (*NEAREST, *DIRECTED):
        lines = _multiply("lhs", "lhs") + _multiply(_RHS, "rhs")
        lines += ["shift = max(shift_lhs, shift_rhs)"]
        lines += [
            f"more_{one} = min(max(shift - shift_{one}, 0), 60)\n"
            f"left_{one} = hold(product_{one}, (1 << 60) >> more_{one}) << more_{one}"
            for one in ("lhs", "rhs")
        ]
        lines += [f"total = hold(left_lhs {sign} left_rhs, 1 << 61)"]
        more, result = make_shift_rounding(mode, "total", "shift", "whole")
        text = "\n".join([*lines, *more, f"{result} + out_offset"])
        yield RuleFamily("", f"{mode}, once", text, factors)
    for mode in (*NEAREST, *DIRECTED):
        lines = [*_scale("lhs", "lhs", mode), *_scale(_RHS, "rhs", mode)]
        text = "\n".join([*lines, f"scaled_lhs {sign} scaled_rhs + out_offset"])
        yield RuleFamily("", f"operands {mode}, then added", text, factors)
    yield from _make_float_sums(sign)


def _make_float_sums(sign: str) -> Iterator[RuleFamily]:
    """Yield the families of float32 sums and differences."""
    operands = f"(float32(lhs) * real(lhs_mul) {sign} float32(rhs) * real(rhs_mul))"
    scale = {"lhs": "Sl", "rhs": "Sr"}
    ratios = (
        RuleFactor("float32(Sl / Sy)", "float", "", words={"lhs": "Sl / Sy", "rhs": "Sr / Sy"}),
        RuleFactor(
            "float32(Sl * (1 / Sy))", "float", "",
            words={"lhs": "Sl * (1 / Sy)", "rhs": "Sr * (1 / Sy)"},
        ),
    )  # fmt: skip
    divided = RuleFactor("float32, / Sy", "float", "", words=scale | {"result_scale": "bits(Sy)"})
    inverse = RuleFactor(
        "float32, * (1 / Sy)", "float", "", words=scale | {"result_scale": "bits(1 / Sy)"}
    )
    for value, factors in (
        (operands, ratios),
        (f"{operands} / real(result_scale)", (divided,)),
        (f"{operands} * real(result_scale)", (inverse,)),
    ):
        for is_late in (True, False):
            start = value if is_late else f"{value} + float32(out_offset)"
            for mode, lines, result in make_float_roundings(start, "float32"):
                name = mode if is_late else f"{mode} after the zero point"
                last = f"hold({result}, 1 << 60) + out_offset" if is_late else result
                yield RuleFamily("", name, "\n".join([*lines, last]), factors)


def _make_raised(count: int, bits: int) -> RuleFactor:
    """Make the factors of operands that are shifted left before they are scaled."""
    largest = "(2 * max(Dl, Dr))"
    sides = {name: f"round_bits(D{name[0]} / {largest}, {bits})" for name in ("lhs", "rhs")}
    return RuleFactor(
        f"operands raised by {count} bits, fixed point of {bits} bits",
        "fixed point",
        f"round_bits({largest} / ({1 << count} * Dy), {bits})",
        words={**sides, "lhs_pre": f"{count}", "rhs_pre": f"{count}"},
    )


def _make_pairs() -> Iterator[RuleFactor]:
    """Yield the factors of two operands from their scales to the scale of the result."""
    forms = [(f"fixed point of {bits} bits", f"round_bits({{}}, {bits})") for bits in _WIDTHS]
    forms += [
        (f"integers / 2^{shift}", f"rint({{}} * {1 << shift}) / {1 << shift}")
        for shift in range(4, 31)
    ]
    for name, form in forms:
        words = {side: form.format(f"(D{side[0]} / Dy)") for side in ("lhs", "rhs")}
        yield RuleFactor(name, "fixed point", "", words=words)


def _multiply(value: str, name: str) -> list[str]:
    """Return the lines of a product with the multiplier of a scale, and of its shift."""
    return [
        f"shift_{name} = min(max(31 - {name}_pre + {name}_post, 0), 62)",
        f"product_{name} = hold({value} * {name}_mul, 1 << 61)",
    ]


def _scale(value: str, name: str, mode: str) -> list[str]:
    """Return the lines of ``scaled_NAME``, a value that a scale multiplies and rounds."""
    lines, result = make_shift_rounding(mode, f"product_{name}", f"shift_{name}", f"whole_{name}")
    return [*_multiply(value, name), *lines, f"scaled_{name} = hold({result}, 1 << 40)"]
