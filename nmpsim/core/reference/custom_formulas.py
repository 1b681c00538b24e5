"""Formulas that a program brings with it, evaluated with Python's integers.

The compiled engine generates code of the same terms; the primitives here share nothing with it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.formula_check import KINDS, SCALE_WORDS
from nmpsim.bundle.formulas import CustomFormulas, parse_stored_formulas
from nmpsim.core.reference.arithmetic import FormulaStep, FormulaSteps, fused_multiply_add
from nmpsim.core.reference.operands import INT8, Descriptor, bits_to_float32
from nmpsim.core.reference.profiles import FORMULAS
from nmpsim.core.reference.profiles.formulas import (
    OPERATIONS,
    ProfileFormulas,
    RequantizationParameters,
    get_operation_name,
)
from nmpsim.core.reference.saturation import ResultPositions, clamp
from nmpsim.core.state import Int64s
from nmpsim.isa.descriptors import OPERATIONS as NAMES
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.formulas import ELEMENTS, RESULT, Formula, FormulaReader
from nmpsim.kernels.saturation_stages import BIAS, RESCALE

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.FloorDiv: operator.floordiv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _to_integers(words: Any) -> Any:
    """Return an array of Python's integers."""
    return np.asarray(words).astype(object)


def _to_int64(integers: Any) -> Int64s:
    return np.asarray(integers).astype(np.int64, copy=False)


def _to_float(kind: type) -> Callable[[Any], Any]:
    def convert(x: Any) -> Any:
        values = np.asarray(x)
        return (_to_int64(values) if values.dtype == object else values).astype(kind)

    return convert


def _divide_away(x: Any, divisor: Any) -> Any:
    return np.where(x < 0, -1, 1) * ((abs(x) + divisor // 2) // divisor)


def _shift_away(x: Any, count: Any) -> Any:
    half = np.left_shift(1, count, dtype=np.asarray(x).dtype) >> 1
    return np.where(x < 0, -1, 1) * (abs(x) + half >> count)


def _hold(x: Any, most: Any) -> Any:
    return np.minimum(np.maximum(x, -most), most)


def make_primitives(integer: type) -> Mapping[str, Callable[..., Any]]:
    """Make the formula primitives that update no counters, as array functions by name.

    Parameters
    ----------
    integer
        Type of the elements of integer results: ``object`` for Python's integers, or int64 if
        all integers of a formula fit it.
    """

    def to_integers(whole: Any) -> Any:
        """Return whole float64 numbers as integers within +-2^62; NaN becomes 0."""
        known = np.nan_to_num(whole, nan=0.0, posinf=2.0**62, neginf=-(2.0**62))
        return np.clip(known, -(2.0**62), 2.0**62).astype(np.int64).astype(integer)

    def round_away(x: Any) -> Any:
        size = np.abs(np.asarray(x, np.float64))
        whole = np.floor(size)
        return to_integers(np.copysign(whole + (size - whole >= 0.5), x))

    return {
        "hold": _hold,
        "within": lambda x, _: x,
        "shift_away": _shift_away,
        "divide_away": _divide_away,
        "round_away": round_away,
        "round_even": lambda x: to_integers(np.rint(np.asarray(x, np.float64))),
        "float32": _to_float(np.float32),
        "float64": _to_float(np.float64),
        "real": lambda word: bits_to_float32(_to_int64(word)),
        "real64": lambda word: _to_int64(word).view(np.float64),
        "exp2": lambda exponent: np.ldexp(1.0, _to_int64(exponent)),
        "fma": fused_multiply_add,
        "min": np.minimum,
        "max": np.maximum,
        "abs": abs,
    }


class TermEvaluator:
    """Evaluator of the terms of formulas on arrays of integers.

    Parameters
    ----------
    primitives
        Functions by name.
    integer
        Type of the elements of constants, see :func:`make_primitives`.
    """

    def __init__(self, primitives: Mapping[str, Callable[..., Any]], integer: type) -> None:
        self._primitives, self._integer = primitives, integer

    def evaluate_term(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        """Evaluate a term with the values of its names; return an array or a number."""

        # A nested function that calls itself would keep the values until the garbage collection.
        visit = partial(self.evaluate_term, values=values)
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.Constant):
            return self._to_integers(node.value)
        if isinstance(node, ast.UnaryOp):
            return -visit(node.operand)
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](visit(node.left), visit(node.right))
        if isinstance(node, ast.IfExp):
            test = node.test
            assert isinstance(test, ast.Compare)
            compare = _OPERATORS[type(test.ops[0])]
            holds = compare(visit(test.left), visit(test.comparators[0]))
            return np.where(holds.astype(bool), visit(node.body), visit(node.orelse))
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        words = map(visit, node.args)  # operators return a single integer as an int
        return self._primitives[node.func.id](
            *(self._to_integers(one) if isinstance(one, int) else one for one in words)
        )

    def _to_integers(self, words: Any) -> Any:
        return np.asarray(words).astype(self._integer)


def combine_operands(operation: Any, left: Any, right: Any) -> Any:
    """Return the result of an operation of two operands, whose number is the same everywhere."""
    return OPERATIONS[int(np.max(operation))](left, right)


def _evaluate(
    formula: Formula,
    words: Mapping[str, Any],
    shape: tuple[int, ...],
    stage: int,
    place: ResultPositions,
) -> FormulaSteps:
    """Evaluate the steps of a formula and return its result, int64.

    Parameters
    ----------
    formula
        The formula.
    words
        Values of the names in the formula: integers, or ``total`` in float32.
    shape
        Shape of the results.
    stage
        Stage at which saturated values are counted.
    place
        Positions of the results in the layer's output.
    """

    def limit(value: Any, low: Any, high: Any) -> Any:
        return clamp(np.broadcast_to(value, shape), low, high, (stage, stage), place)

    primitives: dict[str, Callable[..., Any]] = {
        **make_primitives(object),
        "combine": combine_operands,
        "limit": lambda x, most: limit(x, -most, most),
        "saturate": lambda x, bits: limit(x, -(1 << bits - 1), (1 << bits - 1) - 1),
    }
    evaluator = TermEvaluator(primitives, object)
    values = {name: _to_integers(value) for name, value in words.items()}
    shown = dict(values)
    value: Any = None
    for name, term in (*formula.constants, *formula.steps):
        node = ast.parse(term, mode="eval").body
        value = np.broadcast_to(evaluator.evaluate_term(node, values), shape)
        values[name] = value
        title = formula.names.get(name, name)
        if name != RESULT and title == name:
            continue  # a constant that is part of a step
        value = _to_int64(value) if name == RESULT else value
        text = formula.restore_names(term)
        known = {one.id for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name)}
        numbers = {one: shown[one] for one in sorted(known & shown.keys())}
        named = ", ".join(f"{one} = {{{one}}}" for one in numbers if one != "acc")
        shown_text = f"{text}; {named}" if named else text
        yield FormulaStep(title, value, shown_text, numbers, None)
        shown[title] = value
    return value


