"""Table of opcodes for which the device has no unit; the host executes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np

from nmpsim.kernels.hostops import functions
from nmpsim.kernels.hostops.tensors import ANY, BOOL, FLOAT, INDEX, INT8, NUMBER, REAL, DtypeNames
from nmpsim.lir.constraints import (
    Rule,
    require_bias_elem,
    require_elem,
    require_elementwise,
    require_rank,
    require_same_elem,
    require_same_scale,
    require_same_shape,
)
from nmpsim.lir.host_shapes import (
    check_adaptive_pool_shape,
    check_arg_extreme_shape,
    check_axes,
    check_batch_product_shape,
    check_block_shape,
    check_boundaries,
    check_channel_parameters,
    check_gather_elements_shape,
    check_gather_nd_shape,
    check_gather_ranges_shape,
    check_gather_shape,
    check_nonzero_shape,
    check_normalized_shape,
    check_one_hot_shape,
    check_resize_factors,
    check_scatter_shape,
    check_suppression_shapes,
    check_top_k_shape,
    check_transposed_filter,
    check_transposed_groups,
    check_transposed_shape,
    require_axis,
)
from nmpsim.lir.opcode import (
    ANY_INTEGER,
    ANY_NUMBER,
    AXIS,
    BIAS,
    BINARY,
    COUNT,
    DEST,
    FLAG,
    INOUT,
    LINEAR_KINDS,
    NUMBERS,
    OUT,
    PAIR,
    RESIZE,
    UNARY,
    UNSIGNED,
    WINDOW,
    Attribute,
    Opcode,
    OperandRole,
    Profiles,
    Signature,
    make_attributes,
    make_input_roles,
    make_integer_list_kind,
    make_signatures,
)
from nmpsim.lir.shapes import (
    check_convolution_shape,
    check_filter_shape,
    check_groups,
    check_reduced_shape,
    check_resized_shape,
    check_row_dimensions,
    require_channel_vectors,
)

_TRIPLE = make_integer_list_kind("[time, height, width]", 1, 3)
_BATCH = (DEST, *make_input_roles("Batch"))
_ELEMS = {
    "float32": "float",
    "float16": "float16",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of an operand on the host -> element type."""


def _host_opcode(
    name: str,
    summary: str,
    operands: tuple[OperandRole, ...],
    attributes: tuple[Attribute, ...],
    kinds: tuple[Signature],
    *rules: Rule,
    run: str = "",
    formula: Callable[..., Any] | None = None,
    profiles: Profiles = Profiles.GLOW,
) -> Opcode:
    """Return a row whose first rules are the element types of its only signature."""
    row = Opcode(
        name,
        summary,
        operands,
        attributes,
        formula=formula,
        kinds=kinds,
        run=run,
        profiles=profiles,
    )
    (signature,) = row.signatures

    def read_first(indices: Iterable[int]) -> list[int]:
        return sorted(indices, key=lambda index: operands[index].kind == OUT)

    groups = [read_first(group) for group in signature.list_shared()]
    implied = {index for group in groups for index in group[1:]}
    types = [
        require_elem(frozenset(_ELEMS[name] for name in choice), operands[index].name)
        for index in read_first(range(len(operands)))
        if (choice := signature.operands[index]) != ANY and index not in implied
    ]
    same = [require_same_elem(*(operands[index].name for index in group)) for group in groups]
    return attrs.evolve(row, rules=(*types, *same, *rules))


def _elementwise(
    name: str,
    summary: str,
    formula: Callable[..., Any],
    choice: DtypeNames = REAL,
    sources: tuple[str, ...] = ("Src",),
    attributes: tuple[Attribute, ...] = (),
    result: DtypeNames | None = None,
) -> Opcode:
    """Return a row of a formula whose sources, and mostly the result, have one dtype of a choice.

    On index integers it computes in integers, as libjit does; the Interpreter takes some of them
    through float32, which is the same up to 2**24.
    """
    return _host_opcode(
        name,
        summary,
        (DEST, *make_input_roles(*sources)),
        attributes,
        make_signatures(choice if result is None else result, *(choice for _ in sources)),
        require_same_shape(*sources, "Dest"),
        formula=formula,
    )


def _look_up(name: str, summary: str, axis: str, shape: Rule, run: str) -> Opcode:
    """Return a row that moves data to Dest at indices along a dimension."""
    return _host_opcode(
        name,
        summary,
        (DEST, *make_input_roles("Data", "Indices")),
        (Attribute(axis, AXIS),),
        make_signatures(ANY, ANY, INDEX),
        require_same_scale("Data", "Dest"),
        require_axis(axis, "Data"),
        shape,
        run=run,
        profiles=Profiles.EXACT,
    )


