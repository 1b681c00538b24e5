"""The space of rules of operations without weights: formulas of pairs and of rescaled values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

import attrs

from nmpsim.analysis.identify.rules import (
    DIRECTED,
    FIXED_POINT,
    FLOAT32,
    IN_SUM,
    NEAREST,
    WIDTHS,
    RuleFactor,
    RuleFamily,
    make_families,
    make_float_roundings,
    make_float_texts,
    make_integer_texts,
    make_shift_rounding,
)

_RAISED = 20, 15, 16, 12, 10, 8
"""Bits by which operands are shifted left before they are scaled."""
_RAISED_WIDTHS = 31, 24, 16, 15
_FIRST = "half up", "half away from zero", "down"
_LAST = *NEAREST[:3], *DIRECTED[:2]


_RHS = "hold(rhs, 1 << 17)"
"""Right operand; the range of the word also covers Int32."""


def make_operation_families(
    opcode: str, element: int = 0, *, has_padding: bool = False
) -> list[RuleFamily]:
    """Make the rule families of an operation without weights, the simplest first.

    Parameters
    ----------
    opcode
        Opcode of the operation.
    element
        0 for Int8, 1 for Int16.
    has_padding
        Whether windows of a pool contain padding, so that its divisor matters.
    """
    match opcode:
        case "avgpool":
            found = list(_make_averages(has_padding))
        case "matmul":
            found = list(_make_products(element))
        case "rescalequantized":
            found = list(_replace_sums("x", {"Sw": "1"}))
        case "elementmul":
            names = {"Sx": "Sl", "Dx": "Dl", "Sw": "Sr"}
            found = list(_replace_sums(f"hold(lhs * {_RHS}, 1 << 31)", names))
        case _:
            found = list(_make_sums(opcode))
    return [attrs.evolve(one, rank=rank) for rank, one in enumerate(found)]


def _make_products(element: int) -> Iterator[RuleFamily]:
    """Yield the families of sums without bias, with the scales of two operands."""
    names = {"Sx": "Sl", "Dx": "Dl", "Sw": "Sr"}
    for family in make_families(element, has_bias=False):
        if all(one.form in ("fixed point", "float") for one in family.factors):
            factors = tuple(_rename_scales(one, names) for one in family.factors)
            yield attrs.evolve(family, place="", factors=factors)


def _rename_scales(factor: RuleFactor, names: Mapping[str, str]) -> RuleFactor:
    """Return a factor with other names of scales in its expression."""
    out = re.sub(r"\b[SD][xw]\b", lambda found: names.get(found[0], found[0]), factor.out)
    return attrs.evolve(factor, out=out)


def _replace_sums(value: str, names: dict[str, str]) -> Iterator[RuleFamily]:
    """Yield the families of sums without bias, of another value and with other scales."""
    for factors, texts in (
        (FIXED_POINT, make_integer_texts(IN_SUM, 31)),
        (FLOAT32, make_float_texts(IN_SUM, "float32")),
    ):
        own = tuple(_rename_scales(one, names) for one in factors)
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
        for name, text in make_float_roundings(value, "float32"):
            yield RuleFamily("", name, text, factors)


def _make_raised(count: int, bits: int) -> RuleFactor:
    """Make the factors of two operands that are shifted left by ``count`` bits and then scaled.

    Factors are fixed point with ``bits`` significant bits.
    """
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
    forms = [(f"fixed point of {bits} bits", f"round_bits({{}}, {bits})") for bits in WIDTHS]
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


# --- average pools -------------------------------------------------------------------------------

_STORED = {"in_offset": "0", "out_offset": "0"}
"""Words of a pool that averages stored integers, whose zero points are equal."""
_RECIPROCALS = 16, 15, 8, 12, 20, 24, 31
"""Bits of the reciprocals of numbers of taps."""


def _make_averages(has_padding: bool) -> Iterator[RuleFamily]:
    """Yield the families of average pools; those with other divisors only for padded windows."""
    divisors = {"": "min(divisor, 1 << 16)"}
    if has_padding:
        divisors = {
            " by the number of valid taps": "min(divisor, 1 << 16)",
            " by the size of the window": "max(min(result_scale, 1 << 16), 1)",
        }
    factors = tuple(
        RuleFactor(
            f"fixed point of {bits} bits{name}", "fixed point", f"round_bits(Dx / Dy, {bits})",
            words={"divide": "1", "result_scale": "window", **words},
        )
        for words, name in ((_STORED, ", of stored integers"), ({}, ""))
        for bits in _RAISED_WIDTHS
    )  # fmt: skip
    for name, divisor in divisors.items():
        for rounding, text in _make_divisions(divisor):
            yield RuleFamily("", f"{rounding}{name}", text, factors)
    yield from _make_float_averages()
    for own, texts in (
        (FIXED_POINT, make_integer_texts(IN_SUM, 31)),
        (FLOAT32, make_float_texts(IN_SUM, "float32")),
    ):
        window = tuple(_divide_by_window(one) for one in own)
        for rounding, text in texts:
            yield RuleFamily("", rounding, text, window)
    for bits, (kind, half) in product(
        _RECIPROCALS if has_padding else (), (("nearest", "divisor // 2"), ("lower", "0"))
    ):
        for mode in (*NEAREST[:3], *DIRECTED[:2]):
            lines = [f"inverse = ((1 << {bits}) + {half}) // divisor", "total = acc * inverse"]
            more, result = make_shift_rounding(mode, "total", str(bits), "whole")
            text = "\n".join([*lines, *more, f"{result} + out_offset"])
            yield RuleFamily(
                "", f"{mode} of {kind} reciprocals of {bits} bits", text,
                (factors[0], factors[len(_RAISED_WIDTHS)]),
            )  # fmt: skip


def _divide_by_window(factor: RuleFactor) -> RuleFactor:
    """Return a factor of averages, divided by the number of taps of a window."""
    out = factor.out.replace(" * float64(Sw)", " / window").replace(" * Sw", " / window")
    return attrs.evolve(factor, name=f"{factor.name}, divided by the size of the window", out=out)


def _make_divisions(divisor: str) -> Iterator[tuple[str, str]]:
    """Yield the roundings and formulas of sums that are scaled and divided by ``divisor``."""
    shift = "shift = min(max(31 - out_pre + out_post, 0), 45)"
    start = [f"count = {divisor}", shift]
    total = "total = hold({} * out_mul, 1 << 61)"
    for mode in (*NEAREST, *DIRECTED):
        lines = [*start, total.format("acc"), "parts = count << shift"]
        yield (
            f"{mode}, once",
            "\n".join([*lines, f"{_divide(mode, 'total', 'parts')} + out_offset"]),
        )
    for first, last in product((*NEAREST, *DIRECTED), (*NEAREST[:3], *DIRECTED[:2])):
        more, result = make_shift_rounding(last, "total", "shift", "whole")
        mean = f"mean = hold({_divide(first, 'acc', 'count')}, 1 << 31)"
        text = "\n".join([*start, mean, total.format("mean"), *more, f"{result} + out_offset"])
        yield f"divided {first}, then scaled {last}", text
        more, scaled = make_shift_rounding(last, "total", "shift", "whole")
        lines = [*start, total.format("acc"), *more, f"scaled = hold({scaled}, 1 << 40)"]
        text = "\n".join([*lines, f"{_divide(first, 'scaled', 'count')} + out_offset"])
        yield f"scaled {last}, then divided {first}", text


def _divide(mode: str, value: str, divisor: str) -> str:
    """Return the expression of ``value / divisor``, rounded by ``mode``."""
    above = f"((2 * {value} + {divisor}) // (2 * {divisor}))"
    below = f"-((-2 * {value} + {divisor}) // (2 * {divisor}))"
    match mode:
        case "half away from zero":
            return f"divide_away({value}, {divisor})"
        case "half up":
            return above
        case "half down":
            return below
        case "half to zero":
            less = f"(2 * {value} + {divisor} - 1) // (2 * {divisor})"
            return f"({above} if {value} < 0 else {less})"
        case "half to even":
            return f"({below} if {above} - ({above} >> 1 << 1) > 0 else {above})"
        case "down":
            return f"({value} // {divisor})"
        case "up":
            return f"-(-{value} // {divisor})"
    return f"(-(-{value} // {divisor}) if {value} < 0 else {value} // {divisor})"


def _make_float_averages() -> Iterator[RuleFamily]:
    """Yield the families of float32 averages by the number of valid taps."""
    factors = tuple(
        RuleFactor(f"float32({out}){name}", "float", out, words={"divide": "1", **words})
        for words, name in ((_STORED, ", of stored integers"), ({}, ""))
        for out in ("Sx / Sy", "float32(Dx / Dy)", "Sx * (1 / Sy)")
    )
    count, factor = "float32(divisor)", "real(out_mul)"
    for name, value in {
        "factor divided": f"float32(acc) * ({factor} / {count})",
        "scaled, divided": f"float32(acc) * {factor} / {count}",
        "divided, scaled": f"float32(acc) / {count} * {factor}",
        "multiplied by the reciprocal": f"float32(acc) * (float32(1) / {count}) * {factor}",
    }.items():
        for rounding, text in make_float_roundings(value, "float32"):
            yield RuleFamily("", f"{name}, {rounding}", text, factors)
