"""Type rules of instructions, as ``rules.toml`` states them."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import attrs
import numpy as np

from nmpsim.diagnostics import list_alternatives
from nmpsim.kernels.hostops.windows import SlidingWindow
from nmpsim.lir.nodes import (
    MODULE_ELEMS,
    QUANTIZABLE_ELEMS,
    QUANTIZED_ELEMS,
    Instruction,
    TensorType,
    find_size_problem,
)
from nmpsim.lir.printer import format_scale
from nmpsim.records import frozen

Shape = tuple[int, ...]

ACTIVATION_ARGUMENTS: dict[str, int] = {
    "NONE": 0,
    "RELU": 0,
    "CLIP": 2,
    "TANH": 0,
    "SIGMOID": 0,
    "LEAKY_RELU": 1,
}
"""Fused activation -> number of FusedActivationArgs."""


@frozen
class InstructionProblem:
    """Problem of an instruction: its operand or attribute, the found and the expected value."""

    role: str | None
    message: str
    found: str
    expected: str
    code: str = "LIR009"
    attribute: str | None = None


def format_shape(shape: Shape) -> str:
    """Format a shape as LIR text, such as ``<1 x 10>``."""
    return f"<{' x '.join(str(dim) for dim in shape)}>"


def have_equal_quantization(a: TensorType, b: TensorType) -> bool:
    """Return whether two types have the same offset and scales that agree to nine decimals."""
    if a.quant is None or b.quant is None:
        return a.quant is b.quant
    same_scale = format_scale(a.quant.scale) == format_scale(b.quant.scale)
    return same_scale and a.quant.offset == b.quant.offset


def format_quantization(type: TensorType) -> str:
    """Format the scale and offset of a type, or return ``not quantized`` if there are none."""
    if type.quant is None:
        return "not quantized"
    return f"scale {format_scale(type.quant.scale)}, offset {type.quant.offset}"


_FUNCTIONS: Mapping[str, Any] = {
    "ACTIVATION_ARGUMENTS": ACTIVATION_ARGUMENTS,
    "MODULE_ELEMS": MODULE_ELEMS,
    "QUANTIZABLE_ELEMS": QUANTIZABLE_ELEMS,
    "QUANTIZED_ELEMS": QUANTIZED_ELEMS,
    "SlidingWindow": SlidingWindow,
    "find_size_problem": find_size_problem,
    "format_quantization": format_quantization,
    "have_equal_quantization": have_equal_quantization,
    "iinfo": np.iinfo,
    "inf": math.inf,
    "list_alternatives": list_alternatives,
    "pairwise": itertools.pairwise,
    "prod": math.prod,
    "text": format_shape,
}
"""Functions and constants that expressions of rules can use."""


@attrs.frozen(slots=False)
class TypedInstruction:
    """Instruction with the type of each operand."""

    instruction: Instruction
    types: Mapping[str, TensorType]

    @functools.cached_property
    def names(self) -> Mapping[str, Any]:
        """Values that the expressions of type rules can use, by name."""
        attributes = self.instruction.attributes
        shapes = {role: type.shape for role, type in self.types.items()}
        tables = {
            "attributes": attributes,
            "get": attributes.get,
            "types": self.types,
            "shape": shapes,
            "elem": {role: type.elem for role, type in self.types.items()},
        }
        return {**_FUNCTIONS, **tables, **attributes, **shapes}


@frozen
class Rule:
    """Type rule of an opcode: a row of ``rules.toml`` with its arguments."""

    name: str
    arguments: Mapping[str, Any]
    """Values of the parameters of the row."""
    roles: Sequence[str]
    """Operands or attributes for each of which the rule is checked."""
    checks: Sequence[Mapping[str, Any]]

    def find_problems(self, names: Mapping[str, Any]) -> Iterator[InstructionProblem]:
        """Yield the first problem of an instruction for each of the rule's roles.

        ``names`` are those that expressions can use.
        """
        for role in self.roles:
            own = {**names, **self.arguments, "role": role}
            problems = (_find_problem(check, own) for check in self.checks)
            yield from itertools.islice(filter(None, problems), 1)


def _find_problem(check: Mapping[str, Any], names: dict[str, Any]) -> InstructionProblem | None:
    for name, expression in check.get("names", {}).items():
        names[name] = _evaluate(expression, names)
    if "require" in check and _evaluate(check["require"], names):
        return None
    at = names["at"] = _format(check.get("at", "{role}"), names)
    expected = check.get("expected", "")
    if "is" in check:
        shape = _evaluate(check["is"], names)
        if names["shape"][at] == shape:
            return None
        expected = f"{format_shape(shape)}, {check['why']}"
    message = _format(check.get("message", "{at} has the wrong shape"), names)
    found = _format(check.get("found", "{text(shape[at])}"), names)
    if at in names["attributes"]:
        return InstructionProblem(None, message, found, _format(expected, names), "LIR008", at)
    code = check.get("code", "LIR009")
    return InstructionProblem(at or None, message, found, _format(expected, names), code)


def _evaluate(expression: str, names: dict[str, Any]) -> Any:
    return eval(_compile(expression), names)


@functools.cache
def _compile(expression: str) -> CodeType:
    return compile(expression, "rules.toml", "eval")


def _format(text: str, names: dict[str, Any]) -> str:
    """Return a text with the values of the expressions in braces."""
    return re.sub(r"{(.+?)}", lambda match: str(_evaluate(match[1], names)), text)


_ROWS = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))


def make_rules(name: str, *arguments: Any) -> Iterator[Rule]:
    """Yield the type rules that the row ``name`` of ``rules.toml`` defines for some arguments."""
    row = _ROWS[name]
    for one in row.get("rules", ()):
        yield from make_rules(one, *arguments)
    if "checks" in row:
        parameters = row.get("parameters", "").split()
        has_roles = "*roles" in parameters
        own = parameters[: len(parameters) - has_roles]
        values = dict(itertools.zip_longest(own, arguments[: len(own)]))
        yield Rule(name, values, arguments[len(own) :] if has_roles else ("",), row["checks"])


_TYPE_RULES = list(make_rules("check_type"))


def find_type_problems(type: TensorType, is_dummy: bool = False) -> Iterator[InstructionProblem]:
    """Yield all problems of a tensor type.

    ``is_dummy``: the scale has no meaning and may be 0, as for weights whose scales are in an
    operand of their own.
    """
    names = {**_FUNCTIONS, "type": type, "is_dummy": is_dummy, "attributes": {}}
    for rule in _TYPE_RULES:
        yield from rule.find_problems(names)
