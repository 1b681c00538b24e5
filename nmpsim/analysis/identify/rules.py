"""The space of rules that requantize sums: texts in the formula language, and their factors.

A rule is a bias place, a factor and a rounding. Rules with one formula form a family: they differ
in their factor only, so that one evaluation covers all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import attrs

from nmpsim.records import frozen

IN_SUM, IN_PRODUCT, IN_RESULT, IN_REAL = "sum", "product", "result", "real"
IDEAL = "Dx * float64(Sw) / Dy"
"""Real factor from the scale of the sums to that of the result."""
_SHIFT = "shift = min(max(31 - out_pre + out_post, 0), 62)"
_POST = "post = min(max(out_post, 0), 31)"
_MOST = "1 << 61"
_BIAS = {
    IN_SUM: "",
    IN_PRODUCT: " + hold(bias, 1 << 61)",
    IN_RESULT: "",
    IN_REAL: "",
}


@frozen
class RuleFactor:
    """Factor of a rule: the number format of the ratio of the sums' scale to the result's scale."""

    name: str
    form: str
    """Form of its words, as in a table of factors."""
    out: str
    """Expression of the factor, in the language of a table of factors."""
    unit: str = ""
    """Expression of the exponent of the multiplier's last bit; empty for floats."""
    bits: int = 31
    """Width of the multiplier in the formula."""
    words: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    """Expressions of other words of an operation with two operands."""


@frozen
class RuleFamily:
    """Family of requantization rules that share a formula and differ in the factor."""

    place: str
    """Stage at which the bias is added; empty for operations without bias."""
    rounding: str
    """Name of the rounding."""
    text: str
    """Formula of sums."""
    factors: tuple[RuleFactor, ...]
    bias: str = "rint"
    """Rounding of a bias that is not on the scale of the sum."""
    rank: int = 0
    """Position in the order of simplicity."""

    @property
    def adds_bias_first(self) -> bool:
        """Whether a real bias is added to the sum before the multiplication by the factor."""
        return self.rounding.startswith("bias first")

    @property
    def rounds_twice(self) -> bool:
        """Whether a product is rounded twice, or a sum before its multiplication."""
        return ", then " in self.rounding or self.rounding.startswith("TOSA")

    def make_factor_row(self, factor: RuleFactor) -> Mapping[str, str]:
        """Make the row of a formulas file's table of factors for the rule with ``factor``."""
        row = {"form": factor.form, **({"out": factor.out} if factor.out else {}), **factor.words}
        if not self.place:
            return row
        if self.place == IN_SUM:
            return row | {"rounded_bias": "real / (Sx * Sw)"}
        if self.place == IN_RESULT:
            return row | {"result_bias": f"{self.bias}(float64(sum_bias) * ({IDEAL}))"}
        if self.place == IN_REAL:
            if factor.form == "float64":
                return row | {"real_bias": "float64(real) / Dy"}
            real = "real / (Sx * Sw)" if self.adds_bias_first else "real / Sy"
            return row | {"real_bias": real}
        scaled = f"{self.bias}(float64(sum_bias) * ({IDEAL}) / exp2({factor.unit}))"
        aligned = f"exp2({factor.unit} + {factor.bits} - exponent({factor.out}))"
        return row | {"result_bias": f"{scaled} * {aligned}"}


# --- factors -------------------------------------------------------------------------------------


def _make_fixed_point(bits: int, function: str = "round_bits") -> RuleFactor:
    cut = "" if function == "round_bits" else ", rounded down"
    out = f"{function}({IDEAL}, {bits})"
    name = f"fixed point of {bits} bits{cut}"
    return RuleFactor(name, "fixed point", out, f"exponent({out}) - {bits}")


def _make_common_shift(shift: int, function: str) -> RuleFactor:
    cut = "" if function == "rint" else ", rounded down"
    out = f"{function}({IDEAL} * {1 << shift}) / {1 << shift}"
    return RuleFactor(f"integer / 2^{shift}{cut}", "fixed point", out, f"-{shift}")


