"""Rows of the opcode table: kind, operands, attributes, rules and execution of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from nmpsim.kernels.hostops.tensors import (
    ANY,
    BIAS,
    BOOL,
    FLOAT,
    INDEX,
    INT8,
    INT16,
    NARROW,
    NUMBER,
    QUANTIZED,
    REAL,
    DtypeNames,
)
from nmpsim.lir.constraints import ACTIVATION_ARGUMENTS, Rule
from nmpsim.lir.nodes import MAX_INTEGER, AttributeValue, TensorType
from nmpsim.records import frozen

IN, OUT, INOUT = "@in", "@out", "@inout"


class OpcodeKind(Enum):
    """Kind of an operation; operations of a kind have the same order of operands.

    A unit of the device does those
    from CONVOLUTION to MOVE; ``compiler/placement.py`` says when.
    """

    NO_WORK = auto()
    """No computation: begins, ends, views or prints a buffer."""
    CONVOLUTION = auto()
    """Convolution and bias: Dest, Src, Filter, Bias, optionally scales by channel."""
    FULLY_CONNECTED = auto()
    """Product with weights, and bias: Dest, Src, Weights, Bias, optionally scales by row."""
    PRODUCT = auto()
    """Product of two matrices: Dest, LHS, RHS."""
    BATCHED_ADD = auto()
    """Addition of one tensor to every item of a batch: Dest, Batch, Slice."""
    MAX_POOL = auto()
    """Largest value of each window: Dest, Src."""
    AVERAGE_POOL = auto()
    """Mean of each window: Dest, Src."""
    PAIR = auto()
    """Elementwise operation on two tensors of one shape: Dest, LHS, RHS."""
    CLIP = auto()
    """Limits values and does nothing else: Dest, Src; see ``Opcode.limits``."""
    RESCALE = auto()
    """Values on another scale, multiplied by Alpha (if any) below zero: Dest, Src."""
    LOOK_UP = auto()
    """Table entry for each integer: Dest, Src, Mapping."""
    FILL = auto()
    """One value for all elements: Dest."""
    MOVE = auto()
    """Movement of bytes: Dest, Src."""
    CONVERSION = auto()
    """Conversion between real and quantized values: Dest, Src."""
    FUNCTION = auto()
    """Real function of each element, for which a quantizer makes a table: Dest, Src."""
    HOST = auto()
    """Any other operation, which the host executes."""


WEIGHTED = frozenset({OpcodeKind.CONVOLUTION, OpcodeKind.FULLY_CONNECTED})
"""Kinds with weights and a bias: result, source, weights, bias."""
SATURATES_ANYWHERE = WEIGHTED | {
    OpcodeKind.PRODUCT,
    OpcodeKind.BATCHED_ADD,
    OpcodeKind.AVERAGE_POOL,
    OpcodeKind.PAIR,
}
"""Kinds that rescale to the result and then saturate, to any limits."""


@frozen
class OperandRole:
    """Role of an operand of an operation: its name and whether it is read or written."""

    name: str
    kind: str
    is_scratch: bool = False
    """Whether it is workspace, which Glow prints as an output with a scale of 0."""
    is_on_sums: bool = False
    """Whether a scale of 0 stands for the scale of each sum, input times weights."""
    scales: tuple[str, str] | None = None
    """Operands with the scales and offsets for each index of dimension 0. The type of such an
    operand has a meaningless 0 or 1 in Glow's text."""


@frozen
class AttributeKind:
    """Kind of an attribute: a function that accepts valid values, and their description."""

    text: str
    accepts: Callable[[AttributeValue], bool]


@frozen
class Attribute:
    """Attribute of an operation: its name and the values that it may have."""

    name: str
    kind: AttributeKind
    required: bool = True
    is_extension: bool = False
    """Whether other references have the attribute and Glow does not."""


class HostProfiles(Enum):
    """Numerics profiles in which the host can execute the quantized form of an operation."""

    GLOW = auto()
    """The profiles of Glow and of the NMP's library."""
    EVERY = auto()
    """All profiles, each with its own formula."""
    EXACT = auto()
    """All profiles, with one result: values are moved or compared."""


