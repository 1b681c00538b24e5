"""What a row of the table of opcodes is made of: roles of operands, kinds of attributes."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from nmpsim.lir.limits import MAX_INTEGER
from nmpsim.lir.nodes import AttributeValue, TensorType

IN, OUT, INOUT = "@in", "@out", "@inout"

ACTIVATION_ARGUMENTS = {
    "NONE": 0,
    "RELU": 0,
    "CLIP": 2,
    "TANH": 0,
    "SIGMOID": 0,
    "LEAKY_RELU": 1,
}
"""Fused activation -> how many FusedActivationArgs it has."""


@attrs.frozen
class Role:
    """One operand of an opcode: what it stands for and how it is used."""

    name: str
    kind: str
    is_scratch: bool = False
    """Whether it is room to work in: Glow prints it as an output, with a scale of 0."""


@attrs.frozen
class AttributeKind:
    """What an attribute may hold, in words and as a test."""

    text: str
    accepts: Callable[[AttributeValue], bool]


@attrs.frozen
class Attribute:
    """One attribute of an opcode."""

    name: str
    kind: AttributeKind
    required: bool = True


@attrs.frozen
class Opcode:
    """One row of the table."""

    name: str
    summary: str
    operands: tuple[Role, ...]
    attributes: tuple[Attribute, ...] = ()

    def attribute(self, name: str) -> Attribute | None:
        """The attribute of this name, if the opcode has it."""
        return next((a for a in self.attributes if a.name == name), None)


def _is_int(value: object, minimum: int) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_INTEGER
    )


def integer(minimum: int) -> AttributeKind:
    """A whole number from the minimum to :data:`MAX_INTEGER`."""
    text = f"an integer of at least {minimum}, at most {MAX_INTEGER}"
    return AttributeKind(text, lambda v: _is_int(v, minimum))


def integers(words: str, minimum: int, *counts: int) -> AttributeKind:
    """A list of whole numbers, as many as one of ``counts``; ``words`` name it in messages."""

    def accepts(value: AttributeValue) -> bool:
        return (
            isinstance(value, tuple)
            and (not counts or len(value) in counts)
            and all(_is_int(item, minimum) for item in value)
        )

    return AttributeKind(f"{words}, integers of at least {minimum}, at most {MAX_INTEGER}", accepts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def one_of(*words: str | int) -> AttributeKind:
    """One of these words or numbers."""
    text = ", ".join(str(word) for word in words)
    return AttributeKind(
        f"one of {text}" if len(words) > 1 else text,
        lambda v: isinstance(v, (str, int)) and not isinstance(v, bool) and v in words,
    )


ANY_INTEGER = integer(-MAX_INTEGER - 1)
COUNT = integer(1)
AXIS = integer(0)
PAIR = integers("[height, width]", 1, 2)
PADS = integers("[top, left, bottom, right]", 0, 4)
INDICES = integers("a list with one number a dimension", 0)
FLAG = one_of(0, 1)
NUMBER = AttributeKind("a number", _is_number)
NUMBERS = AttributeKind(
    "a list of numbers", lambda v: isinstance(v, tuple) and all(_is_number(item) for item in v)
)
TYPE = AttributeKind("a type", lambda v: isinstance(v, TensorType))
TEXT = AttributeKind("a word", lambda v: isinstance(v, str))

DEST, SRC = Role("Dest", OUT), Role("Src", IN)
BIAS = Role("Bias", IN)
UNARY = (DEST, SRC)
BINARY = (DEST, Role("LHS", IN), Role("RHS", IN))
WINDOW = (
    Attribute("Kernels", PAIR),
    Attribute("Strides", PAIR),
    Attribute("Pads", PADS),
)


def inputs(*names: str) -> tuple[Role, ...]:
    """Operands that are read."""
    return tuple(Role(name, IN) for name in names)