WIDTHS = (31, 16, 15, 24, 8, *(n for n in range(30, 5, -1) if n not in (16, 15, 24, 8)))
_FLOAT32_RATIOS = (
    "Sx * Sw / Sy", f"float32({IDEAL})", "Sx * Sw * (1 / Sy)", "Sx / Sy * Sw",
)  # fmt: skip
FIXED_POINT = (
    *(_make_fixed_point(bits) for bits in WIDTHS),
    *(_make_common_shift(shift, "rint") for shift in range(4, 32)),
    *(
        RuleFactor(f"power of two, {name}", "fixed point", f"exp2({out})", out)
        for name, out in (
            ("nearest exponent", f"rint(log2({IDEAL}))"),
            ("above", f"ceil(log2({IDEAL}))"),
            ("below", f"floor(log2({IDEAL}))"),
        )
    ),
    _make_fixed_point(1),
    *(
        RuleFactor(
            f"mantissa of float32({out})", "fixed point", f"float64({out})", f"exponent({out}) - 24"
        )
        for out in _FLOAT32_RATIOS
    ),
    *(_make_fixed_point(bits, "floor_bits") for bits in WIDTHS),
    *(_make_common_shift(shift, "floor") for shift in range(4, 32)),
)
"""Factors whose multiplier fits 31 bits; the simplest first."""
FLOAT32 = tuple(RuleFactor(f"float32({out})", "float", out) for out in _FLOAT32_RATIOS)
FLOAT64 = (
    RuleFactor("float64", "float64", IDEAL),
    RuleFactor("float64 of the float32 factor", "float64", "float64(Sx * Sw / Sy)"),
    RuleFactor("float64 of float32(Sx * Sw) / Sy", "float64", "float64(Sx * Sw) / Dy"),
)
LONG = tuple(
    attrs.evolve(_make_fixed_point(32, function), form="float64", bits=32)
    for function in ("round_bits", "floor_bits")
)
"""Factors whose multiplier has 32 bits."""
SHIFTS = (RuleFactor("integer with two shifts", "shift", "Sx * Sw / Sy"),)


# --- roundings of integers -----------------------------------------------------------------------

NEAREST = "half away from zero", "half up", "half to even", "half down", "half to zero"
DIRECTED = "down", "toward zero", "up"


def make_shift_rounding(mode: str, value: str, shift: str, name: str) -> tuple[list[str], str]:
    """Make the assignments and the expression of ``value / 2^shift``, rounded by ``mode``."""
    half = f"(1 << {shift} >> 1)"
    less = f"max({half} - 1, 0)"
    match mode:
        case "half away from zero":
            return [], f"shift_away({value}, {shift})"
        case "half up":
            return [], f"({value} + {half} >> {shift})"
        case "half down":
            return [], f"-(-{value} + {half} >> {shift})"
        case "half to zero":
            return [], f"({value} + ({half} if {value} < 0 else {less}) >> {shift})"
        case "half to even":
            odd = f"min({half}, 1) * hold({name} - ({name} >> 1 << 1), 1)"
            return [f"{name} = {value} >> {shift}"], f"({value} + {less} + {odd} >> {shift})"
        case "down":
            return [], f"({value} >> {shift})"
        case "up":
            return [], f"-(-{value} >> {shift})"
    return [], f"({value} + ((1 << {shift}) - 1 if {value} < 0 else 0) >> {shift})"


def _round_with_offset(mode: str) -> list[str]:
    """Return the lines of a result whose zero point is added before the rounding."""
    lines = ["low = {value} >> {shift}"]
    if mode == "half to even":
        lines += ["place = low + out_offset", "odd = hold(place - (place >> 1 << 1), 1)"]
        half = "(1 << {shift} >> 1)"
        lines += [
            f"({{value}} + max({half} - 1, 0) + min({half}, 1) * odd >> {{shift}}) + out_offset"
        ]
        return lines
    first, second = ("half up", "half down") if mode in NEAREST else ("down", "up")
    above, below = (
        make_shift_rounding(one, "{value}", "{shift}", "")[1] for one in (first, second)
    )
    return [*lines, f"({above} if low + out_offset >= 0 else {below}) + out_offset"]


