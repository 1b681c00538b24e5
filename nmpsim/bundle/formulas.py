"""Formulas of a user that replace those of ``isa/formulas.toml`` in one program.

The file is in the same language; docs/numerics.md describes it. Every integer that a new formula or
function computes must fit 64 bits, which intervals prove for all words that a descriptor may have.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

from nmpsim.diagnostics import Place, did_you_mean, fail
from nmpsim.input_files import read_text
from nmpsim.isa.profiles import NUMERICS, PROFILES, REAL, ROWS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS, FormulaReader, FormulaTable
from nmpsim.records import frozen

_SUFFIX = ".toml"
MAX_BYTES = 1 << 14
"""Largest size of a file."""
MAX_STEPS = 32
"""Most assignments of a formula and the functions that it calls."""
MAX_TEXT = 1000
"""Most characters of a formula."""
MAX_PARAMETERS = 6
"""Most numbers of a channel on which a formula of sums may depend."""
MAX_DEPTH = 60
"""Deepest nesting of the expressions of a formula."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_CODE = "NUM001"


@frozen
class CustomFormulas:
    """Formulas of a user with the profile of ``--numerics`` on which they are based."""

    name: str
    base: str
    """Profile of ``--numerics`` that converts scales to words."""
    text: str
    """Contents of the file."""
    table: FormulaTable
    """All formulas, those of the user in place of the standard ones."""
    profiles: tuple[str, ...]
    """Device profiles with a changed formula."""

    @property
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """Name and digest, as reports show them."""
        return f"{self.name}@{self.digest}"

    @property
    def changed_table(self) -> FormulaTable:
        """The formulas of the changed device profiles, with all constants and functions."""
        kept = ("constants", "functions", *self.profiles)
        return {name: part for name, part in self.table.items() if name in kept}


def select_numerics(choice: str) -> tuple[str, CustomFormulas | None]:
    """Return the profile of ``--numerics`` and the formulas that a user chose.

    ``choice`` is the name of a profile, or the path of a formulas file, which ends with ``.toml``.
    Raises UserError as :func:`read_custom_formulas` does.
    """
    if not choice.endswith(_SUFFIX):
        return choice, None
    formulas = read_custom_formulas(Path(choice))
    return formulas.base, formulas


def read_custom_formulas(path: Path) -> CustomFormulas:
    """Read and check a file of formulas.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, NUM001 if it is invalid.
    """
    return parse_custom_formulas(read_text(path, "formulas file", MAX_BYTES, _CODE), str(path))


@cache
def parse_stored_formulas(text: bytes) -> CustomFormulas:
    """Return the formulas of a program from their stored text."""
    return parse_custom_formulas(text.decode(), "<formulas of the program>")


def find_custom_formulas(stored: str) -> CustomFormulas | None:
    """Return the formulas of a program from the metadata of its bundle; None for no text."""
    return parse_stored_formulas(stored.encode()) if stored else None


def parse_custom_formulas(text: str, file: str) -> CustomFormulas:
    """Parse and check the text of a formulas file.

    Raises
    ------
    UserError
        NUM001 with the first problem.
    """
    place = Place(file)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise fail(
            _CODE, "the formulas file is not TOML", place=place, found=error, expected="TOML 1.0"
        ) from error
    return _FormulaReader(file, text, document).read()


# --- the language ----------------------------------------------------------------------------


class Interval(NamedTuple):
    """Range of an integer."""

    low: int
    high: int


Real: TypeAlias = str
"""Type of a float: ``float32`` or ``float64``."""
Value: TypeAlias = Interval | Real

_FLOAT32, _FLOAT64 = "float32", "float64"
_LONG = Interval(-(1 << 63), (1 << 63) - 1)
_HELD = Interval(-(1 << 62), 1 << 62)
"""Range of a rounded float."""
_MAX_SHIFT = 62


def _signed(bits: int) -> Interval:
    return Interval(-(1 << bits - 1), (1 << bits - 1) - 1)


@frozen
class _Kind:
    """Names that formulas of a kind may use, besides constants, functions and ``element``."""

    values: tuple[str, ...]
    scales: tuple[str, ...] = ()
    words: tuple[str, ...] = ("out_offset", "result_scale")


