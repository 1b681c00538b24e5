"""Evaluation of formulas on arrays of integers, for many variants of the words at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.formulas import ELEMENTS, FORMULAS, RESULT, Formula, FormulaReader
from nmpsim.kernels.hostops.rounding import fused_multiply_add

Integers: TypeAlias = npt.NDArray[np.int64]
_MAX_ROUNDED = 2.0**62


def _limit(x: Any, most: Any) -> Any:
    return np.clip(x, -most, most)


def _saturate(x: Any, bits: Any) -> Any:
    return np.clip(x, -(1 << bits - 1), (1 << bits - 1) - 1)


def _divide_away(x: Any, divisor: Any) -> Any:
    return np.sign(x) * ((np.abs(x) + divisor // 2) // divisor)


def _shift_away(x: Any, count: Any) -> Any:
    return np.sign(x) * ((np.abs(x) + (np.int64(1) << count >> 1)) >> count)


def _to_integers(whole: Any) -> Integers:
    known = np.nan_to_num(whole, nan=0.0, posinf=_MAX_ROUNDED, neginf=-_MAX_ROUNDED)
    integers: Integers = np.clip(known, -_MAX_ROUNDED, _MAX_ROUNDED).astype(np.int64)
    return integers


def _round_away(x: Any) -> Integers:
    size = np.abs(np.asarray(x, np.float64))
    whole = np.floor(size)
    return _to_integers(np.copysign(whole + (size - whole >= 0.5), x))


_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "limit": _limit,
    "hold": _limit,
    "within": lambda x, _: x,
    "saturate": _saturate,
    "shift_away": _shift_away,
    "divide_away": _divide_away,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "round_away": _round_away,
    "round_even": lambda x: _to_integers(np.rint(np.asarray(x, np.float64))),
    "float32": lambda x: np.asarray(x).astype(np.float32),
    "float64": lambda x: np.asarray(x).astype(np.float64),
    "real": lambda word: np.asarray(word).astype(np.int32).view(np.float32),
    "real64": lambda word: np.asarray(word, np.int64).view(np.float64),
    "exp2": lambda exponent: np.ldexp(1.0, exponent),
    "fma": fused_multiply_add,
    "select": np.where,
}


class _Vectorize(ast.NodeTransformer):
    """Replacement of conditional expressions by calls of ``select``."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Return a call of ``select`` with both branches."""
        branches = [self.visit(one) for one in (node.test, node.body, node.orelse)]
        return ast.Call(ast.Name("select", ast.Load()), branches, [])

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Return a call that makes an int64 of an integer, so that shifts have 64 bits."""
        return ast.Call(ast.Name("int64", ast.Load()), [node], [])


@cache
def _read(text: str, element: int) -> Formula:
    return FormulaReader(FORMULAS, ELEMENTS[element]).read(text)


@cache
def list_words(text: str, element: int) -> frozenset[str]:
    """Return the descriptor words that a formula uses for Int8 (``element`` 0) or Int16 (1)."""
    return frozenset(_read(text, element).words)


@cache
def _compile(text: str, element: int) -> Any:
    formula = _read(text, element)
    lines = [f"{name} = {term}" for name, term in (*formula.constants, *formula.steps)]
    tree = ast.fix_missing_locations(_Vectorize().visit(ast.parse("\n".join(lines))))
    return compile(tree, "<formula>", "exec")


def evaluate_formula(text: str, element: int, values: Mapping[str, Any]) -> Integers:
    """Evaluate a formula on arrays of its words; return the int64 results before the clip.

    Parameters
    ----------
    text
        Formula, with the functions and constants of ``isa/formulas.toml``. Its integers must fit
        64 bits.
    element
        0 for Int8, 1 for Int16.
    values
        Arrays of its words and varying values, int64 except ``total``; they broadcast.

    Returns
    -------
    numpy.ndarray
        Results before the clip, int64.
    """
    names = {**_PRIMITIVES, **values, "int64": np.int64, "element": np.int64(element)}
    with np.errstate(all="ignore"):
        exec(_compile(text, element), names)
    result: Integers = names[RESULT]
    return result