def _finish(lines: list[str], result: str, place: str) -> str:
    bias = " + hold(bias, 1 << 60)" if place == IN_RESULT else ""
    return "\n".join([*lines, f"{result}{bias} + out_offset"])


_MULTIPLIERS = {
    15: "(out_mul >> 16)",
    31: "out_mul",
    32: "((max(out_mul, 0) << 1) + min(max(bias_mul, 0) >> 21, 1))",
}
"""Multipliers by width: Int16's, a word, and the upper bits of a float64 factor."""


def make_integer_texts(place: str, bits: int) -> Iterator[tuple[str, str]]:
    """Make formulas that round a product with a multiplier; yield (name, formula) pairs."""
    shift = _SHIFT.replace("31", str(bits))
    total = f"total = hold(hold({{x}} * {_MULTIPLIERS[bits]}, 1 << 62){_BIAS[place]}, {_MOST})"
    if not _BIAS[place]:
        total = f"total = hold({{x}} * {_MULTIPLIERS[bits]}, {_MOST})"
    start = [shift, total.format(x="acc")]
    for mode in (*NEAREST, *DIRECTED):
        lines, result = make_shift_rounding(mode, "total", "shift", "whole")
        yield mode, _finish([*start, *lines], result, place)
    if place != IN_RESULT:
        for mode in ("half away from zero", "toward zero", "half to even"):
            lines = [one.format(value="total", shift="shift") for one in _round_with_offset(mode)]
            yield f"{mode} after the zero point", "\n".join([*start, *lines])
    if bits == 32:
        return
    extra = f"extra = (1 << {bits - 1}) if shift > {bits} else 0"
    tosa = "(total + (1 << shift >> 1) + (extra if acc >= 0 else -extra) >> shift)"
    yield "TOSA's double rounding", _finish([*start, extra, f"whole = {tosa}"], "whole", place)
    if place == IN_PRODUCT:
        return
    if bits == 31:
        pre = "pre = min(max(out_pre, 0), 31)"
        left = "saturate(hold(acc, (1 << 62) >> pre) << pre, 32)"
        begin = [pre, _POST, f"raised = {left}", total.format(x="raised")]
        for first, second in product((*NEAREST, "down", "toward zero"), (*NEAREST, *DIRECTED)):
            if (first, second) == ("down", "down"):
                continue
            lines, high = make_shift_rounding(first, "total", "31", "even_high")
            more, result = make_shift_rounding(second, "high", "post", "whole")
            yield (
                f"{first}, then {second}",
                _finish([*begin, *lines, f"high = {high}", *more], result, place),
            )
    if place != IN_SUM:
        return
    for count, first, second in product(
        range(1, 9), ("down", "half up"), ("half up", "half away from zero", "down")
    ):
        lines, x = make_shift_rounding(first, "acc", str(count), "even_x")
        rest = f"rest = max(shift - {count}, 0)"
        more, result = make_shift_rounding(second, "total", "rest", "whole")
        begin = [shift, rest, *lines, f"narrow = {x}", total.format(x="narrow")]
        yield (
            f"{first} by {count} bits first, then {second}",
            _finish([*begin, *more], result, place),
        )


def _make_shift_texts(place: str) -> Iterator[tuple[str, str]]:
    """Yield the names and formulas of a multiplier between two shifts."""
    for first, second in product(
        ("down", "half up", "half away from zero", "toward zero"), (*NEAREST[:3], *DIRECTED[:2])
    ):
        lines, x = make_shift_rounding(first, "acc", "pre", "even_x")
        more, result = make_shift_rounding(second, "total", "post", "whole")
        begin = ["pre = min(max(out_pre, 0), 31)", _POST, *lines, f"narrow = {x}"]
        begin += [f"total = hold(narrow * out_mul, {_MOST})", *more]
        yield f"shift {first}, then {second}", _finish(begin, result, place)


# --- roundings of floats -------------------------------------------------------------------------

