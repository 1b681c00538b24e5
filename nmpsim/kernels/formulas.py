"""Formulas of the numerics profiles, as ``isa/formulas.toml`` states them.

Back ends: :mod:`~nmpsim.kernels.profiles` compiles loops over single values,
:mod:`~nmpsim.kernels.lanes` generates vector code and proves the ranges of integers.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from nmpsim.isa.profiles import PROFILES
from nmpsim.records import frozen

SOURCE = Path(__file__).parents[1] / "isa" / "formulas.toml"
ELEMENTS = "int8", "int16"
VARYING = {"acc", "total", "lhs", "rhs", "x"}
"""Names of the values that differ from element to element; other names are words."""
RESULT = "result"


@frozen
class Formula:
    """Formula as a list of assignments, divided into constants and steps, in evaluation order."""

    constants: tuple[tuple[str, str], ...]
    """Names and terms that do not depend on a varying value."""
    steps: tuple[tuple[str, str], ...]
    """Names and other terms; the last name is RESULT."""
    words: tuple[str, ...]
    """Words of the descriptor that the constants and steps use."""
    parameters: tuple[str, ...]
    """Words and constants that the steps use."""
    names: Mapping[str, str] = attrs.field(eq=False)
    """Name of a constant or step -> its name in the text of the formula, if it has one."""

    def flatten(self) -> Formula:
        """Return an equal formula without constants: constants become the first steps."""
        return Formula((), self.constants + self.steps, self.words, self.words, self.names)

    def restore_names(self, term: str) -> str:
        """Return a term with generated names replaced by the original names or terms."""
        constants = dict(self.constants)

        def restore(match: re.Match[str]) -> str:
            name = match[0]
            if name in constants and name not in self.names:
                return f"({self.restore_names(constants[name])})"
            return self.names.get(name, name)

        return re.sub(r"[^\W\d]\w*", restore, term)


class FormulaReader:
    """Reader of formula texts that expands function calls and separates constant terms.

    Parameters
    ----------
    table
        The formulas of ``isa/formulas.toml``.
    element
        Element type of the result, one of ELEMENTS.
    """

    def __init__(self, table: Mapping[str, Any], element: str) -> None:
        self._functions, self._constants = table["functions"], table["constants"]
        self._element = element
        self._terms: tuple[dict[str, str], dict[str, str]] = {}, {}
        self._known: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def read(self, text: str) -> Formula:
        """Parse the text of a formula and return its assignments."""
        result = self._evaluate(text, {})
        constants, steps = self._terms
        steps[RESULT] = ast.unparse(result)
        own = constants.keys() | steps.keys()
        used = [_list_words(term) for term in (*constants.values(), *steps.values())]
        words = dict.fromkeys(name for names in used for name in names if name not in own | VARYING)
        needed = [name for term in steps.values() for name in _list_words(term)]
        parameters = dict.fromkeys(
            name for name in needed if name not in steps and name not in VARYING
        )
        return Formula(
            tuple(constants.items()),
            tuple(steps.items()),
            tuple(words),
            tuple(parameters),
            self._names,
        )

    def _evaluate(self, text: Any, names: Mapping[str, ast.expr]) -> Any:
        """Store the assignments of a text and return its last expression."""
        if not isinstance(text, str):
            text = text[self._element]
        known: dict[str, Any] = dict(names)
        *assignments, last = ast.parse(text).body
        for one in assignments:
            assert isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
            name = one.targets[0].id
            known[name] = self._store(self._expand(one.value, known), name)
        assert isinstance(last, ast.Expr)
        return self._separate(self._expand(last.value, known))

    def _expand(self, node: Any, names: Mapping[str, ast.expr]) -> Any:
        """Replace names by their definitions, and calls of functions by their formulas."""
        if isinstance(node, ast.Name):
            if node.id in self._constants:
                return ast.parse(self._constants[node.id], mode="eval").body
            return names.get(node.id, node)
        if not isinstance(node, ast.expr):
            return node
        if isinstance(node, ast.Call) and _name(node.func) in self._functions:
            value, scale = node.args
            own: dict[str, ast.expr] = {
                word: ast.Name(f"{_name(scale)}_{word}") for word in ("pre", "mul", "post")
            }
            own["x"] = self._store(self._expand(value, names), "x")
            return self._evaluate(self._functions[_name(node.func)], own)
        fields = dict(ast.iter_fields(node))
        for field, child in fields.items():
            if isinstance(child, list):
                fields[field] = [self._expand(one, names) for one in child]
            elif field != "func":
                fields[field] = self._expand(child, names)
        return type(node)(**fields)

    def _store(self, node: ast.expr, name: str) -> Any:
        """Store a term, unless it is a name or a number; return the name of its value.

        ``name`` is the name of the value in the text.
        """
        node = self._separate(node)
        if not isinstance(node, ast.Name | ast.Constant):
            node = self._define(node, is_step=True)
        if isinstance(node, ast.Name) and node.id in self._known.values():
            self._names.setdefault(node.id, name)
        return node

    def _separate(self, node: Any) -> Any:
        """Store the largest terms that do not vary, and replace them by their names."""
        if not isinstance(node, ast.expr) or isinstance(node, ast.Name):
            return node
        words = _list_words(node)
        if words and not any(word in VARYING or word in self._terms[1] for word in words):
            return self._define(node, is_step=False)
        for field, child in ast.iter_fields(node):
            if isinstance(child, list):
                child[:] = map(self._separate, child)
            elif field != "func":
                setattr(node, field, self._separate(child))
        return node

    def _define(self, node: ast.expr, is_step: bool) -> ast.Name:
        text = ast.unparse(node)
        name = self._known.setdefault(text, f"{'step' if is_step else 'term'}{len(self._known)}")
        self._terms[is_step][name] = text
        return ast.Name(name)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _list_words(term: str | ast.expr) -> list[str]:
    """Return the names of values in a term, in order."""
    node = ast.parse(term) if isinstance(term, str) else term
    nodes = list(ast.walk(node))
    functions = [call.func for call in nodes if isinstance(call, ast.Call)]
    names = [one for one in nodes if isinstance(one, ast.Name) and one not in functions]
    return [name.id for name in sorted(names, key=lambda name: getattr(name, "col_offset", 0))]


FormulaTable: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Constants, functions and, by profile and kind, formulas."""


def _read_source() -> FormulaTable:
    """Return the contents of ``isa/formulas.toml``, with one key for each kind of a formula."""
    table = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    for name in PROFILES:
        given = table[name]
        given = table.get(given.pop("same_as", ""), {}) | given
        table[name] = {kind: text for key, text in given.items() for kind in key.split()}
    return table


FORMULAS = _read_source()
"""The formulas of ``isa/formulas.toml``."""


def read_formulas(kind: str, table: FormulaTable = FORMULAS) -> dict[tuple[int, int], Formula]:
    """Parse the formulas of one kind; key them by profile number and element type (Int8: 0)."""
    return {
        (PROFILES.index(name), element): FormulaReader(table, ELEMENTS[element]).read(own[kind])
        for name, own in table.items()
        if name in PROFILES and kind in own
        for element in range(len(ELEMENTS))
    }