_PAIR = _Kind(("lhs", "rhs"), ("lhs", "rhs", "out"), ("operation", "out_offset", "result_scale"))
_KINDS = {
    "bias": _Kind((), ("bias",), ("bias",)),
    "sums": _Kind(("acc",), ("bias", "out"), ("bias", "out_offset", "result_scale")),
    "leaky_sums": _Kind(("acc",), ("leaky",), ("out_offset",)),
    "average": _Kind(("acc",), ("out",), ("divisor", "out_offset", "result_scale")),
    "rescale": _Kind(("x",), ("out", "leaky")),
    "leaky": _Kind(("x",), ("out", "leaky")),
    **dict.fromkeys(("add", "sub", "max", "min", "mul"), _PAIR),
}
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.LShift: lambda x, y: x << y,
    ast.RShift: lambda x, y: x >> y,
    ast.FloorDiv: lambda x, y: x // y,
}
_REAL_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def _find_range(function: Callable[..., int], *operands: Interval) -> Interval:
    """Return the range of a function that is monotonic in each operand."""
    corners = [function(*at) for at in product(*operands)]
    return Interval(min(corners), max(corners))


def _clamp(x: Interval, low: int, high: int) -> Interval:
    return Interval(min(max(x.low, low), high), min(max(x.high, low), high))


