"""The words of the type rules: a site, a problem, and the rules that many opcodes share.

A rule looks at one instruction and yields what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from nmpsim.lir.nodes import QUANTIZED_ELEMS, Instruction, TensorType
from nmpsim.lir.printer import format_scale
from nmpsim.records import frozen


@frozen
class Problem:
    """One broken rule; ``role`` or ``attribute`` names what is at fault, else the instruction."""

    role: str | None
    message: str
    found: str
    expected: str
    code: str = "LIR009"
    attribute: str | None = None


@frozen
class Site:
    """One instruction with the type of each operand by role."""

    instruction: Instruction
    types: Mapping[str, TensorType]

    def elem(self, role: str) -> str:
        """Element kind of an operand."""
        return self.types[role].elem

    def shape(self, role: str) -> tuple[int, ...]:
        """Shape of an operand."""
        return self.types[role].shape

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute."""
        value = self.instruction.attributes[name]
        return tuple(int(item) for item in value) if isinstance(value, tuple) else ()

    def number(self, name: str) -> float:
        """A number attribute."""
        value = self.instruction.attributes[name]
        return value if isinstance(value, (int, float)) else math.nan

    def integer(self, name: str) -> int:
        """An integer attribute."""
        return int(self.number(name))


Rule = Callable[[Site], Iterator[Problem]]


def describe(shape: tuple[int, ...]) -> str:
    """A shape as the text writes it."""
    return f"<{' x '.join(str(dim) for dim in shape)}>"


def same_parameters(a: TensorType, b: TensorType) -> bool:
    """Whether two types have the same scale, as far as the text shows it, and offset."""
    if a.quant is None or b.quant is None:
        return a.quant is b.quant
    same_scale = format_scale(a.quant.scale) == format_scale(b.quant.scale)
    return same_scale and a.quant.offset == b.quant.offset


def _parameters(type: TensorType) -> str:
    if type.quant is None:
        return "not quantized"
    return f"scale {format_scale(type.quant.scale)}, offset {type.quant.offset}"


def expect_shape(site: Site, role: str, expected: tuple[int, ...], why: str) -> Iterator[Problem]:
    """An operand has this shape."""
    if site.shape(role) != expected:
        yield Problem(
            role,
            f"{role} has the wrong shape",
            describe(site.shape(role)),
            f"{describe(expected)}, {why}",
        )


def rank(dimensions: int, *roles: str) -> Rule:
    """Each of the operands has this many dimensions."""

    def rule(site: Site) -> Iterator[Problem]:
        for role in roles:
            if len(site.shape(role)) != dimensions:
                message = f"{role} has the wrong number of dimensions"
                yield Problem(role, message, describe(site.shape(role)), f"{dimensions} dimensions")

    return rule


def elem(kinds: frozenset[str], *roles: str) -> Rule:
    """Each of the operands holds one of these element kinds."""

    def rule(site: Site) -> Iterator[Problem]:
        for role in roles:
            if site.elem(role) not in kinds:
                message = f"{role} has the wrong element kind"
                yield Problem(role, message, site.elem(role), " or ".join(sorted(kinds)))

    return rule


def same_elem(first: str, *others: str) -> Rule:
    """All operands hold the element kind of the first."""

    def rule(site: Site) -> Iterator[Problem]:
        for role in others:
            if site.elem(role) != site.elem(first):
                message = f"{role} and {first} differ in their element kind"
                yield Problem(role, message, site.elem(role), f"{site.elem(first)}, as {first}")

    return rule


def same_shape(first: str, *others: str) -> Rule:
    """All operands have the shape of the first."""

    def rule(site: Site) -> Iterator[Problem]:
        for role in others:
            yield from expect_shape(site, role, site.shape(first), f"as {first}")

    return rule


@frozen
class SameScale:
    """All operands have the scale and offset of the first: the operation moves raw integers."""

    first: str
    others: tuple[str, ...]

    def __call__(self, site: Site) -> Iterator[Problem]:
        """What is wrong with a site, as any rule."""
        first = self.first
        for role in self.others:
            if not same_parameters(site.types[role], site.types[first]):
                message = f"{role} and {first} differ in scale or offset"
                expected = f"{_parameters(site.types[first])}, as {first}"
                yield Problem(role, message, _parameters(site.types[role]), expected)


def same_scale(first: str, *others: str) -> Rule:
    """All operands have the scale and offset of the first."""
    return SameScale(first, others)


def same_type(first: str, *others: str) -> tuple[Rule, ...]:
    """Element kind, scale, offset and shape are those of the first."""
    return same_elem(first, *others), same_scale(first, *others), same_shape(first, *others)


def pointwise(first: str, *others: str) -> tuple[Rule, ...]:
    """Element kind and shape are those of the first; each has its own scale and offset."""
    return same_elem(first, *others), same_shape(first, *others)


def addend_elem(base: str, addend: str) -> Rule:
    """What is added to every row is real with real operands, else any signed quantized kind."""

    def rule(site: Site) -> Iterator[Problem]:
        quantized = site.elem(base) in QUANTIZED_ELEMS
        kinds = {"i8", "i16", "i32"} if quantized else {site.elem(base)}
        yield from elem(frozenset(kinds), addend)(site)

    return rule


def bias_elem(base: str, bias: str) -> Rule:
    """As an addend; with quantized operands it may also be float, or a quantized i64.

    Glow has neither: PyTorch and ONNX Runtime keep a bias float, TFLite's Int16 has 64 bits.
    """

    def rule(site: Site) -> Iterator[Problem]:
        quantized = site.elem(base) in QUANTIZED_ELEMS
        kinds = {"i8", "i16", "i32", "i64", "float"} if quantized else {site.elem(base)}
        yield from elem(frozenset(kinds), bias)(site)
        if quantized and site.elem(bias) == "i64" and site.types[bias].quant is None:
            found = "i64 without scale and offset"
            yield Problem(bias, f"{bias} lacks its quantization", found, "[S:scale O:offset]")

    return rule


def weights_elem(base: str, weights: str) -> Rule:
    """Weights hold what the input holds; with i16 they may be i8, as TFLite has them."""

    def rule(site: Site) -> Iterator[Problem]:
        if (site.elem(base), site.elem(weights)) != ("i16", "i8"):
            yield from same_elem(base, weights)(site)

    return rule
