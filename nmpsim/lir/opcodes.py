"""Table of all LIR opcodes: kind, operands in print order, attributes, rules and formula.

This table is the one place that says what an instruction is; the parser, the verifier, the
compiler, the quantizer, the interpreter and the documentation derive from it. What only the host
does is in :mod:`nmpsim.lir.host_opcodes`, what is refused in :mod:`nmpsim.lir.refused_opcodes`;
together these are all instructions of Glow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nmpsim.kernels.hostops import functions
from nmpsim.kernels.hostops.tensors import (
    ANY,
    BOOL,
    FLOAT,
    INDEX,
    INT8,
    INT16,
    NARROW,
    NUMBER,
    QUANTIZED,
    REAL,
    AnyArray,
)
from nmpsim.kernels.hostops.tensors import BIAS as BIAS_DTYPES
from nmpsim.lir.constraints import (
    require_addend_elem,
    require_bias_elem,
    require_elem,
    require_elementwise,
    require_rank,
    require_same_elem,
    require_same_scale,
    require_same_shape,
    require_same_type,
    require_weights_elem,
)
from nmpsim.lir.host_opcodes import HOST_OPCODES
from nmpsim.lir.nodes import QUANTIZED_ELEMS
from nmpsim.lir.opcode import (
    ACTIVATION_ARGUMENTS,
    ANY_NUMBER,
    AXIS,
    BIAS,
    BINARY,
    COUNT,
    DEST,
    FLAG,
    IN,
    INDICES,
    INOUT,
    LINEAR_KINDS,
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
    Opcode,
    OpcodeKind,
    OperandRole,
    Profiles,
    make_attributes,
    make_choice_kind,
    make_input_roles,
    make_integer_kind,
    make_integer_list_kind,
    make_signatures,
)
from nmpsim.lir.shapes import (
    check_activation_arguments,
    check_average_dimensions,
    check_average_pads,
    check_convolution_shape,
    check_extraction,
    check_filter_shape,
    check_groups,
    check_insertion,
    check_limit_order,
    check_mapping_shape,
    check_permutation,
    check_pool_shape,
    check_reduced_shape,
    check_resized_shape,
    check_row_dimensions,
    check_slice_shape,
    check_view,
    make_product_shape_rule,
    require_channel_vectors,
)

_REAL_ELEMS = frozenset({"float", "float16", "bfloat16", "float64"})
_INDEX_ELEMS = frozenset({"index32", "index64"})
_FLOAT, _INDEX32, _BOOL = (frozenset({kind}) for kind in ("float", "index32", "bool"))

_OFFSETS = Attribute("Offsets", INDICES)
_CONVOLUTION = (*WINDOW, *make_attributes(Group=COUNT, Dilation=PAIR))
_FUSED = (
    Attribute("FusedActivation", make_choice_kind(*ACTIVATION_ARGUMENTS), required=False),
    Attribute("FusedActivationArgs", NUMBERS, required=False),
)
_POOL = (*WINDOW, Attribute("Layout", make_choice_kind(0), required=False))

_CONVOLUTION_RULES = (
    require_rank(4, "Dest", "Src", "Filter"),
    require_same_elem("Src", "Dest"),
    require_weights_elem("Src", "Filter"),
    require_bias_elem("Src", "Bias"),
    check_groups,
    check_filter_shape,
    require_channel_vectors("Filter", 0, "Bias"),
    check_convolution_shape,
    check_activation_arguments,
)
_PRODUCT_RULES = (
    require_rank(2, "Dest", "Src", "Weights"),
    require_same_elem("Src", "Dest"),
    require_weights_elem("Src", "Weights"),
)
_COMPARISON_RULES = (
    require_elem(_BOOL, "Dest"),
    require_same_elem("LHS", "RHS"),
    require_same_shape("Dest", "LHS", "RHS"),
)
_POOL_RULES = (
    require_rank(4, "Dest", "Src"),
    require_same_elem("Src", "Dest"),
    check_pool_shape,
    require_same_scale("Src", "Dest"),
)
_PAIR_RULES = require_elementwise("Dest", "LHS", "RHS")
_UNARY_RULES = require_elementwise("Src", "Dest")
_MOVE_RULES = (require_same_elem("Src", "Dest"), require_same_scale("Src", "Dest"))

_CHANNELS = (FLOAT, INDEX, FLOAT, INDEX)


def _same(x: AnyArray) -> AnyArray:
    """Return the value unchanged, for operations that only change its storage."""
    return x


def _pair(
    name: str,
    summary: str,
    formula: Callable[[AnyArray, AnyArray], AnyArray],
    run: str,
    *attributes: Attribute,
    kind: OpcodeKind = OpcodeKind.PAIR,
) -> Opcode:
    return Opcode(
        name,
        summary,
        BINARY,
        attributes,
        kind,
        _PAIR_RULES,
        formula,
        kinds=make_signatures(NUMBER),
        run=f"elementwise.{run}",
    )


def _comparison(name: str, summary: str, formula: np.ufunc, run: str) -> Opcode:
    return Opcode(
        name,
        summary,
        BINARY,
        rules=_COMPARISON_RULES,
        formula=formula,
        kinds=make_signatures(BOOL, NUMBER, NUMBER),
        run=f"elementwise.{run}",
    )


_TABLE = (
    Opcode(
        "allocactivation",
        "begin the life of a buffer",
        (),
        make_attributes(Ty=TYPE),
        OpcodeKind.NO_WORK,
    ),
    Opcode(
        "deallocactivation",
        "end the life of a buffer",
        (OperandRole("Src", OUT),),
        kind=OpcodeKind.NO_WORK,
    ),
    Opcode(
        "tensorview",
        "another type for (a part of) a buffer",
        (SRC,),
        (Attribute("Ty", TYPE), _OFFSETS),
        OpcodeKind.NO_WORK,
        (require_same_elem("Src", "Ty"), require_same_scale("Src", "Ty"), check_view),
    ),
    Opcode(
        "convolution",
        "2-D convolution, NHWC, filter OHWI",
        (DEST, SRC, *make_input_roles("Filter"), BIAS),
        (*_CONVOLUTION, Attribute("Layout", make_choice_kind("NHWC"), required=False), *_FUSED),
        OpcodeKind.CONVOLUTION,
        _CONVOLUTION_RULES,
        kinds=LINEAR_KINDS,
        run="convolution.convolution",
    ),
    Opcode(
        "channelwisequantizedconvolution",
        "2-D convolution with a scale and offset for each output channel",
        (
            DEST,
            SRC,
            OperandRole("Filter", IN, scales=("FilterScales", "FilterOffsets")),
            OperandRole("Bias", IN, scales=("BiasScales", "BiasOffsets")),
            *make_input_roles("FilterScales", "FilterOffsets", "BiasScales", "BiasOffsets"),
        ),
        (*_CONVOLUTION, *_FUSED),
        OpcodeKind.CONVOLUTION,
        (
            *_CONVOLUTION_RULES,
            require_elem(QUANTIZED_ELEMS, "Src"),
            require_elem(_FLOAT, "FilterScales", "BiasScales"),
            require_elem(_INDEX32, "FilterOffsets", "BiasOffsets"),
            require_channel_vectors(
                "Filter", 0, "FilterScales", "FilterOffsets", "BiasScales", "BiasOffsets"
            ),
        ),
        kinds=(
            *make_signatures(NARROW, NARROW, NARROW, BIAS_DTYPES, *_CHANNELS),
            *make_signatures(INT16, INT16, INT8, BIAS_DTYPES, *_CHANNELS),
        ),
        run="convolution.channelwise_convolution",
    ),
    Opcode(
        "fullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[K,N] + Bias[N]",
        (DEST, SRC, *make_input_roles("Weights"), BIAS),
        kind=OpcodeKind.FULLY_CONNECTED,
        rules=(
            *_PRODUCT_RULES,
            require_bias_elem("Src", "Bias"),
            make_product_shape_rule("Src", "Weights"),
            require_channel_vectors("Dest", 1, "Bias"),
        ),
        kinds=LINEAR_KINDS,
        run="linear.fully_connected",
    ),
    Opcode(
        "rowwisequantizedfullyconnected",
        "Dest[M,N] = Src[M,K] * Weights[N,K] + Bias[N], a scale and offset for each output",
        (
            DEST,
            SRC,
            OperandRole("Weights", IN, scales=("Scales", "Offsets")),
            OperandRole("Bias", IN, is_on_sums=True),
            *make_input_roles("Scales", "Offsets"),
        ),
        kind=OpcodeKind.FULLY_CONNECTED,
        rules=(
            *_PRODUCT_RULES,
            require_elem(QUANTIZED_ELEMS, "Src"),
            require_bias_elem("Src", "Bias"),
            require_elem(_FLOAT, "Scales"),
            require_elem(_INDEX32, "Offsets"),
            make_product_shape_rule("Src", "Weights", rows_are_outputs=True),
            require_channel_vectors("Dest", 1, "Bias", "Scales", "Offsets"),
        ),
        kinds=(
            *make_signatures(NARROW, NARROW, NARROW, BIAS_DTYPES, FLOAT, INDEX),
            *make_signatures(INT16, INT16, INT8, BIAS_DTYPES, FLOAT, INDEX),
        ),
        run="linear.rowwise_fully_connected",
    ),
    Opcode(
        "matmul",
        "Dest[M,N] = LHS[M,K] * RHS[K,N]",
        BINARY,
        kind=OpcodeKind.PRODUCT,
        rules=(
            require_rank(2, "Dest", "LHS", "RHS"),
            require_same_elem("LHS", "RHS", "Dest"),
            make_product_shape_rule("LHS", "RHS"),
        ),
        kinds=make_signatures(REAL),
        run="linear.matmul",
    ),
    Opcode(
        "batchedadd",
        "add Slice to every item of Batch",
        (DEST, *make_input_roles("Batch", "Slice")),
        kind=OpcodeKind.BATCHED_ADD,
        rules=(
            *require_elementwise("Batch", "Dest"),
            require_addend_elem("Batch", "Slice"),
            check_slice_shape,
        ),
        kinds=(*make_signatures(FLOAT), *make_signatures(NARROW, NARROW, QUANTIZED)),
        run="linear.batched_add",
    ),
    Opcode(
        "maxpool",
        "largest value of each window, NHWC",
        UNARY,
        _POOL,
        OpcodeKind.MAX_POOL,
        _POOL_RULES,
        kinds=make_signatures(REAL),
        run="pooling.max_pool",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "maxpoolwithargmax",
        "largest value of each window and its index, NHWC",
        (*UNARY, OperandRole("Argmax", OUT)),
        _POOL,
        rules=(
            *_POOL_RULES,
            require_elem(_INDEX_ELEMS, "Argmax"),
            require_same_shape("Dest", "Argmax"),
        ),
        kinds=make_signatures(REAL, REAL, INDEX),
        run="pooling.max_pool_with_argmax",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "avgpool",
        "mean of each window, NHWC (Layout 0) or NTHWC (2)",
        UNARY,
        (
            Attribute(
                "Kernels",
                make_integer_list_kind("[height, width] or [time, height, width]", 1, 2, 3),
            ),
            Attribute(
                "Strides",
                make_integer_list_kind("[height, width] or [time, height, width]", 1, 2, 3),
            ),
            Attribute(
                "Pads", make_integer_list_kind("two for each dimension of the window", 0, 4, 6)
            ),
            Attribute("Layout", make_choice_kind(0, 2), required=False),
            Attribute("CountIncludePads", FLAG),
            UNSIGNED,
            Attribute("Global", FLAG, required=False, is_extension=True),
        ),
        OpcodeKind.AVERAGE_POOL,
        (
            check_average_dimensions,
            require_same_elem("Src", "Dest"),
            check_pool_shape,
            check_average_pads,
        ),
        kinds=make_signatures(REAL),
        run="pooling.avg_pool",
        profiles=Profiles.EVERY,
    ),
    Opcode(
        "relu",
        "max(x, 0)",
        UNARY,
        kind=OpcodeKind.CLIP,
        rules=_UNARY_RULES,
        formula=functions.relu,
        limits=(0, None),
        kinds=make_signatures(REAL),
        run="activations.relu",
    ),
    Opcode(
        "clip",
        "limit to Min and Max",
        UNARY,
        make_attributes(Min=ANY_NUMBER, Max=ANY_NUMBER),
        OpcodeKind.CLIP,
        (*_UNARY_RULES, check_limit_order),
        functions.clip,
        limits=("Min", "Max"),
        kinds=make_signatures(REAL),
        run="activations.clip",
    ),
    Opcode(
        "leakyrelu",
        "x, or Alpha * x below zero",
        UNARY,
        make_attributes(Alpha=ANY_NUMBER),
        OpcodeKind.RESCALE,
        _UNARY_RULES,
        functions.leaky_relu,
        kinds=make_signatures(REAL),
        run="activations.leaky_relu",
    ),
    Opcode(
        "cpumaxsplat",
        "max(x, SplatValue)",
        UNARY,
        make_attributes(SplatValue=ANY_NUMBER),
        OpcodeKind.CLIP,
        require_same_type("Src", "Dest"),
        lambda x, low: np.maximum(x, float(low)),
        limits=("SplatValue", None),
        kinds=make_signatures(REAL),
        run="activations.max_splat",
    ),
    _pair("elementadd", "LHS + RHS", np.add, "element_add", UNSIGNED),
    _pair("elementsub", "LHS - RHS", np.subtract, "element_sub"),
    _pair("elementmul", "LHS * RHS", np.multiply, "element_mul", UNSIGNED),
    _pair("elementdiv", "LHS / RHS", functions.divide, "element_div", kind=OpcodeKind.HOST),
    _pair("elementmax", "the larger of LHS and RHS", np.maximum, "element_max"),
    _pair("elementmin", "the smaller of LHS and RHS", np.minimum, "element_min"),
    Opcode(
        "elementselect",
        "LHS where Cond holds, else RHS",
        (DEST, *make_input_roles("Cond", "LHS", "RHS")),
        rules=(require_elem(_BOOL, "Cond"), require_same_shape("Dest", "Cond"), *_PAIR_RULES),
        formula=np.where,
        kinds=make_signatures(NUMBER, BOOL, NUMBER, NUMBER),
        run="elementwise.element_select",
    ),
    _comparison("elementcmplte", "LHS <= RHS", np.less_equal, "element_cmp_lte"),
    _comparison("elementcmplt", "LHS < RHS", np.less, "element_cmp_lt"),
    _comparison("elementcmpeq", "LHS == RHS", np.equal, "element_cmp_eq"),
    _comparison("elementcmpneq", "LHS != RHS", np.not_equal, "element_cmp_neq"),
    Opcode(
        "splat",
        "fill with Value",
        (DEST,),
        make_attributes(Value=ANY_NUMBER),
        OpcodeKind.FILL,
        kinds=make_signatures(NUMBER | BOOL),
        run="movement.splat",
        profiles=Profiles.EVERY,
    ),
    Opcode(
        "touch",
        "declare written without writing",
        (DEST,),
        kind=OpcodeKind.NO_WORK,
        kinds=make_signatures(ANY),
        run="movement.touch",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "quantize",
        "real to quantized",
        UNARY,
        kind=OpcodeKind.CONVERSION,
        rules=(
            require_elem(_REAL_ELEMS, "Src"),
            require_elem(QUANTIZED_ELEMS, "Dest"),
            require_same_shape("Src", "Dest"),
        ),
        formula=_same,
        kinds=make_signatures(QUANTIZED, FLOAT),
        run="quantization.quantize",
        profiles=Profiles.EVERY,
    ),
    Opcode(
        "dequantize",
        "quantized to real",
        UNARY,
        kind=OpcodeKind.CONVERSION,
        rules=(
            require_elem(QUANTIZED_ELEMS, "Src"),
            require_elem(_REAL_ELEMS, "Dest"),
            require_same_shape("Src", "Dest"),
        ),
        formula=_same,
        kinds=make_signatures(FLOAT, QUANTIZED),
        run="quantization.dequantize",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "rescalequantized",
        "change scale and offset",
        UNARY,
        kind=OpcodeKind.RESCALE,
        # Glow's Src and Dest have one element kind; here layers of two widths may meet.
        rules=(require_elem(QUANTIZED_ELEMS, "Src", "Dest"), require_same_shape("Src", "Dest")),
        formula=_same,
        kinds=make_signatures(QUANTIZED, QUANTIZED, mixed=True),
        run="quantization.rescale_quantized",
    ),
    Opcode(
        "copy",
        "copy a whole tensor",
        UNARY,
        kind=OpcodeKind.MOVE,
        rules=require_same_type("Src", "Dest"),
        formula=_same,
        kinds=make_signatures(ANY),
        run="movement.copy",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "transpose",
        "Dest dimension i is Src dimension Shuffle[i]",
        UNARY,
        make_attributes(Shuffle=INDICES),
        OpcodeKind.MOVE,
        (*_MOVE_RULES, check_permutation),
        kinds=make_signatures(ANY),
        run="movement.transpose",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "inserttensor",
        "put Src into Dest at Offsets, Count times along Axis",
        (OperandRole("Dest", INOUT), SRC),
        (_OFFSETS, Attribute("Count", COUNT), Attribute("Axis", AXIS)),
        OpcodeKind.MOVE,
        (*_MOVE_RULES, check_insertion),
        kinds=make_signatures(ANY),
        run="movement.insert_tensor",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "extracttensor",
        "take the part of Src at Offsets",
        UNARY,
        (_OFFSETS,),
        OpcodeKind.MOVE,
        (*_MOVE_RULES, check_extraction),
        kinds=make_signatures(ANY),
        run="movement.extract_tensor",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "softmax",
        "softmax along dimension 1, of Beta * Src in TFLite's arithmetic",
        UNARY,
        (Attribute("Beta", ANY_NUMBER, required=False, is_extension=True),),
        rules=(*_UNARY_RULES, check_row_dimensions),
        kinds=make_signatures(FLOAT | NARROW),
        run="softmax.softmax",
    ),
    Opcode(
        "localresponsenormalization",
        "normalise over neighbouring channels",
        (*UNARY, OperandRole("Scale", OUT)),
        (
            Attribute("HalfWindowSize", make_integer_kind(0)),
            *make_attributes(Alpha=ANY_NUMBER, Beta=ANY_NUMBER, K=ANY_NUMBER),
        ),
        rules=(
            require_elem(_REAL_ELEMS, "Src"),
            require_rank(4, "Src"),
            *require_elementwise("Src", "Dest", "Scale"),
        ),
        kinds=make_signatures(FLOAT),
        run="normalization.local_response_normalization",
    ),
    Opcode(
        "sigmoid",
        "1 / (1 + exp(-x))",
        UNARY,
        kind=OpcodeKind.FUNCTION,
        rules=_UNARY_RULES,
        formula=functions.sigmoid,
        kinds=make_signatures(FLOAT),
    ),
    Opcode(
        "tanh",
        "hyperbolic tangent",
        UNARY,
        kind=OpcodeKind.FUNCTION,
        rules=_UNARY_RULES,
        formula=functions.tanh,
        kinds=make_signatures(FLOAT),
    ),
    Opcode(
        "intlookuptable",
        "Mapping[x]",
        (*UNARY, *make_input_roles("Mapping")),
        kind=OpcodeKind.LOOK_UP,
        rules=(
            require_elem(frozenset({"i8", "i16"}), "Src"),
            require_same_shape("Src", "Dest"),
            require_same_elem("Dest", "Mapping"),
            check_mapping_shape,
        ),
        kinds=make_signatures(NARROW),
        run="movement.int_lookup_table",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "batchedreduceadd",
        "sum along Axis",
        (DEST, *make_input_roles("Batch")),
        make_attributes(Axis=AXIS),
        rules=(require_same_elem("Batch", "Dest"), check_reduced_shape),
        kinds=make_signatures(NUMBER),
        run="linear.batched_reduce_add",
    ),
    Opcode(
        "resizenearest",
        "nearest-neighbour resize",
        UNARY,
        RESIZE,
        rules=(*_MOVE_RULES, check_resized_shape),
        kinds=make_signatures(ANY),
        run="resize.resize_nearest",
        profiles=Profiles.EXACT,
    ),
    Opcode(
        "debugprint",
        "print a tensor while running",
        (SRC,),
        (Attribute("Format", TEXT, required=False), Attribute("FileName", TEXT, required=False)),
        OpcodeKind.NO_WORK,
    ),
)

OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in (*_TABLE, *HOST_OPCODES)}
"""All opcodes that are executed, by name."""


def find_opcodes(*kinds: OpcodeKind) -> frozenset[str]:
    """Return the names of all operations of some kinds."""
    return frozenset(name for name, opcode in OPCODES.items() if opcode.kind in kinds)


NO_WORK = find_opcodes(OpcodeKind.NO_WORK)
"""Opcodes that compute nothing."""

__all__ = [
    "ACTIVATION_ARGUMENTS",
    "IN",
    "INOUT",
    "NO_WORK",
    "OPCODES",
    "OUT",
    "OpcodeKind",
    "Opcode",
    "OperandRole",
    "find_opcodes",
]