def _divide_away(x: int, divisor: int) -> int:
    size = (abs(x) + divisor // 2) // divisor
    return size if x >= 0 else -size


class _ProblemError(Exception):
    """A problem of a formula, with what was found and expected."""

    def __init__(self, message: str, found: object = None, expected: object = None) -> None:
        super().__init__(message)
        self.found, self.expected = found, expected


def _require(holds: bool, message: str, found: object = None, expected: object = None) -> None:
    if not holds:
        raise _ProblemError(message, found, expected)


def _parse(text: object) -> tuple[list[tuple[str, ast.expr]], ast.expr]:
    """Return the assignments of a formula and its last expression."""
    if not isinstance(text, str):
        raise _ProblemError("is not text", type(text).__name__, "a formula in quotation marks")
    _require(len(text) <= MAX_TEXT, "is too long", len(text), f"at most {MAX_TEXT} characters")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _ProblemError("is not an expression in Python's syntax", error) from error
    depth, level, body = 0, list[ast.AST]([tree]), tree.body
    while level:
        level, depth = [child for one in level for child in ast.iter_child_nodes(one)], depth + 1
        _require(depth <= MAX_DEPTH, "is nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    steps = []
    for one in body[:-1]:
        is_step = isinstance(one, ast.Assign) and len(one.targets) == 1
        if not is_step or not isinstance(one.targets[0], ast.Name):  # type: ignore[attr-defined]
            raise _ProblemError("has an unknown step", ast.unparse(one), "NAME = EXPRESSION")
        steps.append((one.targets[0].id, one.value))  # type: ignore[attr-defined]
    if not body or not isinstance(body[-1], ast.Expr):
        found = ast.unparse(body[-1]) if body else "nothing"
        raise _ProblemError("has no result", found, "an expression at the end")
    return steps, body[-1].value


class _Evaluator:
    """Evaluation of a formula with the ranges and types of its values.

    Parameters
    ----------
    table
        All formulas.
    checked
        Names of functions that are not the standard ones.
    element
        Element type of the result, one of ELEMENTS.
    is_trusted
        Whether the formula is a standard one, whose integers are known to fit 64 bits.
    """

    def __init__(
        self, table: FormulaTable, checked: Collection[str], element: str, is_trusted: bool
    ) -> None:
        self._table, self._checked, self._element = table, checked, element
        self._is_trusted = is_trusted
        self._steps = 0

    def evaluate(self, text: Any, names: Mapping[str, Value], scales: tuple[str, ...]) -> Value:
        """Return the range or type of a formula's result."""
        steps, result = _parse(text[self._element] if isinstance(text, Mapping) else text)
        known = dict(names)
        for name, expression in steps:
            self._count_step()
            reserved = name in names or name in self._table["constants"] or name in PRIMITIVES
            _require(not reserved, "assigns a name that has a meaning", name, "another name")
            known[name] = self._visit(expression, known, scales)
        return self._visit(result, known, scales)

    def _count_step(self) -> None:
        self._steps += 1
        _require(self._steps <= MAX_STEPS, "has too many steps", expected=f"at most {MAX_STEPS}")

    def _visit(self, node: ast.expr, names: Mapping[str, Value], scales: tuple[str, ...]) -> Value:
        value = self._compute(node, names, scales)
        if not isinstance(value, Interval) or (_LONG.low <= value.low and value.high <= _LONG.high):
            return value
        if self._is_trusted:
            return _clamp(value, *_LONG)
        found = f"{ast.unparse(node)}: {value.low} to {value.high}"
        raise _ProblemError("computes an integer that may exceed 64 bits", found, "64 bits")

    def _compute(
        self, node: ast.expr, names: Mapping[str, Value], scales: tuple[str, ...]
    ) -> Value:
        if isinstance(node, ast.Constant):
            is_integer = type(node.value) is int and abs(node.value) < 1 << 63
            _require(is_integer, "has an unknown constant", ast.unparse(node), "an integer")
            return Interval(node.value, node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self._look_up(node.id, names)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _find_range(lambda x: -x, self._integer(node.operand, names, scales))
        if isinstance(node, ast.BinOp):
            return self._operate(node, names, scales)
        if isinstance(node, ast.Call):
            return self._call(node, names, scales)
        if isinstance(node, ast.IfExp):
            return self._choose(node, names, scales)
        raise _ProblemError("has an unknown expression", ast.unparse(node), "see docs/numerics.md")

    def _look_up(self, name: str, names: Mapping[str, Value]) -> Value:
        if name in names:
            return names[name]
        if name in self._table["constants"]:
            return self.evaluate(self._table["constants"][name], {"element": names["element"]}, ())
        hint = did_you_mean(name, [*names, *self._table["constants"]]) or ""
        raise _ProblemError(f"uses an unknown name. {hint}".strip(), name, ", ".join(sorted(names)))

    def _integer(
        self, node: ast.expr, names: Mapping[str, Value], scales: tuple[str, ...]
    ) -> Interval:
        value = self._visit(node, names, scales)
        if not isinstance(value, Interval):
            raise _ProblemError("has a float in the place of an integer", ast.unparse(node))
        return value

    def _operate(
        self, node: ast.BinOp, names: Mapping[str, Value], scales: tuple[str, ...]
    ) -> Value:
        left, right = (self._visit(one, names, scales) for one in (node.left, node.right))
        text = ast.unparse(node)
        if not isinstance(left, Interval) or not isinstance(right, Interval):
            is_known = isinstance(node.op, _REAL_OPERATORS)
            _require(is_known, "has an operator that floats lack", text, "+, -, * or /")
            _require(left == right, "mixes types", text, "two values of one type")
            return left
        function = _OPERATORS.get(type(node.op))
        if function is None:
            raise _ProblemError("has an operator that integers lack", text, "+ - * << >> //")
        if isinstance(node.op, ast.LShift | ast.RShift):
            is_valid = right.low >= 0 and right.high <= _MAX_SHIFT
            _require(is_valid, "shifts by an invalid count", text, f"0 to {_MAX_SHIFT}")
        if isinstance(node.op, ast.FloorDiv):
            _require(right.low > 0, "may divide by zero or less", text, "a positive divisor")
        if isinstance(node.op, ast.LShift) and (most := _find_common_shift(node)) is not None:
            bound = self._integer(most, names, scales).high
            return _clamp(_find_range(function, left, right), -bound, bound)
        return _find_range(function, left, right)

    def _call(self, node: ast.Call, names: Mapping[str, Value], scales: tuple[str, ...]) -> Value:
        name, text = getattr(node.func, "id", ""), ast.unparse(node)
        _require(not node.keywords, "has an argument with a name", text, "arguments in order")
        if name in self._table["functions"]:
            return self._call_function(name, node, names, scales)
        if name not in PRIMITIVES:
            known = [*PRIMITIVES, *self._table["functions"]]
            hint = did_you_mean(name, known) or ""
            raise _ProblemError(f"calls an unknown function. {hint}".strip(), text, "a primitive")
        is_allowed = name != "within" or self._is_trusted
        _require(is_allowed, "states a range without proof", text, "hold or saturate")
        arity, types, function = PRIMITIVES[name]
        _require(len(node.args) == arity, "has too few or many arguments", text, f"{arity}")
        values = [self._visit(one, names, scales) for one in node.args]
        for value, kind in zip(values, types or [None] * arity, strict=True):
            is_valid = kind is None or (
                isinstance(value, Interval) if kind == "integer" else value == kind
                or (kind == "float" and not isinstance(value, Interval))
            )  # fmt: skip
            _require(is_valid, "has an argument of the wrong type", text, kind)
        result: Value = function(*values)
        return result

    def _call_function(
        self, name: str, node: ast.Call, names: Mapping[str, Value], scales: tuple[str, ...]
    ) -> Value:
        text, second = ast.unparse(node), node.args[-1] if node.args else None
        _require(len(node.args) == 2, "has too few or many arguments", text, "a value and a scale")
        scale = getattr(second, "id", "")
        _require(scale in scales, "names an unknown scale", text, " or ".join(scales))
        own = {word: names[f"{scale}_{word}"] for word in ("pre", "mul", "post")}
        own |= {"x": self._visit(node.args[0], names, scales), "element": names["element"]}
        self._count_step()
        before = self._is_trusted
        self._is_trusted = name not in self._checked
        result = self.evaluate(self._table["functions"][name], own, ())
        self._is_trusted = before
        return result

    def _choose(
        self, node: ast.IfExp, names: Mapping[str, Value], scales: tuple[str, ...]
    ) -> Value:
        test, text = node.test, ast.unparse(node)
        is_comparison = isinstance(test, ast.Compare) and len(test.ops) == 1
        _require(is_comparison, "has an unknown condition", text, "one comparison")
        assert isinstance(test, ast.Compare)
        sides = [self._visit(one, names, scales) for one in (test.left, test.comparators[0])]
        _require(type(sides[0]) is type(sides[1]), "compares two types", text)
        is_known = isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq)
        _require(is_known, "has an unknown comparison", text, "<, <=, >, >=, == or !=")
        one, other = (self._visit(part, names, scales) for part in (node.body, node.orelse))
        return _join(one, other, text)


def _find_common_shift(node: ast.BinOp) -> ast.expr | None:
    """Return c of ``hold(x, c >> n) << n``, which is within +-c; None for another expression."""
    held = node.left
    if not isinstance(held, ast.Call) or getattr(held.func, "id", "") not in ("hold", "limit"):
        return None
    most = held.args[-1]
    if not isinstance(most, ast.BinOp) or not isinstance(most.op, ast.RShift):
        return None
    return most.left if ast.unparse(most.right) == ast.unparse(node.right) else None


def _join(one: Value, other: Value, text: str) -> Value:
    if isinstance(one, Interval) and isinstance(other, Interval):
        return Interval(min(one.low, other.low), max(one.high, other.high))
    _require(one == other, "mixes types", text, "two values of one type")
    return one


# --- primitives ------------------------------------------------------------------------------


def _saturate(x: Interval, bits: Interval) -> Interval:
    _require(bits.low > 0 and bits.high < 64, "saturates to an invalid width", bits, "1 to 63")
    return _clamp(x, *_signed(bits.high))


def _limit(x: Interval, most: Interval) -> Interval:
    _require(most.low >= 0, "limits to a negative magnitude", most.low, "0 or more")
    return _clamp(x, -most.high, most.high)


def _shift_away(x: Interval, count: Interval) -> Interval:
    is_valid = count.low >= 0 and count.high <= _MAX_SHIFT
    _require(is_valid, "shifts by an invalid count", count, f"0 to {_MAX_SHIFT}")
    return _find_range(lambda a, n: _divide_away(a, 1 << n), x, count)


def _divide(x: Interval, divisor: Interval) -> Interval:
    _require(divisor.low > 0, "may divide by zero or less", divisor, "a positive divisor")
    is_small = max(-x.low, x.high) + divisor.high // 2 < 1 << 63
    _require(is_small, "computes an integer that may exceed 64 bits", x, "64 bits")
    return _find_range(_divide_away, x, divisor)


def _exp2(exponent: Interval) -> Real:
    is_valid = exponent.low >= -1022 and exponent.high <= 1022
    _require(is_valid, "has an invalid power of two", exponent, "-1022 to 1022")
    return _FLOAT64


def _combine(_: Interval, x: Value, y: Value) -> Value:
    if isinstance(x, Interval) and isinstance(y, Interval):
        found = [
            _find_range(function, x, y)
            for function in (lambda a, b: a + b, lambda a, b: a - b, max, min)
        ]
        return Interval(min(low for low, _ in found), max(high for _, high in found))
    return _join(x, y, "combine")


def _extreme(function: Callable[..., int]) -> Callable[[Interval, Interval], Interval]:
    return lambda x, y: _find_range(function, x, y)


def _absolute(x: Interval) -> Interval:
    return Interval(max(x.low, -x.high, 0), max(-x.low, x.high))


PRIMITIVES: Mapping[str, tuple[int, tuple[str, ...], Callable[..., Value]]] = {
    "saturate": (2, ("integer", "integer"), _saturate),
    "limit": (2, ("integer", "integer"), _limit),
    "hold": (2, ("integer", "integer"), _limit),
    "within": (2, ("integer", "integer"), _limit),
    "shift_away": (2, ("integer", "integer"), _shift_away),
    "divide_away": (2, ("integer", "integer"), _divide),
    "round_away": (1, ("float",), lambda _: _HELD),
    "round_even": (1, ("float",), lambda _: _HELD),
    "float32": (1, (), lambda _: _FLOAT32),
    "float64": (1, (), lambda _: _FLOAT64),
    "real": (1, ("integer",), lambda _: _FLOAT32),
    "real64": (1, ("integer",), lambda _: _FLOAT64),
    "exp2": (1, ("integer",), _exp2),
    "fma": (3, (_FLOAT64,) * 3, lambda *_: _FLOAT32),
    "combine": (3, (), _combine),
    "min": (2, ("integer", "integer"), _extreme(min)),
    "max": (2, ("integer", "integer"), _extreme(max)),
    "abs": (1, ("integer",), _absolute),
}
"""Number and types of a primitive's arguments, and the function of their ranges."""


# --- the file ------------------------------------------------------------------------------------


class _FormulaReader:
    """Reader of a file whose syntax is that of TOML.

    Parameters
    ----------
    file, text
        Name and contents of the file.
    document
        Its tables and keys.
    """

    def __init__(self, file: str, text: str, document: dict[str, Any]) -> None:
        self._file, self._text, self._document = file, text, document
        self._table = {place: dict(part) for place, part in FORMULAS.items()}
        self._given: set[tuple[str, str]] = set()

    def read(self) -> CustomFormulas:
        """Return the checked formulas."""
        name, base = (self._document.pop(key, None) for key in ("name", "base"))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._fail("has no valid name", name, "name = TEXT of at most 40 letters and digits")
        known = {row.name: row.profiles for row in NUMERICS}
        if not isinstance(base, str) or base not in known:
            self._fail("has no valid base", base, " or ".join(known))
        self._read_tables(known[base])
        for element in ELEMENTS:
            for profile in known[base]:
                self._check_profile(profile, element)
        changed = tuple(one for one in known[base] if self._is_changed(one))
        if not changed:
            self._fail("changes nothing", expected=f"a formula other than that of {base}")
        return CustomFormulas(name, base, self._text, self._table, changed)

    def _fail(
        self, problem: str, found: object = None, expected: object = None, hint: str | None = None
    ) -> NoReturn:
        shown = None if found is None else str(found)[:200]
        raise fail(
            _CODE, f"the formulas file {problem}", place=Place(self._file), found=shown,
            expected=expected, hint=hint,
        )  # fmt: skip

    def _read_tables(self, profiles: Sequence[str]) -> None:
        """Replace formulas of the table by those of the file."""
        places = ("constants", "functions", *profiles)
        for place, part in self._document.items():
            if place not in places:
                hint = did_you_mean(place, places)
                self._fail("has an unknown table or key", place, ", ".join(places), hint)
            if not isinstance(part, dict):
                self._fail(f"has no table [{place}]", part, f"[{place}] and formulas below it")
            for keys, text in part.items():
                for key in keys.split() if place in profiles else [keys]:
                    self._replace(place, key, text)

    def _replace(self, place: str, key: str, text: Any) -> None:
        standard, where = self._table[place].get(key), f"[{place}] {key}"
        if place in PROFILES and standard is None:
            known = self._table[place]
            hint = did_you_mean(key, known)
            self._fail(f"has an unknown formula in [{place}]", key, ", ".join(known), hint)
        if (place, key) == ("onnx", "average"):
            self._fail("changes a formula that is fixed", "[onnx] average", "other formulas")
        if place not in PROFILES and (not key.isidentifier() or key in PRIMITIVES):
            self._fail(f"has an invalid name in [{place}]", key, "letters, no primitive's name")
        if place == "constants" and (not isinstance(text, str) or "\n" in text.strip()):
            self._fail(f"has an invalid constant in {where}", text, "one expression")
        if isinstance(text, dict):
            whole = {} if standard is None else standard
            text = (whole if isinstance(whole, dict) else dict.fromkeys(ELEMENTS, whole)) | text
            if set(text) != set(ELEMENTS):
                found = ", ".join(map(str, text))
                self._fail(f"has wrong element types in {where}", found, " and ".join(ELEMENTS))
        self._table[place][key] = text
        self._given.add((place, key))

    def _check_profile(self, profile: str, element: str) -> None:
        """Raise UserError if a formula of a profile is invalid."""
        own = {
            key
            for place, key in self._given
            if place in ("constants", "functions") and self._is_new(place, key, element)
        }
        sums = _signed(48 if element == "int16" else 32)
        for kind, text in sorted(self._table[profile].items(), key=lambda one: one[0] != "sums"):
            is_trusted = not own and not self._is_new(profile, kind, element)
            evaluator = _Evaluator(self._table, own, element, is_trusted)
            names = _make_names(profile, kind, element, sums)
            try:
                result = evaluator.evaluate(text, names, _KINDS[kind].scales)
                if not isinstance(result, Interval):
                    raise _ProblemError("has a float as result", result, "an integer")
                if kind == "sums":
                    self._check_parameters(profile, element)
            except _ProblemError as error:
                where = f"in [{profile}] {kind}, {element}"
                message, _, hint = str(error).partition(". ")
                self._fail(f"{message} {where}", error.found, error.expected, hint or None)
            sums = result if kind == "sums" else sums

    def _is_new(self, place: str, key: str, element: str) -> bool:
        """Return whether the text of an entry for an element type is not the standard one."""
        texts = (
            text[element] if isinstance(text, dict) else text
            for text in (self._table[place][key], FORMULAS[place].get(key))
        )
        return next(texts) != next(texts)

    def _check_parameters(self, profile: str, element: str) -> None:
        text = self._table[profile]["sums"]
        used = FormulaReader(self._table, element).read(text).words
        _require(
            len(used) <= MAX_PARAMETERS, "uses too many words", ", ".join(used),
            f"at most {MAX_PARAMETERS}",
        )  # fmt: skip

    def _is_changed(self, profile: str) -> bool:
        return any(
            FormulaReader(self._table, element).read(text)
            != FormulaReader(FORMULAS, element).read(FORMULAS[profile][kind])
            for kind, text in self._table[profile].items()
            for element in ELEMENTS
        )


def _make_names(profile: str, kind: str, element: str, sums: Interval) -> dict[str, Value]:
    """Return the ranges and types of all names that a formula of a kind may use."""
    is_real = ROWS[PROFILES.index(profile)].form is REAL
    own, wide = _KINDS[kind], ELEMENTS.index(element)
    operand = _signed(10 + 8 * wide)
    found: dict[str, Value] = {"element": Interval(wide, wide)}
    for scale in own.scales:
        shift = _signed(32) if is_real else Interval(0, 31)
        found |= {f"{scale}_pre": shift, f"{scale}_mul": _signed(32), f"{scale}_post": shift}
    ranges = {"divisor": Interval(1, 1 << 31), "operation": Interval(0, 4), "bias": _signed(64)}
    found |= {word: ranges.get(word, _signed(32)) for word in own.words}
    accumulator = sums if kind != "average" else _signed(32 + 8 * wide)  # of MAX_TAPS taps
    values = {"x": operand, "lhs": operand, "rhs": _signed(32)}
    if profile == "onnx":
        found["total"] = _FLOAT32
    return found | {value: values.get(value, accumulator) for value in own.values}