def _arg_extreme(name: str, summary: str, run: str) -> Opcode:
    return _host_opcode(
        name,
        summary,
        UNARY,
        make_attributes(Axis=AXIS, KeepDims=FLAG),
        make_signatures(INDEX, REAL),
        require_axis("Axis", "Src"),
        check_arg_extreme_shape,
        run=run,
        profiles=Profiles.EXACT,
    )


def _reduction(name: str, summary: str, run: str) -> Opcode:
    return _host_opcode(
        name,
        summary,
        _BATCH,
        make_attributes(Axes=make_integer_list_kind("a list of dimensions", 0)),
        make_signatures(NUMBER),
        require_same_scale("Batch", "Dest"),
        check_axes,
        run=run,
        profiles=Profiles.EXACT,
    )


_PAIR = ("LHS", "RHS")
_BITS = INDEX | BOOL
_LEFT = make_attributes(LHS=ANY_NUMBER)

# fmt: off
_ELEMENTWISE = (
    _elementwise("elementneg", "-Src", np.negative, REAL | INDEX),
    _elementwise("elementabs", "absolute value", np.abs),
    _elementwise("elementsign", "1, 0 or -1", functions.sign),
    _elementwise("elementfloor", "round down", np.floor),
    _elementwise("elementceil", "round up", np.ceil),
    _elementwise("elementtruncate", "round towards zero", np.trunc),
    _elementwise("elementround", "round, halves to even", np.rint),
    _elementwise("elementsqrt", "square root", np.sqrt),
    _elementwise("elementrsqrt", "1 / sqrt(Src)", lambda x: 1 / np.sqrt(x)),
    _elementwise("elementreciprocal", "1 / Src", lambda x: 1 / x),
    _elementwise("elementsin", "sine", functions.sin),
    _elementwise("elementcos", "cosine", functions.cos),
    _elementwise("elementasin", "arc sine", functions.arcsin),
    _elementwise("elementacos", "arc cosine", functions.arccos),
    _elementwise("elementatan", "arc tangent", functions.arctan),
    _elementwise("elementerf", "error function", functions.erf),
    _elementwise("elementexp", "exponential", functions.exp, FLOAT),
    _elementwise("elementlog", "natural logarithm", functions.log, FLOAT),
    _elementwise("softplus", "log(1 + exp(Src))", functions.softplus, FLOAT),
    _elementwise("hardswish", "Src * clip(Src + 3, 0, 6) / 6", functions.hard_swish, FLOAT),
    _elementwise("elementisnan", "whether it is NaN", np.isnan, FLOAT, result=BOOL),
    _elementwise("elementnot", "not", np.logical_not, BOOL),
    _elementwise("elementbitwisenot", "each bit inverted", np.invert, INDEX),
    _elementwise(
        "modulo", "remainder by Divisor", functions.modulo, INDEX,
        attributes=make_attributes(Divisor=COUNT, SignFollowDivisor=FLAG),
    ),
    _elementwise(
        "nantonum", "Src with NaN and infinities replaced", functions.replace_not_finite, FLOAT,
        attributes=make_attributes(Nan=ANY_NUMBER, PosInf=ANY_NUMBER, NegInf=ANY_NUMBER),
    ),
    _elementwise(
        "elementmulconst", "LHS * RHS, LHS a number", lambda x, factor: x * factor, FLOAT,
        ("RHS",), _LEFT,
    ),
    _elementwise(
        "elementrsubconst", "LHS - RHS, LHS a number", lambda x, base: base - x, FLOAT,
        ("RHS",), _LEFT,
    ),
    _elementwise("elementpow", "LHS to the power of RHS", functions.power, REAL, _PAIR),
    _elementwise(
        "elementfmod", "remainder of LHS / RHS, with the sign of LHS", np.fmod, FLOAT | INDEX,
        _PAIR,
    ),
    _elementwise("elementand", "LHS and RHS", np.logical_and, BOOL, _PAIR),
    _elementwise("elementor", "LHS or RHS", np.logical_or, BOOL, _PAIR),
    _elementwise("elementxor", "either LHS or RHS", np.logical_xor, BOOL, _PAIR),
    _elementwise("elementbitwiseand", "LHS and RHS bit by bit", np.bitwise_and, _BITS, _PAIR),
    _elementwise("elementbitwiseor", "LHS or RHS bit by bit", np.bitwise_or, _BITS, _PAIR),
    _elementwise("elementbitwisexor", "LHS xor RHS bit by bit", np.bitwise_xor, _BITS, _PAIR),
)
# fmt: on
"""Operations that are one formula.

It works in the dtype of its arguments: in float32 each step rounds as in C++, float64 is the real
function.
"""

_PLAIN = FLOAT | INDEX | BOOL | {"float16"}

