"""Every LIR opcode: what kind it is, its operands in print order, attributes, rules and formula.

This table is the one place that says what an instruction is; the parser, the verifier, the
compiler, the quantizer, the interpreter and the documentation derive from it. What only the host
does is in :mod:`nmpsim.lir.host_opcodes`, what is refused in :mod:`nmpsim.lir.refused_opcodes`;
together these are all instructions of Glow.
"""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops import functions
from nmpsim.kernels.hostops.elementwise import divide
from nmpsim.kernels.hostops.tensors import AnyArray
from nmpsim.lir.constraints import (
    addend_elem,
    bias_elem,
    elem,
    pointwise,
    rank,
    same_elem,
    same_scale,
    same_shape,
    same_type,
    weights_elem,
)
from nmpsim.lir.host_opcodes import HOST_OPCODES
from nmpsim.lir.nodes import QUANTIZED_ELEMS
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
    RESIZE,
    SRC,
    TEXT,
    TYPE,
    UNARY,
    UNSIGNED,
    WINDOW,
    Attribute,
    Kind,
    Opcode,
    Role,
    inputs,
    integer,
    integers,
    one_of,
)
from nmpsim.lir.shapes import (
    activation_arguments,
    at_least_two_dimensions,
    average_dimensions,
    average_shape,
    convolution_shape,
    extracted,
    filter_shape,
    groups,
    inserted,
    limits_in_order,
    mapping_shape,
    mean_of_something,
    permutation,
    pool_shape,
    product,
    reduced_shape,
    resized,
    slice_shape,
    vectors,
    viewed,
)

_REAL_ELEMS = frozenset({"float", "float16", "bfloat16", "float64"})
_INDEX_ELEMS = frozenset({"index32", "index64"})
_FLOAT, _INDEX32, _BOOL = (frozenset({kind}) for kind in ("float", "index32", "bool"))

_OFFSETS = Attribute("Offsets", INDICES)
_CONVOLUTION = (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR))
_FUSED = (
    Attribute("FusedActivation", one_of(*ACTIVATION_ARGUMENTS), required=False),
    Attribute("FusedActivationArgs", NUMBERS, required=False),
)
_POOL = (*WINDOW, Attribute("Layout", one_of(0), required=False))

_CONVOLUTION_RULES = (
    rank(4, "Dest", "Src", "Filter"),
    same_elem("Src", "Dest"),
    weights_elem("Src", "Filter"),
    bias_elem("Src", "Bias"),
    groups,
    filter_shape,
    vectors("Filter", 0, "Bias"),
    convolution_shape,
    activation_arguments,
)
_PRODUCT_RULES = (
    rank(2, "Dest", "Src", "Weights"),
    same_elem("Src", "Dest"),
    weights_elem("Src", "Weights"),
)
_COMPARISON_RULES = (
    elem(_BOOL, "Dest"),
    same_elem("LHS", "RHS"),
    same_shape("Dest", "LHS", "RHS"),
)
_POOL_RULES = (
    rank(4, "Dest", "Src"),
    same_elem("Src", "Dest"),
    pool_shape,
    same_scale("Src", "Dest"),
)
_PAIR_RULES = pointwise("Dest", "LHS", "RHS")
_UNARY_RULES = pointwise("Src", "Dest")
_MOVE_RULES = (same_elem("Src", "Dest"), same_scale("Src", "Dest"))


def _same(x: AnyArray) -> AnyArray:
    """What only changes how a value is stored leaves the value."""
    return x


def _pair(name: str, summary: str, formula: np.ufunc, *attributes: Attribute) -> Opcode:
    return Opcode(name, summary, BINARY, attributes, Kind.PAIR, _PAIR_RULES, formula)


def _comparison(name: str, summary: str, formula: np.ufunc) -> Opcode:
    return Opcode(name, summary, BINARY, rules=_COMPARISON_RULES, formula=formula)


