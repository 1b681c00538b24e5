"""What a row of the table of opcodes is made of: its kind, operands, attributes, rules, formula."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from nmpsim.lir.constraints import Rule, SameScale
from nmpsim.lir.limits import MAX_INTEGER
from nmpsim.lir.nodes import AttributeValue, TensorType
from nmpsim.records import frozen

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


class Kind(Enum):
    """What an operation is; whoever compiles, quantizes or crops it asks for this.

    Operations of one kind have their operands in the same places. A unit of the device does those
    from CONVOLUTION to MOVE; ``compiler/placement.py`` says when.
    """

    NO_WORK = auto()
    """Computes nothing: begins, ends, views or prints a buffer."""
    CONVOLUTION = auto()
    """Windows times filters, and a bias: Dest, Src, Filter, Bias, perhaps scales by channel."""
    FULLY_CONNECTED = auto()
    """A product with weights, and a bias: Dest, Src, Weights, Bias, perhaps scales by row."""
    PRODUCT = auto()
    """A product of two matrices: Dest, LHS, RHS."""
    BATCHED_ADD = auto()
    """One tensor added to every item of a batch: Dest, Batch, Slice."""
    MAX_POOL = auto()
    """The largest value of each window: Dest, Src."""
    AVERAGE_POOL = auto()
    """The mean of each window: Dest, Src."""
    PAIR = auto()
    """Two tensors of one shape, element by element: Dest, LHS, RHS."""
    CLIP = auto()
    """Limits values and does nothing else: Dest, Src; see ``Opcode.limits``."""
    RESCALE = auto()
    """Values as they are, on another scale; below zero times Alpha if it has one: Dest, Src."""
    LOOK_UP = auto()
    """The entry of a table for each integer: Dest, Src, Mapping."""
    FILL = auto()
    """One value everywhere: Dest."""
    MOVE = auto()
    """Moves bytes, whatever they mean: Dest, Src."""
    CONVERSION = auto()
    """Between real and quantized values: Dest, Src."""
    FUNCTION = auto()
    """A real function of each element that a quantizer makes a table of: Dest, Src."""
    HOST = auto()
    """Anything else: the host does it."""


WEIGHTED = frozenset({Kind.CONVOLUTION, Kind.FULLY_CONNECTED})
"""Kinds with weights and a bias: result, source, weights, bias."""
SATURATES_ANYWHERE = WEIGHTED | {Kind.PRODUCT, Kind.BATCHED_ADD, Kind.AVERAGE_POOL, Kind.PAIR}
"""Kinds that bring what they calculate to the result's scale, then saturate: any limits will do."""


@frozen
class Role:
    """One operand of an opcode: what it stands for and how it is used."""

    name: str
    kind: str
    is_scratch: bool = False
    """Whether it is room to work in: Glow prints it as an output, with a scale of 0."""
    is_on_sums: bool = False
    """Whether a scale of 0 stands for that of each sum, which is input times weights."""
    scales: tuple[str, str] | None = None
    """Operands with its scales and offsets, one for each index of dimension 0; Glow leaves 0 or 1
    in the type of such an operand."""


@frozen
class AttributeKind:
    """What an attribute may hold, in words and as a test."""

    text: str
    accepts: Callable[[AttributeValue], bool]


@frozen
class Attribute:
    """One attribute of an opcode."""

    name: str
    kind: AttributeKind
    required: bool = True
    is_extension: bool = False
    """Whether Glow does not have it; what it says, other references know."""


@frozen
class Opcode:
    """One row of the table."""

    name: str
    summary: str
    operands: tuple[Role, ...]
    attributes: tuple[Attribute, ...] = ()
    kind: Kind = Kind.HOST
    rules: tuple[Rule, ...] = ()
    """What the types of the operands have to do with one another, in the order in which it is
    asked; a rule may rely on the rules before it."""
    formula: Callable[..., Any] | None = None
    """The real function of each element, for an operation that works element by element.

    Arrays of the operands that are read, then the attributes' numbers -> the result. It works in
    the dtype of its arguments: float64, float32, that of index integers.
    """
    limits: tuple[float | str, float | str | None] | None = None
    """What a CLIP limits to: low, and high if there is one; numbers or names of attributes."""

    @property
    def keeps_scale(self) -> bool:
        """Whether it passes integers on as they are, so the result has the scale of the source."""
        return any(isinstance(rule, SameScale) for rule in self.rules)

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
UNSIGNED = Attribute("Unsigned", FLAG, required=False, is_extension=True)
"""Whether the values are those of uint8 less 128, which TFLite and ONNX Runtime round otherwise
than Int8's."""
RESIZE = (
    Attribute("Scale", NUMBERS),
    Attribute("AlignCorners", FLAG, required=False, is_extension=True),
    Attribute("HalfPixelCenters", FLAG, required=False, is_extension=True),
)
WINDOW = (
    Attribute("Kernels", PAIR),
    Attribute("Strides", PAIR),
    Attribute("Pads", PADS),
)


def inputs(*names: str) -> tuple[Role, ...]:
    """Operands that are read."""
    return tuple(Role(name, IN) for name in names)