HOST_OPCODES = (
    *_ELEMENTWISE,
    _host_opcode(
        "topk",
        "the K largest values along the last dimension, and where they lay",
        (
            OperandRole("Values", OUT),
            OperandRole("Indices", OUT),
            *make_input_roles("Input"),
            OperandRole("Scratch", OUT, is_scratch=True),
        ),
        make_attributes(K=COUNT),
        make_signatures(REAL, INDEX, REAL, ANY),
        require_same_scale("Input", "Values"),
        check_top_k_shape,
        run="indexing.top_k",
        profiles=Profiles.EXACT,
    ),
    _arg_extreme("argmax", "index of the largest value along Axis", "indexing.arg_max"),
    _arg_extreme("argmin", "index of the smallest value along Axis", "indexing.arg_min"),
    _look_up(
        "gather",
        "slices of Data along dimension BatchDims",
        "BatchDims",
        check_gather_shape,
        "indexing.gather",
    ),
    _look_up(
        "gathernd",
        "slices of Data whose places are the last dimension of Indices",
        "BatchDims",
        check_gather_nd_shape,
        "indexing.gather_nd",
    ),
    _look_up(
        "gatherelements",
        "elements of Data, an index each along Dim",
        "Dim",
        check_gather_elements_shape,
        "indexing.gather_elements",
    ),
    _host_opcode(
        "gatherranges",
        "ranges of Data one after the other, and how long they are",
        (
            OperandRole("Output", OUT),
            OperandRole("Lengths", OUT),
            *make_input_roles("Data", "Ranges"),
        ),
        (),
        make_signatures(ANY, INDEX, ANY, INDEX),
        require_same_scale("Data", "Output"),
        require_rank(1, "Data", "Output"),
        check_gather_ranges_shape,
        run="indexing.gather_ranges",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "scatterdata",
        "put or, Cumulative, add Slices into Data",
        (OperandRole("Data", INOUT), *make_input_roles("Indices", "Slices")),
        make_attributes(Cumulative=FLAG),
        make_signatures(NUMBER, INDEX, NUMBER),
        check_scatter_shape,
        run="indexing.scatter_data",
    ),
    _host_opcode(
        "nonzero",
        "places where Cond holds, then zeros",
        (DEST, *make_input_roles("Cond")),
        (),
        make_signatures(INDEX, BOOL),
        check_nonzero_shape,
        run="indexing.non_zero",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "bucketize",
        "how many Boundaries are below a value",
        UNARY,
        make_attributes(Boundaries=NUMBERS),
        make_signatures(INDEX, FLOAT),
        require_same_shape("Src", "Dest"),
        check_boundaries,
        run="indexing.bucketize",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "batchonehot",
        "1 where Data is the value, else 0",
        (DEST, *make_input_roles("Data", "Lengths", "Values")),
        (),
        make_signatures(NUMBER, NUMBER, INDEX, NUMBER),
        require_rank(2, "Data", "Dest"),
        require_rank(1, "Lengths", "Values"),
        check_one_hot_shape,
        run="indexing.batch_one_hot",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "nonmaxsuppression",
        "of boxes that overlap, the one with the best score",
        (
            OperandRole("Indices", OUT),
            OperandRole("NumberOfSelectedIndices", OUT),
            *make_input_roles("Boxes", "Scores"),
        ),
        make_attributes(
            CenterPointBox=FLAG,
            MaxOutputBoxesPerClass=COUNT,
            IouThreshold=ANY_NUMBER,
            ScoreThreshold=ANY_NUMBER,
            IsTFVersion4=FLAG,
        ),
        make_signatures(INDEX, INDEX, FLOAT, FLOAT),
        check_suppression_shapes,
        run="suppression.non_max_suppression",
        profiles=Profiles.EXACT,
    ),
    _reduction("batchedreducemin", "smallest value along Axes", "reductions.batched_reduce_min"),
    _reduction("batchedreducemax", "largest value along Axes", "reductions.batched_reduce_max"),
    _host_opcode(
        "batchedreduceprod",
        "product along Axis",
        _BATCH,
        make_attributes(Axis=AXIS),
        make_signatures(FLOAT | INDEX),
        require_axis("Axis", "Batch"),
        check_reduced_shape,
        run="reductions.batched_reduce_prod",
    ),
    _host_opcode(
        "cumsum",
        "running sum along Dim",
        (DEST, *make_input_roles("Input")),
        make_attributes(Dim=ANY_INTEGER, Exclusive=FLAG, Reverse=FLAG),
        make_signatures(FLOAT | INDEX),
        require_same_scale("Input", "Dest"),
        require_same_shape("Input", "Dest"),
        require_axis("Dim", "Input", beyond=1),
        run="reductions.cum_sum",
    ),
    _host_opcode(
        "flip",
        "the other way round along Axis",
        UNARY,
        make_attributes(Axis=AXIS),
        make_signatures(ANY),
        require_same_scale("Src", "Dest"),
        require_same_shape("Src", "Dest"),
        require_axis("Axis", "Src"),
        run="movement.flip",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "spacetodepth",
        "pixels of a block to channels, NHWC",
        UNARY,
        make_attributes(BlockSize=COUNT),
        make_signatures(ANY),
        require_same_scale("Src", "Dest"),
        require_rank(4, "Src", "Dest"),
        check_block_shape,
        run="movement.space_to_depth",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "convertto",
        "another element kind",
        (OperandRole("Result", OUT), *make_input_roles("Input")),
        (),
        make_signatures(_PLAIN, _PLAIN, mixed=True),
        require_same_shape("Input", "Result"),
        run="movement.convert_to",
        profiles=Profiles.EXACT,
    ),
    _host_opcode(
        "resizebilinear",
        "bilinear resize, NHWC",
        UNARY,
        (*RESIZE, UNSIGNED),
        make_signatures(NUMBER),
        require_same_scale("Src", "Dest"),
        require_rank(4, "Src", "Dest"),
        check_resize_factors,
        check_resized_shape,
        run="resize.resize_bilinear",
    ),
    _host_opcode(
        "batchmatmul",
        "Dest[B,M,N] = LHS[B,M,K] * RHS[B,K,N]",
        BINARY,
        (),
        make_signatures(FLOAT),
        require_rank(3, "LHS", "RHS", "Dest"),
        check_batch_product_shape,
        run="linear.batch_matmul",
    ),
    _host_opcode(
        "logsoftmax",
        "logarithm of softmax along dimension 1",
        UNARY,
        (),
        make_signatures(FLOAT),
        require_same_shape("Src", "Dest"),
        check_row_dimensions,
        run="softmax.log_softmax",
    ),
    Opcode(
        "batchnormalization",
        "(Src - Mean) / sqrt(Var + Epsilon) * Scale + Bias for each channel",
        (*UNARY, *make_input_roles("Scale", "Bias", "Mean", "Var")),
        make_attributes(ChannelIdx=COUNT, Epsilon=ANY_NUMBER, Momentum=ANY_NUMBER),
        rules=(
            require_elem(frozenset({"float", "i8"}), "Src"),
            require_elem(frozenset({"float"}), "Scale", "Bias", "Mean", "Var"),
            *require_elementwise("Src", "Dest"),
            check_channel_parameters,
        ),
        kinds=(*make_signatures(FLOAT), *make_signatures(INT8, INT8, FLOAT, FLOAT, FLOAT, FLOAT)),
        run="normalization.batch_normalization",
    ),
    _host_opcode(
        "layernormalization",
        "normalise over the last dimensions",
        (*UNARY, *make_input_roles("Scale", "Bias")),
        make_attributes(Epsilon=ANY_NUMBER),
        make_signatures(FLOAT),
        require_same_shape("Src", "Dest"),
        require_same_shape("Scale", "Bias"),
        check_normalized_shape,
        run="normalization.layer_normalization",
    ),
    _host_opcode(
        "adaptiveavgpool",
        "mean of windows that share Src out evenly, NHWC",
        UNARY,
        (),
        make_signatures(FLOAT | INT8),
        require_rank(4, "Src", "Dest"),
        check_adaptive_pool_shape,
        run="pooling.adaptive_avg_pool",
    ),
    Opcode(
        "convolution3d",
        "3-D convolution, NTHWC, filter OTHWI",
        (*UNARY, *make_input_roles("Filter"), BIAS),
        make_attributes(
            Kernels=_TRIPLE,
            Strides=_TRIPLE,
            Pads=make_integer_list_kind("[near, far, top, bottom, left, right]", 0, 6),
            Group=COUNT,
        ),
        rules=(
            require_elem(frozenset({"float", "i8", "i16"}), "Src"),
            require_rank(5, "Src", "Dest", "Filter"),
            require_same_elem("Src", "Dest", "Filter"),
            require_bias_elem("Src", "Bias"),
            check_groups,
            check_filter_shape,
            require_channel_vectors("Filter", 0, "Bias"),
            check_convolution_shape,
        ),
        kinds=LINEAR_KINDS[:2],
        run="convolution.convolution_3d",
    ),
    _host_opcode(
        "convtranspose",
        "2-D transposed convolution, NHWC, filter OHWI",
        (*UNARY, *make_input_roles("Filter"), BIAS),
        (*WINDOW, *make_attributes(Group=COUNT, Dilation=PAIR)),
        make_signatures(FLOAT),
        require_rank(4, "Src", "Dest", "Filter"),
        check_transposed_groups,
        check_transposed_filter,
        check_transposed_shape,
        run="convolution.transposed_convolution",
    ),
)
"""All operations of the host alone."""