def _list_words(q: RequantizationParameters) -> dict[str, Any]:
    """Return the words of a requantization by name, with one value or one for each channel."""
    return {
        **{f"bias_{word}": getattr(q.bias_scale, word) for word in SCALE_WORDS},
        **{f"out_{word}": getattr(q.out, word) for word in SCALE_WORDS},
        "bias": q.bias,
        "out_offset": q.offset,
        "result_scale": np.asarray(q.result_scale, np.float32).view(np.int32),
        "element": int(q.element is not INT8),
    }


def make_program_formulas(custom: CustomFormulas, number: int) -> ProfileFormulas:
    """Return the formulas of profile ``number``; custom formulas replace the standard ones."""
    name, standard = PROFILES[number], FORMULAS[number]
    table = custom.table[name]
    changed = {kind for kind in table if custom.is_changed(name, kind)}

    def run(
        kind: str,
        words: Mapping[str, Any],
        values: Mapping[str, Any],
        place: ResultPositions,
        stage: int = RESCALE,
    ) -> FormulaSteps:
        """Evaluate a formula; the first of ``values`` has the shape of the results."""
        formula = FormulaReader(custom.table, ELEMENTS[words["element"]]).read(table[kind])
        known = {one: words[one] for one in KINDS[kind].names & words.keys()}
        shape = next(iter(values.values())).shape
        return _evaluate(formula, {**known, **values}, shape, stage, place)

    def scale_bias(q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
        return run("bias", _list_words(q), {"bias": q.bias}, place, BIAS)

    def requantize(
        sums: Int64s, q: RequantizationParameters, place: ResultPositions
    ) -> FormulaSteps:
        return run("sums", _list_words(q), {"acc": sums}, place)

    def apply_leaky(results: Int64s, d: Descriptor, place: ResultPositions) -> FormulaSteps:
        return run("leaky_sums", d, {"acc": results}, place)

    def average_pool(
        sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions
    ) -> FormulaSteps:
        return run("average", d, {"acc": sums, "divisor": divisor}, place)

    def combine_pair(
        left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
    ) -> FormulaSteps:
        kind = get_operation_name(d)
        if kind in changed:
            return run(kind, d, {"lhs": left, "rhs": right}, place)
        assert standard.pair is not None
        return standard.pair(left, right, d, place)

    def rescale_value(x: Int64s, below: Any, d: Descriptor, place: ResultPositions) -> FormulaSteps:
        kind = "leaky" if d["activation"] == ACTIVATION_LEAKY else "rescale"
        if kind in changed:
            return run(kind, d, {"x": x}, place)
        assert standard.rescale is not None
        return standard.rescale(x, below, d, place)

    fields: Mapping[str, tuple[Any, Collection[str]]] = {
        "bias": (scale_bias, ("bias",)),
        "result": (requantize, ("sums",)),
        "leaky_sums": (apply_leaky, ("leaky_sums",)),
        "average": (average_pool, ("average",)),
        "pair": (combine_pair, NAMES),
        "rescale": (rescale_value, ("rescale", "leaky")),
    }
    return attrs.evolve(
        standard,
        **{field: one for field, (one, kinds) in fields.items() if not changed.isdisjoint(kinds)},
    )


@cache
def find_program_formulas(text: bytes, number: int) -> ProfileFormulas:
    """Return the formulas of profile ``number``; formulas in ``text`` replace the standard ones.

    See :func:`nmpsim.core.reference.program_formulas.find_formulas`.
    """
    return make_program_formulas(parse_stored_formulas(text), number)