_TABLE = (
    Opcode(
        "allocactivation",
        "begin the life of a buffer",
        (),
        (Attribute("Ty", TYPE),),
        Kind.NO_WORK,
    ),
    Opcode("deallocactivation", "end the life of a buffer", (Role("Src", OUT),), kind=Kind.NO_WORK),
    Opcode(
        "tensorview",
        "another type for (a part of) a buffer",
        (SRC,),
        (Attribute("Ty", TYPE), _OFFSETS),
        Kind.NO_WORK,
        (same_elem("Src", "Ty"), same_scale("Src", "Ty"), viewed),
    ),
    Opcode(
        "convolution",
        "2-D convolution, NHWC, filter OHWI",
        (DEST, SRC, *inputs("Filter"), BIAS),
        (*_CONVOLUTION, Attribute("Layout", one_of("NHWC"), required=False), *_FUSED),
        Kind.CONVOLUTION,
        _CONVOLUTION_RULES,
    ),
    Opcode(
        "channelwisequantizedconvolution",
        "2-D convolution with a scale and offset for each output channel",
        (
            DEST,
            SRC,
            Role("Filter", IN, scales=("FilterScales", "FilterOffsets")),
            Role("Bias", IN, scales=("BiasScales", "BiasOffsets")),
            *inputs("FilterScales", "FilterOffsets", "BiasScales", "BiasOffsets"),
        ),
        (*_CONVOLUTION, *_FUSED),
        Kind.CONVOLUTION,
        (
            *_CONVOLUTION_RULES,
            elem(QUANTIZED_ELEMS, "Src"),
            elem(_FLOAT, "FilterScales", "BiasScales"),
            elem(_INDEX32, "FilterOffsets", "BiasOffsets"),
            vectors("Filter", 0, "FilterScales", "FilterOffsets", "BiasScales", "BiasOffsets"),
        ),
    ),
    Opcode(
        "fullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[K,N] + Bias[N]",
        (DEST, SRC, *inputs("Weights"), BIAS),
        kind=Kind.FULLY_CONNECTED,
        rules=(
            *_PRODUCT_RULES,
            bias_elem("Src", "Bias"),
            product("Src", "Weights"),
            vectors("Dest", 1, "Bias"),
        ),
    ),
    Opcode(
        "rowwisequantizedfullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[N,K] + Bias[N], a scale and offset for each output",
        (
            DEST,
            SRC,
            Role("Weights", IN, scales=("Scales", "Offsets")),
            Role("Bias", IN, is_on_sums=True),
            *inputs("Scales", "Offsets"),
        ),
        kind=Kind.FULLY_CONNECTED,
        rules=(
            *_PRODUCT_RULES,
            elem(QUANTIZED_ELEMS, "Src"),
            bias_elem("Src", "Bias"),
            elem(_FLOAT, "Scales"),
            elem(_INDEX32, "Offsets"),
            product("Src", "Weights", rows_are_outputs=True),
            vectors("Dest", 1, "Bias", "Scales", "Offsets"),
        ),
    ),
    Opcode(
        "matmul",
        "Dest[M,N] = LHS[M,K] * RHS[K,N]",
        BINARY,
        kind=Kind.PRODUCT,
        rules=(
            rank(2, "Dest", "LHS", "RHS"),
            same_elem("LHS", "RHS", "Dest"),
            product("LHS", "RHS"),
        ),
    ),
    Opcode(
        "batchedadd",
        "add Slice to every item of Batch",
        (DEST, *inputs("Batch", "Slice")),
        kind=Kind.BATCHED_ADD,
        rules=(*pointwise("Batch", "Dest"), addend_elem("Batch", "Slice"), slice_shape),
    ),
    Opcode(
        "maxpool", "largest value of each window, NHWC", UNARY, _POOL, Kind.MAX_POOL, _POOL_RULES
    ),
    Opcode(
        "maxpoolwithargmax",
        "largest value of each window and its index, NHWC",
        (*UNARY, Role("Argmax", OUT)),
        _POOL,
        rules=(*_POOL_RULES, elem(_INDEX_ELEMS, "Argmax"), same_shape("Dest", "Argmax")),
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
            UNSIGNED,
            Attribute("Global", FLAG, required=False, is_extension=True),
        ),
        Kind.AVERAGE_POOL,
        (average_dimensions, same_elem("Src", "Dest"), average_shape, mean_of_something),
    ),
    Opcode(
        "relu",
        "max(x, 0)",
        UNARY,
        kind=Kind.CLIP,
        rules=_UNARY_RULES,
        formula=functions.relu,
        limits=(0, None),
    ),
    Opcode(
        "clip",
        "limit to Min and Max",
        UNARY,
        tuple(Attribute(name, NUMBER) for name in ("Min", "Max")),
        Kind.CLIP,
        (*_UNARY_RULES, limits_in_order),
        functions.clip,
        limits=("Min", "Max"),
    ),
    Opcode(
        "leakyrelu",
        "x, or Alpha * x below zero",
        UNARY,
        (Attribute("Alpha", NUMBER),),
        Kind.RESCALE,
        _UNARY_RULES,
        functions.leaky_relu,
    ),
    Opcode(
        "cpumaxsplat",
        "max(x, SplatValue)",
        UNARY,
        (Attribute("SplatValue", NUMBER),),
        Kind.CLIP,
        same_type("Src", "Dest"),
        lambda x, low: np.maximum(x, float(low)),
        limits=("SplatValue", None),
    ),
    _pair("elementadd", "LHS + RHS", np.add, UNSIGNED),
    _pair("elementsub", "LHS - RHS", np.subtract),
    _pair("elementmul", "LHS * RHS", np.multiply, UNSIGNED),
    Opcode("elementdiv", "LHS / RHS", BINARY, rules=_PAIR_RULES, formula=divide),
    _pair("elementmax", "the larger of LHS and RHS", np.maximum),
    _pair("elementmin", "the smaller of LHS and RHS", np.minimum),
    Opcode(
        "elementselect",
        "LHS where Cond holds, else RHS",
        (DEST, *inputs("Cond", "LHS", "RHS")),
        rules=(elem(_BOOL, "Cond"), same_shape("Dest", "Cond"), *_PAIR_RULES),
        formula=np.where,
    ),
    _comparison("elementcmplte", "LHS <= RHS", np.less_equal),
    _comparison("elementcmplt", "LHS < RHS", np.less),
    _comparison("elementcmpeq", "LHS == RHS", np.equal),
    _comparison("elementcmpneq", "LHS != RHS", np.not_equal),
    Opcode("splat", "fill with Value", (DEST,), (Attribute("Value", NUMBER),), Kind.FILL),
    Opcode("touch", "declare written without writing", (DEST,), kind=Kind.NO_WORK),
    Opcode(
        "quantize",
        "real to quantized",
        UNARY,
        kind=Kind.CONVERSION,
        rules=(
            elem(_REAL_ELEMS, "Src"),
            elem(QUANTIZED_ELEMS, "Dest"),
            same_shape("Src", "Dest"),
        ),
        formula=_same,
    ),
    Opcode(
        "dequantize",
        "quantized to real",
        UNARY,
        kind=Kind.CONVERSION,
        rules=(
            elem(QUANTIZED_ELEMS, "Src"),
            elem(_REAL_ELEMS, "Dest"),
            same_shape("Src", "Dest"),
        ),
        formula=_same,
    ),
    Opcode(
        "rescalequantized",
        "change scale and offset",
        UNARY,
        kind=Kind.RESCALE,
        # Glow's Src and Dest have one element kind; here layers of two widths may meet.
        rules=(elem(QUANTIZED_ELEMS, "Src", "Dest"), same_shape("Src", "Dest")),
        formula=_same,
    ),
    Opcode(
        "copy",
        "copy a whole tensor",
        UNARY,
        kind=Kind.MOVE,
        rules=same_type("Src", "Dest"),
        formula=_same,
    ),
    Opcode(
        "transpose",
        "Dest dimension i is Src dimension Shuffle[i]",
        UNARY,
        (Attribute("Shuffle", INDICES),),
        Kind.MOVE,
        (*_MOVE_RULES, permutation),
    ),
    Opcode(
        "inserttensor",
        "put Src into Dest at Offsets, Count times along Axis",
        (Role("Dest", INOUT), SRC),
        (_OFFSETS, Attribute("Count", COUNT), Attribute("Axis", AXIS)),
        Kind.MOVE,
        (*_MOVE_RULES, inserted),
    ),
    Opcode(
        "extracttensor",
        "take the part of Src at Offsets",
        UNARY,
        (_OFFSETS,),
        Kind.MOVE,
        (*_MOVE_RULES, extracted),
    ),
    Opcode(
        "softmax",
        "softmax along dimension 1, of Beta * Src in TFLite's arithmetic",
        UNARY,
        (Attribute("Beta", NUMBER, required=False, is_extension=True),),
        rules=(*_UNARY_RULES, at_least_two_dimensions),
    ),
    Opcode(
        "localresponsenormalization",
        "normalise over neighbouring channels",
        (*UNARY, Role("Scale", OUT)),
        (
            Attribute("HalfWindowSize", integer(0)),
            *(Attribute(name, NUMBER) for name in ("Alpha", "Beta", "K")),
        ),
        rules=(elem(_REAL_ELEMS, "Src"), rank(4, "Src"), *pointwise("Src", "Dest", "Scale")),
    ),
    Opcode(
        "sigmoid",
        "1 / (1 + exp(-x))",
        UNARY,
        kind=Kind.FUNCTION,
        rules=_UNARY_RULES,
        formula=functions.sigmoid,
    ),
    Opcode(
        "tanh",
        "hyperbolic tangent",
        UNARY,
        kind=Kind.FUNCTION,
        rules=_UNARY_RULES,
        formula=functions.tanh,
    ),
    Opcode(
        "intlookuptable",
        "Mapping[x]",
        (*UNARY, *inputs("Mapping")),
        kind=Kind.LOOK_UP,
        rules=(
            elem(frozenset({"i8", "i16"}), "Src"),
            same_shape("Src", "Dest"),
            same_elem("Dest", "Mapping"),
            mapping_shape,
        ),
    ),
    Opcode(
        "batchedreduceadd",
        "sum along Axis",
        (DEST, *inputs("Batch")),
        (Attribute("Axis", AXIS),),
        rules=(same_elem("Batch", "Dest"), reduced_shape),
    ),
    Opcode(
        "resizenearest",
        "nearest-neighbour resize",
        UNARY,
        RESIZE,
        rules=(*_MOVE_RULES, resized),
    ),
    Opcode(
        "debugprint",
        "print a tensor while running",
        (SRC,),
        (Attribute("Format", TEXT, required=False), Attribute("FileName", TEXT, required=False)),
        Kind.NO_WORK,
    ),
)

OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in (*_TABLE, *HOST_OPCODES)}
"""Every opcode that is executed, by name."""


def opcodes_of(*kinds: Kind) -> frozenset[str]:
    """Names of all opcodes of these kinds."""
    return frozenset(name for name, opcode in OPCODES.items() if opcode.kind in kinds)


NO_WORK = opcodes_of(Kind.NO_WORK)
"""Instructions that compute nothing."""

__all__ = [
    "ACTIVATION_ARGUMENTS",
    "IN",
    "INOUT",
    "NO_WORK",
    "OPCODES",
    "OUT",
    "Kind",
    "Opcode",
    "Role",
    "opcodes_of",
]
