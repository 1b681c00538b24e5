"""Every LIR opcode: its operands in print order and its attributes.

This table is the one place that says what an instruction looks like; the parser, the verifier,
the hints in messages and the documentation derive from it. What the types of the operands have
to do with one another is in :mod:`nmpsim.lir.rules`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

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
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _integer(minimum: int) -> AttributeKind:
    return AttributeKind(f"an integer of at least {minimum}", lambda v: _is_int(v, minimum))


def _integers(words: str, minimum: int, count: int | None = None) -> AttributeKind:
    def accepts(value: AttributeValue) -> bool:
        return (
            isinstance(value, tuple)
            and (count is None or len(value) == count)
            and all(_is_int(item, minimum) for item in value)
        )

    return AttributeKind(f"{words}, integers of at least {minimum}", accepts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _one_of(*words: str | int) -> AttributeKind:
    text = ", ".join(str(word) for word in words)
    return AttributeKind(
        f"one of {text}" if len(words) > 1 else text,
        lambda v: isinstance(v, (str, int)) and not isinstance(v, bool) and v in words,
    )


_COUNT = _integer(1)
_AXIS = _integer(0)
_PAIR = _integers("[height, width]", 1, 2)
_PADS = _integers("[top, left, bottom, right]", 0, 4)
_INDICES = _integers("a list with one number a dimension", 0)
_FLAG = _one_of(0, 1)
_NUMBER = AttributeKind("a number", _is_number)
_NUMBERS = AttributeKind(
    "a list of numbers", lambda v: isinstance(v, tuple) and all(_is_number(item) for item in v)
)
_TYPE = AttributeKind("a type", lambda v: isinstance(v, TensorType))
_TEXT = AttributeKind("a word", lambda v: isinstance(v, str))

_DEST, _SRC = Role("Dest", OUT), Role("Src", IN)
_BIAS = Role("Bias", IN)
_UNARY = (_DEST, _SRC)
_BINARY = (_DEST, Role("LHS", IN), Role("RHS", IN))
_OFFSETS = Attribute("Offsets", _INDICES)
_WINDOW = (
    Attribute("Kernels", _PAIR),
    Attribute("Strides", _PAIR),
    Attribute("Pads", _PADS),
)
_CONVOLUTION = (*_WINDOW, Attribute("Group", _COUNT), Attribute("Dilation", _PAIR))
_FUSED = (
    Attribute("FusedActivation", _one_of(*ACTIVATION_ARGUMENTS), required=False),
    Attribute("FusedActivationArgs", _NUMBERS, required=False),
)
_POOL = (*_WINDOW, Attribute("Layout", _one_of(0), required=False))

_TABLE = (
    Opcode("allocactivation", "begin the life of a buffer", (), (Attribute("Ty", _TYPE),)),
    Opcode("deallocactivation", "end the life of a buffer", (Role("Src", OUT),)),
    Opcode(
        "tensorview",
        "another type for (a part of) a buffer",
        (_SRC,),
        (Attribute("Ty", _TYPE), _OFFSETS),
    ),
    Opcode(
        "convolution",
        "2-D convolution, NHWC, filter OHWI",
        (_DEST, _SRC, Role("Filter", IN), _BIAS),
        (*_CONVOLUTION, Attribute("Layout", _one_of("NHWC"), required=False), *_FUSED),
    ),
    Opcode(
        "channelwisequantizedconvolution",
        "2-D convolution with a scale and offset for each output channel",
        (
            _DEST,
            _SRC,
            Role("Filter", IN),
            _BIAS,
            Role("FilterScales", IN),
            Role("FilterOffsets", IN),
            Role("BiasScales", IN),
            Role("BiasOffsets", IN),
        ),
        (*_CONVOLUTION, *_FUSED),
    ),
    Opcode(
        "fullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[K,N] + Bias[N]",
        (_DEST, _SRC, Role("Weights", IN), _BIAS),
    ),
    Opcode(
        "rowwisequantizedfullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[N,K] + Bias[N], a scale and offset for each output",
        (_DEST, _SRC, Role("Weights", IN), _BIAS, Role("Scales", IN), Role("Offsets", IN)),
    ),
    Opcode("matmul", "Dest[M,N] = LHS[M,K] * RHS[K,N]", _BINARY),
    Opcode(
        "batchedadd",
        "add Slice to every item of Batch",
        (_DEST, Role("Batch", IN), Role("Slice", IN)),
    ),
    Opcode("maxpool", "largest value of each window, NHWC", _UNARY, _POOL),
    Opcode(
        "maxpoolwithargmax",
        "largest value of each window and its index, NHWC",
        (*_UNARY, Role("Argmax", OUT)),
        _POOL,
    ),
    Opcode(
        "avgpool",
        "mean of each window, NHWC",
        _UNARY,
        (*_POOL, Attribute("CountIncludePads", _FLAG)),
    ),
    Opcode("relu", "max(x, 0)", _UNARY),
    Opcode(
        "clip", "limit to Min and Max", _UNARY, tuple(Attribute(n, _NUMBER) for n in ("Min", "Max"))
    ),
    Opcode("leakyrelu", "x, or Alpha * x below zero", _UNARY, (Attribute("Alpha", _NUMBER),)),
    Opcode("cpumaxsplat", "max(x, SplatValue)", _UNARY, (Attribute("SplatValue", _NUMBER),)),
    Opcode("elementadd", "LHS + RHS", _BINARY),
    Opcode("elementsub", "LHS - RHS", _BINARY),
    Opcode("elementmul", "LHS * RHS", _BINARY),
    Opcode("elementdiv", "LHS / RHS", _BINARY),
    Opcode("elementmax", "the larger of LHS and RHS", _BINARY),
    Opcode("elementmin", "the smaller of LHS and RHS", _BINARY),
    Opcode(
        "elementselect",
        "LHS where Cond holds, else RHS",
        (_DEST, Role("Cond", IN), Role("LHS", IN), Role("RHS", IN)),
    ),
    Opcode("elementcmplte", "LHS <= RHS", _BINARY),
    Opcode("splat", "fill with Value", (_DEST,), (Attribute("Value", _NUMBER),)),
    Opcode("touch", "declare written without writing", (_DEST,)),
    Opcode("quantize", "real to quantized", _UNARY),
    Opcode("dequantize", "quantized to real", _UNARY),
    Opcode("rescalequantized", "change scale and offset", _UNARY),
    Opcode("copy", "copy a whole tensor", _UNARY),
    Opcode(
        "transpose",
        "Dest dimension i is Src dimension Shuffle[i]",
        _UNARY,
        (Attribute("Shuffle", _INDICES),),
    ),
    Opcode(
        "inserttensor",
        "put Src into Dest at Offsets, Count times along Axis",
        (Role("Dest", INOUT), _SRC),
        (_OFFSETS, Attribute("Count", _COUNT), Attribute("Axis", _AXIS)),
    ),
    Opcode("extracttensor", "take the part of Src at Offsets", _UNARY, (_OFFSETS,)),
    Opcode("softmax", "softmax along dimension 1", _UNARY),
    Opcode(
        "localresponsenormalization",
        "normalise over neighbouring channels",
        (*_UNARY, Role("Scale", OUT)),
        (
            Attribute("HalfWindowSize", _integer(0)),
            *(Attribute(name, _NUMBER) for name in ("Alpha", "Beta", "K")),
        ),
    ),
    Opcode("sigmoid", "1 / (1 + exp(-x))", _UNARY),
    Opcode("tanh", "hyperbolic tangent", _UNARY),
    Opcode("intlookuptable", "Mapping[x]", (*_UNARY, Role("Mapping", IN))),
    Opcode(
        "batchedreduceadd",
        "sum along Axis",
        (_DEST, Role("Batch", IN)),
        (Attribute("Axis", _AXIS),),
    ),
    Opcode("resizenearest", "nearest-neighbour resize", _UNARY, (Attribute("Scale", _NUMBERS),)),
    Opcode(
        "debugprint",
        "print a tensor while running",
        (_SRC,),
        (Attribute("Format", _TEXT, required=False), Attribute("FileName", _TEXT, required=False)),
    ),
)

OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in _TABLE}
"""Every opcode by name."""
