"""Ranges of the integers in a formula, and the types of its floats.

A formula states mathematical integers; compiled code computes them in 64 bits. Intervals prove that
all integers fit, for all words that a descriptor may have. :mod:`~nmpsim.kernels.lanes` derives the
width of vectors by the same rules.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

from nmpsim.kernels.formulas import Formula


class Interval(NamedTuple):
    """Closed interval of integers, ``low`` to ``high``."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}" if self.low == self.high else f"{self.low} ... {self.high}"


FLOAT32, FLOAT64 = "float32", "float64"
ValueRange: TypeAlias = Interval | str
"""Range of an integer, or type of a float: FLOAT32 or FLOAT64."""
MAX_SHIFT = 62
"""Largest count of a shift whose range is known."""
_SHIFT_COUNT = Interval(0, MAX_SHIFT)
_ROUNDED = Interval(-(1 << 62), 1 << 62)
"""Range of a rounded float."""


class FormulaError(Exception):
    """Exception for a formula with a type error or an integer that may exceed 64 bits."""

    def __init__(self, message: str, found: object = None, expected: object = None) -> None:
        super().__init__(message)
        self.found, self.expected = found, expected


def require(holds: bool, message: str, found: object = None, expected: object = None) -> None:
    """Raise FormulaError with ``message`` unless ``holds`` is true."""
    if not holds:
        raise FormulaError(message, found, expected)


def make_signed_interval(bits: int) -> Interval:
    """Return the interval of all signed integers of ``bits`` bits."""
    return Interval(-(1 << bits - 1), (1 << bits - 1) - 1)


_INT64 = make_signed_interval(64)


def contains(outer: Interval, inner: Interval) -> bool:
    """Return whether the interval ``outer`` contains all of ``inner``."""
    return outer.low <= inner.low and inner.high <= outer.high


def find_word_range(word: str) -> Interval:
    """Return the range of integers that the descriptor word of this name may contain."""
    if word.endswith(("_pre", "_post")):
        return Interval(0, 31)
    ranges = {"element": Interval(0, 1), "divisor": Interval(1, 1 << 31)}
    ranges |= {"operation": Interval(0, 4), "bias": _INT64}
    return ranges.get(word, make_signed_interval(32))


# --- rules -----------------------------------------------------------------------------------


def find_range(function: Callable[..., int], *operands: Interval) -> Interval:
    """Return the range of a function's results; the function is monotonic in each operand."""
    corners = [function(*at) for at in product(*operands)]
    return Interval(min(corners), max(corners))


