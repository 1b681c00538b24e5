"""Opcodes that the device has no unit for, as the host executes them: rows of the table."""

from __future__ import annotations

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.lir.opcode import (
    ANY_INTEGER,
    AXIS,
    BIAS,
    BINARY,
    COUNT,
    DEST,
    FLAG,
    INOUT,
    NUMBER,
    NUMBERS,
    OUT,
    PAIR,
    UNARY,
    WINDOW,
    Attribute,
    AttributeKind,
    Opcode,
    Role,
    inputs,
    integers,
)

_KINDS: dict[str, AttributeKind] = {"Divisor": COUNT, "SignFollowDivisor": FLAG}
"""Attributes of operations by formula that are not any number."""
_TRIPLE = integers("[time, height, width]", 1, 3)
_BATCH = (DEST, *inputs("Batch"))
_LOOK_UP = (DEST, *inputs("Data", "Indices"))
_SCALE = (Attribute("Scale", NUMBERS),)


def _by_formula(row: Elementwise) -> Opcode:
    attributes = tuple(Attribute(name, _KINDS.get(name, NUMBER)) for name in row.attributes)
    return Opcode(row.opcode, row.summary, (DEST, *inputs(*row.sources)), attributes)


HOST_OPCODES = (
    *(_by_formula(row) for row in ELEMENTWISE),
    Opcode(
        "topk",
        "the K largest values along the last dimension, and where they lay",
        (
            Role("Values", OUT),
            Role("Indices", OUT),
            *inputs("Input"),
            Role("Scratch", OUT, is_scratch=True),
        ),
        (Attribute("K", COUNT),),
    ),
    Opcode(
        "argmax",
        "index of the largest value along Axis",
        UNARY,
        (Attribute("Axis", AXIS), Attribute("KeepDims", FLAG)),
    ),
    Opcode(
        "argmin",
        "index of the smallest value along Axis",
        UNARY,
        (Attribute("Axis", AXIS), Attribute("KeepDims", FLAG)),
    ),
    Opcode(
        "gather",
        "slices of Data along dimension BatchDims",
        _LOOK_UP,
        (Attribute("BatchDims", AXIS),),
    ),
    Opcode(
        "gathernd",
        "slices of Data whose places are the last dimension of Indices",
        _LOOK_UP,
        (Attribute("BatchDims", AXIS),),
    ),
    Opcode(
        "gatherelements",
        "elements of Data, an index each along Dim",
        _LOOK_UP,
        (Attribute("Dim", AXIS),),
    ),
    Opcode(
        "gatherranges",
        "ranges of Data one after the other, and how long they are",
        (Role("Output", OUT), Role("Lengths", OUT), *inputs("Data", "Ranges")),
    ),
    Opcode(
        "scatterdata",
        "put or, Cumulative, add Slices into Data",
        (Role("Data", INOUT), *inputs("Indices", "Slices")),
        (Attribute("Cumulative", FLAG),),
    ),
    Opcode("nonzero", "places where Cond holds, then zeros", (DEST, *inputs("Cond"))),
    Opcode(
        "bucketize",
        "how many Boundaries are below a value",
        UNARY,
        (Attribute("Boundaries", NUMBERS),),
    ),
    Opcode(
        "batchonehot",
        "1 where Data is the value, else 0",
        (DEST, *inputs("Data", "Lengths", "Values")),
    ),
    Opcode(
        "nonmaxsuppression",
        "of boxes that overlap, the one with the best score",
        (
            Role("Indices", OUT),
            Role("NumberOfSelectedIndices", OUT),
            *inputs("Boxes", "Scores"),
        ),
        (
            Attribute("CenterPointBox", FLAG),
            Attribute("MaxOutputBoxesPerClass", COUNT),
            Attribute("IouThreshold", NUMBER),
            Attribute("ScoreThreshold", NUMBER),
            Attribute("IsTFVersion4", FLAG),
        ),
    ),
    Opcode(
        "batchedreducemin",
        "smallest value along Axes",
        _BATCH,
        (Attribute("Axes", integers("a list of dimensions", 0)),),
    ),
    Opcode(
        "batchedreducemax",
        "largest value along Axes",
        _BATCH,
        (Attribute("Axes", integers("a list of dimensions", 0)),),
    ),
    Opcode("batchedreduceprod", "product along Axis", _BATCH, (Attribute("Axis", AXIS),)),
    Opcode(
        "cumsum",
        "running sum along Dim",
        (DEST, *inputs("Input")),
        (
            Attribute("Dim", ANY_INTEGER),
            Attribute("Exclusive", FLAG),
            Attribute("Reverse", FLAG),
        ),
    ),
    Opcode("flip", "the other way round along Axis", UNARY, (Attribute("Axis", AXIS),)),
    Opcode(
        "spacetodepth",
        "pixels of a block to channels, NHWC",
        UNARY,
        (Attribute("BlockSize", COUNT),),
    ),
    Opcode("convertto", "another element kind", (Role("Result", OUT), *inputs("Input"))),
    Opcode("resizebilinear", "bilinear resize, NHWC", UNARY, _SCALE),
    Opcode("batchmatmul", "Dest[B,M,N] = LHS[B,M,K] * RHS[B,K,N]", BINARY),
    Opcode("logsoftmax", "logarithm of softmax along dimension 1", UNARY),
    Opcode(
        "batchnormalization",
        "(Src - Mean) / sqrt(Var + Epsilon) * Scale + Bias for each channel",
        (*UNARY, *inputs("Scale", "Bias", "Mean", "Var")),
        (
            Attribute("ChannelIdx", COUNT),
            Attribute("Epsilon", NUMBER),
            Attribute("Momentum", NUMBER),
        ),
    ),
    Opcode(
        "layernormalization",
        "normalise over the last dimensions",
        (*UNARY, *inputs("Scale", "Bias")),
        (Attribute("Epsilon", NUMBER),),
    ),
    Opcode("adaptiveavgpool", "mean of windows that share Src out evenly, NHWC", UNARY),
    Opcode(
        "convolution3d",
        "3-D convolution, NTHWC, filter OTHWI",
        (*UNARY, *inputs("Filter"), BIAS),
        (
            Attribute("Kernels", _TRIPLE),
            Attribute("Strides", _TRIPLE),
            Attribute("Pads", integers("[near, far, top, bottom, left, right]", 0, 6)),
            Attribute("Group", COUNT),
        ),
    ),
    Opcode(
        "convtranspose",
        "2-D transposed convolution, NHWC, filter OHWI",
        (*UNARY, *inputs("Filter"), BIAS),
        (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR)),
    ),
)
"""One row each; operations that are one formula have theirs in ``kernels.hostops.formulas``."""