@frozen
class Signature:
    """Signature of a host operation: the permitted dtypes of its operands.

    Operands with the same choice of dtypes have one dtype, unless ``mixed``.
    """

    operands: tuple[DtypeNames, ...]
    mixed: bool = False

    def list_dtype_groups(self) -> list[list[int]]:
        """Return groups of operand indices; the operands of a group must have the same dtype."""
        by_choice: dict[DtypeNames, list[int]] = {}
        for index, names in enumerate(self.operands):
            by_choice.setdefault(names, []).append(index)
        groups = [group for names, group in by_choice.items() if len(names) > 1 < len(group)]
        return [] if self.mixed else groups

    def find_mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Return why operand dtypes do not match the signature, or None if they match."""
        if len(dtypes) != len(self.operands):
            return f"the number of operands is {len(dtypes)} instead of {len(self.operands)}"
        for index, (dtype, names) in enumerate(zip(dtypes, self.operands, strict=True)):
            if dtype.name not in names:
                supported = ", ".join(sorted(names))
                return f"operand {index} is {dtype.name}, but the supported types are {supported}"
        for group in self.list_dtype_groups():
            shared = sorted({dtypes[index].name for index in group})
            if len(shared) > 1:
                return f"operands {group} must have one type, not {', '.join(shared)}"
        return None


@frozen
class Opcode:
    """Opcode of LIR: the operands, attributes, type rules and execution of an operation."""

    name: str
    summary: str
    operands: tuple[OperandRole, ...]
    attributes: tuple[Attribute, ...] = ()
    kind: OpcodeKind = OpcodeKind.HOST
    rules: tuple[Rule, ...] = ()
    """Type rules in the order of checking; a rule may rely on the rules before it."""
    formula: Callable[..., Any] | None = None
    """Real function of each element, for elementwise operations.

    (arrays of the operands that are read, numbers of the attributes) -> result. It computes in
    the dtype of its arguments: float64, float32, that of index integers.
    """
    limits: tuple[float | str, float | str | None] | None = None
    """Limits of a CLIP: low, and high if there is one; numbers or names of attributes."""
    signatures: tuple[Signature, ...] = ()
    """Alternatives of the dtypes that operands may have on the host."""
    run: str = ""
    """``MODULE.FUNCTION`` of :mod:`nmpsim.kernels.hostops` that executes the operation on the host.

    With a formula, it is for quantized values alone. An elementwise operation without it computes
    ``quantize(formula(dequantize(q)))``.
    """
    profiles: HostProfiles = HostProfiles.GLOW

    def find_mismatch(self, dtypes: Sequence[np.dtype[Any]]) -> str | None:
        """Return why operand dtypes match no signature of the opcode, or None if they match one."""
        reasons = [signature.find_mismatch(dtypes) for signature in self.signatures]
        return None if None in reasons else reasons[0]

    @property
    def keeps_scale(self) -> bool:
        """Whether the result has the source's scale and offset."""
        return any(rule.name == "require_same_scale" for rule in self.rules)

    def find_attribute(self, name: str) -> Attribute | None:
        """Return the attribute ``name``, or None if the opcode has no such attribute."""
        return next((a for a in self.attributes if a.name == name), None)


def _is_int(value: object, minimum: int) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_INTEGER
    )


def make_integer_kind(minimum: int) -> AttributeKind:
    """Return the attribute kind of integers from ``minimum`` to :data:`MAX_INTEGER`."""
    text = f"an integer of at least {minimum}, at most {MAX_INTEGER}"
    return AttributeKind(text, lambda v: _is_int(v, minimum))


def make_integer_list_kind(words: str, minimum: int, *counts: int) -> AttributeKind:
    """Return the attribute kind of integer lists; ``counts`` are the valid lengths, () for any."""

    def accepts(value: AttributeValue) -> bool:
        return (
            isinstance(value, tuple)
            and (not counts or len(value) in counts)
            and all(_is_int(item, minimum) for item in value)
        )

    return AttributeKind(f"{words}, integers of at least {minimum}, at most {MAX_INTEGER}", accepts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def make_choice_kind(*words: str | int) -> AttributeKind:
    """Return an attribute kind that accepts only the words or numbers in ``words``."""
    text = ", ".join(str(word) for word in words)
    return AttributeKind(
        f"one of {text}" if len(words) > 1 else text,
        lambda v: isinstance(v, (str, int)) and not isinstance(v, bool) and v in words,
    )


ATTRIBUTE_KINDS: Mapping[str, AttributeKind] = {
    "integer": make_integer_kind(-MAX_INTEGER - 1),
    "natural": make_integer_kind(0),
    "positive": make_integer_kind(1),
    "flag": make_choice_kind(0, 1),
    "activation": make_choice_kind(*ACTIVATION_ARGUMENTS),
    "number": AttributeKind("a number", _is_number),
    "numbers": AttributeKind(
        "a list of numbers", lambda v: isinstance(v, tuple) and all(map(_is_number, v))
    ),
    "type": AttributeKind("a type", lambda v: isinstance(v, TensorType)),
    "text": AttributeKind("a word", lambda v: isinstance(v, str)),
    "indices": make_integer_list_kind("a list with one number for each dimension", 0),
    "dimensions": make_integer_list_kind("a list of dimensions", 0),
    "pair": make_integer_list_kind("[height, width]", 1, 2),
    "pads": make_integer_list_kind("[top, left, bottom, right]", 0, 4),
    "triple": make_integer_list_kind("[time, height, width]", 1, 3),
    "triple_pads": make_integer_list_kind("[near, far, top, bottom, left, right]", 0, 6),
    "window": make_integer_list_kind("[height, width] or [time, height, width]", 1, 2, 3),
    "window_pads": make_integer_list_kind("two for each dimension of the window", 0, 4, 6),
}
"""Kinds of attributes by their names in the files of opcodes."""

DTYPES: Mapping[str, DtypeNames] = {
    "float": FLOAT,
    "float16": frozenset({"float16"}),
    "int8": INT8,
    "int16": INT16,
    "narrow": NARROW,
    "quantized": QUANTIZED,
    "bias": BIAS,
    "index": INDEX,
    "bool": BOOL,
    "real": REAL,
    "number": NUMBER,
    "any": ANY,
}
"""Sets of dtypes by their names in the files of opcodes."""
