"""Evaluation of formulas on arrays of integers, for many variants of the words at once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.core.reference.custom_formulas import (
    TermEvaluator,
    combine_operands,
    make_primitives,
)
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS, RESULT, FormulaReader

Integers: TypeAlias = npt.NDArray[np.int64]
_EVALUATOR = TermEvaluator(
    {
        **make_primitives(np.int64),
        "limit": lambda x, most: np.clip(x, -most, most),
        "saturate": lambda x, bits: np.clip(x, -(1 << bits - 1), (1 << bits - 1) - 1),
        "combine": combine_operands,
    },
    np.int64,
)
"""The reference engine's evaluator on int64, because Python's integers are too slow here."""
_SHARED = FORMULAS["functions"].keys() | FORMULAS["constants"].keys()


@cache
def _parse(text: str, element: int) -> tuple[dict[str, ast.expr], frozenset[str]]:
    """Return the terms of a formula by name, and the names that it uses."""
    names = _list_names(ast.parse(text))
    if not _SHARED.isdisjoint(names):
        formula = FormulaReader(FORMULAS, ELEMENTS[element]).read(text)
        text = "\n".join(f"{name} = {term}" for name, term in formula.flatten().steps)
    terms = {}
    for line in ast.parse(text).body:
        assert isinstance(line, ast.Assign | ast.Expr)
        target = line.targets[0] if isinstance(line, ast.Assign) else ast.Name(RESULT)
        assert isinstance(target, ast.Name)
        terms[target.id] = line.value
    return terms, frozenset(_list_names(ast.parse(text)))


def _list_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def list_formula_names(text: str, element: int) -> frozenset[str]:
    """Return the names that a formula uses for Int8 (``element`` 0) or Int16 (1)."""
    return _parse(text, element)[1]


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
    names = {"element": np.int64(element), **values}
    with np.errstate(all="ignore"):
        for name, term in _parse(text, element)[0].items():
            names[name] = _EVALUATOR.evaluate_term(term, names)
    result: Integers = names[RESULT]
    return result