def join(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the smallest interval that contains both, or the type that two floats share."""
    if isinstance(one, Interval) and isinstance(other, Interval):
        return Interval(min(one.low, other.low), max(one.high, other.high))
    require(one == other, "mixes types", f"{one} and {other}", "two values of one type")
    return one


def limit(x: Interval, most: Interval) -> Interval:
    """Return the range of ``x`` limited to magnitudes up to ``most``."""
    require(most.low >= 0, "saturates to a negative magnitude", most, "a magnitude of 0 or more")
    return find_range(lambda value: min(max(value, -most.high), most.high), x)


def saturate(x: Interval, bits: Interval) -> Interval:
    """Return the range of ``x`` saturated to a signed integer of ``bits`` bits."""
    require(
        bits.low > 0 and bits.high < 64,
        "saturates to an invalid width",
        f"{bits} bits",
        "1 to 63 bits",
    )
    low, high = make_signed_interval(bits.high)
    return find_range(lambda value: min(max(value, low), high), x)


def _divide_away(x: int, divisor: int) -> int:
    size = (abs(x) + divisor // 2) // divisor
    return size if x >= 0 else -size


def divide_away(x: Interval, divisor: Interval) -> Interval:
    """Return the range of ``x / divisor``, rounded to nearest with halves away from zero."""
    _require_divisor(divisor)
    is_small = max(-x.low, x.high) + divisor.high // 2 < 1 << 63
    require(is_small, "computes an integer that may exceed 64 bits", x, "an integer of 64 bits")
    return find_range(_divide_away, x, divisor)


def shift_away(x: Interval, count: Interval) -> Interval:
    """Return the range of ``x / 2**count``, rounded to nearest with halves away from zero."""
    _require_count(count)
    return find_range(lambda value, shift: _divide_away(value, 1 << shift), x, count)


def _require_count(count: Interval) -> None:
    require(contains(_SHIFT_COUNT, count), "shifts by an invalid count", count, _SHIFT_COUNT)


def _require_divisor(divisor: Interval) -> None:
    require(divisor.low > 0, "may divide by zero or less", divisor, "a positive divisor")


def absolute(x: Interval) -> Interval:
    """Return the range of the absolute value of ``x``."""
    return Interval(max(x.low, -x.high, 0), max(-x.low, x.high))


def _exp2(exponent: Interval) -> ValueRange:
    most = Interval(-1022, 1022)
    require(contains(most, exponent), "has an invalid power of two", exponent, most)
    return FLOAT64


def _combine(_: Interval, x: ValueRange, y: ValueRange) -> ValueRange:
    if not isinstance(x, Interval) or not isinstance(y, Interval):
        return join(x, y)
    found = [find_range(each, x, y) for each in (operator.add, operator.sub, max, min)]
    return Interval(min(one.low for one in found), max(one.high for one in found))


class Primitive(NamedTuple):
    """Primitive function of formulas: argument types, and the rule for the result's range."""

    types: tuple[str, ...]
    """Types of the arguments: ``integer``, ``float``, FLOAT64, or empty for any."""
    find_range: Callable[..., ValueRange]
    """Returns the range or type of the result from those of the arguments."""


_PAIR = "integer", "integer"
_ROUNDINGS = "round_away", "round_even"
PRIMITIVES: Mapping[str, Primitive] = {
    **dict.fromkeys(("limit", "hold", "within"), Primitive(_PAIR, limit)),
    "saturate": Primitive(_PAIR, saturate),
    "shift_away": Primitive(_PAIR, shift_away),
    "divide_away": Primitive(_PAIR, divide_away),
    "min": Primitive(_PAIR, lambda x, y: find_range(min, x, y)),
    "max": Primitive(_PAIR, lambda x, y: find_range(max, x, y)),
    "abs": Primitive(("integer",), absolute),
    **dict.fromkeys(_ROUNDINGS, Primitive(("float",), lambda _: _ROUNDED)),
    "float32": Primitive(("",), lambda _: FLOAT32),
    "float64": Primitive(("",), lambda _: FLOAT64),
    "real": Primitive(("integer",), lambda _: FLOAT32),
    "real64": Primitive(("integer",), lambda _: FLOAT64),
    "exp2": Primitive(("integer",), _exp2),
    "fma": Primitive((FLOAT64,) * 3, lambda *_: FLOAT32),
    "combine": Primitive(("integer", "", ""), _combine),
}
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.FloorDiv: operator.floordiv,
}
_FLOAT_OPERATORS = ast.Add, ast.Sub, ast.Mult, ast.Div


# --- formulas --------------------------------------------------------------------------------


def infer_ranges(formula: Formula, values: Mapping[str, ValueRange]) -> dict[str, ValueRange]:
    """Infer the range or float type of each constant and step of a formula; return them by name.

    Parameters
    ----------
    formula
        Formula whose syntax is valid.
    values
        Ranges and types of its words and varying values.

    Raises
    ------
    FormulaError
        A type is wrong, or an integer may exceed 64 bits.
    """
    return FormulaRanges(formula, values).find((*formula.constants, *formula.steps))


def find_parameter_ranges(formula: Formula) -> dict[str, ValueRange]:
    """Return a mapping from each parameter of a formula to its range or float type."""
    words = {word: find_word_range(word) for word in formula.words}
    found = words | FormulaRanges(formula, words).find(formula.constants)
    return {name: found[name] for name in formula.parameters}


