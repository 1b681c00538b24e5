"""Type rules of instructions: the form of a rule, and the rules that many opcodes share.

A rule yields the problems of one instruction. A shape rule is a function whose parameters are
shapes of operands and values of attributes by name (see :func:`make_shape_rule`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from typing import Any

import attrs

from nmpsim.diagnostics import list_alternatives
from nmpsim.lir.nodes import QUANTIZED_ELEMS, Instruction, TensorType
from nmpsim.lir.printer import format_scale
from nmpsim.records import frozen

Shape = tuple[int, ...]


@frozen
class InstructionProblem:
    """Problem of an instruction: the operand or attribute, the found and expected value."""

    role: str | None
    message: str
    found: str
    expected: str
    code: str = "LIR009"
    attribute: str | None = None


@frozen
class ExpectedShape:
    """Shape that an operand must have, with the reason."""

    role: str
    shape: Shape
    why: str


@attrs.frozen(slots=False)
class TypedInstruction:
    """Instruction with the type of each operand."""

    instruction: Instruction
    types: Mapping[str, TensorType]

    def get_elem(self, role: str) -> str:
        """Return the element type of the operand with a role."""
        return self.types[role].elem

    def get_shape(self, role: str) -> Shape:
        """Return the shape of the operand with a role."""
        return self.types[role].shape

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Shapes of operands and values of attributes, by name in lower case."""
        shapes = {role.lower(): type.shape for role, type in self.types.items()}
        return shapes | {name.lower(): v for name, v in self.instruction.attributes.items()}


Rule = Callable[[TypedInstruction], Iterator[InstructionProblem]]
Checks = Iterator[InstructionProblem | ExpectedShape]


def make_shape_rule(check: Callable[..., Checks]) -> Rule:
    """Return a type rule that checks operand shapes and attribute values with a function.

    Each parameter of the function is an operand, whose shape it receives, or an attribute:
    ``batch_dims`` is BatchDims. A parameter with a default is an optional attribute. The function
    yields problems and the shapes that operands must have.
    """
    code = check.__code__
    parameters = code.co_varnames[: code.co_argcount]
    keys = {name.replace("_", ""): name for name in parameters}

    @wraps(check)
    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        found = {name: site.values[key] for key, name in keys.items() if key in site.values}
        for one in check(**found):
            if isinstance(one, InstructionProblem):
                yield one
            else:
                yield from check_shape(site, one.role, one.shape, one.why)

    return rule


def check_shape(
    site: TypedInstruction, role: str, expected: Shape, why: str
) -> Iterator[InstructionProblem]:
    """Yield a problem if an operand does not have the expected shape."""
    if site.get_shape(role) != expected:
        yield make_shape_problem(role, site.get_shape(role), f"{format_shape(expected)}, {why}")


def make_shape_problem(role: str, shape: Shape, expected: str) -> InstructionProblem:
    """Return the problem that an operand does not have the expected shape."""
    return InstructionProblem(role, f"{role} has the wrong shape", format_shape(shape), expected)


def make_attribute_problem(
    name: str, message: str, found: object, expected: str
) -> InstructionProblem:
    """Return the problem (LIR008) that an attribute does not fit the operands."""
    return InstructionProblem(None, message, str(found), expected, "LIR008", name)


def format_shape(shape: Shape) -> str:
    """Return a shape as LIR text, such as ``<1 x 10>``."""
    return f"<{' x '.join(str(dim) for dim in shape)}>"


def have_equal_quantization(a: TensorType, b: TensorType) -> bool:
    """Return whether two types have equal offsets, and scales that agree in nine decimals."""
    if a.quant is None or b.quant is None:
        return a.quant is b.quant
    same_scale = format_scale(a.quant.scale) == format_scale(b.quant.scale)
    return same_scale and a.quant.offset == b.quant.offset


def _parameters(type: TensorType) -> str:
    if type.quant is None:
        return "not quantized"
    return f"scale {format_scale(type.quant.scale)}, offset {type.quant.offset}"


