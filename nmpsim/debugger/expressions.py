"""Expressions over a stopped run, such as ``cycle < 3000 and saturation(conv1) == 0``.

They have numbers, functions of names and numbers, ``+ - *``, comparisons, ``and``, ``or``, ``not``
and parentheses. Python parses them; only these operators and the functions that the caller passes
are executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from nmpsim.diagnostics import UserError, fail

Number = int | float
Function = Callable[[Sequence[str]], Number]
"""Function of an expression; its arguments are passed as they were written."""

MAX_CHARACTERS = 1000
MAX_DEPTH = 50
_ARGUMENT = r"\s*-?\s*[\w./:]+\s*"
_CALL = re.compile(
    r"(?<![\w.])(?!(?:and|or|not)\b)([A-Za-z_][\w./:]*)"
    rf"(?:\s*\(({_ARGUMENT}(?:,{_ARGUMENT})*|\s*)\))?"
)
"""Name of a function, and its arguments if they are given."""
_OPERATORS: Mapping[type[ast.AST], Callable[[Number, Number], Number]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def evaluate(text: str, functions: Mapping[str, Function]) -> Number:
    """Evaluate an arithmetic or logical expression; the value is 1 if true and 0 if false.

    A function without arguments needs no parentheses.

    Raises
    ------
    UserError
        DEBUG001 if the text is no expression; whatever the functions raise.
    """

    def error(message: str) -> UserError:
        return fail(
            "DEBUG001",
            f"the expression is invalid: {message}",
            found=text[:200] or "nothing",
            expected="numbers, + - * == != < <= > >= and or not, " + ", ".join(functions),
        )

    values: dict[str, Number] = {}

    def call(match: re.Match[str]) -> str:
        """Call a function and return the name under which its value is found."""
        function, arguments = match.groups()
        if function not in functions:
            raise error(f"unknown function {function!r}")
        words = "".join(arguments.split()).split(",") if (arguments or "").strip() else []
        values[name := f"_{len(values)}"] = functions[function](words)
        return name

    if len(text) > MAX_CHARACTERS:
        raise error(f"it has {len(text)} characters, but at most {MAX_CHARACTERS} are allowed")
    called = _CALL.sub(call, text).strip()
    try:
        return _compute(ast.parse(called, mode="eval").body, values)
    except (SyntaxError, ArithmeticError, ValueError, MemoryError, RecursionError) as problem:
        raise error(getattr(problem, "msg", None) or str(problem)) from None


def _compute(node: ast.expr, values: Mapping[str, Number], depth: int = 0) -> Number:
    """Return the value of a node; raise ValueError for anything but numbers and operators."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    pairs: Sequence[tuple[ast.AST, ast.expr]]
    match node:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(name):
            return values[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_compute(operand, values, depth + 1)
        case ast.UnaryOp(ast.Not(), operand):
            return int(not _compute(operand, values, depth + 1))
        case ast.BoolOp(op, operands):
            found = [bool(_compute(one, values, depth + 1)) for one in operands]
            return int(all(found) if isinstance(op, ast.And) else any(found))
        case ast.BinOp(left, op, right):
            pairs = [(op, right)]
        case ast.Compare(left, ops, rights):
            pairs = list(zip(ops, rights, strict=True))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not supported")
    value = _compute(left, values, depth)
    for sign, operand in pairs:
        if type(sign) not in _OPERATORS:
            raise ValueError(f"the operator {type(sign).__name__} is not supported")
        # + makes an int of a bool
        value = +_OPERATORS[type(sign)](value, _compute(operand, values, depth + 1))
    return value