class FormulaRanges:
    """Ranges of the integers, and types of the floats, of a formula's constants and steps.

    Parameters
    ----------
    formula
        Formula whose syntax is valid.
    values
        Ranges and types of names that are not terms.
    rounded
        Range of a rounded float.
    """

    def __init__(
        self, formula: Formula, values: Mapping[str, ValueRange], rounded: Interval = _ROUNDED
    ) -> None:
        self._values, self._rounded = dict(values), rounded
        self.terms = {
            name: ast.parse(term, mode="eval").body
            for name, term in (*formula.constants, *formula.steps)
        }
        """Expressions of constants and steps."""

    def find(self, terms: tuple[tuple[str, str], ...]) -> dict[str, ValueRange]:
        """Return the range or float type of each term by name; store it for later terms.

        Raises
        ------
        FormulaError
            A type is wrong, or an integer may exceed 64 bits.
        """
        for name, _ in terms:
            self._values[name] = self._visit(self.terms[name])
        return {name: self._values[name] for name, _ in terms}

    def _visit(self, node: ast.expr) -> ValueRange:
        value = self.get_range(node)
        if isinstance(value, Interval) and not contains(_INT64, value):
            found = f"{ast.unparse(node)}: {value}"
            raise FormulaError(
                "computes an integer that may exceed 64 bits", found, "an integer of 64 bits"
            )
        return value

    def get_range(self, node: ast.expr) -> ValueRange:
        """Compute the range of an integer expression, or return the type of a float one."""
        match node:
            case ast.Constant(int(value)):
                return Interval(value, value)
            case ast.Name(name):
                return self._values[name]
            case ast.UnaryOp(ast.USub(), operand):
                return find_range(operator.neg, self._require_integer(operand))
            case ast.BinOp():
                return self._operate(node)
            case ast.IfExp(ast.Compare(left, _, [right]), body, orelse):
                sides = self._visit(left), self._visit(right)
                is_valid = type(sides[0]) is type(sides[1])
                require(
                    is_valid,
                    "compares values of different types",
                    ast.unparse(node),
                    "two values of one type",
                )
                return join(self._visit(body), self._visit(orelse))
            case ast.Call(ast.Name(name), arguments):
                return self._call(name, arguments, ast.unparse(node))
        raise AssertionError(ast.dump(node))

    def get_interval(self, node: ast.expr) -> Interval:
        """Compute the range of an integer expression; the range may exceed 64 bits."""
        value = self.get_range(node)
        assert isinstance(value, Interval)
        return value

    def _require_integer(self, node: ast.expr) -> Interval:
        value = self._visit(node)
        if not isinstance(value, Interval):
            raise FormulaError(
                "uses a float where an integer is required", ast.unparse(node), "an integer"
            )
        return value

    def _operate(self, node: ast.BinOp) -> ValueRange:
        left, right, text = self._visit(node.left), self._visit(node.right), ast.unparse(node)
        if not isinstance(left, Interval) or not isinstance(right, Interval):
            is_known = isinstance(node.op, _FLOAT_OPERATORS)
            require(
                is_known, "has an operator that floats do not support", text, "one of +, -, * and /"
            )
            return join(left, right)
        function = _OPERATORS.get(type(node.op))
        if function is None:
            raise FormulaError(
                "has an operator that integers do not support", text, "one of + - * << >> //"
            )
        if isinstance(node.op, ast.LShift | ast.RShift):
            _require_count(right)
        if isinstance(node.op, ast.FloorDiv):
            _require_divisor(right)
        found = find_range(function, left, right)
        most = self._find_common_shift(node) if isinstance(node.op, ast.LShift) else None
        return found if most is None else limit(found, self._require_integer(most))

    def _find_common_shift(self, node: ast.BinOp) -> ast.expr | None:
        """Return c of ``hold(x, c >> n) << n``, which is within +-c; None for other terms."""
        match self._resolve(node.left):
            case ast.Call(ast.Name("hold" | "limit"), [_, most]):
                most = self._resolve(most)
                if isinstance(most, ast.BinOp) and isinstance(most.op, ast.RShift):
                    is_common = ast.unparse(most.right) == ast.unparse(node.right)
                    return most.left if is_common else None
        return None

    def _resolve(self, node: ast.expr) -> ast.expr:
        return self.terms.get(node.id, node) if isinstance(node, ast.Name) else node

    def _call(self, name: str, arguments: list[ast.expr], text: str) -> ValueRange:
        primitive = PRIMITIVES[name]
        visit = self.get_range if name == "within" else self._visit
        values = [visit(one) for one in arguments]
        for value, kind in zip(values, primitive.types, strict=True):
            found = "integer" if isinstance(value, Interval) else value
            is_valid = kind in ("", found) or (kind == "float" and found != "integer")
            require(is_valid, "has an argument of the wrong type", text, kind)
        return self._rounded if name in _ROUNDINGS else primitive.find_range(*values)
