"""Every LIR opcode: its operands in print order and its attributes.

This table is the one place that says what an instruction looks like; the parser, the verifier,
the hints in messages and the documentation derive from it. What only the host does is in
:mod:`nmpsim.lir.host_opcodes`, what is refused in :mod:`nmpsim.lir.refused_opcodes`; together these
are all instructions of Glow. What the types of the operands have to do with one another is in
:mod:`nmpsim.lir.rules`.
"""

from __future__ import annotations

from nmpsim.lir.host_opcodes import HOST_OPCODES
from nmpsim.lir.opcode import (
    ACTIVATION_ARGUMENTS,
    AXIS,
    BIAS,
    BINARY,
    COUNT,
    DEST,
    FLAG,
    IN,
    INDICES,
    INOUT,
    NUMBER,
    NUMBERS,
    OUT,
    PAIR,
    SRC,
    TEXT,
    TYPE,
    UNARY,
    WINDOW,
    Attribute,
    Opcode,
    Role,
    integer,
    integers,
    one_of,
)

_OFFSETS = Attribute("Offsets", INDICES)
_CONVOLUTION = (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR))
_FUSED = (
    Attribute("FusedActivation", one_of(*ACTIVATION_ARGUMENTS), required=False),
    Attribute("FusedActivationArgs", NUMBERS, required=False),
)
_POOL = (*WINDOW, Attribute("Layout", one_of(0), required=False))

_TABLE = (
    Opcode("allocactivation", "begin the life of a buffer", (), (Attribute("Ty", TYPE),)),
    Opcode("deallocactivation", "end the life of a buffer", (Role("Src", OUT),)),
    Opcode(
        "tensorview",
        "another type for (a part of) a buffer",
        (SRC,),
        (Attribute("Ty", TYPE), _OFFSETS),
    ),
    Opcode(
        "convolution",
        "2-D convolution, NHWC, filter OHWI",
        (DEST, SRC, Role("Filter", IN), BIAS),
        (*_CONVOLUTION, Attribute("Layout", one_of("NHWC"), required=False), *_FUSED),
    ),
    Opcode(
        "channelwisequantizedconvolution",
        "2-D convolution with a scale and offset for each output channel",
        (
            DEST,
            SRC,
            Role("Filter", IN),
            BIAS,
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
        (DEST, SRC, Role("Weights", IN), BIAS),
    ),
    Opcode(
        "rowwisequantizedfullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[N,K] + Bias[N], a scale and offset for each output",
        (DEST, SRC, Role("Weights", IN), BIAS, Role("Scales", IN), Role("Offsets", IN)),
    ),
    Opcode("matmul", "Dest[M,N] = LHS[M,K] * RHS[K,N]", BINARY),
    Opcode(
        "batchedadd",
        "add Slice to every item of Batch",
        (DEST, Role("Batch", IN), Role("Slice", IN)),
    ),
    Opcode("maxpool", "largest value of each window, NHWC", UNARY, _POOL),
    Opcode(
        "maxpoolwithargmax",
        "largest value of each window and its index, NHWC",
        (*UNARY, Role("Argmax", OUT)),
        _POOL,
    ),
    Opcode(
        "avgpool",
        "mean of each window, NHWC (Layout 0) or NTHWC (2)",
        UNARY,
        (
            Attribute("Kernels", integers("[height, width] or [time, height, width]", 1, 2, 3)),
            Attribute("Strides", integers("[height, width] or [time, height, width]", 1, 2, 3)),
            Attribute("Pads", integers("two for each dimension of the window", 0, 4, 6)),
            Attribute("Layout", one_of(0, 2), required=False),
            Attribute("CountIncludePads", FLAG),
        ),
    ),
    Opcode("relu", "max(x, 0)", UNARY),
    Opcode(
        "clip", "limit to Min and Max", UNARY, tuple(Attribute(n, NUMBER) for n in ("Min", "Max"))
    ),
    Opcode("leakyrelu", "x, or Alpha * x below zero", UNARY, (Attribute("Alpha", NUMBER),)),
    Opcode("cpumaxsplat", "max(x, SplatValue)", UNARY, (Attribute("SplatValue", NUMBER),)),
    Opcode("elementadd", "LHS + RHS", BINARY),
    Opcode("elementsub", "LHS - RHS", BINARY),
    Opcode("elementmul", "LHS * RHS", BINARY),
    Opcode("elementdiv", "LHS / RHS", BINARY),
    Opcode("elementmax", "the larger of LHS and RHS", BINARY),
    Opcode("elementmin", "the smaller of LHS and RHS", BINARY),
    Opcode(
        "elementselect",
        "LHS where Cond holds, else RHS",
        (DEST, Role("Cond", IN), Role("LHS", IN), Role("RHS", IN)),
    ),
    Opcode("elementcmplte", "LHS <= RHS", BINARY),
    Opcode("elementcmplt", "LHS < RHS", BINARY),
    Opcode("elementcmpeq", "LHS == RHS", BINARY),
    Opcode("elementcmpneq", "LHS != RHS", BINARY),
    Opcode("splat", "fill with Value", (DEST,), (Attribute("Value", NUMBER),)),
    Opcode("touch", "declare written without writing", (DEST,)),
    Opcode("quantize", "real to quantized", UNARY),
    Opcode("dequantize", "quantized to real", UNARY),
    Opcode("rescalequantized", "change scale and offset", UNARY),
    Opcode("copy", "copy a whole tensor", UNARY),
    Opcode(
        "transpose",
        "Dest dimension i is Src dimension Shuffle[i]",
        UNARY,
        (Attribute("Shuffle", INDICES),),
    ),
    Opcode(
        "inserttensor",
        "put Src into Dest at Offsets, Count times along Axis",
        (Role("Dest", INOUT), SRC),
        (_OFFSETS, Attribute("Count", COUNT), Attribute("Axis", AXIS)),
    ),
    Opcode("extracttensor", "take the part of Src at Offsets", UNARY, (_OFFSETS,)),
    Opcode("softmax", "softmax along dimension 1", UNARY),
    Opcode(
        "localresponsenormalization",
        "normalise over neighbouring channels",
        (*UNARY, Role("Scale", OUT)),
        (
            Attribute("HalfWindowSize", integer(0)),
            *(Attribute(name, NUMBER) for name in ("Alpha", "Beta", "K")),
        ),
    ),
    Opcode("sigmoid", "1 / (1 + exp(-x))", UNARY),
    Opcode("tanh", "hyperbolic tangent", UNARY),
    Opcode("intlookuptable", "Mapping[x]", (*UNARY, Role("Mapping", IN))),
    Opcode(
        "batchedreduceadd",
        "sum along Axis",
        (DEST, Role("Batch", IN)),
        (Attribute("Axis", AXIS),),
    ),
    Opcode("resizenearest", "nearest-neighbour resize", UNARY, (Attribute("Scale", NUMBERS),)),
    Opcode(
        "debugprint",
        "print a tensor while running",
        (SRC,),
        (Attribute("Format", TEXT, required=False), Attribute("FileName", TEXT, required=False)),
    ),
)

OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in (*_TABLE, *HOST_OPCODES)}
"""Every opcode that is executed, by name."""

__all__ = ["ACTIVATION_ARGUMENTS", "IN", "INOUT", "OPCODES", "OUT", "Opcode", "Role"]
