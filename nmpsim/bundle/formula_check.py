"""Checks of a user's formulas: their syntax and, for each kind, the names that they may use."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from nmpsim.diagnostics import did_you_mean, format_count
from nmpsim.isa.profiles import PROFILES, REAL, ROWS
from nmpsim.kernels.formula_ranges import (
    FLOAT32,
    PRIMITIVES,
    FormulaError,
    Interval,
    ValueRange,
    find_word_range,
    infer_ranges,
    make_signed_interval,
    require,
)
from nmpsim.kernels.formulas import ELEMENTS, RESULT, FormulaReader, FormulaTable
from nmpsim.records import frozen

MAX_STEPS = 32
"""Most assignments and calls of functions in a formula."""
MAX_TEXT = 1000
"""Most characters of a formula."""
MAX_PARAMETERS = 6
"""Most numbers of a channel on which a formula of sums may depend."""
MAX_DEPTH = 60
"""Deepest nesting of the expressions of a formula."""
FUNCTION_NAMES = {"x", "pre", "mul", "post", "element"}
"""Names that a function may use, besides constants."""
SCALE_WORDS = ("pre", "mul", "post")
"""Words of a scale, which follow its name."""
_COMPARISONS = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq


@frozen
class FormulaKind:
    """Kind of formula, defined by the values, scales and words that such a formula may name."""

    values: tuple[str, ...]
    scales: tuple[str, ...] = ()
    words: tuple[str, ...] = ("out_offset", "result_scale")

    @property
    def names(self) -> set[str]:
        """Names of all values and words that a formula of this kind may use, and ``element``."""
        parts = (f"{scale}_{part}" for scale in self.scales for part in SCALE_WORDS)
        return {*self.values, *self.words, *parts, "element"}


_PAIR = FormulaKind(
    ("lhs", "rhs"), ("lhs", "rhs", "out"), ("operation", "out_offset", "result_scale")
)
KINDS = {
    "bias": FormulaKind((), ("bias",), ("bias",)),
    "sums": FormulaKind(("acc",), ("bias", "out"), ("bias", "out_offset", "result_scale")),
    "leaky_sums": FormulaKind(("acc",), ("leaky",), ("out_offset",)),
    "average": FormulaKind(("acc",), ("out",), ("divisor", "out_offset", "result_scale")),
    "rescale": FormulaKind(("x",), ("out", "leaky")),
    "leaky": FormulaKind(("x",), ("out", "leaky")),
    **dict.fromkeys(("add", "sub", "max", "min", "mul"), _PAIR),
}
RESERVED = FUNCTION_NAMES.union({"total"}, *(kind.names for kind in KINDS.values()))
"""Names that a constant must not have."""


# --- syntax ----------------------------------------------------------------------------------


def _parse(text: object) -> tuple[list[tuple[str, ast.expr]], ast.expr]:
    """Return the assignments of a formula and its last expression."""
    if not isinstance(text, str):
        raise FormulaError("is not text", type(text).__name__, "a formula in quotation marks")
    require(
        len(text) <= MAX_TEXT,
        "is too long",
        f"{len(text):,} characters",
        f"at most {MAX_TEXT} characters",
    )
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormulaError("is not an expression in Python's syntax", error) from error
    depth, level, body = 0, list[ast.AST]([tree]), tree.body
    while level:
        level, depth = [child for one in level for child in ast.iter_child_nodes(one)], depth + 1
        require(depth <= MAX_DEPTH, "is nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    steps = []
    for one in body[:-1]:
        match one:
            case ast.Assign([ast.Name(name)], value):
                steps.append((name, value))
            case _:
                raise FormulaError(
                    "has an invalid statement", ast.unparse(one), "NAME = EXPRESSION"
                )
    if not body or not isinstance(body[-1], ast.Expr):
        found = ast.unparse(body[-1]) if body else "nothing"
        raise FormulaError(
            "has no result", f"the last line {found}", "an expression as the last line"
        )
    return steps, body[-1].value


class SyntaxChecker:
    """Checker of a formula's syntax that allows only known operations and names.

    Parameters
    ----------
    table
        All formulas, whose constants and functions may be used.
    names, scales
        Words and values that may be used, and scales of calls of functions.
    """

    def __init__(self, table: FormulaTable, names: set[str], scales: tuple[str, ...] = ()) -> None:
        self._table, self._scales = table, scales
        self._names = names
        self._reserved = {*names, *table["constants"], *PRIMITIVES}
        self._steps = 0

    def check(self, text: object) -> None:
        """Raise FormulaError for the first syntax error of the formula ``text``."""
        steps, result = _parse(text)
        known = self._names | set(self._table["constants"])
        for name, expression in steps:
            self._count_step()
            is_free = name not in self._reserved
            require(is_free, "assigns a reserved name", name, "a name that is not used elsewhere")
            self._visit(expression, known)
            known.add(name)
        self._visit(result, known)

    def _count_step(self) -> None:
        self._steps += 1
        require(self._steps <= MAX_STEPS, "has too many steps", expected=f"at most {MAX_STEPS}")

    def _visit(self, node: ast.expr, known: set[str]) -> None:
        for child in self._list_operands(node, known):
            self._visit(child, known)

    def _list_operands(self, node: ast.expr, known: set[str]) -> list[ast.expr]:
        """Check the operation of an expression and return its operands."""
        text = ast.unparse(node)
        match node:
            case ast.Constant(value):
                is_integer = type(value) is int and abs(value) < 1 << 63
                require(is_integer, "has an invalid constant", text, "an integer below 2^63")
                return []
            case ast.Name(name):
                hint = did_you_mean(name, known) or ""
                expected = ", ".join(sorted(known))
                require(name in known, f"uses an unknown name. {hint}".rstrip(". "), name, expected)
                return []
            case ast.UnaryOp(ast.USub(), operand):
                return [operand]
            case ast.BinOp(left, _, right):
                return [left, right]
            case ast.IfExp(ast.Compare(left, [comparison], [right]), one, other):
                is_known = isinstance(comparison, _COMPARISONS)
                require(
                    is_known,
                    "has an unsupported comparison",
                    text,
                    "one of <, <=, >, >=, == and !=",
                )
                return [left, right, one, other]
            case ast.IfExp():
                raise FormulaError("has an unsupported condition", text, "a single comparison")
            case ast.Call():
                return self._check_call(node, text)
        raise FormulaError(
            "has an unsupported expression", text, "an expression of docs/howto/add-a-profile.md"
        )

    def _check_call(self, node: ast.Call, text: str) -> list[ast.expr]:
        name, functions = getattr(node.func, "id", ""), self._table["functions"]
        require(not node.keywords, "has a keyword argument", text, "positional arguments")
        if name in functions:
            self._count_step()
            is_valid = len(node.args) == 2
            require(
                is_valid,
                "has a call with the wrong number of arguments",
                text,
                "a value and a scale",
            )
            expected = " or ".join(self._scales) or "no call of a function"
            is_known = getattr(node.args[1], "id", "") in self._scales
            require(is_known, "names an unknown scale", text, expected)
            return node.args[:1]
        hint = did_you_mean(name, [*PRIMITIVES, *functions]) or ""
        expected = ", ".join(sorted({*PRIMITIVES, *functions} - {"within"}))
        is_known = name in PRIMITIVES
        require(is_known, f"calls an unknown function. {hint}".rstrip(". "), text, expected)
        require(
            name != "within",
            "calls within, which only built-in formulas may use",
            text,
            "hold(x, most) or saturate(x, bits)",
        )
        arity = len(PRIMITIVES[name].types)
        require(
            len(node.args) == arity,
            f"calls {name} with the wrong number of arguments",
            text,
            format_count(arity, "argument"),
        )
        return node.args


# --- factors ---------------------------------------------------------------------------------

FACTOR_FORMS = "fixed point", "float", "float64", "shift"
_SUM_WORDS = "out", "bias", "rounded_bias", "result_bias", "real_bias", "result_scale"
_PAIR_WORDS = "out", "lhs", "rhs", "lhs_pre", "rhs_pre", "result_scale"
_PRODUCT_WORDS = "result_scale", "out"
FACTOR_WORDS = {
    **dict.fromkeys(("sums", "connected"), _SUM_WORDS),
    **dict.fromkeys(("elementadd", "elementsub", "elementmul"), _PAIR_WORDS),
    "rescalequantized": ("out", "result_scale"),
    "avgpool": ("out", "result_scale", "in_offset", "out_offset", "divide"),
    "matmul": _PRODUCT_WORDS,
}
"""Operations with factors of their own, and the words of their tables."""
_COMMON_NAMES = {"Sy", "Dy", "element"}
_SUM_NAMES = _COMMON_NAMES | {"Sx", "Sw", "Sb", "Dx", "real", "sum_bias", "by_channel"}
_NAMES = {
    _SUM_WORDS: _SUM_NAMES,
    _PAIR_WORDS: _COMMON_NAMES | {"Sl", "Sr", "Dl", "Dr"},
    FACTOR_WORDS["rescalequantized"]: _COMMON_NAMES | {"Sx", "Dx"},
    FACTOR_WORDS["avgpool"]: _COMMON_NAMES | {"Sx", "Dx", "window"},
    _PRODUCT_WORDS: _COMMON_NAMES | {"Sl", "Sr", "Dl", "Dr"},
}
"""Names that factors may use, by the words of the operation."""
FACTOR_FUNCTIONS = {
    **dict.fromkeys(("float32", "float64", "bits", "rint", "floor", "ceil", "away"), 1),
    **dict.fromkeys(("exp2", "log2", "exponent"), 1),
    **dict.fromkeys(("round_bits", "floor_bits", "max"), 2),
    "fma": 3,
}
"""Functions that factors may call, with the number of their arguments."""


def check_factors(tables: Any) -> None:
    """Raise FormulaError if tables of factors have an unknown name or an invalid expression."""
    require(isinstance(tables, dict), "has no table", tables, "tables of factors")
    for operation, row in tables.items():
        known = ", ".join(FACTOR_WORDS)
        require(operation in FACTOR_WORDS, "has an unknown operation", operation, known)
        require(isinstance(row, dict), "has no table", row, f"a table [factors.{operation}]")
        words = FACTOR_WORDS[operation]
        has_out = "out" in row or words != _SUM_WORDS
        require(has_out, "lacks the factor out", ", ".join(row), "out")
        for word, text in row.items():
            if word == "form":
                require(text in FACTOR_FORMS, "has an unknown form", text, ", ".join(FACTOR_FORMS))
                continue
            require(word in words, "has an unknown word", word, ", ".join(words))
            steps, result = _parse(text)
            require(not steps, "has an assignment", steps and steps[0][0], "one expression")
            for node in ast.walk(result):
                _check_factor_node(node, _NAMES[words])


def _check_factor_node(node: ast.AST, names: set[str]) -> None:
    match node:
        case ast.Name(name):
            known = names | FACTOR_FUNCTIONS.keys()
            require(name in known, "uses an unknown name", name, ", ".join(sorted(known)))
        case ast.Constant(value):
            is_valid = isinstance(value, int | float) and abs(value) < 1 << 63
            require(is_valid, "has an invalid constant", value, "a number below 2^63")
        case ast.Call(ast.Name(name), arguments, keywords):
            arity = FACTOR_FUNCTIONS.get(name)
            is_valid = arity == len(arguments) and not keywords
            require(is_valid, "has an invalid call", ast.unparse(node), ", ".join(FACTOR_FUNCTIONS))
        case ast.BinOp(_, ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), _):
            pass
        case ast.UnaryOp(ast.USub(), _) | ast.IfExp(ast.Name("by_channel")):
            pass
        case ast.operator() | ast.unaryop() | ast.expr_context():
            pass
        case _:
            found = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise FormulaError(
                "has an unsupported expression", found, "+, -, *, / and calls of functions"
            )


# --- ranges ----------------------------------------------------------------------------------


def check_ranges(
    table: FormulaTable, profile: str, kind: str, element: str, sums: Interval
) -> Interval:
    """Check the types and ranges of a formula; return the range of its result.

    Parameters
    ----------
    table
        All formulas, with valid syntax.
    profile, kind, element
        Device profile, kind and element type of the formula.
    sums
        Range of ``acc``.

    Raises
    ------
    FormulaError
        A type is wrong, or an integer may exceed 64 bits.
    """
    formula = FormulaReader(table, element).read(table[profile][kind])
    try:
        result = infer_ranges(formula, _list_ranges(profile, kind, element, sums))[RESULT]
    except FormulaError as error:
        found = error.found and formula.restore_names(str(error.found))
        raise FormulaError(str(error), found, error.expected) from error
    if not isinstance(result, Interval):
        raise FormulaError("has a float as result", result, "an integer")
    used = len(formula.words) if kind == "sums" else 0
    found, most = ", ".join(formula.words), f"at most {MAX_PARAMETERS}"
    require(used <= MAX_PARAMETERS, "uses too many descriptor words", found, most)
    return result


def _list_ranges(profile: str, kind: str, element: str, sums: Interval) -> Mapping[str, ValueRange]:
    """Return the ranges and types of all names that a formula of a kind may use."""
    wide = ELEMENTS.index(element)
    found: dict[str, Any] = {name: find_word_range(name) for name in KINDS[kind].names}
    if ROWS[PROFILES.index(profile)].form is REAL:
        parts = (name for name in found if name.endswith(("_pre", "_post")))
        found |= dict.fromkeys(parts, make_signed_interval(32))
    values = {
        "element": Interval(wide, wide),
        **dict.fromkeys(("x", "lhs"), make_signed_interval(10 + 8 * wide)),
        # the sum of MAX_TAPS taps, for an average
        "acc": sums if kind != "average" else make_signed_interval(32 + 8 * wide),
    }
    found |= {name: value for name, value in values.items() if name in found}
    return found | ({"total": FLOAT32} if profile == "onnx" else {})
