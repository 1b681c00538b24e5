"""Evaluation of formulas on arrays of integers, for many variants of the words at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.core.reference.custom_formulas import make_primitives
from nmpsim.core.reference.profiles.formulas import OPERATIONS
from nmpsim.kernels.formulas import ELEMENTS, FORMULAS, RESULT, FormulaReader

Integers: TypeAlias = npt.NDArray[np.int64]
_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    **make_primitives(np.int64),
    "limit": lambda x, most: np.clip(x, -most, most),
    "saturate": lambda x, bits: np.clip(x, -(1 << bits - 1), (1 << bits - 1) - 1),
    "select": np.where,
    "combine": lambda operation, x, y: OPERATIONS[int(np.max(operation))](x, y),
}
"""Primitives of the reference engine, on int64 because Python's integers are too slow here."""


_SHARED = FORMULAS["functions"].keys() | FORMULAS["constants"].keys()


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
def _compile(text: str, element: int) -> tuple[Any, frozenset[str]]:
    """Return the code of a formula, and the names that it uses."""
    tree = ast.parse(text)
    if not _SHARED.isdisjoint(_list_names(tree)):
        formula = FormulaReader(FORMULAS, ELEMENTS[element]).read(text)
        tree = ast.parse("\n".join(f"{name} = {term}" for name, term in formula.flatten().steps))
    else:
        last = tree.body[-1]
        assert isinstance(last, ast.Expr)
        tree.body[-1] = ast.Assign([ast.Name(RESULT, ast.Store())], last.value)
    names = frozenset(_list_names(tree))
    code = compile(ast.fix_missing_locations(_Vectorize().visit(tree)), "<formula>", "exec")
    return code, names


def _list_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def list_formula_names(text: str, element: int) -> frozenset[str]:
    """Return the names that a formula uses for Int8 (``element`` 0) or Int16 (1)."""
    return _compile(text, element)[1]


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
        exec(_compile(text, element)[0], names)
    result: Integers = names[RESULT]
    return result