def require_rank(dimensions: int, *roles: str) -> Rule:
    """Return a rule that operands have a number of dimensions."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        for role in roles:
            if len(site.get_shape(role)) != dimensions:
                message = f"{role} has the wrong number of dimensions"
                yield InstructionProblem(
                    role, message, format_shape(site.get_shape(role)), f"{dimensions} dimensions"
                )

    return rule


def require_elem(elems: str, *roles: str) -> Rule:
    """Return a rule that operands have one of several element types, such as ``i8|i16``."""
    known = sorted(elems.split("|"))

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        for role in roles:
            if site.get_elem(role) not in known:
                message = f"{role} has the wrong element kind"
                yield InstructionProblem(
                    role, message, site.get_elem(role), list_alternatives(known)
                )

    return rule


def require_same_elem(first: str, *others: str) -> Rule:
    """Return a rule that operands have the element type of the first operand."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        for role in others:
            if site.get_elem(role) != site.get_elem(first):
                message = f"{role} and {first} differ in their element kind"
                yield InstructionProblem(
                    role, message, site.get_elem(role), f"{site.get_elem(first)}, as {first}"
                )

    return rule


def require_same_shape(first: str, *others: str) -> Rule:
    """Return a rule that operands have the shape of the first operand."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        for role in others:
            yield from check_shape(site, role, site.get_shape(first), f"as {first}")

    return rule


@frozen
class SameScale:
    """Rule that operands have the scale and offset of the first operand."""

    first: str
    others: tuple[str, ...]

    def __call__(self, site: TypedInstruction) -> Iterator[InstructionProblem]:
        """Check an instruction, as any rule does."""
        first = self.first
        for role in self.others:
            if not have_equal_quantization(site.types[role], site.types[first]):
                message = f"{role} and {first} differ in scale or offset"
                expected = f"{_parameters(site.types[first])}, as {first}"
                yield InstructionProblem(role, message, _parameters(site.types[role]), expected)


def require_same_scale(first: str, *others: str) -> Rule:
    """Return a rule that operands have the scale and offset of the first operand."""
    return SameScale(first, others)


def require_same_type(first: str, *others: str) -> tuple[Rule, ...]:
    """Return rules that operands have the element type, scale and shape of the first operand."""
    return (
        require_same_elem(first, *others),
        require_same_scale(first, *others),
        require_same_shape(first, *others),
    )


def require_elementwise(first: str, *others: str) -> tuple[Rule, ...]:
    """Return rules that operands have the element type and shape of the first operand."""
    return require_same_elem(first, *others), require_same_shape(first, *others)


def require_addend_elem(base: str, addend: str) -> Rule:
    """Return a rule that an addend is float, or signed and quantized, like the base operand."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        quantized = site.get_elem(base) in QUANTIZED_ELEMS
        yield from require_elem("i8|i16|i32" if quantized else site.get_elem(base), addend)(site)

    return rule


def require_bias_elem(base: str, bias: str) -> Rule:
    """Return a rule that a bias has the type of an addend, or is a float or quantized i64 tensor.

    Glow has neither: PyTorch and ONNX Runtime keep a bias float, TFLite's Int16 has 64 bits.
    """

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        quantized = site.get_elem(base) in QUANTIZED_ELEMS
        elems = "i8|i16|i32|i64|float" if quantized else site.get_elem(base)
        yield from require_elem(elems, bias)(site)
        if quantized and site.get_elem(bias) == "i64" and site.types[bias].quant is None:
            found = "i64 without scale and offset"
            yield InstructionProblem(
                bias, f"{bias} lacks its quantization", found, "[S:scale O:offset]"
            )

    return rule


def require_weights_elem(base: str, weights: str) -> Rule:
    """Return a rule that weights have the element type of the input, or i8 for an i16 input."""

    def rule(site: TypedInstruction) -> Iterator[InstructionProblem]:
        if (site.get_elem(base), site.get_elem(weights)) != ("i16", "i8"):
            yield from require_same_elem(base, weights)(site)

    return rule