_NEAR = ["near = round_even(scaled)"]
_LOW = "(near - 1 if float64(near) > float64(scaled) else near)"
_HIGH = "(near + 1 if float64(near) < float64(scaled) else near)"
_FLOATS = {
    "half to even": ([], "round_even(scaled)"),
    "half away from zero": ([], "round_away(scaled)"),
    "down": (_NEAR, _LOW),
    "toward zero": (_NEAR, f"({_HIGH} if float64(scaled) < float64(0) else {_LOW})"),
    "up": (_NEAR, _HIGH),
}


def make_float_texts(place: str, kind: str) -> Iterator[tuple[str, str]]:
    """Make formulas that round a float32 or float64 product; yield (name, formula) pairs."""
    factor = "real(out_mul)"
    if kind == "float64":
        exponent = "min(max(out_pre - out_post, -100), 100) - 53"
        factor = f"(float64((out_mul << 22) + bias_mul) * exp2({exponent}))"
    products = {"": f"{kind}(acc) * {factor}"}
    if place == IN_REAL:
        products = {"": f"{kind}(acc) * {factor} + {kind}(real64(bias))"}
        if kind == "float32":
            biased = "float32(float64(float32(acc)) + real64(bias))"
            products["bias first, "] = f"{biased} * {factor}"
    for first, value in products.items():
        for name, text in make_float_roundings(value, kind, place):
            yield f"{first}{name}", text


def make_float_roundings(value: str, kind: str, place: str = "") -> Iterator[tuple[str, str]]:
    """Make formulas that round a float without or with its zero point; yield (name, formula)."""
    for more, start in (("", value), (" after the zero point", f"{value} + {kind}(out_offset)")):
        if more and place == IN_RESULT:
            continue
        half = [f"ideal = {start}", f"scaled = ideal + {kind}(exp2(-1))", *_NEAR]
        found = [(mode, [f"scaled = {start}", *one], text) for mode, (one, text) in _FLOATS.items()]
        for mode, lines, result in (*found, ("half up", half, _LOW)):
            late = _finish(lines, f"hold({result}, 1 << 60)", place)
            yield f"{mode}{more}", "\n".join([*lines, result]) if more else late


_SIMPLE, _UNUSUAL = 200, 2000
"""How much simpler Glow's shifts are than their position says, and how much less simple a shift
before the product."""


def make_families(element: int, *, has_bias: bool = True) -> list[RuleFamily]:
    """Make the families of requantization rules for an element type, the simplest first.

    Parameters
    ----------
    element
        0 for Int8, 1 for Int16, whose sums have 48 bits.
    has_bias
        Whether a bias differs from 0; otherwise its place does not matter.
    """
    found: list[RuleFamily] = []

    def add(place: str, factors: tuple[RuleFactor, ...], texts: Iterator[tuple[str, str]]) -> None:
        for name, text in texts:
            rank = len(found) + (_UNUSUAL if name.endswith("first") or " first, " in name else 0)
            rank -= _SIMPLE if factors is SHIFTS else 0
            found.append(RuleFamily(place, name, text, factors, "rint", rank))
            if place in (IN_PRODUCT, IN_RESULT) and name in (*NEAREST, *DIRECTED):
                found.append(RuleFamily(place, name, text, factors, "floor", len(found)))

    wide = element == 1
    fixed, bits = FIXED_POINT, 31
    if wide:
        narrow = [one for one in FIXED_POINT if one.name in _NARROW]
        fixed, bits = tuple(attrs.evolve(one, bits=15) for one in narrow), 15
    places = (IN_SUM, IN_PRODUCT, IN_RESULT) if has_bias else (IN_SUM,)
    for place in places:
        add(place, fixed, make_integer_texts(place, bits))
    for place in (IN_SUM, IN_REAL, IN_RESULT) if has_bias else (IN_SUM,):
        add(place, FLOAT32, make_float_texts(place, "float32"))
        add(place, FLOAT64, make_float_texts(place, "float64"))
    for place in (IN_SUM, IN_RESULT) if has_bias and not wide else () if wide else (IN_SUM,):
        add(place, SHIFTS, _make_shift_texts(place))
    for place in () if wide else places:
        add(place, LONG, make_integer_texts(place, 32))
    return found


_NARROW = {
    f"fixed point of {bits} bits{cut}" for bits in range(1, 16) for cut in ("", ", rounded down")
}
